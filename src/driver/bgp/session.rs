// SPDX-License-Identifier: Apache-2.0
//! The task of one neighbour: it owns one [`Peer`], carries out its actions, and feeds it what happens.
//!
//! Inputs: the connections, the set to advertise, what other neighbours tell where we reflect, keys, orders, and the clock. Outputs: octets, and the neighbour's status. It decides nothing: when
//! to dial, what to send and when to give up is the core's business. It sleeps once, until the core's deadline.

mod feed;
mod input;
mod orders;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::peer::{Action, Event, LocalAddresses, Peer, PeerId, Role, State, Stop, Timers};
use bgp::wire::Cease;
use futures_util::FutureExt as _;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout_at;

use super::addresses::{Ends, local_among};
use super::admission::Seat;
use super::claim::Claims;
use super::connection::{self, Connection, Happening, Pace};
use super::destination::Destination;
use super::dial::{DialError, Dialled, arrive, dial};
use super::fatal_panics;
use super::keyring::Keys;
use super::link::{Link, Links, News};
use super::listener::Arrival;
use super::location::Location;
use super::orders::Order;
use super::report::{Complaints, Report};
use super::settings::{Adjustable, Beginning, Settings};
use super::signature::Signature;
use super::socket::{self, Way};
use super::status::Board;
use super::whereabouts::{Found, Whereabouts};
use super::words::Loss;
use crate::telemetry::chain;

pub(super) use feed::Feed;
use input::{Input, next_input};

/// What a session listens to, besides its connections.
pub(super) struct Inputs {
    /// The order to end.
    pub(super) end: watch::Receiver<Option<Stop>>,
    pub(super) adjustable: watch::Receiver<Adjustable>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) keys: watch::Receiver<Arc<Keys>>,
    pub(super) location: watch::Receiver<Location>,
    pub(super) whereabouts: watch::Receiver<Arc<Whereabouts>>,
    pub(super) feed: Feed,
    /// Which sessions are this neighbour's.
    pub(super) claims: Claims,
    /// What operators know of dynamic neighbours.
    pub(super) complaints: Complaints,
    /// That of a dynamic neighbour among those.
    pub(super) seat: Option<Arc<Seat>>,
}

/// What a session is to do next.
#[derive(Debug)]
pub(super) enum Command {
    /// Take this connection of the peer.
    Accept(Arrival),
    /// Do what the operator says.
    Obey(Order),
}

/// One neighbour and its connections.
pub(super) struct Session {
    way: Way,
    destination: Destination,
    /// Where the peer was when last looked for; `None` where it was nowhere.
    found: Option<Vec<Found>>,
    unnumbered: bool,
    peer: Peer,
    links: Links,
    /// Connections that deliver their last octets.
    closing: JoinSet<()>,
    /// A connection that the peer has dialled while there is another, and that waits for what becomes of that one (RFC 4271 §6.8).
    redial: Option<Arrival>,
    inputs: Inputs,
    /// Ends once its last connection is closed.
    ending: bool,
    /// The neighbour is one of a prefix: it is forgotten when it goes.
    dynamic: bool,
    /// The core wants to dial, and the neighbour is nowhere.
    undialled: bool,
    /// The peer was listened to since the core's time has come.
    heard_out: bool,
    /// Whether what the peer tells is passed on (RFC 4456).
    reflects: bool,
    /// Connections that have taken all that was sent, of which the core is yet to be told.
    drained: BTreeSet<Role>,
    report: Report,
}

/// For so long after our restart a neighbour's End-of-RIB waits for what the others have yet to tell (RFC 4724 §4.1, Selection_Deferral_Timer). Only
/// what an earlier process told of them, and nobody tells again, stays longer by it.
const SELECTION_DEFERRAL: Duration = Duration::from_secs(10);

/// In so many turns of the thread a dial that the peer has answered becomes a connection: TCP, and the addresses of the node as the kernel tells them.
const OPENING_TURNS: usize = 16;

