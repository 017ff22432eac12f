// SPDX-License-Identifier: Apache-2.0

use super::AsPathSegment::{ConfedSequence, ConfedSet, Sequence, Set};
use super::*;
use crate::wire::tests::{asn, hex, sequence};

fn ases(numbers: &[u32]) -> Vec<Asn> {
    numbers.iter().copied().map(asn).collect()
}

#[test]
fn b41_rfc7606_7_2_malformed_paths() {
    let cases = [
        ("00 01 0000FDE9", "a segment of the path is of an unknown type"),
        ("05 01 0000FDE9", "a segment of the path is of an unknown type"),
        ("02 00", "a segment of the path is empty"),
        ("02 01 0000FDE9 02 00", "a segment of the path is empty"),
        ("02 02 0000FDE9", "a segment of the path is cut"),
        ("02 01 0000FD", "a segment of the path is cut"),
        ("02 01 0000FDE9 02", "a segment of the path has no length"),
        ("02 01 00000000", "AS 0 is in the path"),
        ("01 02 0000FDE9 00000000", "AS 0 is in the path"),
    ];
    for (octets, reason) in cases {
        assert_eq!(AsPath::decode(&hex(octets), true), Err(reason), "{octets}");
    }
    assert_eq!(AsPath::decode(&[], true), Ok(AsPath::default()));
}

#[test]
fn rfc4271_4_3_segments() {
    let path =
        AsPath(vec![ConfedSequence(ases(&[65101])), ConfedSet(ases(&[65102, 65103])), Sequence(ases(&[1, 70000])), Set(ases(&[2, 3]))]);
    let octets = hex("03 01 0000FE4D 04 02 0000FE4E 0000FE4F 02 02 00000001 00011170 01 02 00000002 00000003");
    let mut encoded = Vec::new();
    path.encode(true, &mut encoded);
    assert_eq!(encoded, octets);
    assert_eq!(AsPath::decode(&octets, true).unwrap(), path);
    assert_eq!(path.length(), 3);
}

#[test]
fn rfc6793_4_2_2_as_trans_stands_for_a_large_number() {
    let path = AsPath(vec![ConfedSequence(ases(&[65101])), Sequence(ases(&[1, 70000]))]);
    let mut encoded = Vec::new();
    path.encode(false, &mut encoded);
    assert_eq!(encoded, hex("03 01 FE4D 02 02 0001 5BA0"));
    assert_eq!(path.as4_path(), Some(AsPath(vec![Sequence(ases(&[1, 70000]))])));
    assert_eq!(AsPath(vec![ConfedSequence(ases(&[70000])), Sequence(ases(&[1]))]).as4_path(), None);
    assert_eq!(AsPath::default().as4_path(), None);
}

#[test]
fn rfc4271_4_3_a_long_sequence_takes_several_segments() {
    let path = sequence((1..=300).map(asn));
    let mut encoded = Vec::new();
    path.encode(true, &mut encoded);
    assert_eq!(encoded.len(), 2 + 255 * 4 + 2 + 45 * 4);
    let decoded = AsPath::decode(&encoded, true).unwrap();
    assert_eq!(decoded.0.iter().map(|segment| segment.ases().len()).collect::<Vec<_>>(), [255, 45]);
    let mut nothing = Vec::new();
    sequence([]).encode(true, &mut nothing);
    assert_eq!(nothing, []);
}

#[test]
fn rfc6793_4_2_3_as4_path_completes_as_path() {
    let trans = u32::from(Asn::TRANS);
    let cases = [
        // Equal lengths: AS4_PATH is the path.
        (vec![Sequence(ases(&[trans, 5]))], vec![Sequence(ases(&[70000, 5]))], vec![Sequence(ases(&[70000, 5]))]),
        // Two-octet speakers have put their AS in front.
        (vec![Sequence(ases(&[1, 2, trans, 5]))], vec![Sequence(ases(&[70000, 5]))], vec![Sequence(ases(&[1, 2, 70000, 5]))]),
        // AS4_PATH is longer: it does not count.
        (vec![Sequence(ases(&[1, 2]))], vec![Sequence(ases(&[70000, 5, 6]))], vec![Sequence(ases(&[1, 2]))]),
        // A set counts as one AS.
        (
            vec![Sequence(ases(&[1])), Set(ases(&[2, 3])), Sequence(ases(&[trans]))],
            vec![Sequence(ases(&[70000]))],
            vec![Sequence(ases(&[1])), Set(ases(&[2, 3])), Sequence(ases(&[70000]))],
        ),
        (
            vec![Sequence(ases(&[1, trans])), Set(ases(&[2, trans]))],
            vec![Set(ases(&[2, 70001]))],
            vec![Sequence(ases(&[1, trans])), Set(ases(&[2, 70001]))],
        ),
        // A confederation's segment goes with what precedes it, or leads.
        (
            vec![ConfedSequence(ases(&[65101])), Sequence(ases(&[trans]))],
            vec![Sequence(ases(&[70000]))],
            vec![ConfedSequence(ases(&[65101])), Sequence(ases(&[70000]))],
        ),
        (
            vec![Sequence(ases(&[1])), ConfedSet(ases(&[65101])), Sequence(ases(&[trans]))],
            vec![Sequence(ases(&[70000]))],
            vec![Sequence(ases(&[1])), ConfedSet(ases(&[65101])), Sequence(ases(&[70000]))],
        ),
        (vec![Sequence(ases(&[1, 2])), ConfedSet(ases(&[65101]))], vec![Sequence(ases(&[70000]))], vec![Sequence(ases(&[1, 70000]))]),
        (vec![], vec![Sequence(ases(&[70000]))], vec![]),
    ];
    for (as_path, as4_path, expected) in cases {
        assert_eq!(AsPath(as_path.clone()).merged_with(AsPath(as4_path)), AsPath(expected), "{as_path:?}");
    }
}
