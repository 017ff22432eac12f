// SPDX-License-Identifier: Apache-2.0
//! What is received: the checks of RFC 9568 §7.1 that need to know the virtual router, after those of [`Advertisement::decode`].

use std::net::IpAddr;

use super::{Action, ChecksumChoice, Heard, State, Transport, Turn, VirtualRouter};
use crate::identity::{Family, Interval, Version, Vrid};
use crate::wire::{Advertisement, ChecksumForm, Datagram, DecodeError};

/// Reports of routers that list other addresses are kept for so many of them.
const MOST_DIFFERING: usize = 16;

/// Why a datagram is not taken for an advertisement of another router of this virtual router.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Discard {
    /// It is of the other family, which has a virtual router of its own.
    #[error("it is of the other address family than {0}")]
    Family(Family),
    /// The message is none.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// It is of another virtual router.
    #[error("VRID {received}, expected {expected}")]
    Vrid {
        /// As received.
        received: Vrid,
        /// Of this virtual router.
        expected: Vrid,
    },
    /// This router owns the addresses, and is Active: nobody else can be.
    #[error("this router owns the addresses")]
    Owner,
    /// In version 2 all routers have one interval (RFC 3768 §7.1).
    #[error("advertisement interval {received}, expected {expected}")]
    Interval {
        /// As received.
        received: Interval,
        /// As configured.
        expected: Interval,
    },
    /// From the own address: another router has it, too, or what was sent has come back.
    #[error("it comes from the own address")]
    OwnAddress,
    /// Not from one of the peers.
    #[error("it does not come from a peer")]
    NotAPeer,
    /// To somebody else than it would be sent to.
    #[error("it was sent to {0}")]
    Destination(IpAddr),
}

impl VirtualRouter {
    pub(super) fn receive(&mut self, turn: &mut Turn, datagram: &Datagram) {
        let source = datagram.endpoints.source();
        match self.accept(datagram) {
            Ok((advertisement, form)) => {
                self.note(turn, source, &advertisement, form);
                self.elect(turn, source, &advertisement);
            }
            Err(reason) => {
                self.counters.discarded.count(&reason);
                turn.push(Action::Discarded { source, reason });
            }
        }
    }

    /// In the order of RFC 9568 §7.1, and then what follows from the configuration.
    fn accept(&self, datagram: &Datagram) -> Result<(Advertisement, ChecksumForm), Discard> {
        let config = &self.config;
        let family = config.addresses.family();
        if datagram.endpoints.family() != family {
            return Err(Discard::Family(family));
        }
        let (advertisement, form) = Advertisement::decode(datagram, config.version, config.least_ttl)?;
        if advertisement.vrid != config.vrid {
            return Err(Discard::Vrid { received: advertisement.vrid, expected: config.vrid });
        }
        if self.priority().is_owner() && self.state() == State::Active {
            return Err(Discard::Owner);
        }
        if config.version == Version::V2 && advertisement.interval != config.interval {
            return Err(Discard::Interval { received: advertisement.interval, expected: config.interval });
        }
        let (source, destination) = (datagram.endpoints.source(), datagram.endpoints.destination());
        if source == config.primary {
            return Err(Discard::OwnAddress);
        }
        match &config.transport {
            Transport::Multicast if destination != family.multicast_group() => Err(Discard::Destination(destination)),
            Transport::Unicast { .. } if destination != config.primary => Err(Discard::Destination(destination)),
            Transport::Unicast { peers, .. } if !peers.contains(&source) => Err(Discard::NotAPeer),
            Transport::Multicast | Transport::Unicast { .. } => Ok((advertisement, form)),
        }
    }

    /// Keeps what there is to know of an advertisement apart from the election.
    fn note(&mut self, turn: &mut Turn, source: IpAddr, advertisement: &Advertisement, form: ChecksumForm) {
        self.counters.received += 1;
        self.counters.received_priority_zero += u64::from(advertisement.priority.is_none());
        self.last_form = Some(form);
        if self.config.transport.has(source) {
            self.forms.insert(source, form);
        }
        self.heard = Some(Heard { source, priority: advertisement.priority, interval: advertisement.interval, at: turn.now });
        if self.listed.as_ref() != Some(&advertisement.addresses) {
            self.listed = Some(advertisement.addresses.clone());
        }
        self.compare(turn, source, advertisement);
    }

    /// Another list of addresses is told, once, and otherwise has no effect (RFC 9568 §7.1 leaves that open).
    fn compare(&mut self, turn: &mut Turn, source: IpAddr, advertisement: &Advertisement) {
        let listed = &advertisement.addresses;
        if listed.is_same_set(&self.config.addresses.listed()) {
            self.differing.remove(&source);
        } else if self.differing.get(&source) != Some(listed)
            && (self.differing.len() < MOST_DIFFERING || self.differing.contains_key(&source))
        {
            self.differing.insert(source, listed.clone());
            turn.push(Action::AddressesDiffer { source, listed: listed.clone() });
        }
    }

    /// The form of checksum that is sent to this address.
    #[must_use]
    pub fn checksum_form(&self, destination: IpAddr) -> ChecksumForm {
        match self.config.checksum {
            ChecksumChoice::Always(form) => form,
            ChecksumChoice::AsHeard => self.forms.get(&destination).copied().or(self.last_form).unwrap_or(ChecksumForm::MessageOnly),
        }
    }
}
