// SPDX-License-Identifier: Apache-2.0
//! Which endpoints of a Service get the traffic that comes in through its external addresses, and whether there is one.
//!
//! Input: a Service and its EndpointSlices. Output: an [`Availability`] for each address family. The rules are those of kube-proxy, since with the
//! dataplane `kube-proxy` it is kube-proxy that serves what we announce:
//!
//! | ready | serving | terminating | a ready one among the candidates | used |
//! |-------|---------|-------------|----------------------------------|------|
//! | yes   | any     | any         | this one                         | yes  |
//! | no    | yes     | yes         | no                               | yes  |
//! | no    | yes     | yes         | yes                              | no   |
//! | no    | yes     | no          | any                              | no   |
//! | no    | no      | any         | any                              | no   |
//!
//! The candidates are all endpoints with `externalTrafficPolicy: Cluster`, and those on this node with `Local`; with `dataplane.localPolicy:
//! preserveSource` all of them there too, where they see the address of the client anyway. A condition that is not given
//! means ready, serving, not terminating. `publishNotReadyAddresses` needs no rule: it makes the EndpointSlice controller call an endpoint ready.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointSlice};

use ipvs::Weight;

use super::addresses::unfit;
use super::claims::ClaimedPort;
use super::ports;
use super::{Rejection, RejectionReason, WithholdReason};
use crate::api::{Kind, ObjectRef, PortRange, Protocol, parse_address, quoted};
use crate::config::LocalPolicy;

/// The label that says whose endpoints a slice has.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// What is known of an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct State {
    ready: bool,
    serving: bool,
    terminating: bool,
    /// Whether it is on this node.
    local: bool,
}

impl State {
    fn new(conditions: Option<&EndpointConditions>, local: bool) -> Self {
        let condition = |value: fn(&EndpointConditions) -> Option<bool>| conditions.and_then(value);
        Self {
            ready: condition(|conditions| conditions.ready).unwrap_or(true),
            serving: condition(|conditions| conditions.serving).unwrap_or(true),
            terminating: condition(|conditions| conditions.terminating).unwrap_or(false),
            local,
        }
    }
}

/// `externalTrafficPolicy`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TrafficPolicy {
    Cluster,
    Local,
}

impl TrafficPolicy {
    /// The policy for a port of which real servers see the client wherever they are, or not. What `Local` is for, the address of the client, is had
    /// from all of them then, where the configuration says so.
    fn for_port(self, local: LocalPolicy, shows_client: bool) -> Self {
        if local == LocalPolicy::PreserveSource && shows_client { Self::Cluster } else { self }
    }
}

/// The rule of the table above; `any_ready` is whether any candidate is ready.
const fn is_used(endpoint: State, policy: TrafficPolicy, any_ready: bool) -> bool {
    let candidate = matches!(policy, TrafficPolicy::Cluster) || endpoint.local;
    candidate && (endpoint.ready || (!any_ready && endpoint.serving && endpoint.terminating))
}

/// Whether somebody stands behind a port, or an address.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Availability {
    /// Whoever stands behind it, what is asked for cannot be had.
    Refused,
    /// The Service is not there.
    Missing,
    /// Nobody does.
    Nobody,
    /// Somebody does, but on other nodes, and the policy wants them here.
    NobodyHere,
    /// Somebody does.
    Usable,
}

impl Availability {
    /// Why nothing is served, if nothing is.
    pub(super) const fn reason(self) -> Option<WithholdReason> {
        match self {
            Self::Refused => Some(WithholdReason::Invalid),
            Self::Missing => Some(WithholdReason::ServiceNotFound),
            Self::Nobody => Some(WithholdReason::NoEndpoints),
            Self::NobodyHere => Some(WithholdReason::NoLocalEndpoints),
            Self::Usable => None,
        }
    }
}

fn availability(endpoints: &[State], policy: TrafficPolicy) -> Availability {
    let any_used = |policy| {
        let candidates = endpoints.iter().filter(|endpoint| policy == TrafficPolicy::Cluster || endpoint.local);
        let any_ready = candidates.clone().any(|endpoint| endpoint.ready);
        candidates.into_iter().any(|endpoint| is_used(*endpoint, policy, any_ready))
    };
    if any_used(policy) {
        Availability::Usable
    } else if policy == TrafficPolicy::Local && any_used(TrafficPolicy::Cluster) {
        Availability::NobodyHere
    } else {
        Availability::Nobody
    }
}

