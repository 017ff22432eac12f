// SPDX-License-Identifier: Apache-2.0
//! Walks the tree of a file, key by key, and gathers every mistake on the way.
//!
//! A value that cannot be read is noted with its place and replaced by a harmless one, so that the walk goes on; whoever asked looks at the errors
//! at the end. `${NAME}` is replaced in single values after YAML has been parsed, so that a variable can never bring structure into the file.

use super::keys;
use super::tree::{Node, Value};
use super::{ConfigError, Environment, Place};
use crate::spelling::nearest;

/// What is expected of a value, and how it is read.
pub(super) struct Kind<T> {
    /// Follows "expected ".
    pub(super) expected: &'static str,
    /// Whether YAML may take it for a number.
    pub(super) numeric: bool,
    /// From the text of the value, variables replaced.
    pub(super) parse: fn(&str) -> Result<T, Refusal>,
}

impl<T> Kind<T> {
    /// The value of this text, variables replaced; or what is wrong with it.
    pub(super) fn read(&self, text: &str) -> Result<T, String> {
        let found = || format!("expected {}, found {}", self.expected, quote(text));
        (self.parse)(text).map_err(|refusal| match refusal {
            Refusal::Unexpected => found(),
            Refusal::Because(reason) => format!("{}: {reason}", found()),
        })
    }
}

/// `true` or `false` out of a variable, which holds text.
const FLAG: Kind<bool> = Kind { expected: "true or false", numeric: false, parse: |text| text.parse().ok().ok_or(Refusal::Unexpected) };

/// Why a value is none of its kind.
pub(super) enum Refusal {
    /// What was expected and what was found say it all.
    Unexpected,
    /// Said after both.
    Because(String),
}

/// A map of the file whose keys are known ones.
pub(super) struct Section<'n> {
    path: String,
    place: Place,
    entries: Vec<(&'n str, &'n Node)>,
    /// It is no map at all, so that nothing is missing in it.
    broken: bool,
}

impl<'n> Section<'n> {
    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Whether this word is there instead of something else.
    pub(super) fn says(&self, name: &str, word: &str) -> bool {
        matches!(self.find(name), Some(Node { value: Value::Text(text), .. }) if text == word)
    }

    /// Whether a list with nothing in it is there.
    pub(super) fn is_empty_list(&self, name: &str) -> bool {
        matches!(self.find(name), Some(Node { value: Value::List(elements), .. }) if elements.is_empty())
    }

    pub(super) fn key(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// Where the value of `name` stands; the section where it is absent.
    pub(super) fn place_of(&self, name: &str) -> Place {
        self.find(name).map_or(self.place, |node| node.place)
    }

    /// The keys that are here, in the order of the file.
    pub(super) fn names(&self) -> impl Iterator<Item = &'n str> {
        self.entries.iter().map(|(name, _)| *name)
    }

    fn find(&self, name: &str) -> Option<&'n Node> {
        self.entries.iter().find(|(key, _)| *key == name).map(|(_, node)| *node)
    }
}

/// One element of a list and its path.
pub(super) struct Element<'n> {
    path: String,
    node: &'n Node,
}

impl Element<'_> {
    /// Where it stands.
    pub(super) const fn place(&self) -> Place {
        self.node.place
    }

    /// Its list and its number in it.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

/// Gathers the mistakes.
pub(super) struct Reader<'e> {
    environment: &'e Environment,
    errors: Vec<ConfigError>,
}

impl<'e> Reader<'e> {
    pub(super) fn new(environment: &'e Environment) -> Self {
        Self { environment, errors: Vec::new() }
    }

    /// In the order of the file.
    pub(super) fn into_errors(mut self) -> Vec<ConfigError> {
        self.errors.sort_by_key(|error| error.place);
        self.errors
    }

    pub(super) fn report(&mut self, place: Place, key: String, message: String) {
        self.errors.push(ConfigError { place: Some(place), key, message });
    }

