// SPDX-License-Identifier: Apache-2.0
//! Sessions signed with TCP-AO (RFC 5925), between two speakers. Needs a kernel with `CONFIG_TCP_AO`.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::State;
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use common::{Namespace, wait_until};
use tempfile::TempDir;
use vipherald::desired::{AoAlgorithm, AoKey, DesiredBgp, DesiredListen, DesiredPeer, Transport};
use vipherald::driver::bgp::{PeerStatus, Speaker};

const PATIENCE: Duration = Duration::from_secs(60);

const DIALS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const LISTENS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// Two speakers on one link; one dials, the other one listens.
struct Rig {
    keys: TempDir,
    dials: Speaker,
    listens: Speaker,
    _namespaces: [Namespace; 2],
}

impl Rig {
    fn new() -> Self {
        let namespaces = [Namespace::new("ao-d"), Namespace::new("ao-l")];
        let [near, far] = &namespaces;
        near.veth("eth0", far, "eth0");
        near.ip(&format!("address add {DIALS}/24 dev eth0"));
        far.ip(&format!("address add {LISTENS}/24 dev eth0"));
        let speaker = |namespace: &Namespace| namespace.run(|| Speaker::spawn("vipherald", 7)).unwrap();
        Self { keys: TempDir::new().unwrap(), dials: speaker(near), listens: speaker(far), _namespaces: namespaces }
    }

    /// A key with this number, and this content of its file.
    fn key(&self, id: u8, content: &str) -> AoKey {
        let password_file = self.path(content);
        std::fs::write(&password_file, content).unwrap();
        AoKey { send_id: id, recv_id: id, algorithm: AoAlgorithm::HmacSha1, password_file }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.keys.path().join(name)
    }

    fn dial(&self, ao_keys: Vec<AoKey>) {
        let transport = Transport { ao_keys, ..Transport::default() };
        self.dials.configure(Arc::new(speaker_of(DIALS, peer(LISTENS, transport), None)), None);
    }

    fn listen(&self, ao_keys: Vec<AoKey>) {
        let peer = peer(DIALS, Transport { passive: true, ao_keys, ..Transport::default() });
        let template = peer.clone();
        let listen = DesiredListen { address: LISTENS.into(), port: 179, prefixes: BTreeSet::new(), limit: 1, template };
        self.listens.configure(Arc::new(speaker_of(LISTENS, peer, Some(listen))), None);
    }

    /// As dynamic neighbours of a range.
    fn listen_to_all(&self, ao_keys: Vec<AoKey>) {
        let template = peer(DIALS, Transport { passive: true, ao_keys, ..Transport::default() });
        let prefixes = BTreeSet::from([Prefix::truncated(DIALS.into(), 24).unwrap()]);
        let listen = DesiredListen { address: LISTENS.into(), port: 179, prefixes, limit: 1, template: template.clone() };
        let mut desired = speaker_of(LISTENS, template, Some(listen));
        desired.peers.clear();
        self.listens.configure(Arc::new(desired), None);
    }

    fn wait_until_up(&self) {
        wait_until("the session is up", PATIENCE, || self.session().is_some_and(|peer| peer.state == State::Established));
    }

    /// The session as the dialling end sees it.
    fn session(&self) -> Option<PeerStatus> {
        self.dials.status().peers.get("peer").map(|peer| (**peer).clone())
    }

    /// More attempts are refused for this reason.
    fn wait_for_refusals(&self, reason: &str) {
        let count = || {
            let session = self.session();
            let mut errors = session.iter().flat_map(|peer| peer.last_error.iter().chain(&peer.last_attempt_error));
            errors.find(|error| error.reason.contains(reason)).map_or(0, |error| error.count)
        };
        let begun = count();
        wait_until(reason, PATIENCE, || count() > begun + 2);
        assert_eq!(self.session().unwrap().counters.established, 0);
    }
}

fn peer(address: Ipv4Addr, transport: Transport) -> DesiredPeer {
    DesiredPeer {
        transport,
        families: BTreeSet::from([Family::Ipv4Unicast]),
        hold_time: HoldTime::from_secs(3).unwrap(),
        connect_retry: Duration::from_secs(1),
        ..DesiredPeer::new(address.into(), Asn::new(65001).unwrap())
    }
}

fn speaker_of(own: Ipv4Addr, peer: DesiredPeer, listen: Option<DesiredListen>) -> DesiredBgp {
    DesiredBgp {
        router_id: BgpIdentifier::try_from(own).ok(),
        listen,
        peers: [("peer".to_owned(), peer)].into(),
        ..DesiredBgp::new(Asn::new(65001).unwrap())
    }
}

#[test]
fn only_equal_keys_make_a_session() {
    let rig = Rig::new();
    let key = rig.key(1, "secret");
    rig.listen(vec![key.clone()]);
    rig.dial(vec![rig.key(1, "another")]);
    rig.wait_for_refusals("it may have another key");
    rig.dial(vec![AoKey { algorithm: AoAlgorithm::Aes128Cmac, ..key.clone() }]);
    rig.wait_for_refusals("it may have another key");
    rig.dial(Vec::new());
    rig.wait_for_refusals("did not answer");
    rig.dial(vec![key]);
    rig.wait_until_up();
    rig.listen(Vec::new());
    wait_until("the listening end takes no signed connection without keys", PATIENCE, || {
        rig.session().is_some_and(|peer| peer.state != State::Established)
    });
}

#[test]
fn keys_change_without_an_end_of_the_session() {
    let rig = Rig::new();
    let (old, new) = (rig.key(1, "old"), rig.key(2, "new"));
    for listen in [Rig::listen, Rig::listen_to_all] {
        listen(&rig, vec![old.clone()]);
        rig.dial(vec![old.clone()]);
        rig.wait_until_up();
        let before = rig.session().unwrap().counters;
        let alive = |rig: &Rig| {
            let heard = rig.session().unwrap().counters.received.keepalive;
            wait_until("the session goes on", PATIENCE, || rig.session().unwrap().counters.received.keepalive > heard + 3);
            assert_eq!(rig.session().unwrap().counters.established, before.established, "it was reset");
        };
        for keys in [[&old, &new], [&new, &old]] {
            let keys: Vec<AoKey> = keys.into_iter().cloned().collect();
            rig.dial(keys.clone());
            listen(&rig, keys);
            alive(&rig);
        }
        rig.dial(vec![new.clone()]);
        alive(&rig);
        rig.dial(Vec::new());
        wait_until("it is over", PATIENCE, || rig.session().is_some_and(|peer| peer.state != State::Established));
    }
}

#[test]
fn a_file_that_is_missing_is_never_no_key() {
    let rig = Rig::new();
    rig.listen(Vec::new());
    let missing = AoKey { password_file: rig.path("nowhere"), ..rig.key(2, "x") };
    rig.dial(vec![rig.key(1, "secret"), missing.clone()]);
    rig.wait_for_refusals(&format!("no TCP-AO key in {}: No such file", missing.password_file.display()));
    assert_eq!(rig.session().unwrap().counters.sent.open, 0);
}