/// An endpoint that traffic may be sent to.
type Candidate = (IpAddr, State);

/// By Service, the names of its EndpointSlices, in order.
pub(crate) type SliceNames = BTreeMap<ObjectRef, Vec<ObjectRef>>;

/// The EndpointSlices of each Service.
pub(super) struct Slices<'a> {
    by_service: BTreeMap<(&'a str, &'a str), Vec<(&'a ObjectRef, &'a EndpointSlice)>>,
    node_name: &'a str,
    local_policy: LocalPolicy,
}

impl<'a> Slices<'a> {
    /// Sorts slices, which come in order, by their Services.
    pub(super) fn of(
        slices: impl IntoIterator<Item = (&'a ObjectRef, &'a Arc<EndpointSlice>)>,
        node_name: &'a str,
        local_policy: LocalPolicy,
    ) -> Self {
        let mut by_service: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, slice) in slices {
            if let Some(service) = service_of(slice) {
                by_service.entry((name.namespace.as_str(), service)).or_default().push((name, slice.as_ref()));
            }
        }
        Self { by_service, node_name, local_policy }
    }

    pub(super) fn names(&self) -> SliceNames {
        let service =
            |namespace: &str, name: &str| ObjectRef { kind: Kind::Service, namespace: namespace.to_owned(), name: name.to_owned() };
        let names = |slices: &[(&ObjectRef, &EndpointSlice)]| slices.iter().map(|(name, _)| (*name).clone()).collect();
        self.by_service.iter().map(|((namespace, name), slices)| (service(namespace, name), names(slices))).collect()
    }

    /// Who stands behind this Service. Endpoints that no traffic may be sent to are rejected, `is_vip` telling which addresses are ours.
    pub(super) fn behind(
        &self,
        name: &ObjectRef,
        service: &'a Service,
        is_vip: &dyn Fn(&IpAddr) -> bool,
        rejections: &mut Vec<Rejection>,
    ) -> Behind<'a> {
        let policy = match service.spec.as_ref().and_then(|spec| spec.external_traffic_policy.as_deref()) {
            Some("Local") => TrafficPolicy::Local,
            _ => TrafficPolicy::Cluster,
        };
        let slices = self.by_service.get(&(name.namespace.as_str(), name.name.as_str())).map_or(&[][..], Vec::as_slice);
        let mut usable = Vec::new();
        for (name, slice) in slices {
            match self.endpoints(slice, is_vip) {
                Ok((endpoints, errors)) => {
                    rejections.extend(errors.into_iter().map(|message| Rejection::object(name, RejectionReason::Invalid, message)));
                    usable.push((*slice, endpoints));
                }
                Err(message) => rejections.push(Rejection::object(name, RejectionReason::Invalid, message)),
            }
        }
        Behind { policy, local_policy: self.local_policy, ports: ports::known(service), slices: usable }
    }

    /// The endpoints of a slice that traffic may be sent to, and what is wrong with the others.
    fn endpoints(&self, slice: &EndpointSlice, is_vip: &dyn Fn(&IpAddr) -> bool) -> Result<(Vec<Candidate>, Vec<String>), String> {
        let family = match slice.address_type.as_str() {
            "IPv4" => IpAddr::is_ipv4,
            "IPv6" => IpAddr::is_ipv6,
            "FQDN" => return Err("addressType: FQDN endpoints are not followed; give their addresses in slices of IPv4 and IPv6".into()),
            other => return Err(format!("addressType: {} is unknown; expected IPv4 or IPv6", quoted(other))),
        };
        let mut errors = Vec::new();
        let mut endpoints = Vec::new();
        for (index, endpoint) in slice.endpoints.iter().enumerate() {
            match check(endpoint, family, is_vip) {
                Ok(address) => {
                    let local = endpoint.node_name.as_deref() == Some(self.node_name);
                    endpoints.push((address, State::new(endpoint.conditions.as_ref(), local)));
                }
                Err(message) => errors.push(format!("endpoints[{index}].addresses: {message}; the endpoint is not used")),
            }
        }
        Ok((endpoints, errors))
    }
}