impl Session {
    pub(super) fn new(name: &str, id: PeerId, settings: &Settings, beginning: &Beginning, seed: u64, inputs: Inputs, board: Board) -> Self {
        let mut peer = Peer::new(settings.peer_config(name, id, beginning), seed);
        if let Beginning::Inherited(inheritance) = beginning {
            peer.inherit(inheritance.at, (*inheritance.prefixes).clone());
            let until = inheritance.at + SELECTION_DEFERRAL;
            if settings.cluster.is_some() && settings.peer.graceful_restart.is_some() && until > Instant::now() {
                inputs.feed.rib.is_awaited();
                peer.defer_end_of_rib(until);
            }
        }
        let report = Report::new(name, settings, &peer, board, inputs.complaints.clone());
        let mut session = Self {
            way: settings.way(),
            destination: Destination::new(settings.peer.address.clone()),
            found: None,
            unnumbered: settings.is_unnumbered(),
            peer,
            links: Links::default(),
            closing: JoinSet::new(),
            redial: None,
            inputs,
            ending: false,
            dynamic: settings.dynamic,
            undialled: false,
            heard_out: false,
            reflects: settings.cluster.is_some(),
            drained: BTreeSet::new(),
            report,
        };
        session.report.update(&session.peer, 0);
        session.report.post();
        session
    }

    /// Runs until it was told to end, or a dynamic neighbour has gone, and the last connection is closed.
    /// `first` is the connection that brought a dynamic neighbour, from near enough.
    pub(super) async fn run(mut self, shut: bool, first: Option<Arrival>) {
        self.inputs.feed.routes.mark_changed();
        self.take_key();
        self.look_for_peer();
        self.report.shut(shut);
        if !shut {
            self.handle(Event::Start);
        }
        if let Some(arrival) = first {
            self.accept(arrival);
            self.publish();
        }
        self.ending |= self.has_gone();
        while !(self.ending && self.links.are_down() && self.closing.is_empty()) {
            let input = self.wait().await;
            self.take(input);
            self.inputs.feed.turn.end().await;
        }
        // Unless who follows is ourselves.
        if !matches!(*self.inputs.end.borrow(), Some(Stop::Keep | Stop::ConfigurationChange)) {
            self.inputs.claims.release();
        }
    }

    /// Sleeps until something happens or the core's time has come.
    async fn wait(&mut self) -> Input {
        let wake = self.peer.deadline().into_iter().chain(self.links.poll_at()).min();
        let in_time = {
            let stuck = self.is_stuck();
            let resumes = !self.drained.is_empty() || self.peer.is_to_tell() && !stuck;
            let input = next_input(&mut self.links, &mut self.closing, &mut self.inputs, stuck, resumes);
            match wake {
                // A peer that never pauses must not keep the clock out.
                Some(wake) if wake <= Instant::now() => None,
                Some(wake) => timeout_at(wake.into(), input).await.ok(),
                None => Some(input.await),
            }
        };
        match in_time {
            Some(input) => input,
            None => self.overdue().await,
        }
    }

    /// The core's time has come. It may be this thread that is late and not the peer, so that what has arrived meanwhile counts first, once.
    async fn overdue(&mut self) -> Input {
        if self.would_end_something() && !self.heard_out {
            // A dial that is answered needs some more of them until it is a connection.
            for _ in 0..if self.links.are_opening() { OPENING_TURNS } else { 1 } {
                yield_now().await;
                if let Some((role, news)) = self.links.next().now_or_never() {
                    // Room for more octets says nothing of what the peer has sent.
                    self.heard_out = !matches!(news, News::Happened(Happening::Drained));
                    return Input::Link(role, news);
                }
            }
        }
        self.heard_out = false;
        Input::Time
    }

    /// Whether what is due is more than a KEEPALIVE. That is the one thing that must not wait: the other sessions have their turns first.
    fn would_end_something(&self) -> bool {
        let (Timers { hold, send_hold, connect_retry, .. }, now) = (self.peer.timers(), Instant::now());
        hold.into_iter().chain(send_hold).chain(connect_retry).any(|at| at <= now)
    }

    /// Turns what happened into events of the core.
    fn take(&mut self, input: Input) {
        // All sessions are told to end at once. What one takes with it is no news for another that ends too.
        if self.inputs.end.has_changed().unwrap_or(false) {
            self.take_end();
        }
        match input {
            Input::Time => {
                // What the peer has taken counts.
                if self.would_end_something() {
                    self.resume();
                    let now = Instant::now();
                    self.links.up().for_each(|(_, connection)| connection.expedite(now));
                    self.look_for_acknowledgements();
                }
                self.handle(Event::Tick);
            }
            Input::Routes => {
                self.take_routes();
                self.resume();
                if self.peer.is_to_tell() && !self.is_stuck() {
                    self.handle(Event::Tell);
                }
            }
            Input::End => self.take_end(),
            Input::Adjust => self.adjust(),
            Input::Keys => self.take_key(),
            Input::Location => self.relocate(),
            Input::Whereabouts => self.take_whereabouts(),
            Input::Command(Command::Accept(arrival)) => self.arrived(arrival),
            Input::Command(Command::Obey(order)) => self.obey(order),
            Input::Link(role, News::Opened(opened)) => self.opened(role, *opened),
            Input::Link(role, News::Happened(Happening::Received(bytes))) => {
                self.handle(Event::Received { role, bytes });
                self.take_seat();
            }
            Input::Link(role, News::Happened(Happening::Drained)) => {
                self.drained.insert(role);
                // There is a long step to come, for which it waits in turn.
                if !self.peer.is_behind() {
                    self.resume();
                }
            }
            Input::Link(role, News::Happened(Happening::Lost(loss))) => self.lost(role, loss),
            Input::Dismissed => self.leave(),
            Input::Closed => {}
        }
        self.take_redial();
        self.ending |= self.has_gone();
        self.look_for_acknowledgements();
        self.look_for_proof();
        self.publish();
    }

