// SPDX-License-Identifier: Apache-2.0
//! Values of the section `bgp`: of the speaker, of peers, and of what is announced to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use bgp::wire::{BgpRole, LongLivedFamily, community};
use bgp::{Asn, BgpIdentifier, Family, HoldTime, Prefix};
use ipnetwork::IpNetwork;

use super::{PREFIX, decimal, duration, unexpected, within};
use crate::config::read::{Kind, Refusal};
use crate::desired::{AoAlgorithm, unfit};

pub(in crate::config) const PEER_NAME: Kind<String> = Kind {
    expected: "1 to 63 of letters, digits, '-', '_' and '.'",
    numeric: false,
    parse: |text| {
        let valid = (1..=63).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if valid { Ok(text.to_owned()) } else { Err(Refusal::Unexpected) }
    },
};

pub(in crate::config) const ASN: Kind<Asn> = Kind {
    expected: "an AS number from 1 to 4294967294",
    numeric: true,
    parse: |text| {
        // 1.5 (asdot), 0x10, 1e3.
        if text.starts_with(|first: char| first.is_ascii_digit()) && !text.chars().all(|c| c.is_ascii_digit()) {
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
pub(in crate::config) const ROUTER_ID: Kind<Option<BgpIdentifier>> = Kind {
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

pub(in crate::config) const CLUSTER_ID: Kind<BgpIdentifier> = Kind {
    expected: "an IPv4 address",
    numeric: false,
    parse: |text| {
        let address: Ipv4Addr = text.parse().map_err(unexpected)?;
        let zero = |_zero| Refusal::Because("a cluster id must not be 0.0.0.0".to_owned());
        BgpIdentifier::try_from(address).map_err(zero)
    },
};

pub(in crate::config) const PEER_ADDRESS: Kind<IpAddr> = Kind {
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

pub(in crate::config) const PEER_ANYWHERE: Kind<IpAddr> = Kind {
    expected: "the IPv4 or IPv6 address of the peer, or instead of it gateway: true, or interface alone (unnumbered)",
    numeric: false,
    parse: PEER_ADDRESS.parse,
};

pub(in crate::config) const SOURCE: Kind<IpAddr> =
    Kind { expected: "an IPv4 or IPv6 address of this node", numeric: false, parse: PEER_ADDRESS.parse };

pub(in crate::config) const LISTEN_ADDRESS: Kind<IpAddr> = Kind {
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

pub(in crate::config) const LIMIT: Kind<u32> = Kind {
    expected: "a number from 1 to 10000",
    numeric: true,
    parse: |text| decimal(text).filter(|limit| (1..=10_000).contains(limit)).ok_or(Refusal::Unexpected),
};

pub(in crate::config) const KEEP_RECEIVED: Kind<u32> = Kind {
    expected: "a number from 0 to 100000",
    numeric: true,
    parse: |text| decimal(text).filter(|most| *most <= 100_000).ok_or(Refusal::Unexpected),
};

pub(in crate::config) const HOPS: Kind<u8> = Kind {
    expected: "a number of hops from 1 to 254",
    numeric: true,
    parse: |text| decimal(text).filter(|hops| (1..=254).contains(hops)).ok_or(Refusal::Unexpected),
};

pub(in crate::config) const KEY_ID: Kind<u8> =
    Kind { expected: "a KeyID from 0 to 255", numeric: true, parse: |text| decimal(text).ok_or(Refusal::Unexpected) };

pub(in crate::config) const AO_ALGORITHM: Kind<AoAlgorithm> = Kind {
    expected: "hmac-sha-1-96 or aes-128-cmac-96",
    numeric: false,
    parse: |text| match text {
        "hmac-sha-1-96" => Ok(AoAlgorithm::HmacSha1),
        "aes-128-cmac-96" => Ok(AoAlgorithm::Aes128Cmac),
        _ => Err(Refusal::Unexpected),
    },
};

pub(in crate::config) const FAMILY: Kind<Family> = Kind {
    expected: "ipv4-unicast or ipv6-unicast",
    numeric: false,
    parse: |text| Family::ALL.into_iter().find(|family| family.to_string() == text).ok_or(Refusal::Unexpected),
};

pub(in crate::config) const HOLD: Kind<HoldTime> = Kind {
    expected: "a hold time of 0s (off) or 3s to 65535s",
    numeric: false,
    parse: |text| {
        let seconds = u16::try_from(whole_seconds(text, "RFC 4271 §4.2")?).map_err(unexpected)?;
        HoldTime::from_secs(seconds)
            .ok_or_else(|| Refusal::Because("1 and 2 seconds are refused by every speaker (RFC 4271 §6.2)".to_owned()))
    },
};

pub(in crate::config) const CONNECT_RETRY: Kind<Duration> =
    Kind { expected: "a time from 1s to 1h", numeric: false, parse: |text| within(text, Duration::from_secs(1)) };

pub(in crate::config) const SEND_HOLD: Kind<Duration> = Kind {
    expected: "a time from 1s to 65535s",
    numeric: false,
    parse: |text| {
        let time = duration(text)?;
        if (1..=u16::MAX.into()).contains(&time.as_secs()) { Ok(time) } else { Err(Refusal::Unexpected) }
    },
};

pub(in crate::config) const RESTART_TIME: Kind<u16> = Kind {
    expected: "a time from 1s to 4095s",
    numeric: false,
    parse: |text| {
        let seconds = whole_seconds(text, "RFC 4724 §3")?;
        u16::try_from(seconds).ok().filter(|seconds| (1..=4095).contains(seconds)).ok_or(Refusal::Unexpected)
    },
};

pub(in crate::config) const LONG_LIVED_STALE_TIME: Kind<u32> = Kind {
    expected: "a time from 0s (off) to 16777215s",
    numeric: false,
    parse: |text| {
        let seconds = whole_seconds(text, "RFC 9494 §3")?;
        u32::try_from(seconds).ok().filter(|seconds| *seconds <= LongLivedFamily::MAX_STALE_TIME).ok_or(Refusal::Unexpected)
    },
};

pub(in crate::config) const LOCAL_ROLE: Kind<BgpRole> = Kind {
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

pub(in crate::config) const MAX_PREFIXES: Kind<u32> =
    Kind { expected: NUMBER, numeric: true, parse: |text| decimal(text).ok_or(Refusal::Unexpected) };

pub(in crate::config) const RESTART_DELAY: Kind<Duration> = CONNECT_RETRY;

pub(in crate::config) const LOCAL_PREFERENCE: Kind<u32> =
    Kind { expected: NUMBER, numeric: true, parse: |text| decimal(text).ok_or(Refusal::Unexpected) };

pub(in crate::config) const MED: Kind<u32> =
    Kind { expected: NUMBER, numeric: true, parse: |text| decimal(text).ok_or(Refusal::Unexpected) };

pub(in crate::config) const PREPEND: Kind<u8> = Kind {
    expected: "a number from 0 to 32",
    numeric: true,
    parse: |text| decimal(text).filter(|times| *times <= 32).ok_or(Refusal::Unexpected),
};

pub(in crate::config) const COMMUNITY: Kind<u32> = Kind {
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

pub(in crate::config) const LARGE_COMMUNITY: Kind<[u32; 3]> =
    Kind { expected: "a large community such as 65001:100:7 (each number up to 4294967295)", numeric: false, parse: numbers::<u32, 3> };

pub(in crate::config) const EXTENDED_COMMUNITY: Kind<u64> = Kind {
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
pub(in crate::config) const LINK_BANDWIDTH: Kind<u64> = Kind {
    expected: "a bandwidth such as 10Gbit (8bit at least; bit, kbit, Mbit, Gbit or Tbit per second)",
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
        match bits.ok_or(Refusal::Unexpected)? / 8 {
            0 => Err(Refusal::Because("routers are told whole octets per second, and this is less than one".to_owned())),
            octets => Ok(octets),
        }
    },
};

pub(in crate::config) const POLICY_NAME: Kind<String> =
    Kind { expected: "the name of a policy (1 to 63 of letters, digits, '-', '_' and '.')", numeric: false, parse: PEER_NAME.parse };

pub(in crate::config) const AGGREGATE: Kind<Prefix> = Kind {
    expected: "a prefix such as 10.0.0.0/24 or 2001:db8::/64",
    numeric: false,
    parse: |text| {
        let prefix = (PREFIX.parse)(text)?;
        if prefix == Prefix::host(prefix.address()) {
            return Err(Refusal::Because("it is a single address, which aggregates nothing".to_owned()));
        }
        if let Some(reason) = without_vips(prefix) {
            return Err(Refusal::Because(format!("no VIP can be in it: {} {reason}", prefix.address())));
        }
        Ok(prefix)
    },
};

/// Why no address of a prefix can be a VIP, if so: what the first and the last one are, all between them are.
fn without_vips(prefix: Prefix) -> Option<&'static str> {
    let last = IpNetwork::new(prefix.address(), prefix.length()).map_or_else(|_| prefix.address(), |network| network.broadcast());
    unfit(prefix.address()).filter(|reason| unfit(last) == Some(reason))
}

/// Whether the VIPs inside an aggregate are suppressed.
pub(in crate::config) const SUPPRESS: Kind<bool> = Kind {
    expected: "announce or suppress",
    numeric: false,
    parse: |text| match text {
        "announce" => Ok(false),
        "suppress" => Ok(true),
        _ => Err(Refusal::Unexpected),
    },
};

pub(in crate::config) const OTHER_NEXT_HOP_IPV4: Kind<Ipv4Addr> =
    Kind { expected: "an IPv4 address", numeric: false, parse: |text| next_hop(text.parse().map_err(unexpected)?) };

pub(in crate::config) const OTHER_NEXT_HOP_IPV6: Kind<Ipv6Addr> =
    Kind { expected: "an IPv6 address", numeric: false, parse: |text| next_hop(text.parse().map_err(unexpected)?) };

const NUMBER: &str = "a number from 0 to 4294967295";

/// `None` stands for `self`.
pub(in crate::config) const NEXT_HOP_IPV4: Kind<Option<Ipv4Addr>> = Kind {
    expected: "self or an IPv4 address",
    numeric: false,
    parse: |text| match text {
        "self" => Ok(None),
        _ => next_hop(text.parse().map_err(unexpected)?).map(Some),
    },
};

/// `None` stands for `self`.
pub(in crate::config) const NEXT_HOP_IPV6: Kind<Option<Ipv6Addr>> = Kind {
    expected: "self or an IPv6 address",
    numeric: false,
    parse: |text| match text {
        "self" => Ok(None),
        _ => next_hop(text.parse().map_err(unexpected)?).map(Some),
    },
};

/// Numbers with colons between them.
fn numbers<T: std::str::FromStr, const COUNT: usize>(text: &str) -> Result<[T; COUNT], Refusal> {
    let numbers: Option<Vec<T>> = text.split(':').map(decimal).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or(Refusal::Unexpected)
}

/// A time that the OPEN message carries, as this standard says.
fn whole_seconds(text: &str, standard: &str) -> Result<u64, Refusal> {
    let time = duration(text)?;
    match time.subsec_nanos() {
        0 => Ok(time.as_secs()),
        _ => Err(Refusal::Because(format!("the OPEN message carries whole seconds ({standard})"))),
    }
}

/// Why no single host has this address.
pub(super) fn unusable(address: IpAddr) -> Option<&'static str> {
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
        IpAddr::V4(v4) if v4.is_link_local() => Some("it is a link-local address"),
        // RFC 1122 §3.2.1.3, RFC 1112 §4.
        IpAddr::V4(v4) if v4.octets()[0] == 0 && !v4.is_unspecified() => Some("no host has an address in 0.0.0.0/8"),
        IpAddr::V4(v4) if v4.octets()[0] >= 240 && !v4.is_broadcast() => Some("no host has an address in 240.0.0.0/4"),
        address => unusable(address).or_else(|| address.is_loopback().then_some("it is a loopback address")),
    };
    reason.map_or(Ok(address), |reason| Err(Refusal::Because(reason.to_owned())))
}
