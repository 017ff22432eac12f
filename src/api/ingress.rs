// SPDX-License-Identifier: Apache-2.0
//! What EricIngress and LvsIngress ask for, in one checked form.
//!
//! Input: the [`raw`] form. Output: an [`IngressSpec`], or every [`FieldError`] of the object at once. Invariants: ports are 1 to 65535, a range does
//! not end before it starts, both ranges of a mapping are equally long, and no two mappings of one object take the same port of the VIP.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EricIngress, LvsIngress, parse_address, quoted, raw};
use crate::spelling::nearest;

/// More port mappings than this are a mistake; what is checked pairwise stays cheap.
pub(crate) const MOST_MAPPINGS: usize = 256;

/// A VIP and where its ports go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IngressSpec {
    /// The VIP.
    pub vip: IpAddr,
    /// The Service behind it, of the object's own namespace.
    pub service: String,
    /// Its ports; never empty.
    pub ports: Vec<PortMapping>,
}

/// Ports of a VIP and the ports of the Service that they go to, one by one in ascending order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortMapping {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Ports of the VIP.
    pub vip_ports: PortRange,
    /// Ports of the Service; as many as those of the VIP.
    pub service_ports: PortRange,
    /// Who gets the next connection.
    pub scheduler: Scheduler,
    /// How a packet gets there.
    pub forwarding: ForwardingMethod,
}

/// Ports from the first to the last, both included.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct PortRange {
    start: u16,
    end: u16,
}

impl PortRange {
    /// The least of all ranges.
    pub(crate) const LOWEST: Self = Self { start: 1, end: 1 };

    /// The range of these two numbers.
    ///
    /// # Errors
    /// One of them is no port, or the end is below the start.
    pub fn new(start: i64, end: i64) -> Result<Self, PortRangeError> {
        let port = |found| u16::try_from(found).ok().filter(|port| *port != 0).ok_or(PortRangeError::NoPort { found });
        let (first, last) = (port(start)?, port(end)?);
        if first > last { Err(PortRangeError::Reversed { start: first, end: last }) } else { Ok(Self { start: first, end: last }) }
    }

    /// The first port.
    #[must_use]
    pub const fn start(self) -> u16 {
        self.start
    }

    /// The last port.
    #[must_use]
    pub const fn end(self) -> u16 {
        self.end
    }

    /// How many ports it has, 1 at least.
    #[must_use]
    pub fn count(self) -> u32 {
        u32::from(self.end) - u32::from(self.start) + 1
    }

    /// Whether the port is in it.
    #[must_use]
    pub const fn contains(self, port: u16) -> bool {
        self.start <= port && port <= self.end
    }

    /// Whether some port is in both.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Those of its ports that are below all of another one, and those that are above.
    pub(crate) fn without(self, other: Self) -> (Option<Self>, Option<Self>) {
        let below = Self { end: self.end.min(other.start - 1), ..self };
        let above = other.end.checked_add(1).map(|next| Self { start: self.start.max(next), ..self });
        let is_one = |range: &Self| range.start <= range.end;
        (Some(below).filter(is_one), above.filter(is_one))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.start == self.end { write!(f, "{}", self.start) } else { write!(f, "{}-{}", self.start, self.end) }
    }
}

/// Why two numbers make no range of ports.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PortRangeError {
    /// A number that no port has.
    #[error("{found} is no port, which is 1 to 65535")]
    NoPort {
        /// The number given.
        found: i64,
    },
    /// The end is below the start.
    #[error("start {start} is above end {end}")]
    Reversed {
        /// The first port.
        start: u16,
        /// The last port.
        end: u16,
    },
}

/// The word of a field and its values, with the error that offers the nearest one.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $default:ident, { $($(#[$value_doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$value_doc])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            /// All values, in the order in which they are listed to people.
            pub const ALL: &'static [Self] = &[$(Self::$value,)+];

            /// The word of the field.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                let known = Self::ALL.iter().map(|value| value.word());
                Self::ALL.iter().find(|value| value.word() == text).copied().ok_or_else(|| UnknownWord::new(text, known))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// The protocol of a port. EricIngress and LvsIngress take TCP and UDP; a Service may have SCTP besides.
    Protocol, Tcp, {
        /// TCP.
        Tcp = "tcp",
        /// UDP.
        Udp = "udp",
        /// SCTP.
        Sctp = "sctp",
    }
}