    fn opened(&mut self, role: Role, opened: Result<Dialled, DialError>) {
        self.links.set(role, Link::Down);
        match opened {
            Ok(Dialled { connection, local }) if role == Role::Active || self.peer.accepts() => {
                let local = self.own(local);
                self.report.connected(connection.endpoints());
                self.links.set(role, Link::Up(connection));
                self.handle(Event::Connected { role, local });
                self.take_key();
            }
            Ok(_) => {}
            Err(error) => {
                match error {
                    DialError::Claim(_) if role == Role::Passive => self.report.claim(Some(chain(&error))),
                    DialError::Connect(_) => self.report.transport_failed(chain(&error)),
                    _ => self.report.unusable(chain(&error)),
                }
                self.handle(match role {
                    Role::Active => Event::ConnectFailed { role },
                    Role::Passive => Event::Closed { role },
                });
            }
        }
    }

    /// A dynamic neighbour counts as one once it has sent an OPEN; there may be too many then.
    fn take_seat(&mut self) {
        if self.peer.counters().received.open > 0 && self.inputs.seat.as_ref().is_some_and(|seat| !seat.take()) {
            self.ending = true;
            self.handle(Event::Stop(Stop::Rejected));
        }
    }

    /// Makes room for others that dial, without a word: there may be many.
    fn leave(&mut self) {
        self.links = Links::default();
        self.ending = true;
    }

    /// Somebody has dialled us from the peer's address.
    fn arrived(&mut self, arrival: Arrival) {
        match socket::is_near(&arrival.stream, self.way.transport.ttl) {
            Ok(()) => self.accept(arrival),
            Err(error) => self.report.too_far(chain(&error)),
        }
    }

    /// The peer has dialled us.
    fn accept(&mut self, arrival: Arrival) {
        // Where it is lost already there is nothing to take. A session that ends is not to be held up by what is dialled meanwhile.
        let Some(peer) = arrival.stream.peer_addr().ok().map(Found::of).filter(|_| !self.ending) else { return };
        let prepared = self.signature().map_err(DialError::Key).and_then(|signature| {
            if signature.as_ref().is_some_and(|signature| !signature.is_on(&arrival)) {
                return Err(DialError::Unsigned);
            }
            self.way.prepare(&arrival.stream, peer.address, signature.as_ref())?;
            Ok(signature)
        });
        let signature = match prepared {
            Ok(signature) => signature,
            Err(error) => return self.report.refused(&chain(&error)),
        };
        if self.peer.state() == State::Idle {
            self.refuse(arrival.stream, Cease::ConnectionRejected);
        } else if self.peer.accepts() {
            let opening =
                arrive(arrival.stream, signature, self.way.clone(), peer, self.inputs.feed.routes.clone(), self.inputs.claims.clone());
            self.links.set(Role::Passive, Link::Opening(Box::pin(opening)));
        } else {
            // A peer that dials once more has given up what it dialled before.
            self.redial = Some(arrival);
            self.handle(Event::Redialled);
        }
    }

    /// What becomes of a connection that waits, once that is known.
    fn take_redial(&mut self) {
        if self.redial.is_none() || (self.peer.is_challenged() && !self.ending) {
            return;
        }
        if let Some(arrival) = self.redial.take() {
            if self.ending || self.peer.accepts() || self.peer.state() == State::Idle {
                self.accept(arrival);
            } else {
                self.refuse(arrival.stream, Cease::ConnectionCollisionResolution);
            }
        }
    }

    /// Tells the peer that this connection is not wanted (RFC 4486 §4).
    fn refuse(&mut self, stream: TcpStream, cease: Cease) {
        connection::refuse(&mut self.closing, stream, cease);
    }

