// SPDX-License-Identifier: Apache-2.0
//! Which of some known names was meant by one that is not among them. Input: what was written. Output: the nearest name, if any is near enough.

/// The known name that differs least, where it differs by a typing error or two.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |known: &str| strsim::damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase());
    let (distance, nearest) = known.into_iter().map(|known| (distance(known), known)).min()?;
    (distance <= (nearest.len() / 3).max(1)).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_named() {
        assert_eq!(nearest("rr2", ["rr1", "tor"]), Some("rr1"));
        assert_eq!(nearest("TOR", ["rr1", "tor"]), Some("tor"));
        assert_eq!(nearest("spine", ["rr1", "tor"]), None);
        assert_eq!(nearest("spine", []), None);
        assert_eq!(nearest("icmp", ["tcp", "udp", "sctp"]), None, "half of it differs");
        let keys = ["portRange", "protocol", "algo", "mode"];
        assert_eq!(nearest("algoo", keys), Some("algo"));
        assert_eq!(nearest("portrange", keys), Some("portRange"));
        assert_eq!(nearest("something", keys), None);
    }
}