words! {
    /// An IPVS scheduler (`ipvsadm -s`).
    Scheduler, RoundRobin, {
        /// `rr`.
        RoundRobin = "rr",
        /// `wrr`.
        WeightedRoundRobin = "wrr",
        /// `lc`.
        LeastConnection = "lc",
        /// `wlc`.
        WeightedLeastConnection = "wlc",
        /// `lblc`.
        LocalityBasedLeastConnection = "lblc",
        /// `lblcr`.
        LocalityBasedLeastConnectionWithReplication = "lblcr",
        /// `dh`.
        DestinationHashing = "dh",
        /// `sh`.
        SourceHashing = "sh",
        /// `sed`.
        ShortestExpectedDelay = "sed",
        /// `nq`.
        NeverQueue = "nq",
        /// `fo`.
        WeightedFailover = "fo",
        /// `ovf`.
        WeightedOverflow = "ovf",
        /// `mh`.
        MaglevHashing = "mh",
        /// `twos`.
        WeightedRandomTwosChoice = "twos",
    }
}

words! {
    /// How IPVS forwards a packet to a real server.
    ForwardingMethod, Masquerade, {
        /// `nat`: the destination is translated, and the answer comes back through us.
        Masquerade = "nat",
        /// `dr`: the packet goes to the target unchanged, over a common link.
        DirectRouting = "dr",
        /// `tun`: the packet goes to the target unchanged, in a tunnel.
        Tunnel = "tun",
        /// `gue`: the same, in a tunnel over UDP (Generic UDP Encapsulation).
        Gue = "gue",
    }
}

/// A word that a field does not have.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{found} is unknown; expected one of {expected}{}", .nearest.map(|word| format!("; did you mean {word}?")).unwrap_or_default())]
pub struct UnknownWord {
    found: String,
    expected: String,
    nearest: Option<&'static str>,
}

impl UnknownWord {
    fn new(found: &str, known: impl Iterator<Item = &'static str> + Clone) -> Self {
        let nearest = nearest(found, known.clone());
        Self { found: quoted(found), expected: known.collect::<Vec<_>>().join(", "), nearest }
    }
}

/// A field that holds what it must not.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldError {
    /// Where, such as `spec.backends.config[0].algo`.
    pub path: String,
    /// What was found, and what was expected.
    pub message: String,
}

/// All that is wrong with one object; never empty.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct InvalidFields(pub Vec<FieldError>);

impl TryFrom<raw::EricIngress> for EricIngress {
    type Error = InvalidFields;

    fn try_from(raw: raw::EricIngress) -> Result<Self, InvalidFields> {
        let mut check = Check::default();
        let vip = check.address("spec.virtualServiceIP", raw.spec.virtual_service_ip.as_deref());
        let service = check.required("spec.backends.name", raw.spec.backends.name.as_deref());
        let ports = raw.spec.backends.config.iter().enumerate().map(|(index, config)| check.backend_config(index, config)).collect();
        let ports = check.ports("spec.backends.config", "portRange.vipPortRange", ports);
        Ok(Self { spec: check.finish(vip, service, ports)?, metadata: raw.metadata })
    }
}

impl TryFrom<raw::LvsIngress> for LvsIngress {
    type Error = InvalidFields;

    fn try_from(raw: raw::LvsIngress) -> Result<Self, InvalidFields> {
        let mut check = Check::default();
        let backend = &raw.spec.backend_service;
        let vip = check.address("spec.virtualServiceIP", raw.spec.virtual_service_ip.as_deref());
        let service = check.required("spec.backendService.serviceName", backend.service_name.as_deref());
        let ports = backend.port_mappings.iter().enumerate().map(|(index, mapping)| check.lvs_port_mapping(index, mapping)).collect();
        let ports = check.ports("spec.backendService.portMappings", "lbPort", ports);
        Ok(Self { spec: check.finish(vip, service, ports)?, metadata: raw.metadata, status: raw.status })
    }
}

impl From<EricIngress> for raw::EricIngress {
    fn from(ingress: EricIngress) -> Self {
        let start_end = |range: PortRange| raw::StartEnd { start: number(range.start), end: number(range.end) };
        let config = |mapping: &PortMapping| raw::BackendConfig {
            port_range: raw::PortRanges { vip_port_range: start_end(mapping.vip_ports), svc_port_range: start_end(mapping.service_ports) },
            protocol: Some(mapping.protocol.word().into()),
            algo: Some(mapping.scheduler.word().into()),
            mode: Some(mapping.forwarding.word().into()),
        };
        let backends = raw::Backends { name: Some(ingress.spec.service), config: ingress.spec.ports.iter().map(config).collect() };
        let spec = raw::EricIngressSpec { virtual_service_ip: Some(ingress.spec.vip.to_string()), backends };
        Self { metadata: ingress.metadata, spec, ..Self::default() }
    }
}

