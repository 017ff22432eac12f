// SPDX-License-Identifier: Apache-2.0
//! What each value of the file may be: its words for the person who writes it, its bounds, and how text becomes a typed value.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bgp::wire::{BgpRole, LongLivedFamily, community};
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use ipnetwork::IpNetwork;
use ipvs::SyncRole;

use super::nft_words::is_nft_word;
use super::read::{Kind, Refusal};
use super::{DataplaneType, LocalPolicy, LogFormat, OnTermination, WithoutEndpoints};
use crate::api::{ForwardingMethod, Scheduler, UnknownWord};
use crate::desired::{AoAlgorithm, MssClamp, UnservedPorts};

/// Longer times than this are a slip of the pen, and would delay a shutdown for ever.
const LONGEST: Duration = Duration::from_secs(3600);

/// `sun_path` of a Unix socket holds 107 octets and a zero (unix(7)); `/admin.sock` is part of them.
const LONGEST_STATE_DIR: usize = 107 - "/admin.sock".len();

pub(super) const INSTANCE: Kind<String> = Kind {
    expected: "1 to 63 of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit",
    numeric: false,
    parse: |text| {
        let names_a_table = text.starts_with(|first: char| first.is_ascii_lowercase());
        if !is_label(text) || !names_a_table {
            return Err(Refusal::Unexpected);
        }
        if is_nft_word(text) {
            return Err(Refusal::Because("the instance's nft table has its name, and this is a word of nft's own language".to_owned()));
        }
        Ok(text.to_owned())
    },
};

pub(super) const NODE_NAME: Kind<String> = Kind {
    expected: "the name of a Kubernetes Node (labels of a-z, 0-9 and '-', joined by dots, 253 at most)",
    numeric: false,
    parse: |text| if text.len() <= 253 && text.split('.').all(is_label) { Ok(text.to_owned()) } else { Err(Refusal::Unexpected) },
};

pub(super) const NAMESPACE: Kind<String> = Kind {
    expected: "the name of a namespace (1 to 63 of a-z, 0-9 and '-')",
    numeric: false,
    parse: |text| if is_label(text) { Ok(text.to_owned()) } else { Err(Refusal::Unexpected) },
};

pub(super) const INTERFACE: Kind<String> = Kind {
    expected: "the name of an interface (1 to 15 octets, without '/', ':' and spaces)",
    numeric: false,
    parse: |text| {
        let odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        let valid = (1..=15).contains(&text.len()) && text != "." && text != ".." && !text.contains(odd);
        if valid { Ok(text.to_owned()) } else { Err(Refusal::Unexpected) }
    },
};

pub(super) const PEER_NAME: Kind<String> = Kind {
    expected: "1 to 63 of letters, digits, '-', '_' and '.'",
    numeric: false,
    parse: |text| {
        let valid = (1..=63).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if valid { Ok(text.to_owned()) } else { Err(Refusal::Unexpected) }
    },
};

pub(super) const PREFIX: Kind<Prefix> = Kind {
    expected: "a prefix such as 10.0.0.0/24 or 2001:db8::/64",
    numeric: false,
    parse: |text| {
        let network: IpNetwork = text.contains('/').then(|| text.parse().ok()).flatten().ok_or(Refusal::Unexpected)?;
        let prefix = IpNetwork::new(network.network(), network.prefix()).map_or_else(|_| text.to_owned(), |whole| whole.to_string());
        Prefix::new(network.ip(), network.prefix()).map_err(|error| Refusal::Because(format!("{error}; the prefix is {prefix}")))
    },
};

pub(super) const WITHOUT_ENDPOINTS: Kind<WithoutEndpoints> = Kind {
    expected: "withdraw or announce",
    numeric: false,
    parse: |text| match text {
        "withdraw" => Ok(WithoutEndpoints::Withdraw),
        "announce" => Ok(WithoutEndpoints::Announce),
        _ => Err(Refusal::Unexpected),
    },
};

