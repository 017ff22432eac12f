// SPDX-License-Identifier: Apache-2.0
//! Reads what `nft -j` prints of the tables of virtual services.
//!
//! Inputs: the listing of all tables of a family without the elements of their maps, and of the two maps that dispatch. Output: a [`Listed`]. Invariant: a virtual
//! service is there only where connections are dispatched to its chain; it is set to nothing that we know where its chain is not to the letter what we would write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use ipvs::Weight;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::chain::{self, Family};
use crate::api::{ForwardingMethod, PortRange};
use crate::desired::{Rules, ServiceKey};
use crate::observed::{ObservedRealServer, ObservedVirtualService};

/// The comment of our maps, which nobody else gives one: what has a name of ours in a table without them is not ours.
pub(super) const COMMENT: &str = "virtual services of vipherald";

/// What a table holds.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Listed {
    /// The table is there, and has our maps.
    pub(super) exists: bool,
    /// Something in it is not ours.
    pub(super) foreign: bool,
    /// The first thing that has a name of ours, and was not made by us.
    pub(super) not_ours: Option<String>,
    /// Comments of the rules that dispatch, each after family and chain.
    pub(super) dispatch: Vec<String>,
    /// What each chain of ours makes of a virtual service.
    chains: BTreeMap<ServiceKey, ObservedVirtualService>,
    /// Which services are dispatched to a chain, right or wrong.
    dispatched: BTreeMap<ServiceKey, String>,
}

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Map<String, Value>>,
}

impl Listed {
    /// The virtual services to which connections are dispatched.
    pub(super) fn services(&self) -> BTreeMap<ServiceKey, ObservedVirtualService> {
        let right = self.dispatched.iter().filter(|(key, chain)| **chain == chain::chain_name(**key));
        right.filter_map(|(key, _)| Some((*key, self.chains.get(key)?.clone()))).collect()
    }

    /// Those that are dispatched to another chain than theirs.
    pub(super) fn misdirected(&self) -> BTreeSet<ServiceKey> {
        self.dispatched.iter().filter(|(key, chain)| **chain != chain::chain_name(**key)).map(|(key, _)| *key).collect()
    }

    /// Those that are dispatched nowhere, and whose chains nothing is dispatched to.
    pub(super) fn orphans(&self) -> impl Iterator<Item = ServiceKey> {
        let named: BTreeSet<ServiceKey> = self.dispatched.values().filter_map(|chain| chain::service_of(chain)).collect();
        self.chains.keys().filter(move |key| !named.contains(key) && !self.dispatched.contains_key(key)).copied()
    }

    /// Takes the table of this name from the listing of its family.
    pub(super) fn take_table(&mut self, json: &[u8], family: Family, table: &str) -> Result<(), serde_json::Error> {
        let mut chains: BTreeMap<ServiceKey, Vec<ServiceRule>> = BTreeMap::new();
        let mut dispatching = None;
        each_object(json, |kind, object| {
            let name = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
            if name("table") != table {
                return;
            }
            match kind {
                "map" if Rules::DISPATCH_MAPS.contains(&name("name")) && name("comment") == COMMENT => self.exists = true,
                "map" | "set" if Rules::DISPATCH_MAPS.contains(&name("name")) => self.not_ours = Some(name("name").to_owned()),
                "map" => self.foreign |= chain::service_of(name("name")).is_none(),
                "chain" if Rules::DISPATCH_CHAINS.contains(&name("name")) => dispatching = Some(name("name").to_owned()),
                "chain" => match chain::service_of(name("name")) {
                    Some(key) => drop(chains.entry(key).or_default()),
                    None => self.foreign = true,
                },
                "rule" if Rules::DISPATCH_CHAINS.contains(&name("chain")) => {
                    self.dispatch.push(format!("{} {}: {}", family.ip, name("chain"), name("comment")));
                }
                "rule" => {
                    if let Some(key) = chain::service_of(name("chain")) {
                        chains.entry(key).or_default().push(ServiceRule::new(&object));
                    }
                }
                _ => self.foreign = true,
            }
        })?;
        if self.exists {
            self.chains.extend(chains.into_iter().map(|(key, rules)| (key, service(key, &rules))));
        } else {
            self.dispatch.clear();
            let of_service = chains.keys().next().map(|key| chain::chain_name(*key));
            self.not_ours = self.not_ours.take().or(dispatching).or(of_service);
        }
        Ok(())
    }

