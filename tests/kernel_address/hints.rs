// SPDX-License-Identifier: Apache-2.0
//! What the kernel tells of changes, and what is no news.

use super::*;

#[test]
fn a_change_from_outside_is_noticed_at_once() {
    const ROUNDS: usize = 5;
    let namespace = Namespace::new("notice");
    let mut delays = Vec::new();
    namespace.enter(async || {
        let vips = set(&["10.0.0.7", "2001:db8:7::7"]);
        let mut kernel = kernel().await;
        for _ in 0..ROUNDS {
            place(&mut kernel, &vips).await;
            for change in ["addr del 10.0.0.7/32 dev lo", "addr del 2001:db8:7::7/128 dev lo", "link set lo down", "link set lo up"] {
                kernel.observe().await.unwrap();
                namespace.ip(change);
                let begin = Instant::now();
                hinted(&mut kernel).await;
                delays.push(begin.elapsed());
            }
            assert_eq!(on_interface(&kernel.observe().await.unwrap()), []);
            namespace.nft("flush ruleset");
            let begin = Instant::now();
            hinted(&mut kernel).await;
            delays.push(begin.elapsed());
            assert_eq!(settled(&mut kernel).await.record, Record::default());
        }
    });
    delays.sort();
    println!("a change from outside is noticed within {:?} (median), {:?} (worst)", delays[delays.len() / 2], delays[delays.len() - 1]);
    assert!(delays[delays.len() / 2] < Duration::from_millis(100));
}

#[test]
fn single_elements_that_others_change_are_noticed() {
    let namespace = Namespace::new("elements");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        place(&mut kernel, &set(&["10.0.0.7", "10.0.0.8"])).await;
        kernel.observe().await.unwrap();
        namespace.nft("delete element inet vipherald placed4 { 10.0.0.7 }");
        for _ in 0..5 {
            let _cut_off = tokio::time::timeout(Duration::from_micros(100), kernel.changed()).await;
        }
        hinted(&mut kernel).await;
        assert_eq!(settled(&mut kernel).await.record.confirmed, set(&["10.0.0.8"]));
        namespace.nft("add element inet vipherald pending4 { 10.0.0.9 comment \"by hand\" }");
        hinted(&mut kernel).await;
        assert_eq!(settled(&mut kernel).await.record.pending, set(&["10.0.0.9"]));
        kernel.execute(&Step::RecordConfirmed(set(&["10.0.0.9"]).into())).await.unwrap();
        let expected = Record { exists: true, confirmed: set(&["10.0.0.8", "10.0.0.9"]), ..Record::default() };
        assert_eq!(kernel.observe_fresh().await.unwrap().record, expected);
    });
}

#[test]
fn own_changes_and_those_of_other_tables_and_links_are_no_news() {
    let namespace = Namespace::new("quiet");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        place(&mut kernel, &set(&["10.0.0.7"])).await;
        kernel.observe().await.unwrap();
        all_ok(&mut kernel, &[Step::RecordPending(set(&["10.0.0.8"]).into()), Step::RecordRemoved(set(&["10.0.0.8"]).into())]).await;
        assert!(is_quiet(&mut kernel).await, "own changes of the record");
        namespace.nft("add table inet filter\nadd set inet filter blocked { type ipv4_addr; elements = { 10.0.0.7 }; }");
        assert!(is_quiet(&mut kernel).await, "a table of somebody else");
        namespace.ip("link add br0 type bridge");
        namespace.ip("link set br0 down");
        assert!(is_quiet(&mut kernel).await, "another interface");
    });
}

#[test]
fn a_burst_that_overflows_is_noticed() {
    const BURST: u32 = 20_000;
    let namespace = Namespace::new("burst");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        kernel.observe().await.unwrap();
        let elements =
            |from: u32| (from..from + 1000).map(|n| Ipv4Addr::from_bits(0x0a00_0000 + n).to_string()).collect::<Vec<_>>().join(", ");
        let mut script =
            "add table inet vipherald\nadd set inet vipherald placed4 { type ipv4_addr; comment \"placed by vipherald\"; }\n".to_owned();
        (0..BURST).step_by(1000).for_each(|from| script += &format!("add element inet vipherald placed4 {{ {} }}\n", elements(from)));
        namespace.nft(&script);
        hinted(&mut kernel).await;
        assert_eq!(settled(&mut kernel).await.record.confirmed.len(), BURST as usize);
    });
}