    fn take_routes(&mut self) {
        // They go with it.
        if self.inputs.adjustable.has_changed().unwrap_or(false) {
            return self.adjust();
        }
        // What has begun is finished first: of two sets at most the peer may hold what the status does not tell.
        if !self.inputs.feed.rib.is_amid()
            && let Some(routes) = self.report.take(&mut self.inputs.feed.routes)
        {
            self.inputs.feed.rib.originate(&routes);
        }
        let stuck = self.is_stuck();
        let events = self.inputs.feed.rib.catch_up(stuck);
        events.into_iter().for_each(|event| self.handle(event));
        if !self.inputs.feed.rib.is_amid() {
            self.report.reached();
        }
    }

    /// Whether the peer takes nothing at present.
    fn is_stuck(&mut self) -> bool {
        self.links.up().any(|(_, connection)| connection.is_stuck())
    }

    /// Goes on telling where there is room for it.
    fn resume(&mut self) {
        for role in std::mem::take(&mut self.drained) {
            if matches!(self.links.get_mut(role), Link::Up(connection) if !connection.is_stuck()) {
                self.handle(Event::Writable { role });
            }
        }
    }

    /// Whether nothing is left of a dynamic neighbour. One that was shut down is shown as long as it is.
    fn has_gone(&self) -> bool {
        self.dynamic && !self.report.is_shut() && self.links.are_down() && self.peer.is_forgotten()
    }

    /// The node has other addresses: next hops may be others too.
    fn relocate(&mut self) {
        self.report.policy_changed();
        let location = Location::clone(&self.inputs.location.borrow_and_update());
        let advertised = self.inputs.feed.routes.borrow().as_ref().map(|routes| Arc::clone(&routes.set)).unwrap_or_default();
        let device = self.way.device();
        let ends = |(role, connection): (Role, &mut Connection)| {
            Some((role, Ends { local: connection.local()?, remote: connection.remote()?.ip(), device }))
        };
        let own: Vec<_> = self.links.up().filter_map(ends).collect();
        for (role, ends) in own {
            let in_use = self.peer.local_addresses(role).unwrap_or(LocalAddresses::NONE);
            let local = self.own(local_among(&location, ends, &advertised, in_use));
            self.handle(Event::Local { role, local });
        }
    }

    /// On an unnumbered link an IPv4 address of ours, if there is one, is none that the peer could reach: IPv4 routes have the next hop of IPv6 (RFC 8950).
    fn own(&self, local: LocalAddresses) -> LocalAddresses {
        LocalAddresses { ipv4: local.ipv4.filter(|_| !self.unnumbered), ..local }
    }

    /// The peer may be somewhere else. A session that is up goes on where it is, unless the peer is by definition not there any more.
    fn take_whereabouts(&mut self) {
        let whereabouts = Arc::clone(&self.inputs.whereabouts.borrow_and_update());
        if !self.look_for_peer() || self.ending {
            return;
        }
        let left = |(_, connection): (Role, &mut Connection)| {
            connection.remote().is_some_and(|peer| self.destination.has_left(Found::of(peer), &whereabouts))
        };
        if self.links.up().any(left) {
            self.handle(Event::Stop(Stop::ConfigurationChange));
            self.handle(Event::Start);
        } else {
            self.handle(Event::Reachable);
        }
    }

    /// Reports where the peer is. False where that is the same as before.
    fn look_for_peer(&mut self) -> bool {
        let whereabouts = Arc::clone(&self.inputs.whereabouts.borrow_and_update());
        let found = self.destination.candidates(&whereabouts).ok();
        self.report.place(self.destination.problem(&whereabouts));
        std::mem::replace(&mut self.found, found.clone()) != found
    }

    fn take_end(&mut self) {
        let Some(stop) = self.inputs.end.borrow_and_update().clone() else { return };
        self.ending = true;
        self.handle(Event::Stop(stop));
    }

    /// Other settings that this session can go on with, and the routes that were given with them.
    fn adjust(&mut self) {
        let Adjustable { export, import, connect_retry, send_hold_time, ao_keys } = self.inputs.adjustable.borrow_and_update().clone();
        self.report.adjusted(connect_retry);
        self.handle(Event::Timers { connect_retry, send_hold_time });
        self.handle(Event::Import(import));
        if let Some(routes) = self.report.take(&mut self.inputs.feed.routes) {
            self.inputs.feed.rib.originate(&routes);
        }
        let routes = self.inputs.feed.rib.whole();
        self.handle(Event::Export { export, routes });
        self.report.reached();
        if self.way.transport.ao_keys != ao_keys {
            self.way.transport.ao_keys = ao_keys;
            self.take_key();
        }
    }

