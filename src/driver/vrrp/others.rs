// SPDX-License-Identifier: Apache-2.0
//! The other routers that use a VRID on a link, and what is strange about them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use vrrp::Addresses;
use vrrp::router::{Discard, Heard};

use super::group::Identity;
use super::status::OtherRouter;

/// So many are kept: who invents routers is not to fill the memory.
const MOST: usize = 16;
/// Addresses come and go on all nodes within that time.
const SETTLED: Duration = Duration::from_secs(5);
/// A router of which nothing has come for so long is not there: longer than three of the longest intervals of version 3 (RFC 9568 §5.2.7).
const GONE: Duration = Duration::from_secs(130);
/// Between two complaints about one router.
const QUIET: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Others {
    routers: BTreeMap<IpAddr, Entry>,
}

#[derive(Debug)]
struct Entry {
    router: OtherRouter,
    seen: Instant,
    complained: Option<Instant>,
    /// Since when it lists other addresses, and whether that was said.
    differs: Option<(Instant, bool)>,
}

impl Others {
    /// An advertisement was taken, which lists other addresses than this router where these are given. Whether that changes who is there, and with which priority.
    pub(super) fn heard(&mut self, identity: &Identity, heard: Heard, differing: Option<&Addresses>) -> bool {
        let entry = self.entry(heard.source);
        match (differing, &mut entry.differs) {
            (None, differs) => *differs = None,
            (Some(_), differs @ None) => *differs = Some((heard.at, false)),
            (Some(listed), Some((since, is_said))) => {
                if !*is_said && heard.at.saturating_duration_since(*since) >= SETTLED {
                    *is_said = true;
                    differs(identity, heard.source, listed);
                }
            }
        }
        // What it sends is taken again.
        let was_discarded = entry.router.discarded.take().is_some();
        let before = entry.router.heard.replace(heard);
        was_discarded || before.is_none_or(|before| (before.priority, before.interval) != (heard.priority, heard.interval))
    }

    /// A datagram was not taken. Whether that is for a new reason.
    pub(super) fn discarded(&mut self, Identity { name, interface, vrid, .. }: &Identity, source: IpAddr, reason: Discard) -> bool {
        let entry = self.entry(source);
        entry.router.discards += 1;
        let is_new = entry.router.discarded != Some(reason);
        entry.router.discarded = Some(reason);
        if is_new && entry.complained.is_none_or(|at| at.elapsed() >= QUIET) {
            entry.complained = Some(Instant::now());
            tracing::warn!(group = name, %interface, %vrid, %source, %reason, "what another router sends with this VRID is discarded");
        }
        is_new
    }

    /// Each of them, with what those list that list other addresses.
    pub(super) fn status(&self, differing: &BTreeMap<IpAddr, Addresses>) -> BTreeMap<IpAddr, OtherRouter> {
        let status =
            |(source, entry): (&IpAddr, &Entry)| (*source, OtherRouter { lists: differing.get(source).cloned(), ..entry.router.clone() });
        self.routers.iter().filter(|(_, entry)| entry.seen.elapsed() < GONE).map(status).collect()
    }

    /// Of the one at this address; the one that was silent for longest makes room for it.
    fn entry(&mut self, source: IpAddr) -> &mut Entry {
        if !self.routers.contains_key(&source) && self.routers.len() >= MOST {
            let oldest = self.routers.iter().min_by_key(|(_, entry)| entry.seen).map(|(source, _)| *source);
            oldest.and_then(|oldest| self.routers.remove(&oldest));
        }
        let entry = self.routers.entry(source).or_insert_with(|| Entry {
            router: OtherRouter::default(),
            seen: Instant::now(),
            complained: None,
            differs: None,
        });
        entry.seen = Instant::now();
        entry
    }
}

/// It lists other addresses.
fn differs(Identity { name, interface, vrid, .. }: &Identity, source: IpAddr, listed: &Addresses) {
    let listing = listed.iter().take(4).map(|address| address.to_string()).collect::<Vec<_>>().join(" ");
    tracing::warn!(
        group = name, %interface, %vrid, %source, listed = listed.len(), listing,
        "another router lists other addresses for this VRID: it may be of another virtual router"
    );
}
