// SPDX-License-Identifier: Apache-2.0
//! The line on which a field stands, for messages to people.
//!
//! Input: the YAML of one document, and the path of a field such as `spec.ports[0].port`. Output: its line, counted from 1; where the field is not
//! there, the line of the nearest field above it. Used only when something is wrong, so that what is right need not carry its lines.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// The line of the field, or of what is nearest above it.
pub(super) fn line_of(document: &str, path: &str) -> u64 {
    let Ok(root) = serde_saphyr::from_str_with_options::<Spanned<Tree>>(document, super::parse::options()) else { return 1 };
    let mut line = root.referenced.line();
    let mut tree = &root.value;
    for step in steps(path) {
        let next = match (tree, step) {
            (Tree::Mapping(entries), Step::Key(name)) => {
                entries.iter().find(|(key, _)| key.value == name).map(|(key, value)| (key.referenced, value))
            }
            (Tree::Sequence(items), Step::Index(index)) => items.get(index).map(|item| (item.referenced, item)),
            _ => None,
        };
        let Some((place, below)) = next else { break };
        line = place.line();
        tree = &below.value;
    }
    line.max(1)
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// `a.b[0]` as key a, key b, index 0.
fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.split(['.', '[']).filter(|step| !step.is_empty()).map(|step| match step.strip_suffix(']').map(str::parse) {
        Some(Ok(index)) => Step::Index(index),
        _ => Step::Key(step),
    })
}

/// The shape of a document, without its scalars.
enum Tree {
    Scalar,
    Sequence(Vec<Spanned<Self>>),
    Mapping(Vec<(Spanned<String>, Spanned<Self>)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Tree::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Mapping(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn a_field_is_found_or_what_is_above_it() {
        let document =
            "---\nkind: Service\nspec:\n  ports:\n  - name: a\n    port: x\n  - {name: b,\n     port: y}\n  externalIPs: [a,\n    b]\n";
        for (path, line) in [
            ("kind", 2),
            ("spec.ports", 4),
            ("spec.ports[0]", 5),
            ("spec.ports[0].port", 6),
            ("spec.ports[1].port", 8),
            ("spec.externalIPs[1]", 10),
            ("spec.ports[7].port", 4),
            ("spec.clusterIP", 3),
            ("status", 2),
            ("", 2),
        ] {
            assert_eq!(line_of(document, path), line, "{path}");
        }
        assert_eq!(line_of("a: [", "a"), 1);
    }
}
