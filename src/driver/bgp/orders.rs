// SPDX-License-Identifier: Apache-2.0
//! What an operator may do with one neighbour, and ask of it.
//!
//! Input: orders and questions, from any task, by the name of the neighbour. Output: each is handed to the neighbour's task, which answers. An order
//! holds until the next one, or until the neighbour leaves the configuration; none outlives the process.

use bgp::peer::Peer;
use bgp::rib::{Advertisement, Held, Withheld};
use bgp::wire::Nlri;
use bgp::{Family, Prefix};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::spelling::nearest;

/// What an operator may do with one neighbour.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// No session any more: Cease, Administrative Shutdown, with a text for the operator of the peer (RFC 9003).
    Shutdown {
        /// The text.
        message: Option<String>,
    },
    /// The end of a shutdown.
    Start,
    /// A new session: Cease, Administrative Reset.
    Reset,
    /// All routes anew, in the session that there is (RFC 2918, RFC 7313).
    SoftReset {
        /// Whose.
        direction: Direction,
    },
}

/// Whose routes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Direction {
    /// Those of the peer.
    In,
    /// Ours.
    Out,
    /// All.
    Both,
}

impl Direction {
    pub(super) const fn is_in(self) -> bool {
        matches!(self, Self::In | Self::Both)
    }

    pub(super) const fn is_out(self) -> bool {
        matches!(self, Self::Out | Self::Both)
    }
}

/// A question about the routes of one neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Question {
    /// Those that it was told, or those that it has told.
    pub of: RoutesOf,
    /// Only those to this destination.
    pub only: Option<Prefix>,
}

/// Which routes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RoutesOf {
    /// Adj-RIB-Out: what the peer was told.
    Advertised,
    /// Adj-RIB-In: what it has told, as far as that is kept.
    Received,
}

/// The routes of one neighbour (RFC 4271 §3.2).
#[derive(Clone, Debug, PartialEq)]
pub enum PeerRoutes {
    /// Adj-RIB-Out; `None` without a session.
    Advertised(Option<Vec<Advertisement>>, Vec<(Prefix, Withheld)>),
    /// Adj-RIB-In.
    Received {
        /// `None` where nothing is kept.
        routes: Option<Vec<(Nlri, Held)>>,
        /// Announcements since the peer was configured.
        announced: u64,
        /// Announcements that were not kept because so many were already.
        omitted: u64,
    },
}

impl PeerRoutes {
    /// What there is of this peer.
    pub(super) fn of(peer: &Peer, Question { of, only }: Question) -> Self {
        match of {
            RoutesOf::Advertised => {
                let adj_rib_out = peer.adj_rib_out();
                let asked = |prefix: &Prefix| only.is_none_or(|only| only == *prefix);
                let withheld = adj_rib_out
                    .into_iter()
                    .flat_map(|rib| rib.withheld().iter().chain(rib.withheld_learned()))
                    .filter(|(prefix, _)| asked(prefix));
                Self::Advertised(adj_rib_out.map(|rib| rib.advertisements(only)), withheld.map(|(prefix, why)| (*prefix, *why)).collect())
            }
            RoutesOf::Received => {
                let adj_rib_in = peer.adj_rib_in();
                Self::Received {
                    routes: adj_rib_in.map(|rib| rib.held(only)),
                    announced: peer.counters().prefixes.values().map(|counts| counts.announced).sum(),
                    omitted: adj_rib_in.into_iter().flat_map(|rib| Family::ALL.map(|family| rib.omitted(family))).sum(),
                }
            }
        }
    }
}

/// Passes an operator's orders and questions to the speaker.
#[derive(Clone, Debug)]
pub struct Operator(pub(super) mpsc::Sender<Request>);

/// Why an order is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// No such neighbour.
    #[error("there is no peer '{name}'{}", hint(name, known))]
    Unknown {
        /// The name asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The session, or its absence, does not allow it.
    #[error("{0}")]
    Impossible(String),
    /// The thread has ended, or is about to.
    #[error("the BGP speaker takes no orders any more")]
    Gone,
}

