// SPDX-License-Identifier: Apache-2.0
//! YAML to a tree in which each node knows its place in the file.
//!
//! Input: the text of a file of one document. Output: its tree, or the one [`ConfigError`] at which YAML itself ends. Which keys and values make
//! sense is decided by the reader of the tree, so that it can report all mistakes at once; that is also why repeated keys are kept here.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{DuplicateKeyPolicy, Location, Span, Spanned};

use super::{ConfigError, Place};

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Place,
    /// Where the value itself is: elsewhere than its place where that is an alias.
    span: Span,
}

/// The shapes that YAML has.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// As it is written, because what counts as a number is not the reader's choice alone: `1.10` is no address, and `0x10` no AS number.
    Number(String),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file; keys may repeat.
    Map(Vec<(Node, Node)>),
}

/// Reads one document.
pub(super) fn parse(text: &str) -> Result<Node, ConfigError> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    };
    let mut tree: Node = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error.location().map(place);
        ConfigError { place, key: String::new(), message: message(&error, text) }
    })?;
    tree.spell(text);
    Ok(tree)
}

/// The parser's words without the place, which stands in front already.
fn message(error: &serde_saphyr::Error, text: &str) -> String {
    let mut error = error.without_snippet();
    while let serde_saphyr::Error::AliasError { error: aliased, .. } = error {
        error = aliased;
    }
    if let serde_saphyr::Error::MultipleDocuments { .. } = error {
        return "a second YAML document begins here, expected one document".to_owned();
    }
    if let serde_saphyr::Error::Budget { breach, .. } = error {
        return too_much(breach);
    }
    let words = error.to_string();
    let Some(location) = error.location() else { return format!("not valid YAML: {words}") };
    let words = words.strip_suffix(&format!(" at line {}, column {}", location.line(), location.column())).unwrap_or(&words);
    let line = usize::try_from(location.line().saturating_sub(1)).ok().and_then(|index| text.lines().nth(index));
    let hint = if line.is_some_and(|line| line.contains("${")) { " (inside { } and [ ] a ${NAME} needs quotes)" } else { "" };
    format!("not valid YAML: {words}{hint}")
}

/// The parser ends where a small text would become a tree without end.
fn too_much(breach: &BudgetBreach) -> String {
    match breach {
        BudgetBreach::Depth { depth } => format!("expected lists and maps within each other less deep than {depth} levels"),
        BudgetBreach::InputBytes { input_bytes } => format!("expected a file of less than {input_bytes} octets"),
        _ => "expected a file whose aliases stand for little: written out, this one is too large".to_owned(),
    }
}

fn place(location: Location) -> Place {
    Place { line: location.line(), column: location.column() }
}

impl Node {
    /// Numbers as they are in the text: the parser has made a value of them.
    fn spell(&mut self, text: &str) {
        match &mut self.value {
            Value::Number(number) => {
                if let Some(written) = written(text, self.span) {
                    written.clone_into(number);
                }
            }
            Value::List(nodes) => nodes.iter_mut().for_each(|node| node.spell(text)),
            Value::Map(entries) => entries.iter_mut().flat_map(|(key, value)| [key, value]).for_each(|node| node.spell(text)),
            Value::Null | Value::Bool(_) | Value::Text(_) => {}
        }
    }
}

fn written(text: &str, span: Span) -> Option<&str> {
    let start = usize::try_from(span.byte_offset()?).ok()?;
    text.get(start..start.checked_add(usize::try_from(span.byte_len()?).ok()?)?).map(str::trim)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value, place: place(spanned.referenced), span: spanned.defined.span() })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Value::Map(map))
    }
}
