// SPDX-License-Identifier: Apache-2.0
//! What may be behind a peer's silence, in words for an operator.
//!
//! Input: how the connection is made, and what the kernel has counted. Output: sentences. What is certain is said as certain: that packets were dropped here
//! because of their TTL, the kernel counts. Everything else is one possibility among others.

use std::fs;
use std::time::Duration;

use crate::desired::{Transport, Ttl};

/// A peer answers an OPEN at once. Later than that an operator may want to know what to check, long before the hold timer gives up (RFC 4271 §8.2.2: 4
/// minutes).
const OPEN_PATIENCE: Duration = Duration::from_secs(10);

/// The counters of the protocols of this network namespace.
const COUNTERS: &str = "/proc/thread-self/net/netstat";

/// How many packets this network namespace has dropped because their TTL or hop limit was lower than their TCP connection takes (RFC 5082 §3). The kernel counts
/// those of all connections together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LowTtlDrops(Option<u64>);

impl LowTtlDrops {
    /// So far; nothing is known where the kernel cannot be asked.
    pub(in crate::driver::bgp) fn so_far() -> Self {
        Self(fs::read_to_string(COUNTERS).ok().and_then(|text| counter(&text, "TcpExt:", "TCPMinTTLDrop")))
    }

    /// Whether there have been any since then; `None` where that is not known.
    fn since(self, before: Self) -> Option<bool> {
        Some(self.0? > before.0?)
    }
}

/// One of the counters: a line of names, and a line of numbers under the same heading.
fn counter(text: &str, heading: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(heading));
    let (names, numbers) = (lines.next()?, lines.next()?);
    names.split_whitespace().zip(numbers.split_whitespace()).find(|(other, _)| *other == name)?.1.parse().ok()
}

/// The peer answers no SYN: what else than that it is not there.
pub(super) fn unanswered(transport: &Transport, before: LowTtlDrops) -> Vec<String> {
    let key = transport.key_files().next().map(|_| "it may have another key of TCP-MD5 or TCP-AO, or none".to_owned());
    key.into_iter().chain(low_ttl(transport, before)).collect()
}

/// The peer's host has answered the SYN, and nothing is heard of what is to follow: a key is none of it, since without it TCP would not have come up.
pub(super) fn unheard(transport: &Transport, before: LowTtlDrops) -> String {
    silent("its BGP may hang", transport, before)
}

/// The same where not even the peer's host has acknowledged what it was sent.
pub(super) fn unacknowledged(transport: &Transport, before: LowTtlDrops) -> String {
    silent("its host may be gone", transport, before)
}

fn silent(first: &str, transport: &Transport, before: LowTtlDrops) -> String {
    match transport.ttl {
        Ttl::Security { .. } => low_ttl(transport, before).unwrap_or_else(|| format!("{first}, or packets may be lost on the way")),
        Ttl::Customary | Ttl::Multihop(_) => format!(
            "{first}, packets may be lost on the way, or it may have GTSM (RFC 5082) and drop what comes with a lower TTL than 255: \
             then ttlSecurity is needed here too"
        ),
    }
}

/// That packets are dropped here because of their TTL, unless it is known that none was.
fn low_ttl(transport: &Transport, before: LowTtlDrops) -> Option<String> {
    let Ttl::Security { hops } = transport.ttl else { return None };
    let check = format!("a peer with ttlSecurity has to send with TTL 255 (GTSM, RFC 5082), and may be {hops} hops away at most");
    match LowTtlDrops::so_far().since(before) {
        Some(true) => Some(format!("packets were dropped here because their TTL was too low: {check}")),
        Some(false) => None,
        None => Some(format!("its packets may be dropped here because their TTL is too low: {check}")),
    }
}

/// Why a peer may be silent that has taken our OPEN so long ago. `before`: what was dropped until it was dialled.
#[must_use]
pub(crate) fn silence(transport: &Transport, since: Duration, before: LowTtlDrops) -> Option<String> {
    let seconds = since.as_secs();
    (since >= OPEN_PATIENCE).then(|| format!("for {seconds}s the peer has not answered our OPEN; {}", unheard(transport, before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETSTAT: &str =
        "TcpExt: SyncookiesSent TCPMinTTLDrop TCPDeferAcceptDrop\nTcpExt: 1 42 3\nIpExt: InNoRoutes TCPMinTTLDrop\nIpExt: 7 8\n";
    /// Nothing that was dropped before can be more.
    const NONE_SINCE: LowTtlDrops = LowTtlDrops(Some(u64::MAX));
    const UNKNOWN: LowTtlDrops = LowTtlDrops(None);

    #[test]
    fn the_counter_is_found_by_its_name() {
        assert_eq!(counter(NETSTAT, "TcpExt:", "TCPMinTTLDrop"), Some(42));
        assert_eq!(counter(NETSTAT, "TcpExt:", "TCPNew"), None);
        assert_eq!(counter("TcpExt: TCPMinTTLDrop\n", "TcpExt:", "TCPMinTTLDrop"), None);
        assert!(LowTtlDrops::so_far().0.is_some(), "this kernel has it");
    }

    #[test]
    fn what_looks_like_silence_is_said_where_it_may_be_the_cause() {
        let plain = Transport::default();
        assert_eq!(unanswered(&plain, UNKNOWN), [""; 0]);
        let theirs = "packets may be lost on the way, or it may have GTSM (RFC 5082) and drop what comes with a lower TTL than 255: \
                      then ttlSecurity is needed here too";
        assert_eq!(unheard(&plain, UNKNOWN), format!("its BGP may hang, {theirs}"));
        assert_eq!(unacknowledged(&plain, UNKNOWN), format!("its host may be gone, {theirs}"));

        let secure = Transport { ttl: Ttl::Security { hops: 2 }, password_file: Some("/k".into()), ..Transport::default() };
        let key = "it may have another key of TCP-MD5 or TCP-AO, or none";
        assert_eq!(unanswered(&secure, NONE_SINCE), [key], "the kernel has dropped nothing");
        assert_eq!(unheard(&secure, NONE_SINCE), "its BGP may hang, or packets may be lost on the way");
        let possible = "its packets may be dropped here because their TTL is too low: a peer with ttlSecurity has to send with TTL 255 (GTSM, RFC 5082), \
                        and may be 2 hops away at most";
        assert_eq!(unanswered(&secure, UNKNOWN), [key, possible]);
        assert_eq!(unheard(&secure, UNKNOWN), possible, "a wrong key would not have let TCP come up");
    }

    #[test]
    fn a_peer_that_does_not_answer_our_open_is_a_matter_of_seconds() {
        assert_eq!(silence(&Transport::default(), Duration::from_secs(9), UNKNOWN), None);
        let hint = silence(&Transport::default(), Duration::from_secs(12), UNKNOWN).unwrap();
        assert!(hint.starts_with("for 12s the peer has not answered our OPEN; its BGP may hang, packets may be lost"), "{hint}");
    }
}