fn hint(name: &str, known: &[String]) -> String {
    match nearest(name, known.iter().map(String::as_str)) {
        Some(nearest) => format!("; did you mean '{nearest}'?"),
        None if known.is_empty() => "; there is none".to_owned(),
        None => format!("; there is {}", known.join(", ")),
    }
}

impl Operator {
    /// Gives an order; it is under way when this returns. The answer says in words what has become of it, after the name of the peer.
    ///
    /// # Errors
    /// There is no such neighbour, or its session does not allow it.
    pub async fn operate(&self, name: &str, operation: Operation) -> Result<String, OperatorError> {
        self.request(name, |answer| Order::Operate(operation, answer)).await
    }

    /// Asks for the routes of a neighbour.
    ///
    /// # Errors
    /// There is no such neighbour.
    pub async fn routes(&self, name: &str, question: Question) -> Result<PeerRoutes, OperatorError> {
        self.request(name, |answer| Order::Inspect(question, answer)).await
    }

    async fn request<T>(&self, name: &str, order: impl FnOnce(Answer<T>) -> Order) -> Result<T, OperatorError> {
        let (answer, answered) = oneshot::channel();
        let given = self.0.send(Request { name: name.to_owned(), order: order(answer) }).await;
        given.ok().ok_or(OperatorError::Gone)?;
        answered.await.ok().ok_or(OperatorError::Gone)?
    }
}

/// Where an answer goes.
pub(super) type Answer<T> = oneshot::Sender<Result<T, OperatorError>>;

/// One order on its way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) order: Order,
}

/// What is wanted, and who wants to know what becomes of it. Who asked may have gone.
#[derive(Debug)]
pub(super) enum Order {
    Operate(Operation, Answer<String>),
    Inspect(Question, Answer<PeerRoutes>),
}

impl Order {
    /// It cannot be carried out.
    pub(super) fn refuse(self, error: OperatorError) {
        match self {
            Self::Operate(_, answer) => drop(answer.send(Err(error))),
            Self::Inspect(_, answer) => drop(answer.send(Err(error))),
        }
    }

    /// There is no task that could carry it out: the neighbour is configured, and has no session. `shut`: it was shut down before.
    pub(super) fn idle(self, shut: bool) {
        match self {
            Self::Operate(Operation::Reset | Operation::SoftReset { .. }, answer) => {
                let reason = if shut { NO_SESSION_WHILE_SHUT } else { "it has no session, and none is being made" };
                drop(answer.send(Err(OperatorError::Impossible(reason.to_owned()))));
            }
            Self::Operate(Operation::Shutdown { .. }, answer) => drop(answer.send(Ok(shut_down(shut).to_owned()))),
            Self::Operate(Operation::Start, answer) => {
                drop(answer.send(Ok(if shut { STARTED } else { "is not shut down" }.to_owned())));
            }
            Self::Inspect(question, answer) => drop(answer.send(Ok(match question.of {
                RoutesOf::Advertised => PeerRoutes::Advertised(None, Vec::new()),
                RoutesOf::Received => PeerRoutes::Received { routes: None, announced: 0, omitted: 0 },
            }))),
        }
    }
}

/// What becomes of an order, after the name of the peer.
pub(super) const STARTED: &str = "is started";

/// Why a peer that is shut down cannot be reset.
pub(super) const NO_SESSION_WHILE_SHUT: &str = "it is administratively shut down, there is no session to reset: 'peer start' ends that";

/// What becomes of a shutdown.
pub(super) const fn shut_down(before: bool) -> &'static str {
    if before { "is shut down already" } else { "is shut down" }
}

/// Families in a row.
pub(super) fn listed<'a>(families: impl IntoIterator<Item = &'a Family>) -> String {
    families.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}