pub(super) const DATAPLANE: Kind<DataplaneType> = Kind {
    expected: "auto, ipvs, nftables, kube-proxy or none",
    numeric: false,
    parse: |text| match text {
        "auto" => Ok(DataplaneType::Auto),
        "ipvs" => Ok(DataplaneType::Ipvs),
        "nftables" => Ok(DataplaneType::Nftables),
        "kube-proxy" => Ok(DataplaneType::KubeProxy),
        "none" => Ok(DataplaneType::None),
        _ => Err(Refusal::Unexpected),
    },
};

pub(super) const SCHEDULER: Kind<Scheduler> = Kind {
    expected: "a scheduler of IPVS such as rr, lc, sh or mh",
    numeric: false,
    parse: |text| text.parse().map_err(|error: UnknownWord| Refusal::Because(error.to_string())),
};

pub(super) const FORWARDING: Kind<ForwardingMethod> =
    Kind { expected: "nat, dr, tun or gue", numeric: false, parse: |text| text.parse().map_err(unexpected) };

pub(super) const TUNNEL: Kind<ForwardingMethod> = Kind {
    expected: "ipip or gue",
    numeric: false,
    parse: |text| match text {
        "ipip" => Ok(ForwardingMethod::Tunnel),
        "gue" => Ok(ForwardingMethod::Gue),
        _ => Err(Refusal::Unexpected),
    },
};

pub(super) const UDP_PORT: Kind<u16> = Kind { expected: "a UDP port from 1 to 65535", ..PORT };

pub(super) const SYNC_ROLE: Kind<SyncRole> = Kind {
    expected: "master or backup",
    numeric: false,
    parse: |text| SyncRole::ALL.into_iter().find(|role| role.word() == text).ok_or(Refusal::Unexpected),
};

pub(super) const SYNC_ID: Kind<u8> =
    Kind { expected: "a number from 0 to 255", numeric: true, parse: |text| decimal(text).ok_or(Refusal::Unexpected) };

pub(super) const MULTICAST_GROUP: Kind<IpAddr> = Kind {
    expected: "a multicast group such as 224.0.0.81 or ff02::81",
    numeric: false,
    parse: |text| text.parse().ok().filter(IpAddr::is_multicast).ok_or(Refusal::Unexpected),
};

pub(super) const MULTICAST_TTL: Kind<u8> = Kind {
    expected: "a number of hops from 1 to 255",
    numeric: true,
    parse: |text| decimal(text).filter(|ttl| *ttl != 0).ok_or(Refusal::Unexpected),
};

/// The kernel takes no less than fits one connection, and no more than fits a packet.
pub(super) const SYNC_LENGTH: Kind<u16> = Kind {
    expected: "a number of octets from 576 to 65507",
    numeric: true,
    parse: |text| decimal(text).filter(|length| (576..=65_507).contains(length)).ok_or(Refusal::Unexpected),
};

pub(super) const IDLE_TIME: Kind<u32> = Kind {
    expected: "a time from 1s to 24h in whole seconds",
    numeric: false,
    parse: |text| {
        let time = humantime::parse_duration(text).map_err(unexpected)?;
        let whole = (time.subsec_nanos() == 0).then_some(time.as_secs());
        whole.and_then(|seconds| u32::try_from(seconds).ok()).filter(|seconds| (1..=86_400).contains(seconds)).ok_or(Refusal::Unexpected)
    },
};

pub(super) const UNSERVED_PORTS: Kind<UnservedPorts> = Kind {
    expected: "drop or reject",
    numeric: false,
    parse: |text| match text {
        "drop" => Ok(UnservedPorts::Drop),
        "reject" => Ok(UnservedPorts::Reject),
        _ => Err(Refusal::Unexpected),
    },
};

