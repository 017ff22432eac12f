// SPDX-License-Identifier: Apache-2.0
//! Values of the section `vrrp`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ::vrrp::router::ChecksumChoice;
use ::vrrp::wire::ChecksumForm;
use ::vrrp::{Interval, Priority, Version, Vrid};

use super::bgp::{PEER_NAME, unusable};
use super::{decimal, duration, unexpected};
use crate::config::read::{Kind, Refusal};
use crate::desired::unfit;

/// No time of a virtual router may be longer.
const LONGEST: Duration = Duration::from_secs(86_400);
const SHORTEST_SPACING: Duration = Duration::from_millis(10);

pub(in crate::config) const GROUP_NAME: Kind<String> =
    Kind { expected: "the name of a group (1 to 63 of letters, digits, '-', '_' and '.')", numeric: false, parse: PEER_NAME.parse };

pub(in crate::config) const VRID: Kind<Vrid> =
    Kind { expected: "a number from 1 to 255", numeric: true, parse: |text| decimal(text).and_then(Vrid::new).ok_or(Refusal::Unexpected) };

pub(in crate::config) const VERSION: Kind<Version> = Kind {
    expected: "2 or 3",
    numeric: true,
    parse: |text| match text {
        "2" => Ok(Version::V2),
        "3" => Ok(Version::V3),
        _ => Err(Refusal::Unexpected),
    },
};

pub(in crate::config) const PRIORITY: Kind<Priority> = Kind {
    expected: "a number from 1 to 255",
    numeric: true,
    parse: |text| decimal(text).and_then(Priority::new).ok_or(Refusal::Unexpected),
};

pub(in crate::config) const INTERVAL: Kind<Interval> = Kind {
    expected: "a time from 10ms to 40.95s (version 2: 1s to 255s)",
    numeric: false,
    parse: |text| {
        let time = duration(text)?;
        if !time.as_nanos().is_multiple_of(10_000_000) {
            return Err(Refusal::Because("advertisements carry hundredths of a second (RFC 9568 §5.2.7)".to_owned()));
        }
        let centiseconds = u16::try_from(time.as_millis() / 10).map_err(unexpected)?;
        Interval::from_centiseconds(centiseconds).ok_or(Refusal::Unexpected)
    },
};

/// RFC 9568 §5.2.9 has a link-local address at the head of those of IPv6.
pub(in crate::config) const ADDRESS: Kind<IpAddr> = Kind {
    expected: "an IPv4 or IPv6 address",
    numeric: false,
    parse: |text| {
        let address: IpAddr = text.parse().map_err(unexpected)?;
        let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        match unfit(address).filter(|_| !is_link_local) {
            Some(reason) => Err(Refusal::Because(format!("it {reason}"))),
            None => Ok(address),
        }
    },
};

pub(in crate::config) const PEER: Kind<IpAddr> = Kind {
    expected: "an IPv4 or IPv6 address",
    numeric: false,
    parse: |text| {
        let address: IpAddr = text.parse().map_err(unexpected)?;
        unusable(address).map_or(Ok(address), |reason| Err(Refusal::Because(reason.to_owned())))
    },
};

pub(in crate::config) const SOURCE_IPV4: Kind<Ipv4Addr> =
    Kind { expected: "an IPv4 address", numeric: false, parse: |text| text.parse().map_err(unexpected) };

pub(in crate::config) const SOURCE_IPV6: Kind<Ipv6Addr> =
    Kind { expected: "an IPv6 address", numeric: false, parse: |text| text.parse().map_err(unexpected) };

pub(in crate::config) const CHECKSUM: Kind<ChecksumChoice> = Kind {
    expected: "auto, message-only or pseudo-header",
    numeric: false,
    parse: |text| match text {
        "auto" => Ok(ChecksumChoice::AsHeard),
        "message-only" => Ok(ChecksumChoice::Always(ChecksumForm::MessageOnly)),
        "pseudo-header" => Ok(ChecksumChoice::Always(ChecksumForm::PseudoHeader)),
        _ => Err(Refusal::Unexpected),
    },
};

pub(in crate::config) const LEAST_TTL: Kind<u8> = Kind {
    expected: "a number from 1 to 255",
    numeric: true,
    parse: |text| decimal(text).filter(|ttl| *ttl > 0).ok_or(Refusal::Unexpected),
};

pub(in crate::config) const REPEATS: Kind<u32> = Kind {
    expected: "a number from 1 to 100",
    numeric: true,
    parse: |text| decimal(text).filter(|times| (1..=100).contains(times)).ok_or(Refusal::Unexpected),
};

pub(in crate::config) const SPACING: Kind<Duration> =
    Kind { expected: "a time from 10ms to 24h", numeric: false, parse: |text| bounded(text, SHORTEST_SPACING) };

/// `None` stands for `0s`.
pub(in crate::config) const REFRESH: Kind<Option<Duration>> = Kind {
    expected: "0s (off), or a time from 10ms to 24h",
    numeric: false,
    parse: |text| if duration(text)?.is_zero() { Ok(None) } else { bounded(text, SHORTEST_SPACING).map(Some) },
};

pub(in crate::config) const DELAY: Kind<Duration> =
    Kind { expected: "a time from 0s to 24h", numeric: false, parse: |text| bounded(text, Duration::ZERO) };

fn bounded(text: &str, least: Duration) -> Result<Duration, Refusal> {
    let time = duration(text)?;
    if (least..=LONGEST).contains(&time) { Ok(time) } else { Err(Refusal::Unexpected) }
}
