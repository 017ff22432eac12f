// SPDX-License-Identifier: Apache-2.0
//! The ownership record in nft: its phases, what others do to it, and what it refuses to be.

use std::collections::BTreeMap;

use vipherald::api::{PortRange, Protocol};
use vipherald::desired::{BalancerKind, Filter, MssClamp, Rules, ServiceKey, UnservedPorts};
use vipherald::plan::Entries;

use super::*;

#[test]
fn an_address_without_protocol_number_is_ours_by_the_record() {
    let namespace = Namespace::new("old");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7"]);
        let mut kernel = kernel().await;
        all_ok(&mut kernel, &[Step::RecordPending(vips.clone().into())]).await;
        namespace.ip("addr add 10.0.0.7/32 dev lo");
        all_ok(&mut kernel, &[Step::RecordConfirmed(vips.clone().into())]).await;
        let state = kernel.observe().await.unwrap();
        assert_eq!((on_interface(&state), state.record.confirmed), (vec![with_protocol("10.0.0.7", None)], vips));
        kernel.execute(&Step::RemoveAddress(ip("10.0.0.7"))).await.unwrap();
        assert_eq!(on_interface(&kernel.observe().await.unwrap()), []);
    });
}

#[test]
fn the_record_goes_through_its_phases() {
    let namespace = Namespace::new("phases");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        assert_eq!(settled(&mut kernel).await.record, Record::default());
        assert_eq!(namespace.output(&["nft", "list", "tables"]), "", "nothing is made before it is needed");
        let both = set(&["10.0.0.7", "2001:db8:7::7"]);
        let one = set(&["10.0.0.7"]);
        let none = BTreeSet::new();
        let phases = [
            (Step::RecordPending(both.clone().into()), &both, &none),
            (Step::RecordConfirmed(one.clone().into()), &set(&["2001:db8:7::7"]), &one),
            (Step::RecordConfirmed(both.clone().into()), &none, &both),
            (Step::RecordRemoved(one.clone().into()), &none, &set(&["2001:db8:7::7"])),
            (Step::RecordRemoved(both.clone().into()), &none, &none),
        ];
        for (step, pending, confirmed) in phases {
            let record = Record { exists: true, pending: pending.clone(), confirmed: confirmed.clone(), ..Record::default() };
            for _ in 0..2 {
                kernel.execute(&step).await.unwrap();
                assert_eq!(settled(&mut kernel).await.record, record, "known after {step:?}");
                assert_eq!(kernel.observe_fresh().await.unwrap().record, record, "read after {step:?}");
            }
        }
        assert!(namespace.output(&["nft", "list", "tables"]).contains("table inet vipherald"));
        assert!(namespace.output(&["nft", "list", "table", "inet", "vipherald"]).contains("comment \"vipherald: "));
        for _ in 0..2 {
            kernel.execute(&Step::DropRecord).await.unwrap();
            assert_eq!(kernel.observe_fresh().await.unwrap().record, Record::default());
        }
        assert_eq!(namespace.output(&["nft", "list", "tables"]), "");
    });
}

#[test]
fn what_others_put_into_the_table_stays() {
    let namespace = Namespace::new("guests");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7"]);
        let mut kernel = kernel().await;
        place(&mut kernel, &vips).await;
        namespace.nft(
            "add chain inet vipherald theirs\nadd rule inet vipherald theirs counter\n\
             add set inet vipherald their_set { type ipv4_addr; elements = { 10.0.0.7 }; }",
        );
        let refused = kernel.execute(&Step::DropRecord).await.unwrap_err();
        assert!(matches!(refused, KernelError::Record(RecordError::NotEmpty { .. })), "{refused}");
        all_ok(&mut kernel, &[Step::RecordRemoved(vips.into()), Step::DropRecord]).await;
        assert_eq!(kernel.observe_fresh().await.unwrap().record, Record::default(), "what is left is not ours");
        kernel.execute(&Step::DropRecord).await.unwrap();
        let left = namespace.output(&["nft", "list", "table", "inet", "vipherald"]);
        assert!(left.contains("chain theirs") && left.contains("set their_set") && left.contains("10.0.0.7"), "{left}");
        assert!(!left.contains("set placed") && !left.contains("set pending") && !left.contains("set interface"), "{left}");
    });
}

#[test]
fn a_table_that_vanished_is_made_again() {
    let namespace = Namespace::new("vanish");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        place(&mut kernel, &set(&["10.0.0.7"])).await;
        namespace.nft("flush ruleset");
        // Not read again yet: the step is one of a plan made before.
        kernel.execute(&Step::RecordRemoved(set(&["10.0.0.7"]).into())).await.unwrap();
        assert_eq!(settled(&mut kernel).await.record, Record { exists: true, ..Record::default() });
    });
}