pub(super) const LOCAL_POLICY: Kind<LocalPolicy> = Kind {
    expected: "endpointNodes or preserveSource",
    numeric: false,
    parse: |text| match text {
        "endpointNodes" => Ok(LocalPolicy::EndpointNodes),
        "preserveSource" => Ok(LocalPolicy::PreserveSource),
        _ => Err(Refusal::Unexpected),
    },
};

pub(super) const MSS_CLAMP: Kind<MssClamp> = Kind {
    expected: "off, pmtu, or a segment size from 536 to 65495 octets",
    numeric: true,
    parse: |text| match text {
        "off" => Ok(MssClamp::Off),
        "pmtu" => Ok(MssClamp::PathMtu),
        _ => decimal(text).filter(|octets| (536..=65_495).contains(octets)).map(MssClamp::Octets).ok_or(Refusal::Unexpected),
    },
};

pub(super) const FWMARK: Kind<u32> = Kind {
    expected: "a firewall mark from 1 to 4294966272",
    numeric: true,
    parse: |text| decimal(text).filter(|mark| (1..=u32::MAX - 1023).contains(mark)).ok_or(Refusal::Unexpected),
};

pub(super) const ASN: Kind<Asn> = Kind {
    expected: "an AS number from 1 to 4294967294",
    numeric: true,
    parse: |text| {
        if text.contains('.') {
            return Err(Refusal::Because("write it as one number (asplain, RFC 5396)".to_owned()));
        }
        let number: u32 = decimal(text).ok_or(Refusal::Unexpected)?;
        if number == u32::from(Asn::TRANS) {
            return Err(Refusal::Because("it is AS_TRANS, which stands for numbers over 65535 (RFC 6793 §9)".to_owned()));
        }
        if number == 65_535 || number == u32::MAX {
            return Err(Refusal::Because("it is reserved (RFC 7300)".to_owned()));
        }
        Asn::new(number).ok_or_else(|| Refusal::Because("no speaker may use it (RFC 7607)".to_owned()))
    },
};

/// `None` stands for `auto`.
pub(super) const ROUTER_ID: Kind<Option<BgpIdentifier>> = Kind {
    expected: "auto or an IPv4 address",
    numeric: false,
    parse: |text| {
        if text == "auto" {
            return Ok(None);
        }
        let address: Ipv4Addr = text.parse().map_err(unexpected)?;
        BgpIdentifier::try_from(address).map(Some).map_err(|error| Refusal::Because(error.to_string()))
    },
};

pub(super) const CLUSTER_ID: Kind<BgpIdentifier> = Kind {
    expected: "an IPv4 address",
    numeric: false,
    parse: |text| {
        let address: Ipv4Addr = text.parse().map_err(unexpected)?;
        let zero = |_zero| Refusal::Because("a cluster id must not be 0.0.0.0".to_owned());
        BgpIdentifier::try_from(address).map_err(zero)
    },
};

pub(super) const PEER_ADDRESS: Kind<IpAddr> = Kind {
    expected: "the IPv4 or IPv6 address of the peer",
    numeric: false,
    parse: |text| {
        let address: IpAddr = text.parse().map_err(unexpected)?;
        match unusable(address) {
            Some(reason) => Err(Refusal::Because(reason.to_owned())),
            None => Ok(address),
        }
    },
};

pub(super) const PEER_ANYWHERE: Kind<IpAddr> = Kind {
    expected: "the IPv4 or IPv6 address of the peer, or instead of it gateway: true, or interface alone (unnumbered)",
    numeric: false,
    parse: PEER_ADDRESS.parse,
};

pub(super) const SOURCE: Kind<IpAddr> =
    Kind { expected: "an IPv4 or IPv6 address of this node", numeric: false, parse: PEER_ADDRESS.parse };

