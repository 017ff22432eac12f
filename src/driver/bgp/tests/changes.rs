// SPDX-License-Identifier: Apache-2.0
//! What the table of keys says that a change costs is what it costs: each key below `bgp`, one at a time, under two sessions.

use serde_json::{Value, json};

use super::fake_peer::Conversation;
use super::*;
use crate::config::{Config, Effect, Environment, KEYS, NodeLabels, changes, load};

/// Who dials us.
const DYNAMIC: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A change of one key.
struct Case {
    /// As in [`KEYS`].
    key: &'static str,
    to: Value,
    /// What is configured already: of the peer that it is about, and of the other one.
    with: Value,
    other: Value,
}

fn case(key: &'static str, to: impl Into<Value>) -> Case {
    Case { key, to: to.into(), with: json!({}), other: json!({}) }
}

impl Case {
    fn with(self, with: Value) -> Self {
        Self { with, ..self }
    }

    fn beside(self, other: Value) -> Self {
        Self { other, ..self }
    }
}

/// Keys of the speaker.
fn of_the_speaker() -> Vec<Case> {
    vec![
        case("bgp.asn", 65_009),
        case("bgp.routerId", "192.0.2.9"),
        // The cluster of a speaker that does not reflect is in no message.
        case("bgp.clusterId", "192.0.2.9").beside(json!({"reflectorClient": true})),
        case("bgp.sendHostName", false),
        case("bgp.sendSoftwareVersion", true),
        case("bgp.listen.address", "127.0.0.3"),
        case("bgp.listen.port", 20_180),
        case("bgp.listen.limit", 7),
        case("bgp.listen.prefixes", json!(["127.0.0.4/32"])),
    ]
}

/// Keys that say who a peer is and how it is reached.
fn of_one_peer() -> Vec<Case> {
    vec![
        case("bgp.peers[].name", "spine"),
        case("bgp.peers[].nodeSelector", "rack=a"),
        case("bgp.peers[].address", "127.0.0.9"),
        case("bgp.peers[].port", 1),
        case("bgp.peers[].source", "127.0.0.1"),
        case("bgp.peers[].interface", "lo"),
        case("bgp.peers[].passive", true),
    ]
}

/// Keys that dynamic peers have too.
fn of_all_peers() -> Vec<Case> {
    let external = json!({"asn": 65_002});
    let restart = || json!({"gracefulRestart": {"restartTime": "60s"}});
    vec![
        case("bgp.peers[].asn", 65_009),
        case("bgp.peers[].passwordFile", "/nonexistent"),
        case("bgp.peers[].ttlSecurity.hops", 1),
        case("bgp.peers[].multihop", 3),
        case("bgp.peers[].families", json!(["ipv4-unicast"])),
        // The first client of a speaker is told to all.
        case("bgp.peers[].reflectorClient", true).beside(json!({"reflectorClient": true})),
        case("bgp.peers[].addPath.send", true),
        case("bgp.peers[].addPath.receive", true),
        case("bgp.peers[].keepReceived", 9),
        case("bgp.peers[].localRole", "peer").with(external.clone()),
        case("bgp.peers[].strictRole", true).with(json!({"asn": 65_002, "localRole": "customer"})),
        case("bgp.peers[].extendedMessages", true),
        case("bgp.peers[].extendedNextHop", true),
        case("bgp.peers[].timers.hold", "30s"),
        case("bgp.peers[].timers.sendHold", "20s"),
        case("bgp.peers[].timers.connectRetry", "2s"),
        case("bgp.peers[].gracefulRestart.restartTime", "90s").with(restart()),
        case("bgp.peers[].gracefulRestart.notification", false).with(restart()),
        case("bgp.peers[].gracefulRestart.longLivedStaleTime", "1h").with(restart()),
        case("bgp.peers[].import.maxPrefixes.ipv4", 5),
        case("bgp.peers[].import.maxPrefixes.ipv6", 5).with(json!({"import": {"maxPrefixes": {"ipv4": 7, "ipv6": 7}}})),
        case("bgp.peers[].import.restartDelay", "2m").with(json!({"import": {"maxPrefixes": {"ipv4": 7}}})),
        case("bgp.peers[].export.localPreference", 50),
        case("bgp.peers[].export.med", 7),
        case("bgp.peers[].export.prepend", 2).with(external),
        case("bgp.peers[].export.communities", json!(["65001:1"])),
        case("bgp.peers[].export.largeCommunities", json!(["65001:1:2"])),
        case("bgp.peers[].export.extendedCommunities", json!(["ro:65001:1"])),
        case("bgp.peers[].export.linkBandwidth", "10Gbit"),
        case("bgp.peers[].export.nextHop.ipv4", "192.0.2.7"),
        case("bgp.peers[].export.nextHop.ipv6", "2001:db8::7"),
    ]
}