#[test]
fn an_entry_that_is_about_to_go_counts_as_gone() {
    let namespace = Namespace::new("leaving-entry");
    namespace.enter(|| async {
        let mut kernel = kernel().await;
        let vips = set(&["10.0.0.7", "2001:db8:7::7"]);
        place(&mut kernel, &vips).await;
        all_ok(&mut kernel, &[Step::RemoveAddress(ip("10.0.0.7"))]).await;
        assert!(kernel.begin(vec![Step::RecordRemoved(set(&["10.0.0.7"]).into())]));
        // Whether nft is done by now or not: an address placed on the strength of this entry would be nobody's after a crash.
        assert_eq!(kernel.observe().await.unwrap().record.confirmed, set(&["2001:db8:7::7"]));
        assert_eq!(settled(&mut kernel).await.record.confirmed, set(&["2001:db8:7::7"]));
    });
}

#[test]
fn a_set_of_ours_in_another_shape_is_refused_at_the_start() {
    let namespace = Namespace::new("shape");
    namespace.nft("add table inet vipherald\nadd set inet vipherald placed4 { type inet_service; comment \"placed by vipherald\"; }");
    namespace.enter(async || {
        let error = Kernel::new("lo", "vipherald").await.err().unwrap().to_string();
        assert!(error.starts_with("nft refused to make table inet vipherald: "), "{error}");
    });
    assert!(namespace.output(&["nft", "list", "ruleset"]).contains("inet_service"));
}

#[test]
fn what_only_has_our_names_is_not_ours_and_stays() {
    let theirs = [
        ("add set inet vipherald placed4 { type ipv4_addr; elements = { 10.0.0.7 }; }", "placed4"),
        ("add set inet vipherald interface { type ifname; comment \"ours\"; elements = { \"eth0\" }; }", "interface"),
        ("add map inet vipherald marks6 { type ipv6_addr . inet_proto . inet_service : mark; flags interval; }", "marks6"),
        ("add chain inet vipherald served { type filter hook input priority 7; }\nadd rule inet vipherald served counter accept", "served"),
    ];
    for (script, name) in theirs {
        let namespace = Namespace::new("not-ours");
        namespace.nft(&format!("add table inet vipherald\n{script}"));
        let before = namespace.output(&["nft", "list", "ruleset"]);
        namespace.enter(async || {
            let error = Kernel::new("lo", "vipherald").await.err().unwrap();
            assert!(matches!(&error, KernelError::Record(RecordError::NotOurs { name: found, .. }) if found == name), "{error}");
            // Another instance takes nothing of it for a claim.
            namespace.ip("addr add 10.0.0.7/32 dev lo");
            let mut other = Kernel::new("lo", "other").await.unwrap();
            assert_eq!(other.observe_fresh().await.unwrap().claimed_by_others, BTreeSet::new());
        });
        assert_eq!(namespace.output(&["nft", "list", "ruleset"]), before, "{name}");
    }
}

#[test]
fn a_set_of_ours_that_somebody_replaces_changes_nothing_that_is_known() {
    let namespace = Namespace::new("replaced");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        let vips = set(&["10.0.0.7"]);
        place(&mut kernel, &vips).await;
        namespace.nft("delete set inet vipherald placed4\nadd set inet vipherald placed4 { type ipv4_addr; elements = { 10.0.0.8 }; }");
        assert_eq!(kernel.observe_fresh().await.unwrap().record.confirmed, vips);
        for step in [Step::RecordPending(set(&["10.0.0.9"]).into()), Step::RecordRemoved(vips.into()), Step::DropRecord] {
            let refused = kernel.execute(&step).await.unwrap_err();
            assert!(matches!(refused, KernelError::Record(RecordError::NotOurs { .. })), "{step}: {refused}");
        }
        assert!(namespace.output(&["nft", "list", "table", "inet", "vipherald"]).contains("10.0.0.8"));
    });
}

#[test]
fn names_that_nft_cannot_take_are_refused_at_the_start() {
    let namespace = Namespace::new("names");
    namespace.enter(async || {
        for (name, words) in [("7up", "must be 1 to 63 of [a-z0-9-]"), ("x; flush ruleset", "must be 1 to 63"), ("set", "syntax error")] {
            let error = Kernel::new("lo", name).await.err().unwrap().to_string();
            assert!(error.contains(words), "{error}");
        }
    });
}