pub(super) const LISTEN_ADDRESS: Kind<IpAddr> = Kind {
    expected: "an IPv4 or IPv6 address of this node, or 0.0.0.0 or '::' for all of one family",
    numeric: false,
    parse: |text| {
        let address: IpAddr = text.parse().map_err(unexpected)?;
        if address.is_unspecified() {
            return Ok(address);
        }
        match unusable(address) {
            Some(reason) => Err(Refusal::Because(reason.to_owned())),
            None => Ok(address),
        }
    },
};

pub(super) const LIMIT: Kind<u32> = Kind {
    expected: "a number from 1 to 10000",
    numeric: true,
    parse: |text| decimal(text).filter(|limit| (1..=10_000).contains(limit)).ok_or(Refusal::Unexpected),
};

pub(super) const KEEP_RECEIVED: Kind<u32> = Kind {
    expected: "a number from 0 to 100000",
    numeric: true,
    parse: |text| decimal(text).filter(|most| *most <= 100_000).ok_or(Refusal::Unexpected),
};

pub(super) const HOPS: Kind<u8> = Kind {
    expected: "a number of hops from 1 to 254",
    numeric: true,
    parse: |text| decimal(text).filter(|hops| (1..=254).contains(hops)).ok_or(Refusal::Unexpected),
};

pub(super) const FILE: Kind<PathBuf> = Kind {
    expected: "an absolute path of a file",
    numeric: false,
    parse: |text| if text.starts_with('/') && !text.contains('\0') { Ok(PathBuf::from(text)) } else { Err(Refusal::Unexpected) },
};

pub(super) const KEY_ID: Kind<u8> =
    Kind { expected: "a KeyID from 0 to 255", numeric: true, parse: |text| decimal(text).ok_or(Refusal::Unexpected) };

pub(super) const AO_ALGORITHM: Kind<AoAlgorithm> = Kind {
    expected: "hmac-sha-1-96 or aes-128-cmac-96",
    numeric: false,
    parse: |text| match text {
        "hmac-sha-1-96" => Ok(AoAlgorithm::HmacSha1),
        "aes-128-cmac-96" => Ok(AoAlgorithm::Aes128Cmac),
        _ => Err(Refusal::Unexpected),
    },
};

pub(super) const PORT: Kind<u16> = Kind {
    expected: "a TCP port from 1 to 65535",
    numeric: true,
    parse: |text| decimal(text).filter(|port| *port != 0).ok_or(Refusal::Unexpected),
};

pub(super) const FAMILY: Kind<Family> = Kind {
    expected: "ipv4-unicast or ipv6-unicast",
    numeric: false,
    parse: |text| Family::ALL.into_iter().find(|family| family.to_string() == text).ok_or(Refusal::Unexpected),
};

pub(super) const HOLD: Kind<HoldTime> = Kind {
    expected: "a hold time of 0s (off) or 3s to 65535s",
    numeric: false,
    parse: |text| {
        let seconds = u16::try_from(whole_seconds(text, "RFC 4271 §4.2")?).map_err(unexpected)?;
        HoldTime::from_secs(seconds)
            .ok_or_else(|| Refusal::Because("1 and 2 seconds are refused by every speaker (RFC 4271 §6.2)".to_owned()))
    },
};

pub(super) const CONNECT_RETRY: Kind<Duration> =
    Kind { expected: "a time from 1s to 1h", numeric: false, parse: |text| within(text, Duration::from_secs(1)) };

pub(super) const SEND_HOLD: Kind<Duration> = Kind {
    expected: "a time from 1s to 65535s",
    numeric: false,
    parse: |text| {
        let time = duration(text)?;
        if (1..=u16::MAX.into()).contains(&time.as_secs()) { Ok(time) } else { Err(Refusal::Unexpected) }
    },
};

pub(super) const RESTART_TIME: Kind<u16> = Kind {
    expected: "a time from 1s to 4095s",
    numeric: false,
    parse: |text| {
        let seconds = whole_seconds(text, "RFC 4724 §3")?;
        u16::try_from(seconds).ok().filter(|seconds| (1..=4095).contains(seconds)).ok_or(Refusal::Unexpected)
    },
};

