// SPDX-License-Identifier: Apache-2.0
//! The task of one neighbour: it owns one [`Peer`], carries out its actions, and feeds it what happens.
//!
//! Inputs: the connection, the set to advertise, an order to stop, and the clock. Outputs: octets, and the neighbour's status. It decides nothing: when
//! to dial, what to send and when to give up is the core's business. It sleeps once, until the core's deadline.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bgp::peer::{Action, Event, Peer, Role, Stop};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::connection::{Connection, Happening};
use super::dial::{DialError, Dialled, dial};
use super::keyring::{Key, Keys};
use super::neighbours::Settings;
use super::report::Report;
use super::socket::Way;
use super::status::Board;
use super::{Routes, fatal_panics, words};

/// Every connection is dialled by us.
const ROLE: Role = Role::Active;

/// One neighbour and its connection.
pub(super) struct Session {
    way: Way,
    keys: watch::Receiver<Arc<Keys>>,
    peer: Peer,
    link: Link,
    /// Connections that deliver their last octets.
    closing: JoinSet<()>,
    routes: watch::Receiver<Option<Routes>>,
    order: watch::Receiver<Option<Stop>>,
    stopping: bool,
    report: Report,
}

/// The way to the peer.
enum Link {
    Down,
    Dialling(Pin<Box<dyn Future<Output = Result<Dialled, DialError>> + Send>>),
    Up(Connection),
}

/// What a session waits for.
enum Input {
    Time,
    Routes,
    Order,
    Keys,
    Dialled(Result<Dialled, DialError>),
    Happened(Happening),
    Closed,
}

impl Session {
    pub(super) fn new(
        name: &str,
        settings: &Settings,
        seed: u64,
        order: watch::Receiver<Option<Stop>>,
        routes: watch::Receiver<Option<Routes>>,
        keys: watch::Receiver<Arc<Keys>>,
        board: Board,
    ) -> Self {
        let session = Self {
            way: settings.way(),
            keys,
            peer: Peer::new(settings.peer_config(), seed),
            link: Link::Down,
            closing: JoinSet::new(),
            routes,
            order,
            stopping: false,
            report: Report::new(name, settings, board),
        };
        session.report.post();
        session
    }

    /// Runs until it was told to stop and the last connection is closed.
    pub(super) async fn run(mut self) {
        self.routes.mark_changed();
        self.take_key();
        self.handle(Event::Start);
        while !(self.stopping && matches!(self.link, Link::Down) && self.closing.is_empty()) {
            let input = self.wait().await;
            self.take(input);
        }
    }

    /// Sleeps until something happens or the core's time has come.
    async fn wait(&mut self) -> Input {
        let poll = match &self.link {
            Link::Up(connection) => connection.poll_at(),
            Link::Down | Link::Dialling(_) => None,
        };
        let wake = self.peer.deadline().into_iter().chain(poll).min();
        let input = next_input(&mut self.link, &mut self.closing, &mut self.routes, &mut self.order, &mut self.keys);
        match wake {
            // A peer that never pauses must not keep the clock out.
            Some(wake) if wake <= Instant::now() => Input::Time,
            Some(wake) => timeout_at(wake.into(), input).await.unwrap_or(Input::Time),
            None => input.await,
        }
    }

    /// Turns what happened into events of the core.
    fn take(&mut self, input: Input) {
        match input {
            Input::Time => self.handle(Event::Tick),
            Input::Routes => self.take_routes(),
            Input::Order => self.take_order(),
            Input::Keys => self.take_key(),
            Input::Dialled(Ok(Dialled { connection, local })) => {
                self.report.connected(connection.local_address());
                self.link = Link::Up(connection);
                self.handle(Event::Connected { role: ROLE, local });
                self.take_key();
            }
            Input::Dialled(Err(error)) => {
                self.link = Link::Down;
                self.report.transport_failed(words::with_causes(&error));
                self.handle(Event::ConnectFailed { role: ROLE });
            }
            Input::Happened(Happening::Received(bytes)) => self.handle(Event::Received { role: ROLE, bytes }),
            Input::Happened(Happening::Drained) => self.handle(Event::Writable { role: ROLE }),
            Input::Happened(Happening::Lost(reason)) => {
                self.link = Link::Down;
                self.report.transport_failed(reason);
                self.handle(Event::Closed { role: ROLE });
            }
            Input::Closed => {}
        }
        self.look_for_acknowledgements();
        self.publish();
    }

