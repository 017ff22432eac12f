// SPDX-License-Identifier: Apache-2.0
//! Objects that were good and are edited: what is in force, what is said, what is kept for the next process.

use std::fs;

use tempfile::TempDir;

use super::*;

const FILE: &str = "contents.json";

const INSTEAD: &str = "; its last good content stays in force instead";

/// One process: what it is told one after the other.
struct Process {
    last_good: LastGood,
    config: Config,
}

impl Process {
    fn new() -> Self {
        let mut config = config();
        config.dataplane.kind = DataplaneType::Ipvs;
        Self { last_good: LastGood::default(), config }
    }

    fn compile(&mut self, manifests: &[String]) -> Compiled {
        self.last_good.compile(&snapshot_of(&manifests.concat()), &self.config)
    }

    /// The VIPs and the rejections.
    #[track_caller]
    fn assert_makes(&mut self, manifests: &[String], vips: &[&str], rejections: &[&str]) {
        let compiled = self.compile(manifests);
        let (found_vips, found_rejections) = outcome(&compiled);
        assert_eq!((found_vips, found_rejections), (words(vips), words(rejections)));
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn web(vip: &str) -> String {
    service("a", vip, "")
}

fn pods() -> String {
    slice("a", "IPv4", READY)
}

#[test]
fn each_refused_content_leaves_the_last_good_one_in_force() {
    let good = [web("10.0.0.7"), pods(), eric("e", "10.0.0.8", "a", 81)];
    let expected = ["10.0.0.7 Serve", "10.0.0.8 Serve"];
    let allowed = |prefix: &str| Allowed { prefix: crate::api::parse_prefix(prefix).unwrap(), namespaces: Vec::new() };
    for (object, from, to, said) in [
        (0, "10.0.0.7", "10.0.0.300", "spec.externalIPs[0]: \"10.0.0.300\""),
        (0, "10.0.0.7", "127.0.0.9", "127.0.0.9 is a loopback address"),
        (0, "10.0.0.7", "10.9.0.7", "10.9.0.7 is outside of vips.allow"),
        (0, "port: 80", "port: 99999", "spec.ports[0].port: 99999 is no port"),
        (0, "spec:", "spec:\n  type: ExternalName", "an ExternalName Service has no endpoints"),
        (0, "spec:", "spec:\n  loadBalancerSourceRanges: [x]", "spec.loadBalancerSourceRanges[0]: \"x\" is no range"),
        (0, "metadata: {", "metadata: {annotations: {vipherald.io/scheduler: mhh}, ", "mhh"),
        (2, "10.0.0.8", "127.0.0.9", "127.0.0.9 is a loopback address"),
        (2, "name: a", "name: nobody", "there is no Service default/nobody"),
        (2, "start: 81, end: 81", "start: 80, end: 80", ""),
    ] {
        let mut process = Process::new();
        process.config.vips.allow = Some(vec![allowed("10.0.0.0/24"), allowed("127.0.0.0/8")]);
        process.assert_makes(&good, &expected, &[]);
        let mut edited = good.clone();
        edited[object] = edited[object].replacen(from, to, 1);
        let compiled = process.compile(&edited);
        assert_eq!(outcome(&compiled).0, expected, "{to}");
        if said.is_empty() {
            assert_eq!(compiled.rejections, [], "{to}: that is good");
            continue;
        }
        assert!(compiled.kept.len() == 1 && !compiled.rejections.is_empty(), "{to}");
        for rejection in &compiled.rejections {
            assert!(rejection.message.ends_with(INSTEAD), "{to}: {}", rejection.message);
        }
        assert!(compiled.rejections.iter().any(|rejection| rejection.message.contains(said)), "{to}: {:?}", compiled.rejections);
        // As often as it is compiled, and until it is good again.
        assert_eq!(process.compile(&edited), compiled, "{to}");
        process.assert_makes(&good, &expected, &[]);
    }
}

#[test]
fn one_that_is_new_or_was_deleted_has_nothing_to_fall_back_to() {
    let mut process = Process::new();
    let bad = "Service default/a 127.0.0.9 ReservedAddress spec.externalIPs[0]: 127.0.0.9 is a loopback address";
    process.assert_makes(&[web("127.0.0.9"), pods()], &[], &[bad]);
    process.assert_makes(&[web("10.0.0.7"), pods()], &["10.0.0.7 Serve"], &[]);
    process.assert_makes(&[pods()], &[], &[]);
    process.assert_makes(&[web("127.0.0.9"), pods()], &[], &[bad]);
    // The same where it was deleted and made again between two looks.
    let with_uid = |vip: &str, uid: &str| with_metadata(&web(vip), &format!("uid: u{uid}"));
    process.assert_makes(&[with_uid("10.0.0.7", "1"), pods()], &["10.0.0.7 Serve"], &[]);
    process.assert_makes(&[with_uid("127.0.0.9", "2"), pods()], &[], &[bad]);
    process.assert_makes(&[with_uid("127.0.0.9", "1"), pods()], &[], &[bad]);
}

#[test]
fn what_is_refused_for_others_sake_stays_refused_and_what_was_good_elsewhere_stays() {
    let aged = |manifest: String, year: u16| with_metadata(&manifest, &format!("creationTimestamp: '{year}-01-01T00:00:00Z'"));
    let young = |vip: &str| aged(web(vip), 2026);
    let old = |vip: &str| aged(service("old", vip, ""), 2025);
    let mut process = Process::new();
    process.assert_makes(&[young("10.0.0.7"), pods()], &["10.0.0.7 Serve"], &[]);
    // An older object takes what this one had: it has not been edited.
    let taken =
        "Service default/a 10.0.0.7 Conflict spec.externalIPs[0]: 80/tcp of 10.0.0.7 belongs to Service default/old, which is older";
    process.assert_makes(&[young("10.0.0.7"), old("10.0.0.7"), pods()], &["10.0.0.7 NoEndpoints"], &[taken]);
    // And where that is its last good content, it does not come back for a bad one.
    let bad = "Service default/a 127.0.0.9 ReservedAddress spec.externalIPs[0]: 127.0.0.9 is a loopback address";
    process.assert_makes(&[young("127.0.0.9"), old("10.0.0.7"), pods()], &["10.0.0.7 NoEndpoints"], &[bad]);
    // Who is edited to what belongs to an older one keeps what it had.
    process.assert_makes(&[young("10.0.0.7"), pods(), old("10.0.0.8")], &["10.0.0.7 Serve", "10.0.0.8 NoEndpoints"], &[]);
    let other = format!("{}{INSTEAD}", taken.replace("10.0.0.7", "10.0.0.8"));
    process.assert_makes(&[young("10.0.0.8"), pods(), old("10.0.0.8")], &["10.0.0.7 Serve", "10.0.0.8 NoEndpoints"], &[&other]);
    process.assert_makes(&[young("10.0.0.8"), pods()], &["10.0.0.8 Serve"], &[]);
}

#[test]
fn what_the_configuration_forbids_is_not_kept() {
    let mut process = Process::new();
    process.assert_makes(&[web("10.0.0.7"), pods()], &["10.0.0.7 Serve"], &[]);
    process.config.vips.allow = Some(Vec::new());
    let outside = "Service default/a 10.0.0.7 NotAllowed spec.externalIPs[0]: 10.0.0.7 is outside of vips.allow, which has none";
    process.assert_makes(&[web("10.0.0.7"), pods()], &[], &[outside]);
    process.assert_makes(&[web("10.0.0.8"), pods()], &[], &[&outside.replace("10.0.0.7", "10.0.0.8")]);
    process.config.vips.allow = None;
    process.assert_makes(
        &[web("127.0.0.9"), pods()],
        &["10.0.0.7 Serve"],
        &[&format!("Service default/a 127.0.0.9 ReservedAddress spec.externalIPs[0]: 127.0.0.9 is a loopback address{INSTEAD}")],
    );
}

#[test]
fn the_generation_in_force_is_told_and_the_addresses_of_a_load_balancer_are_the_newest() {
    let balancer = |generation: u8, address: &str, annotation: &str| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: a, generation: {generation}, annotations: {{{annotation}}}}}\nspec:\n  type: LoadBalancer\n  \
             loadBalancerClass: vipherald.io/vip\n  ports: [{{port: 80}}]\nstatus: {{loadBalancer: {{ingress: [{{ip: {address}}}]}}}}\n"
        )
    };
    let mut process = Process::new();
    process.assert_makes(&[balancer(3, "10.0.0.7", ""), pods()], &["10.0.0.7 Serve"], &[]);
    let bad = "vipherald.io/ips: x";
    let said = "Service default/a Invalid metadata.annotations[vipherald.io/ips]: \"x\" is no IPv4 or IPv6 address; its last good content, generation 3, stays in force instead";
    process.assert_makes(&[balancer(4, "10.0.0.7", bad), pods()], &["10.0.0.7 Serve"], &[said]);
    process.assert_makes(&[balancer(4, "10.0.0.9", bad), pods()], &["10.0.0.9 Serve"], &[said]);
}