pub(super) const LONG_LIVED_STALE_TIME: Kind<u32> = Kind {
    expected: "a time from 0s (off) to 16777215s",
    numeric: false,
    parse: |text| {
        let seconds = whole_seconds(text, "RFC 9494 §3")?;
        u32::try_from(seconds).ok().filter(|seconds| *seconds <= LongLivedFamily::MAX_STALE_TIME).ok_or(Refusal::Unexpected)
    },
};

pub(super) const LOCAL_ROLE: Kind<BgpRole> = Kind {
    expected: "provider, customer, peer, route-server or route-server-client",
    numeric: false,
    parse: |text| match text {
        "provider" => Ok(BgpRole::Provider),
        "customer" => Ok(BgpRole::Customer),
        "peer" => Ok(BgpRole::Peer),
        "route-server" => Ok(BgpRole::RouteServer),
        "route-server-client" => Ok(BgpRole::RouteServerClient),
        _ => Err(Refusal::Unexpected),
    },
};

pub(super) const MAX_PREFIXES: Kind<u32> = Kind { expected: NUMBER, numeric: true, parse: |text| decimal(text).ok_or(Refusal::Unexpected) };

pub(super) const RESTART_DELAY: Kind<Duration> = CONNECT_RETRY;

pub(super) const ON_TERMINATION: Kind<OnTermination> = Kind {
    expected: "auto, keep or drain",
    numeric: false,
    parse: |text| match text {
        "auto" => Ok(OnTermination::Auto),
        "keep" => Ok(OnTermination::Keep),
        "drain" => Ok(OnTermination::Drain),
        _ => Err(Refusal::Unexpected),
    },
};

pub(super) const TIME: Kind<Duration> =
    Kind { expected: "a time from 0s to 1h", numeric: false, parse: |text| within(text, Duration::ZERO) };

pub(super) const LOCAL_PREFERENCE: Kind<u32> =
    Kind { expected: NUMBER, numeric: true, parse: |text| decimal(text).ok_or(Refusal::Unexpected) };

pub(super) const MED: Kind<u32> = Kind { expected: NUMBER, numeric: true, parse: |text| decimal(text).ok_or(Refusal::Unexpected) };

pub(super) const PREPEND: Kind<u8> = Kind {
    expected: "a number from 0 to 32",
    numeric: true,
    parse: |text| decimal(text).filter(|times| *times <= 32).ok_or(Refusal::Unexpected),
};

pub(super) const COMMUNITY: Kind<u32> = Kind {
    expected: "a community such as 65001:100 (each number up to 65535), or one of NO_EXPORT, NO_ADVERTISE, NO_EXPORT_SUBCONFED, GRACEFUL_SHUTDOWN, NO_LLGR, BLACKHOLE",
    numeric: false,
    parse: |text| match community::NAMES.iter().find(|(name, _)| *name == text) {
        Some((_, community)) => Ok(*community),
        None => {
            let [high, low] = numbers::<u16, 2>(text)?;
            Ok(u32::from(high) << 16 | u32::from(low))
        }
    },
};

pub(super) const LARGE_COMMUNITY: Kind<[u32; 3]> =
    Kind { expected: "a large community such as 65001:100:7 (each number up to 4294967295)", numeric: false, parse: numbers::<u32, 3> };

