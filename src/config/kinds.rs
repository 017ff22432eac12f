// SPDX-License-Identifier: Apache-2.0
//! What each value of the file may be: its words for the person who writes it, its bounds, and how text becomes a typed value. Those of the sections
//! `dataplane` and `bgp` have modules of their own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::bgp::Prefix;
use ipnetwork::IpNetwork;

use super::nft_words::is_nft_word;
use super::read::{Kind, Refusal};
use super::{LogFormat, OnCordon, OnTermination, WithoutEndpoints, Workload};
use crate::api::{Kind as ApiKind, LabelSelector, ObjectRef, is_label_key, is_label_value};
use crate::desired::Mode;

pub(super) mod bgp;
pub(super) mod dataplane;
pub(super) mod vrrp;

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

pub(super) const DOMAIN: Kind<String> = Kind {
    expected: "the name of a domain (a label value: at most 63 letters, digits, '-', '_' and '.')",
    numeric: true,
    parse: |text| if is_label_value(text) { Ok(text.to_owned()) } else { Err(Refusal::Unexpected) },
};

pub(super) const POOL_NAME: Kind<String> =
    Kind { expected: "the name of a pool (1 to 63 of letters, digits, '-', '_' and '.')", numeric: false, parse: bgp::PEER_NAME.parse };

pub(super) const LABEL_SELECTOR: Kind<Option<LabelSelector>> = Kind {
    expected: "a label selector such as 'team=enm,tier!=test,!legacy'",
    numeric: false,
    parse: |text| text.parse().map(Some).map_err(Refusal::Because),
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

pub(super) const PREFIX: Kind<Prefix> = Kind {
    expected: "a prefix such as 10.0.0.0/24 or 2001:db8::/64",
    numeric: false,
    parse: |text| {
        let network: IpNetwork = text.contains('/').then(|| text.parse().ok()).flatten().ok_or(Refusal::Unexpected)?;
        let prefix = IpNetwork::new(network.network(), network.prefix()).map_or_else(|_| text.to_owned(), |whole| whole.to_string());
        Prefix::new(network.ip(), network.prefix()).map_err(|error| Refusal::Because(format!("{error}; the prefix is {prefix}")))
    },
};

pub(super) const MODE: Kind<Mode> = Kind {
    expected: "bgp or vrrp",
    numeric: false,
    parse: |text| match text {
        "bgp" => Ok(Mode::Bgp),
        "vrrp" => Ok(Mode::Vrrp),
        _ => Err(Refusal::Unexpected),
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

pub(super) const FILE: Kind<PathBuf> = Kind {
    expected: "an absolute path of a file",
    numeric: false,
    parse: |text| if text.starts_with('/') && !text.contains('\0') { Ok(PathBuf::from(text)) } else { Err(Refusal::Unexpected) },
};

pub(super) const PORT: Kind<u16> = Kind {
    expected: "a TCP port from 1 to 65535",
    numeric: true,
    parse: |text| decimal(text).filter(|port| *port != 0).ok_or(Refusal::Unexpected),
};

pub(super) const WORKLOAD: Kind<Workload> = Kind {
    expected: "DaemonSet/NAMESPACE/NAME or StatefulSet/NAMESPACE/NAME/POD",
    numeric: false,
    parse: |text| {
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, namespace, name, pod) = match parts.as_slice() {
            ["DaemonSet", namespace, name] => (ApiKind::DaemonSet, *namespace, *name, None),
            ["StatefulSet", namespace, name, pod] => (ApiKind::StatefulSet, *namespace, *name, Some(*pod)),
            _ => return Err(Refusal::Unexpected),
        };
        if !is_label(namespace) || !name.split('.').all(is_label) {
            return Err(Refusal::Unexpected);
        }
        let ordinal = |pod: &str| {
            let number = pod.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).and_then(|number| number.parse().ok());
            number
                .filter(|number| *number >= 0)
                .ok_or_else(|| Refusal::Because(format!("the pods of {name} are named {name}-0, {name}-1 and so on")))
        };
        let object = ObjectRef { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        Ok(Workload { object, ordinal: pod.map(ordinal).transpose()? })
    },
};

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

pub(super) const ON_CORDON: Kind<OnCordon> = Kind {
    expected: "auto, always or never",
    numeric: false,
    parse: |text| match text {
        "auto" => Ok(OnCordon::Auto),
        "always" => Ok(OnCordon::Always),
        "never" => Ok(OnCordon::Never),
        _ => Err(Refusal::Unexpected),
    },
};

pub(super) const TAINT_KEY: Kind<String> = Kind {
    expected: "the key of a taint such as maintenance or example.com/maintenance",
    numeric: false,
    parse: |text| if is_label_key(text) { Ok(text.to_owned()) } else { Err(Refusal::Unexpected) },
};

pub(super) const TAINT_VALUE: Kind<String> = Kind {
    expected: "the value of a taint (at most 63 letters, digits, '-', '_' and '.')",
    numeric: true,
    parse: |text| if is_label_value(text) { Ok(text.to_owned()) } else { Err(Refusal::Unexpected) },
};

pub(super) const TAINT_EFFECT: Kind<String> = Kind {
    expected: "NoSchedule, PreferNoSchedule or NoExecute",
    numeric: false,
    parse: |text| {
        if matches!(text, "NoSchedule" | "PreferNoSchedule" | "NoExecute") { Ok(text.to_owned()) } else { Err(Refusal::Unexpected) }
    },
};

pub(super) const TIME: Kind<Duration> =
    Kind { expected: "a time from 0s to 1h", numeric: false, parse: |text| within(text, Duration::ZERO) };

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

fn duration(text: &str) -> Result<Duration, Refusal> {
    let reason = || Refusal::Because("a time is a number and a unit, such as 500ms, 9s or 2m".to_owned());
    humantime::parse_duration(text).ok().ok_or_else(reason)
}

fn within(text: &str, least: Duration) -> Result<Duration, Refusal> {
    let time = duration(text)?;
    if (least..=LONGEST).contains(&time) { Ok(time) } else { Err(Refusal::Unexpected) }
}

/// Where the standard library's reason adds nothing to what was expected.
fn unexpected<E>(_: E) -> Refusal {
    Refusal::Unexpected
}
