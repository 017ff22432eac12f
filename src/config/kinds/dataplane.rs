// SPDX-License-Identifier: Apache-2.0
//! Values of the section `dataplane`.

use std::net::IpAddr;

use ipvs::SyncRole;

use super::{PORT, decimal, unexpected};
use crate::api::{ForwardingMethod, Scheduler, UnknownWord};
use crate::config::read::{Kind, Refusal};
use crate::config::{DataplaneType, LocalPolicy};
use crate::desired::{MssClamp, UnservedPorts};

pub(in crate::config) const DATAPLANE: Kind<DataplaneType> = Kind {
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

pub(in crate::config) const SCHEDULER: Kind<Scheduler> = Kind {
    expected: "a scheduler of IPVS such as rr, lc, sh or mh",
    numeric: false,
    parse: |text| text.parse().map_err(|error: UnknownWord| Refusal::Because(error.to_string())),
};

pub(in crate::config) const FORWARDING: Kind<ForwardingMethod> =
    Kind { expected: "nat, dr, tun or gue", numeric: false, parse: |text| text.parse().map_err(unexpected) };

pub(in crate::config) const TUNNEL: Kind<ForwardingMethod> = Kind {
    expected: "ipip or gue",
    numeric: false,
    parse: |text| match text {
        "ipip" => Ok(ForwardingMethod::Tunnel),
        "gue" => Ok(ForwardingMethod::Gue),
        _ => Err(Refusal::Unexpected),
    },
};

pub(in crate::config) const UDP_PORT: Kind<u16> = Kind { expected: "a UDP port from 1 to 65535", ..PORT };

pub(in crate::config) const SYNC_ROLE: Kind<SyncRole> = Kind {
    expected: "master or backup",
    numeric: false,
    parse: |text| SyncRole::ALL.into_iter().find(|role| role.word() == text).ok_or(Refusal::Unexpected),
};

pub(in crate::config) const SYNC_ID: Kind<u8> =
    Kind { expected: "a number from 0 to 255", numeric: true, parse: |text| decimal(text).ok_or(Refusal::Unexpected) };

pub(in crate::config) const MULTICAST_GROUP: Kind<IpAddr> = Kind {
    expected: "a multicast group such as 224.0.0.81 or ff02::81",
    numeric: false,
    parse: |text| text.parse().ok().filter(IpAddr::is_multicast).ok_or(Refusal::Unexpected),
};

pub(in crate::config) const MULTICAST_TTL: Kind<u8> = Kind {
    expected: "a number of hops from 1 to 255",
    numeric: true,
    parse: |text| decimal(text).filter(|ttl| *ttl != 0).ok_or(Refusal::Unexpected),
};

/// The kernel takes no less than fits one connection, and no more than fits a packet.
pub(in crate::config) const SYNC_LENGTH: Kind<u16> = Kind {
    expected: "a number of octets from 576 to 65507",
    numeric: true,
    parse: |text| decimal(text).filter(|length| (576..=65_507).contains(length)).ok_or(Refusal::Unexpected),
};

pub(in crate::config) const IDLE_TIME: Kind<u32> = Kind {
    expected: "a time from 1s to 24h in whole seconds",
    numeric: false,
    parse: |text| {
        let time = humantime::parse_duration(text).map_err(unexpected)?;
        let whole = (time.subsec_nanos() == 0).then_some(time.as_secs());
        whole.and_then(|seconds| u32::try_from(seconds).ok()).filter(|seconds| (1..=86_400).contains(seconds)).ok_or(Refusal::Unexpected)
    },
};

pub(in crate::config) const UNSERVED_PORTS: Kind<UnservedPorts> = Kind {
    expected: "drop or reject",
    numeric: false,
    parse: |text| match text {
        "drop" => Ok(UnservedPorts::Drop),
        "reject" => Ok(UnservedPorts::Reject),
        _ => Err(Refusal::Unexpected),
    },
};

pub(in crate::config) const LOCAL_POLICY: Kind<LocalPolicy> = Kind {
    expected: "endpointNodes or preserveSource",
    numeric: false,
    parse: |text| match text {
        "endpointNodes" => Ok(LocalPolicy::EndpointNodes),
        "preserveSource" => Ok(LocalPolicy::PreserveSource),
        _ => Err(Refusal::Unexpected),
    },
};

pub(in crate::config) const MSS_CLAMP: Kind<MssClamp> = Kind {
    expected: "off, pmtu, or a segment size from 536 to 65495 octets",
    numeric: true,
    parse: |text| match text {
        "off" => Ok(MssClamp::Off),
        "pmtu" => Ok(MssClamp::PathMtu),
        _ => decimal(text).filter(|octets| (536..=65_495).contains(octets)).map(MssClamp::Octets).ok_or(Refusal::Unexpected),
    },
};

pub(in crate::config) const FWMARK: Kind<u32> = Kind {
    expected: "a firewall mark from 1 to 4294966272",
    numeric: true,
    parse: |text| decimal(text).filter(|mark| (1..=u32::MAX - 1023).contains(mark)).ok_or(Refusal::Unexpected),
};