impl From<LvsIngress> for raw::LvsIngress {
    fn from(ingress: LvsIngress) -> Self {
        let mapping = |mapping: &PortMapping| raw::LvsPortMapping {
            lb_port: number(mapping.vip_ports.start),
            svc_port: number(mapping.service_ports.start),
            protocol: Some(mapping.protocol.word().into()),
            sch: Some(mapping.scheduler.word().into()),
        };
        let backend_service = raw::BackendService {
            service_name: Some(ingress.spec.service),
            port_mappings: ingress.spec.ports.iter().map(mapping).collect(),
        };
        let spec = raw::LvsIngressSpec { virtual_service_ip: Some(ingress.spec.vip.to_string()), backend_service };
        Self { metadata: ingress.metadata, spec, status: ingress.status, ..Self::default() }
    }
}

fn number(port: u16) -> Option<raw::Number> {
    Some(raw::Number::Whole(port.into()))
}

/// Collects the errors of one object.
#[derive(Default)]
struct Check {
    errors: Vec<FieldError>,
}

impl Check {
    fn error(&mut self, path: impl Into<String>, message: impl fmt::Display) {
        self.errors.push(FieldError { path: path.into(), message: message.to_string() });
    }

    fn required(&mut self, path: &str, found: Option<&str>) -> Option<String> {
        let found = found.filter(|text| !text.is_empty());
        if found.is_none() {
            self.error(path, "is missing");
        }
        found.map(Into::into)
    }

    fn address(&mut self, path: &str, found: Option<&str>) -> Option<IpAddr> {
        let text = self.required(path, found)?;
        match parse_address(&text) {
            Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
                self.error(path, format!("{} is an IPv4 address in IPv6 form", quoted(&text)));
                None
            }
            Ok(address) => Some(address),
            Err(message) => {
                self.error(path, message);
                None
            }
        }
    }

    fn word<T: FromStr<Err = UnknownWord> + Default>(&mut self, path: String, found: Option<&str>) -> Option<T> {
        found.map_or_else(|| Some(T::default()), |text| text.parse().map_err(|error| self.error(path, error)).ok())
    }

    fn protocol(&mut self, path: String, found: Option<&str>) -> Option<Protocol> {
        let Some(text) = found else { return Some(Protocol::default()) };
        let protocol = text.to_lowercase().parse().ok().filter(|protocol| *protocol != Protocol::Sctp);
        if protocol.is_none() {
            self.error(path, format!("{} is not offered; expected tcp or udp", quoted(text)));
        }
        protocol
    }

    fn range(&mut self, path: String, range: &raw::StartEnd) -> Option<PortRange> {
        let (Some(start), Some(end)) = (&range.start, &range.end) else {
            self.error(path, "start or end is missing");
            return None;
        };
        let (start, end) = (self.number(format!("{path}.start"), start), self.number(format!("{path}.end"), end));
        PortRange::new(start?, end?).map_err(|error| self.error(path, error)).ok()
    }

    fn number(&mut self, path: String, found: &raw::Number) -> Option<i64> {
        match found {
            raw::Number::Whole(number) => Some(*number),
            raw::Number::Other(found) => {
                let found = in_words(found);
                self.error(path, format!("{found} is no port, which is 1 to 65535"));
                None
            }
        }
    }

    fn port(&mut self, path: String, port: Option<&raw::Number>) -> Option<PortRange> {
        let Some(port) = port else {
            self.error(path, "is missing");
            return None;
        };
        let port = self.number(path.clone(), port)?;
        PortRange::new(port, port).map_err(|error| self.error(path, error)).ok()
    }

    fn backend_config(&mut self, index: usize, config: &raw::BackendConfig) -> Option<PortMapping> {
        let path = format!("spec.backends.config[{index}]");
        let vip_ports = self.range(format!("{path}.portRange.vipPortRange"), &config.port_range.vip_port_range);
        let service_ports = self.range(format!("{path}.portRange.svcPortRange"), &config.port_range.svc_port_range);
        let protocol = self.protocol(format!("{path}.protocol"), config.protocol.as_deref());
        let scheduler = self.word(format!("{path}.algo"), config.algo.as_deref());
        let forwarding = self.word(format!("{path}.mode"), config.mode.as_deref());
        let mapping = PortMapping {
            protocol: protocol?,
            vip_ports: vip_ports?,
            service_ports: service_ports?,
            scheduler: scheduler?,
            forwarding: forwarding?,
        };
        let (vip, service) = (mapping.vip_ports, mapping.service_ports);
        if vip.count() != service.count() {
            let message = format!("{vip} has {} ports, but svcPortRange {service} has {}", vip.count(), service.count());
            self.error(format!("{path}.portRange.vipPortRange"), message);
            return None;
        }
        Some(mapping)
    }

    fn lvs_port_mapping(&mut self, index: usize, mapping: &raw::LvsPortMapping) -> Option<PortMapping> {
        let path = format!("spec.backendService.portMappings[{index}]");
        let vip_ports = self.port(format!("{path}.lbPort"), mapping.lb_port.as_ref());
        let service_ports = self.port(format!("{path}.svcPort"), mapping.svc_port.as_ref());
        let protocol = self.protocol(format!("{path}.protocol"), mapping.protocol.as_deref());
        let scheduler = self.word(format!("{path}.sch"), mapping.sch.as_deref());
        Some(PortMapping {
            protocol: protocol?,
            vip_ports: vip_ports?,
            service_ports: service_ports?,
            scheduler: scheduler?,
            forwarding: ForwardingMethod::default(),
        })
    }

    /// The mappings, once it is sure that no two of them take the same port.
    fn ports(&mut self, list: &str, field: &str, found: Vec<Option<PortMapping>>) -> Vec<PortMapping> {
        if found.is_empty() {
            self.error(list, "is empty: there is no port to serve");
        }
        if found.len() > MOST_MAPPINGS {
            self.error(list, format!("has {} entries, and may have {MOST_MAPPINGS}", found.len()));
            return Vec::new();
        }
        for (index, mapping) in found.iter().enumerate() {
            let Some(mapping) = mapping else { continue };
            let earlier = found.iter().take(index).position(|other| {
                other.is_some_and(|other| other.protocol == mapping.protocol && other.vip_ports.overlaps(mapping.vip_ports))
            });
            if let Some(earlier) = earlier {
                let message = format!("{}/{} is taken by {list}[{earlier}] already", mapping.vip_ports, mapping.protocol);
                self.error(format!("{list}[{index}].{field}"), message);
            }
        }
        found.into_iter().flatten().collect()
    }

    fn finish(self, vip: Option<IpAddr>, service: Option<String>, ports: Vec<PortMapping>) -> Result<IngressSpec, InvalidFields> {
        match (vip, service) {
            (Some(vip), Some(service)) if self.errors.is_empty() => Ok(IngressSpec { vip, service, ports }),
            _ => Err(InvalidFields(self.errors)),
        }
    }
}