pub(super) const EXTENDED_COMMUNITY: Kind<u64> = Kind {
    expected: "an extended community such as rt:65001:100 or ro:65001:100, or its eight octets such as 0x0002fde900000064",
    numeric: false,
    parse: |text| {
        if let Some(octets) = text.strip_prefix("0x") {
            let valid = octets.len() == 16 && octets.chars().all(|c| c.is_ascii_hexdigit());
            return if valid { u64::from_str_radix(octets, 16).map_err(unexpected) } else { Err(Refusal::Unexpected) };
        }
        let (subtype, numbers) = text.split_once(':').ok_or(Refusal::Unexpected)?;
        // RFC 4360 §4, §5.
        let subtype: u64 = match subtype {
            "rt" => 2,
            "ro" => 3,
            _ => return Err(Refusal::Unexpected),
        };
        let (asn, number) = numbers.split_once(':').ok_or(Refusal::Unexpected)?;
        let (asn, number) = (decimal::<u32>(asn).ok_or(Refusal::Unexpected)?, decimal::<u32>(number).ok_or(Refusal::Unexpected)?);
        match (u16::try_from(asn), u16::try_from(number)) {
            // RFC 4360 §3.1: two octets of AS number and four of ours.
            (Ok(asn), _) => Ok(subtype << 48 | u64::from(asn) << 32 | u64::from(number)),
            // RFC 5668 §2: the other way round.
            (Err(_), Ok(number)) => Ok((0x0200 | subtype) << 48 | u64::from(asn) << 16 | u64::from(number)),
            (Err(_), Err(_)) => Err(Refusal::Because("beside an AS number over 65535 there are two octets (RFC 5668)".to_owned())),
        }
    },
};

/// In octets per second.
pub(super) const LINK_BANDWIDTH: Kind<u64> = Kind {
    expected: "a bandwidth such as 10Gbit (bit, kbit, Mbit, Gbit or Tbit per second)",
    numeric: false,
    parse: |text| {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor = match unit {
            "bit" => 1,
            "kbit" => 1_000,
            "Mbit" => 1_000_000,
            "Gbit" => 1_000_000_000,
            "Tbit" => 1_000_000_000_000,
            _ => return Err(Refusal::Unexpected),
        };
        let bits: Option<u64> = decimal::<u64>(number).and_then(|number| number.checked_mul(factor));
        bits.map(|bits| bits / 8).filter(|octets| *octets > 0).ok_or(Refusal::Unexpected)
    },
};

pub(super) const POLICY_NAME: Kind<String> =
    Kind { expected: "the name of a policy (1 to 63 of letters, digits, '-', '_' and '.')", numeric: false, parse: PEER_NAME.parse };

pub(super) const AGGREGATE: Kind<Prefix> = Kind {
    expected: "a prefix such as 10.0.0.0/24 or 2001:db8::/64",
    numeric: false,
    parse: |text| {
        let prefix = (PREFIX.parse)(text)?;
        if prefix == Prefix::host(prefix.address()) {
            return Err(Refusal::Because("it is a single address, which aggregates nothing".to_owned()));
        }
        Ok(prefix)
    },
};

/// Whether the VIPs inside an aggregate are suppressed.
pub(super) const SUPPRESS: Kind<bool> = Kind {
    expected: "announce or suppress",
    numeric: false,
    parse: |text| match text {
        "announce" => Ok(false),
        "suppress" => Ok(true),
        _ => Err(Refusal::Unexpected),
    },
};

pub(super) const OTHER_NEXT_HOP_IPV4: Kind<Ipv4Addr> =
    Kind { expected: "an IPv4 address", numeric: false, parse: |text| next_hop(text.parse().map_err(unexpected)?) };

pub(super) const OTHER_NEXT_HOP_IPV6: Kind<Ipv6Addr> =
    Kind { expected: "an IPv6 address", numeric: false, parse: |text| next_hop(text.parse().map_err(unexpected)?) };

const NUMBER: &str = "a number from 0 to 4294967295";

/// `None` stands for `self`.
pub(super) const NEXT_HOP_IPV4: Kind<Option<Ipv4Addr>> = Kind {
    expected: "self or an IPv4 address",
    numeric: false,
    parse: |text| match text {
        "self" => Ok(None),
        _ => next_hop(text.parse().map_err(unexpected)?).map(Some),
    },
};