#[test]
fn contents_survive_a_start_and_what_is_damaged_is_as_good_as_nothing() {
    let state_dir = TempDir::new().unwrap();
    let path = state_dir.path().join("state");
    let mut process = Process::new();
    let good = [web("10.0.0.7"), pods(), eric("e", "10.0.0.8", "a", 81)];
    process.compile(&good);
    process.last_good.save(&path).unwrap();
    let kept = process.last_good.contents().clone();
    assert_eq!(kept.len(), 2);
    let mut next = Process { last_good: LastGood::load(&path), ..Process::new() };
    assert_eq!(*next.last_good.contents(), kept);
    let bad = [web("127.0.0.9"), pods(), eric("e", "127.0.0.9", "a", 81)];
    assert_eq!(outcome(&next.compile(&bad)).0, ["10.0.0.7 Serve", "10.0.0.8 Serve"]);
    // Nothing is written where nothing has changed.
    fs::remove_file(path.join(FILE)).unwrap();
    next.last_good.save(&path).unwrap();
    assert!(!path.join(FILE).exists());
    for text in
        ["", "{", "{\"version\": 2, \"contents\": []}", "{\"version\": 1}", "{\"version\": 1, \"contents\": [{\"kind\": \"Node\"}]}"]
    {
        fs::write(path.join(FILE), text).unwrap();
        assert_eq!(LastGood::load(&path).contents().len(), 0, "{text}");
    }
}

