// SPDX-License-Identifier: Apache-2.0
//! Label selectors in the words of `kubectl get -l`, as far as they ask about equality and presence.
//!
//! Input: text such as `team=enm,tier!=test,!legacy`. Output: a [`LabelSelector`], whose requirements all have to hold.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::quoted;

/// See the module. Prints as it is read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Requirement {
    Is(String, String),
    IsNot(String, String),
    Present(String),
    Absent(String),
}

impl LabelSelector {
    /// Whether these labels meet all requirements.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Is(key, value) => labels.get(key) == Some(value),
            Requirement::IsNot(key, value) => labels.get(key) != Some(value),
            Requirement::Present(key) => labels.contains_key(key),
            Requirement::Absent(key) => !labels.contains_key(key),
        })
    }

    /// Whether no labels meet both.
    #[must_use]
    pub fn excludes(&self, other: &Self) -> bool {
        self.0.iter().any(|one| other.0.iter().any(|another| one.contradicts(another) || another.contradicts(one)))
    }
}

impl Requirement {
    fn contradicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Is(key, value), Self::Is(other, another)) => key == other && value != another,
            (Self::Is(key, value), Self::IsNot(other, excluded)) => key == other && value == excluded,
            (Self::Is(key, _) | Self::Present(key), Self::Absent(other)) => key == other,
            _ => false,
        }
    }
}

impl FromStr for LabelSelector {
    type Err = String;

    /// The error is in words, and begins with what was found.
    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(|part| requirement(part.trim())).collect::<Result<_, _>>().map(Self)
    }
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let wrong = || format!("{} is none of KEY=VALUE, KEY!=VALUE, KEY and !KEY", quoted(text));
    let (make, key, value): (fn(String, String) -> Requirement, _, _) = if let Some((key, value)) = text.split_once("!=") {
        (Requirement::IsNot, key, value)
    } else if let Some((key, value)) = text.split_once('=') {
        (Requirement::Is, key, value.strip_prefix('=').unwrap_or(value))
    } else if let Some(key) = text.strip_prefix('!') {
        (|key, _| Requirement::Absent(key), key, "")
    } else {
        (|key, _| Requirement::Present(key), text, "")
    };
    let (key, value) = (key.trim(), value.trim());
    if is_label_key(key) && is_label_value(value) { Ok(make(key.to_owned(), value.to_owned())) } else { Err(wrong()) }
}

/// A prefix that is a DNS name and a slash, or none, and a name.
pub(crate) fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let dns = |prefix: &str| prefix.len() <= 253 && prefix.split('.').all(is_label_value_of_dns);
    prefix.is_none_or(dns) && !name.is_empty() && is_label_value(name)
}

fn is_label_value_of_dns(text: &str) -> bool {
    !text.is_empty() && is_label_value(text) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

/// At most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends; or nothing.
pub(crate) fn is_label_value(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= 63 && ends.into_iter().flatten().all(plain) && text.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'_' | b'.'))
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            match requirement {
                Requirement::Is(key, value) => write!(f, "{key}={value}")?,
                Requirement::IsNot(key, value) => write!(f, "{key}!={value}")?,
                Requirement::Present(key) => f.write_str(key)?,
                Requirement::Absent(key) => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requirements_have_to_hold() {
        let labels = BTreeMap::from([("team".to_owned(), "enm".to_owned()), ("vipherald.io/x".to_owned(), String::new())]);
        for (selector, expected) in [
            ("team=enm", true),
            ("team==enm", true),
            ("team=other", false),
            ("team!=other, vipherald.io/x", true),
            ("absent!=x", true),
            ("!absent,team", true),
            ("!team", false),
            ("vipherald.io/x=", true),
        ] {
            assert_eq!(selector.parse::<LabelSelector>().unwrap().matches(&labels), expected, "{selector}");
        }
    }

    #[test]
    fn two_exclude_each_other_where_no_labels_meet_both() {
        let selector = |text: &str| text.parse::<LabelSelector>().unwrap();
        for (one, other, expected) in [
            ("rack=a", "rack=b", true),
            ("rack=a", "rack!=a", true),
            ("rack=a", "!rack", true),
            ("rack", "!rack", true),
            ("team=x,rack=a", "rack=b,!team2", true),
            ("rack=a", "rack=a", false),
            ("rack=a", "row=b", false),
            ("rack!=a", "rack!=b", false),
            ("rack!=a", "!rack", false),
            ("rack", "rack=a", false),
        ] {
            assert_eq!(selector(one).excludes(&selector(other)), expected, "{one} and {other}");
            assert_eq!(selector(other).excludes(&selector(one)), expected, "{other} and {one}");
        }
    }

    #[test]
    fn it_prints_as_it_is_read_and_refuses_the_rest() {
        let text = "a=b,c!=d,e,!f";
        assert_eq!(text.parse::<LabelSelector>().unwrap().to_string(), text);
        for wrong in ["", "a b", "a in (b)", "=x", "a=b=c", "a,", "X/a=b", "a=-"] {
            assert!(wrong.parse::<LabelSelector>().is_err(), "{wrong}");
        }
    }
}