/// Whether traffic may be sent to an endpoint. As with kube-proxy, its first address counts.
fn check(endpoint: &Endpoint, family: fn(&IpAddr) -> bool, is_vip: &dyn Fn(&IpAddr) -> bool) -> Result<IpAddr, String> {
    let text = endpoint.addresses.first().ok_or("there is none")?;
    let address = parse_address(text)?;
    if !family(&address) {
        return Err(format!("{address} is not of the family of the slice"));
    }
    if let Some(why) = unfit(address) {
        return Err(format!("{address} {why}"));
    }
    if is_vip(&address) {
        return Err(format!("{address} is a VIP, so that traffic would come back to the router"));
    }
    Ok(address)
}

/// The Service that a slice belongs to, of its own namespace.
pub(super) fn service_of(slice: &EndpointSlice) -> Option<&str> {
    slice.metadata.labels.as_ref()?.get(SERVICE_NAME).map(String::as_str)
}

/// Who stands behind a Service.
pub(super) struct Behind<'a> {
    policy: TrafficPolicy,
    local_policy: LocalPolicy,
    /// Its ports.
    ports: Vec<ServicePort<'a>>,
    /// Its slices, and of each the endpoints that traffic may be sent to.
    slices: Vec<(&'a EndpointSlice, Vec<Candidate>)>,
}

impl Behind<'_> {
    /// Whether somebody stands behind this port for traffic to this VIP, which needs an endpoint of its family.
    pub(super) fn availability(&self, vip: IpAddr, port: &ClaimedPort<'_>) -> Availability {
        let policy = self.policy.for_port(self.local_policy, port.shows_client());
        availability(&self.candidates(vip, port.target).map(|(_, state)| state).collect::<Vec<_>>(), policy)
    }

    /// Whether endpoints of other nodes are left out only since they would not see the client.
    pub(super) fn wants_to_show_client(&self, port: &ClaimedPort<'_>) -> bool {
        self.policy == TrafficPolicy::Local && self.local_policy == LocalPolicy::PreserveSource && !port.shows_client()
    }

    /// The real servers of this port for traffic to this VIP. One that gets no new connections, and may have old ones, has weight 0.
    pub(super) fn real_servers(&self, vip: IpAddr, port: &ClaimedPort<'_>) -> BTreeMap<SocketAddr, Weight> {
        let policy = self.policy.for_port(self.local_policy, port.shows_client());
        let in_reach = self.candidates(vip, port.target).filter(|(_, state)| policy == TrafficPolicy::Cluster || state.local);
        let in_reach: Vec<_> = in_reach.collect();
        let any_ready = in_reach.iter().any(|(_, state)| state.ready);
        let mut servers = BTreeMap::new();
        for (address, state) in in_reach {
            let weight = if is_used(state, policy, any_ready) { Weight::default() } else { Weight::QUIESCE };
            let entry = servers.entry(address).or_insert(weight);
            *entry = weight.max(*entry);
        }
        servers
    }

    /// A port of the Service in this range for which the endpoints have another number, and that number.
    pub(super) fn moved_port(&self, vip: IpAddr, protocol: Protocol, range: PortRange) -> Option<(u16, u16)> {
        let ports = self.ports.iter().filter(|port| port.protocol == protocol && range.contains(port.number));
        let pairs = ports.flat_map(|port| self.candidates(vip, Target::Port(*port)).map(|(server, _)| (port.number, server.port())));
        pairs.filter(|(from, to)| from != to).min()
    }

    fn candidates(&self, vip: IpAddr, port: Target<'_>) -> impl Iterator<Item = (SocketAddr, State)> {
        let family = if vip.is_ipv4() { "IPv4" } else { "IPv6" };
        let slices = self.slices.iter().filter(move |(slice, _)| slice.address_type == family);
        let with_port = slices.filter_map(move |(slice, endpoints)| Some((port.in_slice(slice)?, endpoints)));
        with_port.flat_map(|(port, endpoints)| endpoints.iter().map(move |(address, state)| (SocketAddr::new(*address, port), *state)))
    }
}