    fn take_routes(&mut self) {
        let Some(routes) = self.routes.borrow_and_update().clone() else { return };
        self.report.routes(&routes);
        self.handle(Event::Routes(routes.rib));
    }

    fn take_order(&mut self) {
        let Some(stop) = self.order.borrow_and_update().clone() else { return };
        self.stopping = true;
        self.handle(Event::Stop(stop));
    }

    /// The key of the session may be another one. Where there is none any more, the session keeps the one that it has.
    fn take_key(&mut self) {
        self.keys.mark_unchanged();
        let key = self.key();
        self.report.key(key.as_ref().err().cloned());
        if let Ok(Some(key)) = key
            && let Link::Up(connection) = &self.link
            && let Err(error) = self.way.sign(connection.socket(), &key)
        {
            self.report.key(Some(words::with_causes(&error)));
            self.handle(Event::Stop(Stop::AdministrativeReset));
        }
    }

    /// The key as it is now; `None` where none is wanted, and why there is none where one is.
    fn key(&self) -> Result<Option<Key>, String> {
        let Some(path) = &self.way.transport.password_file else { return Ok(None) };
        let keys = self.keys.borrow();
        match keys.get(path) {
            Some(Ok(key)) => Ok(Some(key.clone())),
            Some(Err(reason)) => Err(format!("no TCP-MD5 key in {}: {reason}", path.display())),
            None => Err(format!("no TCP-MD5 key in {}: it is not read yet", path.display())),
        }
    }

    fn look_for_acknowledgements(&mut self) {
        if let Link::Up(connection) = &mut self.link
            && let Some(octets) = connection.acknowledged(Instant::now())
        {
            self.report.acknowledged();
            self.handle(Event::Acknowledged { role: ROLE, octets });
        }
    }

    /// Feeds the core and carries out what it answers, in order.
    fn handle(&mut self, event: Event) {
        for action in self.peer.handle(Instant::now(), event) {
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Connect => self.link = Link::Dialling(Box::pin(dial(self.way.clone(), self.key(), self.routes.clone()))),
            Action::Send { bytes, .. } => {
                if let Link::Up(connection) = &mut self.link {
                    connection.send(bytes);
                }
            }
            Action::Close { .. } => {
                if let Link::Up(connection) = std::mem::replace(&mut self.link, Link::Down) {
                    self.closing.spawn(fatal_panics(connection.close()));
                }
            }
            Action::Abort { .. } => self.link = Link::Down,
            Action::Transition { from, to } => self.report.transition(from, to),
            Action::Down(reason) => self.report.down(&reason),
        }
    }

    fn publish(&mut self) {
        let open = self.closing.len() + usize::from(matches!(self.link, Link::Up(_)));
        self.report.update(&self.peer, open);
        if let Link::Up(connection) = &mut self.link {
            connection.watch_acknowledgements(self.report.is_withdrawing(), Instant::now());
        }
        self.report.post();
    }
}

async fn next_input(
    link: &mut Link,
    closing: &mut JoinSet<()>,
    routes: &mut watch::Receiver<Option<Routes>>,
    order: &mut watch::Receiver<Option<Stop>>,
    keys: &mut watch::Receiver<Arc<Keys>>,
) -> Input {
    tokio::select! {
        Ok(()) = order.changed() => Input::Order,
        Ok(()) = routes.changed() => Input::Routes,
        Ok(()) = keys.changed() => Input::Keys,
        Some(_) = closing.join_next() => Input::Closed,
        input = link.next() => input,
    }
}

impl Link {
    async fn next(&mut self) -> Input {
        match self {
            Self::Down => pending().await,
            Self::Dialling(dial) => Input::Dialled(dial.await),
            Self::Up(connection) => Input::Happened(connection.next().await),
        }
    }
}