/// `None` stands for `self`.
pub(super) const NEXT_HOP_IPV6: Kind<Option<Ipv6Addr>> = Kind {
    expected: "self or an IPv6 address",
    numeric: false,
    parse: |text| match text {
        "self" => Ok(None),
        _ => next_hop(text.parse().map_err(unexpected)?).map(Some),
    },
};

pub(super) const STATE_DIR: Kind<PathBuf> = Kind {
    expected: "an absolute path of at most 96 octets",
    numeric: false,
    parse: |text| {
        let valid = text.starts_with('/') && text.len() <= LONGEST_STATE_DIR && !text.contains('\0');
        if valid { Ok(PathBuf::from(text)) } else { Err(Refusal::Unexpected) }
    },
};

pub(super) const HTTP_ADDRESS: Kind<SocketAddr> = Kind {
    expected: "an address and a port such as 0.0.0.0:9479 or [::]:9479",
    numeric: false,
    parse: |text| text.parse().map_err(unexpected),
};

pub(super) const LOG_LEVEL: Kind<String> = Kind {
    expected: "off, error, warn, info, debug or trace, or a list such as info,vipherald::driver=debug",
    numeric: false,
    parse: |text| {
        let is_level = |level: &str| matches!(level, "off" | "error" | "warn" | "info" | "debug" | "trace");
        let valid = text.split(',').all(|item| match item.split_once('=') {
            Some((target, level)) => {
                !target.is_empty() && target.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':')) && is_level(level)
            }
            None => is_level(item),
        });
        if valid { Ok(text.to_owned()) } else { Err(Refusal::Unexpected) }
    },
};

pub(super) const LOG_FORMAT: Kind<LogFormat> = Kind {
    expected: "json or text",
    numeric: false,
    parse: |text| match text {
        "json" => Ok(LogFormat::Json),
        "text" => Ok(LogFormat::Text),
        _ => Err(Refusal::Unexpected),
    },
};

/// RFC 1123 as Kubernetes uses it.
fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Only digits, unlike `parse`, which takes a sign too.
fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.chars().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Numbers with colons between them.
fn numbers<T: std::str::FromStr, const COUNT: usize>(text: &str) -> Result<[T; COUNT], Refusal> {
    let numbers: Option<Vec<T>> = text.split(':').map(decimal).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or(Refusal::Unexpected)
}

fn duration(text: &str) -> Result<Duration, Refusal> {
    let reason = || Refusal::Because("a time is a number and a unit, such as 500ms, 9s or 2m".to_owned());
    humantime::parse_duration(text).ok().ok_or_else(reason)
}

/// A time that the OPEN message carries, as this standard says.
fn whole_seconds(text: &str, standard: &str) -> Result<u64, Refusal> {
    let time = duration(text)?;
    match time.subsec_nanos() {
        0 => Ok(time.as_secs()),
        _ => Err(Refusal::Because(format!("the OPEN message carries whole seconds ({standard})"))),
    }
}

fn within(text: &str, least: Duration) -> Result<Duration, Refusal> {
    let time = duration(text)?;
    if (least..=LONGEST).contains(&time) { Ok(time) } else { Err(Refusal::Unexpected) }
}

/// Why no session can be opened to this address.
fn unusable(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_unspecified() => Some("it is the unspecified address"),
        _ if address.is_multicast() => Some("it is a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("it is the broadcast address"),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Some("it is an IPv4 address in IPv6 form; write it as IPv4"),
        _ => None,
    }
}

/// A third party's address as next hop: one that the peer could resolve.
fn next_hop<A: Copy + Into<IpAddr>>(address: A) -> Result<A, Refusal> {
    let reason = match address.into() {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("it is a link-local address"),
        address => unusable(address).or_else(|| address.is_loopback().then_some("it is a loopback address")),
    };
    reason.map_or(Ok(address), |reason| Err(Refusal::Because(reason.to_owned())))
}

/// Where the standard library's reason adds nothing to what was expected.
fn unexpected<E>(_: E) -> Refusal {
    Refusal::Unexpected
}
