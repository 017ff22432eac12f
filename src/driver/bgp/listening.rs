// SPDX-License-Identifier: Apache-2.0
//! In which routing domains neighbours are listened for, and which keys are demanded there.
//!
//! Input: the configuration, the keys, where peers are, and the VRFs of the node. Output: for each domain that needs a socket its keys. A socket outside
//! VRFs takes no connection from inside one, unless `tcp_l3mdev_accept` says so; then it is the only one that can have the port.

use std::collections::{BTreeMap, BTreeSet};

use bgp::Prefix;

use super::keyring::Keys;
use super::listener::RangeKeys;
use super::signature::Signature;
use super::vrf::{Domain, Vrfs};
use super::whereabouts::{Whereabouts, candidates};
use crate::desired::{DesiredBgp, DesiredListen, Transport};

/// Whether sockets outside VRFs take connections from inside them too.
pub(super) fn is_shared() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_l3mdev_accept").is_ok_and(|value| value.trim() != "0")
}

/// Where to listen, and what to demand there. A file without a key demands nothing: its neighbours are refused one by one.
pub(super) fn domains(
    desired: &DesiredBgp,
    keys: &Keys,
    whereabouts: &Whereabouts,
    vrfs: &Vrfs,
    shared: bool,
) -> BTreeMap<Domain, RangeKeys> {
    let Some(listen) = &desired.listen else { return BTreeMap::new() };
    let wanted = wanted(desired, listen, vrfs);
    let only_one = shared && wanted.contains(&None);
    let mut domains: BTreeMap<Domain, RangeKeys> =
        wanted.into_iter().filter(|domain| !only_one || domain.is_none()).map(|domain| (domain, RangeKeys::new())).collect();
    for (domain, range, transport) in transports(desired, listen, whereabouts, vrfs) {
        let Some(ranges) = domains.get_mut(&domain.filter(|_| !only_one)) else { continue };
        if range.address().is_ipv4() == listen.address.is_ipv4()
            && let Ok(Some(signature)) = Signature::demanded(transport, keys)
        {
            ranges.insert(range, signature);
        }
    }
    domains
}

/// The domains of those who are never dialled; outside VRFs where there are none.
fn wanted(desired: &DesiredBgp, listen: &DesiredListen, vrfs: &Vrfs) -> BTreeSet<Domain> {
    let passive = desired.peers.values().filter(|peer| peer.transport.passive);
    let mut wanted: BTreeSet<Domain> = passive.map(|peer| vrfs.domain(peer.interface())).collect();
    if !listen.prefixes.is_empty() || wanted.is_empty() {
        wanted.insert(None);
    }
    wanted
}

/// Each neighbour and range of dynamic neighbours, with how it connects, and in which domain.
fn transports<'a>(
    desired: &'a DesiredBgp,
    listen: &'a DesiredListen,
    whereabouts: &'a Whereabouts,
    vrfs: &'a Vrfs,
) -> impl Iterator<Item = (Domain, Prefix, &'a Transport)> {
    let dynamic = listen.prefixes.iter().map(|prefix| (None, *prefix, &listen.template.transport));
    let configured = desired.peers.values().flat_map(move |peer| {
        let found = candidates(&peer.address, whereabouts).unwrap_or_default();
        found.into_iter().map(move |found| (vrfs.domain(peer.interface()), Prefix::host(found.address), &peer.transport))
    });
    dynamic.chain(configured)
}

#[cfg(test)]
mod tests {
    use bgp::Asn;

    use super::super::keyring::Key;
    use super::super::vrf::Vrf;
    use super::*;
    use crate::desired::DesiredPeer;

    fn red() -> Vrf {
        Vrf { name: "red".to_owned(), index: 5 }
    }

    /// A neighbour at one address, which may be in the VRF, with a key or without.
    fn peer(inside: bool, passive: bool, key: &str) -> DesiredPeer {
        let peer = DesiredPeer::new("10.99.0.2".parse().unwrap(), Asn::new(65001).unwrap());
        let interface = inside.then(|| "eth1".to_owned());
        DesiredPeer { transport: Transport { interface, passive, password_file: Some(key.into()), ..Transport::default() }, ..peer }
    }

    /// The domains, and the keys in each.
    fn found(peers: &[DesiredPeer], prefixes: &[&str], shared: bool) -> Vec<(Domain, Vec<(String, String)>)> {
        let template = DesiredPeer { transport: Transport::default(), ..peer(false, true, "") };
        let prefixes = prefixes.iter().map(|prefix| Prefix::new(prefix.parse().unwrap(), 24).unwrap()).collect();
        let listen = DesiredListen { address: "0.0.0.0".parse().unwrap(), port: 179, prefixes, limit: 1, template };
        let named = peers.iter().enumerate().map(|(number, peer)| (number.to_string(), peer.clone()));
        let desired = DesiredBgp { listen: Some(listen), peers: named.collect(), ..DesiredBgp::new(Asn::new(65001).unwrap()) };
        let keys: Keys = ["a", "b"].map(|key| (key.into(), Ok(Key::of_a_test(key)))).into();
        let vrfs = Vrfs::of_a_test([("red", red()), ("eth1", red())]);
        let domains = domains(&desired, &keys, &Whereabouts::new(), &vrfs, shared);
        let shown = |(range, signature): (&Prefix, &Signature)| match signature {
            Signature::Md5(key) => (range.to_string(), String::from_utf8_lossy(key.octets()).into_owned()),
            Signature::Ao(_) => panic!("no such key"),
        };
        domains.into_iter().map(|(domain, keys)| (domain, keys.iter().map(shown).collect())).collect()
    }

    fn key(name: &str) -> Vec<(String, String)> {
        vec![("10.99.0.2/32".to_owned(), name.to_owned())]
    }

    #[test]
    fn each_domain_with_somebody_who_only_dials_has_a_socket_and_its_own_keys() {
        let (outside, inside) = (|passive| peer(false, passive, "a"), |passive| peer(true, passive, "b"));
        assert_eq!(found(&[outside(true), inside(true)], &[], false), [(None, key("a")), (Some(red()), key("b"))]);
        assert_eq!(found(&[outside(false), inside(true)], &[], false), [(Some(red()), key("b"))]);
        assert_eq!(found(&[outside(true), inside(false)], &[], false), [(None, key("a"))], "who is dialled needs none");
        assert_eq!(found(&[outside(false), inside(false)], &[], false), [(None, key("a"))]);
        assert_eq!(found(&[inside(true)], &["10.99.0.0"], false), [(None, Vec::new()), (Some(red()), key("b"))]);
    }

    #[test]
    fn where_a_socket_outside_takes_connections_from_inside_there_is_only_that_one() {
        let (outside, inside) = (peer(false, true, "a"), peer(true, true, "b"));
        assert_eq!(found(std::slice::from_ref(&inside), &["10.99.0.0"], true), [(None, key("b"))]);
        assert_eq!(found(&[outside, inside.clone()], &[], true).len(), 1);
        assert_eq!(found(&[inside], &[], true), [(Some(red()), key("b"))], "where there is none outside");
    }
}
