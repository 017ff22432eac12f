// SPDX-License-Identifier: Apache-2.0
//! An operator's orders and questions, carried out by the task of the neighbour. Input: an [`Order`]. Output: events of the core, and the answer in words.

use bgp::peer::{Event, State, Stop};
use bgp::wire::Negotiated;

use super::Session;
use crate::driver::bgp::orders::{Direction, Operation, OperatorError, Order, PeerRoutes, listed};

impl Session {
    /// Does what is wanted. Who asked may have gone.
    pub(super) fn obey(&mut self, order: Order) {
        match order {
            Order::Operate(operation, answer) => drop(answer.send(self.operate(operation))),
            Order::Inspect(question, answer) => drop(answer.send(Ok(PeerRoutes::of(&self.peer, question)))),
        }
    }

    fn operate(&mut self, operation: Operation) -> Result<String, OperatorError> {
        let done = operation.done().to_owned();
        match operation {
            Operation::Shutdown { message } => {
                self.report.shut(true);
                self.handle(Event::Stop(Stop::AdministrativeShutdown { communication: message }));
            }
            Operation::Start => {
                self.report.shut(false);
                self.handle(Event::Start);
            }
            Operation::Reset => self.handle(Event::Stop(Stop::AdministrativeReset)),
            Operation::SoftReset { direction } => return self.soft_reset(direction).map_err(OperatorError::Impossible),
        }
        Ok(done)
    }

    /// All routes anew, without a new session: ours are sent again (RFC 7313 §4, a refresh initiated locally), and the peer is asked for its own
    /// (RFC 2918 §3). Where only one of both can be, it is done, and the answer says why the other one cannot.
    fn soft_reset(&mut self, direction: Direction) -> Result<String, String> {
        let negotiated = self.peer.negotiated().filter(|_| self.peer.state() == State::Established).cloned();
        let Some(negotiated) = negotiated else {
            let reason = self.report.last_error().map(|reason| format!(" ({reason})")).unwrap_or_default();
            return Err(format!("it has no session that could be reset softly: it is in {}{reason}", self.peer.state()));
        };
        if negotiated.families.is_empty() {
            return Err("the session carries no family: both sides have none in common".to_owned());
        }
        let mut done = Vec::new();
        if direction.is_out() {
            done.push(self.readvertise(&negotiated));
        }
        if direction.is_in() {
            match self.ask_for_refresh(&negotiated) {
                Ok(asked) => done.push(asked),
                Err(reason) if done.is_empty() => return Err(reason),
                Err(reason) => return Err(format!("it {}; but {reason}", done.concat())),
            }
        }
        Ok(done.join("; "))
    }

    fn readvertise(&mut self, negotiated: &Negotiated) -> String {
        for family in &negotiated.families {
            self.handle(Event::Readvertise(*family));
        }
        let marks = if negotiated.enhanced_route_refresh { ", between BoRR and EoRR (RFC 7313)" } else { "" };
        format!("is told all of {} again{marks}", listed(&negotiated.families))
    }

    fn ask_for_refresh(&mut self, negotiated: &Negotiated) -> Result<String, String> {
        if !negotiated.route_refresh {
            return Err("it cannot be asked for its routes: its OPEN has no Route Refresh capability (RFC 2918); \
                        'peer reset' without --soft makes a new session, in which it tells them"
                .to_owned());
        }
        for family in &negotiated.families {
            self.handle(Event::Refresh(*family));
        }
        Ok(format!("is asked for all of {} (ROUTE-REFRESH, RFC 2918)", listed(&negotiated.families)))
    }
}