/// Puts one value over another; of lists, element over element.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.iter().for_each(|(key, value)| merge(into.entry(key).or_insert(json!({})), value))
        }
        (Value::Array(into), Value::Array(from)) if from.iter().all(Value::is_object) => {
            into.iter_mut().zip(from).for_each(|(a, b)| merge(a, b))
        }
        (into, from) => *into = from.clone(),
    }
}

/// The value of a key in a file that has nothing else.
fn alone(key: &str, value: &Value) -> Value {
    key.rsplit('.').fold(value.clone(), |below, name| match name.strip_suffix("[]") {
        Some(list) => json!({list: [below]}),
        None => json!({name: below}),
    })
}

fn configuration(json: &Value) -> Config {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), json.to_string()).unwrap();
    load(file.path(), &Environment::from([("NODE_NAME".to_owned(), "node-1".to_owned())]))
        .unwrap_or_else(|errors| panic!("{errors}: {json}"))
        .on_node(Some(&NodeLabels::new()))
}

/// Two sessions: one that we dial, one that a dynamic peer dials.
struct Rig {
    speaker: Speaker,
    tor: Conversation,
    dynamic: Conversation,
    /// Keeps its port.
    _fake: FakePeer,
    base: Value,
}

impl Rig {
    /// With this over the least configuration.
    fn new(over: &Value) -> Self {
        let (fake, address) = (FakePeer::listening(), listening::address_of_its_own());
        let export = json!({"nextHop": {"ipv4": "192.0.2.1", "ipv6": "2001:db8::1"}});
        let mut base = json!({"bgp": {
            "asn": OUR_AS,
            "routerId": "192.0.2.1",
            "listen": {"address": address.ip(), "port": address.port(), "prefixes": ["127.0.0.2/32"], "asn": OUR_AS, "export": export},
            "peers": [{"name": "tor", "address": "127.0.0.1", "port": fake.address().port(), "asn": OUR_AS, "export": export}],
        }});
        merge(&mut base, over);
        let speaker = Speaker::spawn("vipherald", 1).unwrap();
        speaker.advertise(set(["10.0.0.7", "2001:db8:7::7"]));
        speaker.configure(Arc::new(configuration(&base).bgp), None);
        let asn = |value: &Value| u32::try_from(value["asn"].as_u64().unwrap()).unwrap();
        let mut tor = fake.establish(asn(&base["bgp"]["peers"][0]));
        let mut dynamic = listening::dial(DYNAMIC, address);
        dynamic.establish(asn(&base["bgp"]["listen"]));
        for conversation in [&mut tor, &mut dynamic] {
            while conversation.expect_update().is_end_of_rib() != Some(Family::Ipv6Unicast) {}
        }
        wait_for(&speaker, |status| ["tor", "dynamic:127.0.0.2"].iter().all(|name| is_up(status, name)));
        Self { speaker, tor, dynamic, _fake: fake, base }
    }