/// What stands where a whole number is expected. One that is not read to its last digit is told as such.
fn in_words(found: &Value) -> String {
    /// From here on not every whole number is one that is read.
    const INEXACT: f64 = 9_007_199_254_740_992.0;
    match found.as_f64() {
        Some(number) if number.fract() == 0.0 && !found.is_u64() => {
            if number.abs() < INEXACT {
                format!("{number:.0}")
            } else {
                format!("about {number:.2e}")
            }
        }
        None if matches!(found.as_str(), Some("inf" | "-inf")) => "a number of hundreds of digits, or infinity,".to_owned(),
        _ => found.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn eric(config: Value) -> Result<EricIngress, String> {
        let object = json!({"spec": {"virtualServiceIP": "10.232.35.199", "backends": {"name": "mscm", "config": config}}});
        serde_json::from_value(object).map_err(|error| error.to_string())
    }

    fn ranges(vip: (i64, i64), service: (i64, i64)) -> Value {
        json!({"vipPortRange": {"start": vip.0, "end": vip.1}, "svcPortRange": {"start": service.0, "end": service.1}})
    }

    #[test]
    fn omitted_words_have_defaults_and_protocol_is_read_in_either_case() {
        let read =
            eric(json!([{"portRange": ranges((80, 80), (8080, 8080)), "protocol": "UDP"}, {"portRange": ranges((80, 81), (90, 91))}]));
        let mapping = |protocol, vip, service| PortMapping {
            protocol,
            vip_ports: vip,
            service_ports: service,
            scheduler: Scheduler::RoundRobin,
            forwarding: ForwardingMethod::Masquerade,
        };
        let range = |start, end| PortRange::new(start, end).unwrap();
        assert_eq!(
            read.unwrap().spec.ports,
            [mapping(Protocol::Udp, range(80, 80), range(8080, 8080)), mapping(Protocol::Tcp, range(80, 81), range(90, 91))]
        );
    }

    #[test]
    fn each_error_names_its_field() {
        let cases = [
            (json!([]), "spec.backends.config: is empty: there is no port to serve"),
            (
                json!([{"portRange": ranges((0, 1), (1, 2))}]),
                "spec.backends.config[0].portRange.vipPortRange: 0 is no port, which is 1 to 65535",
            ),
            (
                json!([{"portRange": ranges((1, 2), (65535, 65536))}]),
                "spec.backends.config[0].portRange.svcPortRange: 65536 is no port, which is 1 to 65535",
            ),
            (json!([{"portRange": ranges((9, 8), (9, 9))}]), "spec.backends.config[0].portRange.vipPortRange: start 9 is above end 8"),
            (
                json!([{"portRange": ranges((1, 9), (1, 8))}]),
                "spec.backends.config[0].portRange.vipPortRange: 1-9 has 9 ports, but svcPortRange 1-8 has 8",
            ),
            (
                json!([{"portRange": {"vipPortRange": {"start": 1}, "svcPortRange": {"start": 1, "end": 1}}}]),
                "spec.backends.config[0].portRange.vipPortRange: start or end is missing",
            ),
            (
                json!([{"portRange": ranges((5, 9), (5, 9))}, {"portRange": ranges((9, 9), (1, 1))}]),
                "spec.backends.config[1].portRange.vipPortRange: 9/tcp is taken by spec.backends.config[0] already",
            ),
            (
                json!([{"portRange": ranges((1, 1), (1, 1)), "algo": "rrr"}]),
                "spec.backends.config[0].algo: \"rrr\" is unknown; expected one of rr, wrr, lc, wlc, lblc, lblcr, dh, sh, sed, nq, fo, ovf, mh, \
                 twos; did you mean rr?",
            ),
            (
                json!([{"portRange": ranges((1, 1), (1, 1)), "mode": "masquerade"}]),
                "spec.backends.config[0].mode: \"masquerade\" is unknown; expected one of nat, dr, tun, gue",
            ),
            (
                json!([{"portRange": ranges((1, 1), (1, 1)), "protocol": "icmp"}]),
                "spec.backends.config[0].protocol: \"icmp\" is not offered; expected tcp or udp",
            ),
            (
                json!([{"portRange": ranges((1, 1), (1, 1)), "protocol": "SCTP"}]),
                "spec.backends.config[0].protocol: \"SCTP\" is not offered; expected tcp or udp",
            ),
        ];
        for (config, message) in cases {
            assert_eq!(eric(config).unwrap_err(), message);
        }
    }

    #[test]
    fn all_errors_are_told_at_once() {
        let error = serde_json::from_value::<LvsIngress>(json!({"spec": {
            "virtualServiceIP": "10.32.184.59/32",
            "backendService": {"portMappings": [{"lbPort": 70000, "protocol": "tcp"}]},
        }}))
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.virtualServiceIP: \"10.32.184.59/32\" has a prefix length; write 10.32.184.59 only; \
             spec.backendService.serviceName: is missing; \
             spec.backendService.portMappings[0].lbPort: 70000 is no port, which is 1 to 65535; \
             spec.backendService.portMappings[0].svcPort: is missing"
        );
    }

    #[test]
    fn what_was_read_is_written_alike() {
        let eric =
            eric(json!([{"portRange": ranges((58978, 58979), (58978, 58979)), "protocol": "tcp", "algo": "sh", "mode": "dr"}])).unwrap();
        let written = serde_json::to_value(&eric).unwrap();
        assert_eq!(written["apiVersion"], "routing.ericingress.ericsson.com/v1alpha1");
        assert_eq!(serde_json::from_value::<EricIngress>(written).unwrap(), eric);

        let lvs: LvsIngress = serde_json::from_value(json!({
            "metadata": {"name": "tcpserver7"},
            "spec": {"virtualServiceIP": "10.32.184.59", "backendService": {"serviceName": "tcpserver7", "portMappings": [
                {"lbPort": 8080, "svcPort": 8080, "protocol": "tcp", "sch": "sh"}, {"lbPort": 7070, "svcPort": 7070, "protocol": "tcp", "sch": "rr"},
            ]}},
            "status": {"changeId": 1},
        }))
        .unwrap();
        assert_eq!(lvs.status, Some(crate::api::LvsIngressStatus { change_id: Some(1) }));
        assert_eq!(serde_json::from_value::<LvsIngress>(serde_json::to_value(&lvs).unwrap()).unwrap(), lvs);
    }
}