    /// Takes the listing of a map that dispatches.
    pub(super) fn take_map(&mut self, json: &[u8]) -> Result<(), serde_json::Error> {
        let listing: Listing = serde_json::from_slice(json)?;
        let maps = listing.nftables.iter().filter_map(|object| object.get("map")?.get("elem")?.as_array());
        self.dispatched.extend(maps.flatten().filter_map(|pair| {
            let chain = pair.get(1)?.get("goto")?.get("target")?.as_str()?;
            Some((key(pair.get(0)?)?, chain.to_owned()))
        }));
        Ok(())
    }
}

/// A rule in the chain of a service, as far as we write such.
struct ServiceRule {
    comment: String,
    /// The real server that it lists.
    real_server: Option<ObservedRealServer>,
}

impl ServiceRule {
    fn new(rule: &Map<String, Value>) -> Self {
        let comment = rule.get("comment").and_then(Value::as_str).unwrap_or_default();
        Self { real_server: real_server(rule, comment), comment: comment.to_owned() }
    }
}

/// What the rules of its chain make of a virtual service.
fn service(key: ServiceKey, rules: &[ServiceRule]) -> ObservedVirtualService {
    let mut real_servers: Vec<ObservedRealServer> = rules.iter().skip(1).filter_map(|rule| rule.real_server).collect();
    real_servers.sort_by_key(|server| server.address);
    let mut service = ObservedVirtualService { mode: None, real_servers };
    service.mode = rules.first().and_then(|rule| chain::mode_of(&rule.comment)).filter(|mode| {
        let wanted = chain::service_chain(key, *mode, &service).rules;
        wanted.iter().map(|(_, comment)| comment.as_str()).eq(rules.iter().map(|rule| rule.comment.as_str()))
    });
    service
}

/// The real server that a rule lists.
fn real_server(rule: &Map<String, Value>, comment: &str) -> Option<ObservedRealServer> {
    let weight = Weight(comment.strip_prefix("weight ")?.parse().ok()?);
    let mut matches = rule.get("expr")?.as_array()?.iter().filter_map(|expression| expression.get("match")?.get("right"));
    let address = matches.next()?.as_str()?.parse().ok()?;
    let port = matches.next().map_or(Some(0), |port| u16::try_from(port.as_u64()?).ok())?;
    Some(super::real_server(SocketAddr::new(address, port), weight))
}

/// Hands over the objects of a listing with their kinds, one by one: read as a whole they take many times the room of the text.
fn each_object(json: &[u8], take: impl FnMut(&str, Map<String, Value>)) -> Result<(), serde_json::Error> {
    struct Whole<F>(F);
    struct Objects<'a, F>(&'a mut F);

    impl<'de, F: FnMut(&str, Map<String, Value>)> Visitor<'de> for Whole<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a listing of nft")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<String>()? {
                match key.as_str() {
                    "nftables" => map.next_value_seed(Objects(&mut self.0))?,
                    _ => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(())
        }
    }

    impl<'de, F: FnMut(&str, Map<String, Value>)> DeserializeSeed<'de> for Objects<'_, F> {
        type Value = ();

        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_seq(self)
        }
    }

    impl<'de, F: FnMut(&str, Map<String, Value>)> Visitor<'de> for Objects<'_, F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of objects")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut objects: A) -> Result<(), A::Error> {
            while let Some(object) = objects.next_element::<BTreeMap<String, Value>>()? {
                for (kind, object) in object {
                    if let Value::Object(object) = object {
                        (self.0)(&kind, object);
                    }
                }
            }
            Ok(())
        }
    }

    let mut deserializer = serde_json::Deserializer::from_slice(json);
    deserializer.deserialize_map(Whole(take))?;
    deserializer.end()
}

/// The virtual service of an element, such as `10.0.0.7 . tcp . 80` or `10.0.0.7 . tcp . 1000-2000`.
fn key(element: &Value) -> Option<ServiceKey> {
    let value = element.get("elem").and_then(|element| element.get("val")).unwrap_or(element);
    let [vip, protocol, ports] = value.get("concat")?.as_array()?.as_slice() else { return None };
    let (first, last) = match ports.get("range").and_then(Value::as_array).map(Vec::as_slice) {
        Some([first, last]) => (first.as_i64()?, last.as_i64()?),
        _ => (ports.as_i64()?, ports.as_i64()?),
    };
    Some(ServiceKey {
        vip: vip.as_str()?.parse().ok()?,
        protocol: protocol.as_str()?.parse().ok()?,
        ports: PortRange::new(first, last).ok()?,
    })
}

pub(super) const FORWARDING: ForwardingMethod = ForwardingMethod::Masquerade;