    /// Changes one key, and looks for what that costs the sessions that it is about, and that it costs no other anything.
    #[expect(clippy::disallowed_macros, reason = "a failure has to say of which key")]
    fn change(mut self, key: &str, to: &Value, effect: Effect, about: &[Who]) {
        println!("{key} = {to}");
        let mut changed = self.base.clone();
        merge(&mut changed, &alone(key, to));
        let (old, new) = (configuration(&self.base), configuration(&changed));
        let differences = changes(&old, &new);
        assert!(!differences.is_empty() && differences.iter().all(|change| change.effect == effect), "{differences:?}");
        let before = self.speaker.status();
        let bgp = Arc::new(new.bgp);
        self.speaker.configure(Arc::clone(&bgp), None);
        wait_for(&self.speaker, |status| status.configured.as_ref() == Some(&bgp));
        for (who, name, conversation) in [(Who::Configured, "tor", &mut self.tor), (Who::Dynamic, "dynamic:127.0.0.2", &mut self.dynamic)] {
            match effect {
                Effect::Session if about.contains(&who) => {
                    expect_end(conversation);
                    continue;
                }
                Effect::Soft if about.contains(&who) => assert_eq!(conversation.expect_update().is_end_of_rib(), None),
                Effect::Hot | Effect::Soft | Effect::Session | Effect::Restart => expect_silence(conversation),
            }
            let status = self.speaker.status();
            assert_eq!(peer(&status, name).established_since, peer(&before, name).established_since);
        }
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Who {
    Configured,
    Dynamic,
}

/// No route is told, nothing ends.
fn expect_silence(conversation: &mut Conversation) {
    while let Some(message) = conversation.next_within(Duration::from_millis(50)) {
        assert!(matches!(message, Message::RouteRefresh(_)), "{message:?}");
    }
}

fn expect_end(conversation: &mut Conversation) {
    let last = conversation.next();
    assert!(matches!(&last, Some(Message::Notification(Notification { code: 6, subcode: 3 | 6, .. }))), "{last:?}");
    assert_eq!(conversation.next(), None);
}

fn effect(key: &str) -> Effect {
    KEYS.iter().find(|known| known.path == key).unwrap_or_else(|| panic!("{key}")).effect
}

#[test]
fn every_key_is_here() {
    let tested: BTreeSet<&str> = [of_the_speaker(), of_one_peer(), of_all_peers()].iter().flatten().map(|case| case.key).collect();
    // They need a default route, and a kernel with TCP-AO: tests/interop_unnumbered.rs, tests/uml_tcp_ao.rs. Those of single routes come with the set
    // that is advertised: tests/system/policy.rs.
    let of_routes = |path: &str| path.starts_with("bgp.policies[]") || path.starts_with("bgp.aggregates[]");
    let elsewhere = |path: &str| path == "bgp.peers[].gateway" || path.contains(".tcpAo.") || of_routes(path);
    let known: BTreeSet<&str> = KEYS.iter().map(|key| key.path).filter(|path| path.starts_with("bgp.") && !elsewhere(path)).collect();
    assert_eq!(tested, known);
}

#[test]
fn a_key_of_the_speaker_costs_what_the_table_says() {
    for Case { key, to, other, .. } in of_the_speaker() {
        let about: &[Who] = if key.starts_with("bgp.listen.") { &[Who::Dynamic] } else { &[Who::Configured, Who::Dynamic] };
        Rig::new(&json!({"bgp": {"listen": other}})).change(key, &to, effect(key), about);
    }
}

#[test]
fn a_key_of_a_peer_costs_what_the_table_says() {
    for Case { key, to, with, other } in of_one_peer().into_iter().chain(of_all_peers()) {
        Rig::new(&json!({"bgp": {"listen": other, "peers": [with]}})).change(key, &to, effect(key), &[Who::Configured]);
    }
}

#[test]
fn a_key_of_dynamic_peers_costs_the_same() {
    for Case { key, to, with, other } in of_all_peers() {
        let rig = Rig::new(&json!({"bgp": {"listen": with, "peers": [other]}}));
        rig.change(&key.replace("bgp.peers[]", "bgp.listen"), &to, effect(key), &[Who::Dynamic]);
    }
}