    /// The whole file as a section.
    pub(super) fn root<'n>(&mut self, node: &'n Node) -> Section<'n> {
        self.map(String::new(), node)
    }

    /// The section below `name`; an empty one where it is absent.
    pub(super) fn section<'n>(&mut self, parent: &Section<'n>, name: &str) -> Section<'n> {
        let path = parent.key(name);
        match parent.find(name) {
            Some(node) => self.map(path, node),
            None => Section { path, place: parent.place, entries: Vec::new(), broken: parent.broken },
        }
    }

    /// An element that is a map.
    pub(super) fn element<'n>(&mut self, element: &Element<'n>) -> Section<'n> {
        self.map(element.path.clone(), element.node)
    }

    fn map<'n>(&mut self, path: String, node: &'n Node) -> Section<'n> {
        let mut section = Section { path, place: node.place, entries: Vec::new(), broken: false };
        let entries = match &node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            other => {
                let known = keys::children(&section.path).join(", ");
                self.report(node.place, section.path.clone(), format!("expected a map with the keys {known}, found {}", describe(other)));
                section.broken = true;
                &[]
            }
        };
        for (key, value) in entries {
            match &key.value {
                Value::Text(name) => self.entry(&mut section, name, key.place, value),
                other => self.report(key.place, section.path.clone(), format!("expected a key, found {}", describe(other))),
            }
        }
        section
    }

    fn entry<'n>(&mut self, section: &mut Section<'n>, name: &'n str, place: Place, value: &'n Node) {
        let known = keys::children(&section.path);
        if !known.contains(&name) {
            self.report(place, section.key(&printable(name)), unknown(name, &known));
        } else if section.find(name).is_some() {
            self.report(place, section.key(name), "this key is here twice".to_owned());
        } else {
            section.entries.push((name, value));
        }
    }

    /// The elements of the list at `name`; `None` where it is absent or a mistake.
    pub(super) fn list<'n>(&mut self, section: &Section<'n>, name: &str) -> Option<Vec<Element<'n>>> {
        let node = section.find(name)?;
        let path = section.key(name);
        let Value::List(nodes) = &node.value else {
            self.report(node.place, path, format!("expected a list, found {}", describe(&node.value)));
            return None;
        };
        Some(nodes.iter().enumerate().map(|(index, node)| Element { path: format!("{path}[{index}]"), node }).collect())
    }

    /// The value at `name`; `None` where it is absent or a mistake.
    pub(super) fn optional<T>(&mut self, section: &Section<'_>, name: &str, kind: &Kind<T>) -> Option<T> {
        let node = section.find(name)?;
        self.value(section.key(name), node, kind)
    }

    /// The value at `name`, or this one where it is absent; `None` where it is a mistake.
    pub(super) fn or<T>(&mut self, section: &Section<'_>, name: &str, kind: &Kind<T>, default: T) -> Option<T> {
        if section.has(name) { self.optional(section, name, kind) } else { Some(default) }
    }

    /// The value at `name`; a mistake where it is absent.
    pub(super) fn required<T>(&mut self, section: &Section<'_>, name: &str, kind: &Kind<T>) -> Option<T> {
        if !section.has(name) && !section.broken {
            self.report(section.place, section.key(name), format!("this key is missing, expected {}", kind.expected));
        }
        self.optional(section, name, kind)
    }

    /// Whether the value at `name` is true; this where it is absent, `None` where it is a mistake.
    pub(super) fn flag(&mut self, section: &Section<'_>, name: &str, default: bool) -> Option<bool> {
        match section.find(name) {
            None => Some(default),
            Some(Node { value: Value::Bool(value), .. }) => Some(*value),
            Some(node) => self.value(section.key(name), node, &FLAG),
        }
    }

    /// The value of an element that is not a map.
    pub(super) fn scalar<T>(&mut self, element: &Element<'_>, kind: &Kind<T>) -> Option<T> {
        self.value(element.path.clone(), element.node, kind)
    }

    /// A value that is not in the file, read as if it were.
    pub(super) fn implied<T>(&mut self, section: &Section<'_>, name: &str, text: &str, kind: &Kind<T>) -> Option<T> {
        self.text(section.key(name), section.place, text, kind)
    }

    fn value<T>(&mut self, path: String, node: &Node, kind: &Kind<T>) -> Option<T> {
        match &node.value {
            Value::Text(text) => self.text(path, node.place, text, kind),
            Value::Number(text) if kind.numeric => self.text(path, node.place, text, kind),
            other => {
                self.report(node.place, path, format!("expected {}, found {}", kind.expected, describe(other)));
                None
            }
        }
    }

    fn text<T>(&mut self, path: String, place: Place, text: &str, kind: &Kind<T>) -> Option<T> {
        let text = match expand(text, self.environment) {
            Ok(text) => text,
            Err(message) => {
                self.report(place, path, message);
                return None;
            }
        };
        kind.read(&text).map_err(|message| self.report(place, path, message)).ok()
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(key) => format!("unknown key; did you mean '{key}'?"),
        None => format!("unknown key; expected one of {}", known.join(", ")),
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(text) => format!("the number {text}"),
        Value::Text(text) => quote(text),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
    }
}