/// Which port of the endpoints is meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Target<'a> {
    /// That which the slices have under the name of this port of the Service.
    Port(ServicePort<'a>),
    /// This one, of which the Service knows nothing; 0 for that of each packet.
    Number(u16),
}

impl Target<'_> {
    fn in_slice(self, slice: &EndpointSlice) -> Option<u16> {
        match self {
            Self::Port(port) => port.in_slice(slice),
            Self::Number(number) => Some(number),
        }
    }
}

/// A port of a Service, as slices name it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ServicePort<'a> {
    /// Its name; empty where a Service has only one and gives it none.
    pub(super) name: &'a str,
    /// Its protocol.
    pub(super) protocol: Protocol,
    /// Its number.
    pub(super) number: u16,
}

impl ServicePort<'_> {
    /// The number of the slice's port of this name and protocol. One without a number means nothing to kube-proxy.
    fn in_slice(&self, slice: &EndpointSlice) -> Option<u16> {
        let ports = slice.ports.iter().flatten().filter(|port| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
            port.name.as_deref().unwrap_or_default() == self.name && protocol == self.protocol.word()
        });
        ports.filter_map(|port| u16::try_from(port.port?).ok()).find(|number| *number != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(ready: bool, serving: bool, terminating: bool, local: bool) -> State {
        State { ready, serving, terminating, local }
    }

    #[test]
    fn each_row_of_the_table_holds_for_each_policy() {
        const ANY: [bool; 2] = [false, true];
        for terminating in ANY {
            for serving in ANY {
                for ready in ANY {
                    for any_ready in ANY {
                        for local in ANY {
                            let used = match (ready, serving, terminating, any_ready) {
                                (true, ..) | (false, true, true, false) => true,
                                (false, true, true, true) | (false, true, false, _) | (false, false, ..) => false,
                            };
                            let endpoint = state(ready, serving, terminating, local);
                            assert_eq!(is_used(endpoint, TrafficPolicy::Cluster, any_ready), used, "{endpoint:?} {any_ready}");
                            assert_eq!(is_used(endpoint, TrafficPolicy::Local, any_ready), used && local, "{endpoint:?} {any_ready}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn conditions_that_are_not_given_mean_a_usable_endpoint() {
        assert_eq!(State::new(None, false), state(true, true, false, false));
        let conditions = |ready, serving, terminating| EndpointConditions { ready, serving, terminating };
        assert_eq!(State::new(Some(&conditions(None, None, None)), true), state(true, true, false, true));
        // A pod on its way out, of a cluster that does not report `serving`.
        assert_eq!(State::new(Some(&conditions(Some(false), None, Some(true))), false), state(false, true, true, false));
        // `publishNotReadyAddresses` makes the controller say ready of a pod that is neither.
        assert_eq!(State::new(Some(&conditions(Some(true), Some(false), Some(true))), false), state(true, false, true, false));
    }

    #[test]
    fn the_policy_decides_whose_endpoints_count() {
        use Availability::{Nobody, NobodyHere, Usable};
        use TrafficPolicy::{Cluster, Local};
        let (ready, leaving, unready) =
            (|local| state(true, true, false, local), |local| state(false, true, true, local), |local| state(false, false, false, local));
        for (endpoints, cluster, local) in [
            (vec![], Nobody, Nobody),
            (vec![ready(true)], Usable, Usable),
            (vec![ready(false)], Usable, NobodyHere),
            (vec![leaving(true)], Usable, Usable),
            (vec![leaving(false)], Usable, NobodyHere),
            // With Local, a leaving endpoint here is used although a ready one is elsewhere.
            (vec![leaving(true), ready(false)], Usable, Usable),
            (vec![unready(true), ready(false)], Usable, NobodyHere),
            (vec![unready(true), unready(false)], Nobody, Nobody),
        ] {
            assert_eq!(availability(&endpoints, Cluster), cluster, "{endpoints:?}");
            assert_eq!(availability(&endpoints, Local), local, "{endpoints:?}");
        }
    }
}
