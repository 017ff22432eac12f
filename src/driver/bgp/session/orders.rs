// SPDX-License-Identifier: Apache-2.0
//! An operator's orders and questions, carried out by the task of the neighbour. Input: an [`Order`]. Output: events of the core, and the answer in words.

use bgp::peer::{Event, State, Stop};
use bgp::wire::Negotiated;

use super::Session;
use crate::driver::bgp::orders::{
    Direction, NO_SESSION_WHILE_SHUT, Operation, OperatorError, Order, PeerRoutes, STARTED, listed, shut_down,
};

impl Session {
    /// Does what is wanted. Who asked may have gone.
    pub(super) fn obey(&mut self, order: Order) {
        match order {
            Order::Operate(operation, answer) => drop(answer.send(self.operate(operation))),
            Order::Inspect(question, answer) => drop(answer.send(Ok(PeerRoutes::of(&self.peer, question)))),
        }
    }

    fn operate(&mut self, operation: Operation) -> Result<String, OperatorError> {
        let shut = self.report.is_shut();
        match operation {
            Operation::Shutdown { message } => {
                self.report.shut(true);
                self.handle(Event::Stop(Stop::AdministrativeShutdown { communication: message }));
                self.inputs.claims.release();
                self.inputs.seat.iter().for_each(|seat| seat.leave());
                Ok(shut_down(shut).to_owned())
            }
            Operation::Start if !shut => Ok(format!("is not shut down: it is in {}", self.peer.state())),
            Operation::Start => {
                self.report.shut(false);
                self.handle(Event::Start);
                Ok(STARTED.to_owned())
            }
            Operation::Reset | Operation::SoftReset { .. } if shut => Err(OperatorError::Impossible(NO_SESSION_WHILE_SHUT.to_owned())),
            Operation::Reset => Ok(self.reset()),
            Operation::SoftReset { direction } => self.soft_reset(direction).map_err(OperatorError::Impossible),
        }
    }

    /// A new session; where there is none, a new attempt.
    fn reset(&mut self) -> String {
        let had_session = self.peer.state() >= State::OpenSent;
        self.handle(Event::Stop(Stop::AdministrativeReset));
        match (had_session, self.way.transport.passive) {
            (true, _) => "is reset".to_owned(),
            (false, false) => "has no session to reset; it is dialled again within a second".to_owned(),
            (false, true) => "has no session to reset; it is waited for, since it is passive".to_owned(),
        }
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