fn quote(text: &str) -> String {
    format!("'{}'", printable(text))
}

/// Fit for a terminal and a log: control characters escaped, not too long.
fn printable(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut printable = String::new();
    for character in text.chars().take(SHOWN) {
        if character.is_control() { printable.extend(character.escape_default()) } else { printable.push(character) }
    }
    if text.chars().nth(SHOWN).is_some() {
        printable.push('…');
    }
    printable
}

/// Replaces `${NAME}`, and `$$` by `$`.
fn expand(text: &str, environment: &Environment) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let Some((name, after)) = after.strip_prefix('{').and_then(|after| after.split_once('}')) else {
            return Err(format!("expected ${{NAME}}, or $$ for the character itself, after the $ in {}", quote(text)));
        };
        if !is_variable(name) {
            return Err(format!("expected the name of a variable in ${{ }}, found {}", quote(name)));
        }
        let value = environment.get(name).ok_or_else(|| format!("the variable {name} is not set"))?;
        expanded.push_str(value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, String> {
        let environment = Environment::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "${A}: {x: y}".to_owned())]);
        expand(text, &environment)
    }

    #[test]
    fn variables_are_replaced_once() {
        assert_eq!(expanded("").unwrap(), "");
        assert_eq!(expanded("x${A}y${A}").unwrap(), "x1y1");
        assert_eq!(expanded("$$ $${A}").unwrap(), "$ ${A}");
        assert_eq!(expanded("${B}").unwrap(), "${A}: {x: y}", "what a variable holds is text");
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        assert_eq!(expanded("a${C}").unwrap_err(), "the variable C is not set");
        assert_eq!(expanded("$").unwrap_err(), "expected ${NAME}, or $$ for the character itself, after the $ in '$'");
        assert_eq!(expanded("${A").unwrap_err(), "expected ${NAME}, or $$ for the character itself, after the $ in '${A'");
        assert_eq!(expanded("${A-x}").unwrap_err(), "expected the name of a variable in ${ }, found 'A-x'");
        assert_eq!(expanded("${}").unwrap_err(), "expected the name of a variable in ${ }, found ''");
    }

    #[test]
    fn the_nearest_key_is_named() {
        assert_eq!(unknown("adress", &["name", "address"]), "unknown key; did you mean 'address'?");
        assert_eq!(unknown("ASN", &["name", "asn"]), "unknown key; did you mean 'asn'?");
        assert_eq!(unknown("bfd", &["name", "asn"]), "unknown key; expected one of name, asn");
    }
}