#[test]
fn filters_are_written_read_and_removed_with_their_services() {
    let namespace = Namespace::new("filters");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        let range = |first: u16, last: u16| PortRange::new(first.into(), last.into()).unwrap();
        let key = |vip: &str, ports| ServiceKey { vip: ip(vip), protocol: Protocol::Tcp, ports };
        let keys = [key("10.0.0.7", range(80, 80)), key("10.0.0.7", range(1024, 2047)), key("2001:db8:7::7", range(80, 80))];
        let entries = Entries { services: keys.into(), marks: BTreeMap::from([(keys[1], 64)]), ..Entries::default() };
        all_ok(&mut kernel, &[Step::RecordPending(entries.clone())]).await;
        let filter = |prefixes: &[(&str, u8)], preserves_client| Filter {
            sources: Some(prefixes.iter().map(|(address, length)| bgp::Prefix::new(ip(address), *length).unwrap()).collect()),
            preserves_client,
        };
        let four = [("10.1.0.0", 16), ("10.2.0.1", 32)].as_slice();
        // What comes after the first change is around or inside what was there before.
        for filters in [
            vec![(keys[0], filter(four, true)), (keys[1], filter(&[], false)), (keys[2], filter(&[("2001:db8:1::", 48)], false))],
            vec![
                (keys[0], filter(&[("10.0.0.0", 8)], false)),
                (keys[1], filter(four, false)),
                (keys[2], filter(&[("2001:db8::", 32)], true)),
            ],
            vec![(keys[0], filter(four, true)), (keys[1], Filter::NONE), (keys[2], Filter { preserves_client: true, ..Filter::NONE })],
        ] {
            let filters: BTreeMap<_, _> = filters.into_iter().collect();
            let expected: BTreeMap<_, _> = filters.clone().into_iter().filter(|(_, filter)| *filter != Filter::NONE).collect();
            for _ in 0..2 {
                kernel.execute(&Step::WriteFilters(filters.clone())).await.unwrap();
                assert_eq!(settled(&mut kernel).await.record.filters, expected);
                assert_eq!(kernel.observe_fresh().await.unwrap().record.filters, expected);
            }
        }
        for _ in 0..2 {
            kernel.execute(&Step::RecordRemoved(entries.clone())).await.unwrap();
            assert_eq!(kernel.observe_fresh().await.unwrap().record, Record { exists: true, ..Record::default() });
        }
    });
}

#[test]
fn what_ipvs_has_is_named_until_it_goes_or_its_service_does() {
    let namespace = Namespace::new("names");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        let key = |vip: &str, first: u16, last: u16| ServiceKey {
            vip: ip(vip),
            protocol: Protocol::Tcp,
            ports: PortRange::new(first.into(), last.into()).unwrap(),
        };
        let keys = [key("10.0.0.7", 80, 80), key("10.0.0.7", 1024, 2047), key("2001:db8:7::7", 80, 80), key("2001:db8:7::7", 1024, 2047)];
        let named = |keys: &[ServiceKey]| Entries { in_ipvs: keys.iter().copied().collect(), ..Entries::default() };
        let services = |keys: &[ServiceKey]| Entries { services: keys.iter().copied().collect(), ..Entries::default() };
        all_ok(&mut kernel, &[Step::RecordConfirmed(services(&keys)), Step::RecordPending(named(&keys[..2]))]).await;
        for (step, expected) in [
            (Step::RecordConfirmed(named(&keys)), &keys[..]),
            (Step::RecordRemoved(named(&keys[..1])), &keys[1..]),
            (Step::RecordRemoved(services(&keys[1..3])), &keys[3..]),
            (Step::RecordRemoved(named(&keys)), &[]),
        ] {
            for _ in 0..2 {
                kernel.execute(&step).await.unwrap();
                let expected = expected.iter().copied().collect();
                assert_eq!(settled(&mut kernel).await.record.in_ipvs, expected, "{step}");
                assert_eq!(kernel.observe_fresh().await.unwrap().record.in_ipvs, expected, "{step}");
            }
        }
    });
}

#[test]
fn rules_with_every_option_are_taken_and_known_again() {
    let namespace = Namespace::new("options");
    namespace.enter(async || {
        let mut kernel = kernel().await;
        let except = [("10.0.0.0", 8), ("10.1.0.0", 16), ("2001:db8::", 32)];
        let except = except.map(|(address, length)| bgp::Prefix::new(ip(address), length).unwrap());
        for mss_clamp in [MssClamp::Off, MssClamp::PathMtu, MssClamp::Octets(1400)] {
            for (unserved_ports, balancer) in [(UnservedPorts::Drop, BalancerKind::Ipvs), (UnservedPorts::Reject, BalancerKind::Nftables)] {
                let listeners = BTreeSet::from(["10.0.0.7:179", "[2001:db8:7::7]:179"].map(|listener| listener.parse().unwrap()));
                let rules =
                    Rules { balancer, unserved_ports, first_mark: 64, except: except.into(), mss_clamp, listeners, hands_over: false };
                kernel.execute(&Step::WriteRules(Some(rules.clone()))).await.unwrap();
                assert_eq!(kernel.observe_fresh().await.unwrap().record.rules, rules.fingerprint());
            }
        }
        kernel.execute(&Step::WriteRules(None)).await.unwrap();
        assert_eq!(kernel.observe_fresh().await.unwrap().record.rules, Vec::<String>::new());
    });
}