#[test]
fn one_that_was_made_anew_while_no_process_ran_does_not_get_what_the_former_one_had() {
    let state_dir = TempDir::new().unwrap();
    let with_uid = |manifest: String, uid: &str| manifest.replace("metadata: {", &format!("metadata: {{uid: {uid}, "));
    let mut process = Process::new();
    process.compile(&[with_uid(web("10.0.0.7"), "one"), pods()]);
    process.last_good.save(state_dir.path()).unwrap();
    for (uid, vips) in [("one", vec!["10.0.0.7 Serve"]), ("two", vec![])] {
        let mut next = Process { last_good: LastGood::load(state_dir.path()), ..Process::new() };
        assert_eq!(outcome(&next.compile(&[with_uid(web("127.0.0.9"), uid), pods()])).0, vips, "{uid}");
    }
}

#[test]
fn nothing_is_forgotten_while_the_source_is_incomplete() {
    let mut process = Process::new();
    process.compile(&[web("10.0.0.7"), pods()]);
    let mut partial = snapshot_of(&pods());
    partial.complete = false;
    let config = process.config.clone();
    drop(process.last_good.compile(&partial, &config));
    assert_eq!(process.last_good.contents().len(), 1);
    partial.complete = true;
    drop(process.last_good.compile(&partial, &config));
    assert_eq!(process.last_good.contents().len(), 0);
}

#[test]
fn clients_of_a_family_that_is_named_no_more_are_shut_out_at_once() {
    let mut process = Process::new();
    let with = |ranges: &str| {
        let vips = "10.0.0.7, \"2001:db8:7::7\"";
        [service("a", vips, &format!("loadBalancerSourceRanges: {ranges}")), slice("a", "IPv4", READY)]
    };
    process.compile(&with("[192.0.2.0/24, \"2001:db8::/32\"]"));
    let compiled = process.compile(&with("[192.0.2.0/24]"));
    assert!(compiled.kept.is_empty(), "the former content lets them in: {:?}", compiled.kept);
    let services = compiled.desired.balancing.unwrap().services;
    let admitted: Vec<usize> = services.values().map(|service| service.filter.sources.as_ref().unwrap().len()).collect();
    assert_eq!(admitted, [1, 0]);
}