    /// The key of the session may be another one. Where there is none any more, the session keeps the one that it has.
    fn take_key(&mut self) {
        self.inputs.keys.mark_unchanged();
        let signature = self.signature();
        self.report.key(signature.as_ref().err().cloned());
        let Ok(Some(signature)) = signature else { return };
        let now = Instant::now();
        let signed: Vec<_> = self.links.up().map(|(role, connection)| (role, connection.sign(&signature, now))).collect();
        for (role, signed) in signed {
            match signed {
                Ok(true) => self.handle(Event::Probe { role }),
                Ok(false) => {}
                Err(error) => {
                    self.report.key(Some(chain(&error)));
                    return self.handle(Event::Stop(Stop::AdministrativeReset));
                }
            }
        }
    }

    /// A connection whose key was changed on this side only is lost: its peer takes nothing of what we send, and we take nothing of it.
    fn look_for_proof(&mut self) {
        let now = Instant::now();
        let lost: Vec<_> = self.links.up().filter_map(|(role, connection)| Some((role, connection.unproven(now)?))).collect();
        for (role, loss) in lost {
            self.lost(role, loss);
        }
    }

    fn lost(&mut self, role: Role, loss: Loss) {
        self.links.set(role, Link::Down);
        self.report.connection_lost(loss);
        self.handle(Event::Closed { role });
    }

    /// What signs the session now; `None` where nothing is to, and why nothing can where something is.
    fn signature(&self) -> Result<Option<Signature>, String> {
        Signature::demanded(&self.way.transport, &self.inputs.keys.borrow())
    }

    fn look_for_acknowledgements(&mut self) {
        let now = Instant::now();
        for role in [Role::Active, Role::Passive] {
            if let Link::Up(connection) = self.links.get_mut(role)
                && let Some(octets) = connection.acknowledged(now)
            {
                if self.report.is_withdrawing() {
                    self.report.acknowledged();
                }
                self.handle(Event::Acknowledged { role, octets });
            }
        }
    }

    /// Feeds the core and carries out what it answers, in order.
    fn handle(&mut self, event: Event) {
        for action in self.peer.handle(Instant::now(), event) {
            self.carry_out(action);
        }
        if std::mem::take(&mut self.undialled) {
            self.report.undialled();
            self.handle(Event::ConnectFailed { role: Role::Active });
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Connect => self.dial(),
            Action::Send { role, bytes } => {
                if let Link::Up(connection) = self.links.get_mut(role) {
                    connection.send(bytes);
                }
            }
            Action::Close { role } => {
                if let Link::Up(connection) = self.links.set(role, Link::Down) {
                    self.closing.spawn(fatal_panics(connection.close()));
                }
            }
            Action::Abort { role } => drop(self.links.set(role, Link::Down)),
            Action::Transition { from, to } => {
                if to == State::Established {
                    self.established();
                }
                self.report.transition(from, to);
            }
            Action::Down(reason) => self.report.down(&reason),
            // Without clients what is kept is only looked at.
            Action::Learned(learnt) if self.reflects => self.inputs.feed.rib.learn(&learnt),
            Action::Learned(_) => {}
        }
    }

    fn established(&mut self) {
        let peer = self.links.up().find_map(|(_, connection)| connection.remote());
        peer.into_iter().for_each(|peer| self.destination.worked(Found::of(peer)));
        for (_, connection) in self.links.up() {
            if let Err(error) = socket::established(connection.socket()) {
                tracing::warn!(error = %chain(&error), "a peer that stops reading may be lost early");
            }
        }
    }

    fn dial(&mut self) {
        let next = self.destination.next(&self.inputs.whereabouts.borrow());
        match next {
            Ok(peer) => {
                self.report.dialled(peer);
                let opening = dial(self.way.clone(), peer, self.signature(), self.inputs.feed.routes.clone(), self.inputs.claims.clone());
                self.links.set(Role::Active, Link::Opening(Box::pin(opening)));
            }
            // It is dialled as soon as it is somewhere.
            Err(_) => self.undialled = true,
        }
    }

    fn publish(&mut self) {
        if self.peer.has_told_everything() {
            self.inputs.feed.rib.has_told_everything();
        }
        let open = self.closing.len() + self.links.up().count();
        self.report.update(&self.peer, open);
        let sent = self.peer.timers().send_hold.map(|_| Pace::Calm);
        let pace = if self.report.is_withdrawing() { Some(Pace::Urgent) } else { sent };
        let now = Instant::now();
        self.links.up().for_each(|(_, connection)| connection.watch_acknowledgements(pace, now));
        self.report.post();
    }
}
