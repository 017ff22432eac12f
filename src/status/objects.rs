// SPDX-License-Identifier: Apache-2.0
//! What is said on the objects that all nodes share: EricIngress, LvsIngress and Services with VIPs.
//!
//! Inputs: the objects, what this node makes of them, which addresses load balancers get, and what the RouterNode objects of all nodes report. Output: an
//! [`ObjectStatus`] for each object. Pure.
//!
//! | condition | True | False | Unknown |
//! |---|---|---|---|
//! | Accepted | every VIP that it asks for is its | some VIP is refused, its Service is missing, it has no VIP, or its last good content is in force instead | |
//! | Programmed | each VIP is programmed on some node | some VIP is on none | nobody can see it: kube-proxy balances, or no node has reported |
//! | Advertised | each VIP is announced by some node | some VIP is by none | no node has reported |
//!
//! Nodes differ in what they serve (`externalTrafficPolicy: Local`, different racks), so one is enough; the message says which do, and why others do not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Truth;
use super::condition::Verdict;
use super::reports::{Reports, Standing};
use crate::api::{Kind, ObjectRef};
use crate::desired::allocation::Assignment;
use crate::desired::{Compiled, Rejection, RejectionReason, Scope, Subject, is_load_balancer_of_ours};
use crate::source::Snapshot;

/// What is to be said on one object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectStatus {
    /// `metadata.uid`, by which it is told from another one of its name.
    pub uid: Option<String>,
    /// `metadata.generation`, which all of this is about.
    pub generation: Option<i64>,
    /// Accepted, Programmed and Advertised.
    pub verdicts: [Verdict; 3],
    /// The nodes that announce some VIP of it, in order.
    pub announcing: BTreeSet<String>,
    /// What `status.loadBalancer.ingress` of a Service of our class is to hold; `None` for all others.
    pub addresses: Option<Vec<IpAddr>>,
}

impl ObjectStatus {
    /// Whether what it asks for is in force.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.verdicts.iter().any(|verdict| verdict.kind == ACCEPTED && verdict.status == Truth::True)
    }
}

/// The conditions' names, on Services behind `vipherald.io/`.
pub const ACCEPTED: &str = "Accepted";
const PROGRAMMED: &str = "Programmed";
const ADVERTISED: &str = "Advertised";

/// All that is said on objects is made of.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The objects.
    pub snapshot: &'a Snapshot,
    /// Which of them are this release's.
    pub scope: &'a Scope,
    /// What this node makes of them.
    pub compiled: &'a Compiled,
    /// Which addresses load balancers get.
    pub assignments: &'a BTreeMap<ObjectRef, Assignment>,
    /// What the nodes say.
    pub reports: &'a Reports,
}

/// See the module.
#[must_use]
pub fn object_statuses(facts: &Facts<'_>) -> BTreeMap<ObjectRef, ObjectStatus> {
    let index = Index::new(facts);
    let services = facts.snapshot.services.iter().filter(|(_, service)| service.spec.as_ref().is_some_and(wants_vips));
    let services = services.map(|(name, service)| (name, &service.metadata));
    let ericingresses = facts.snapshot.eric_ingresses.iter().map(|(name, ingress)| (name, &ingress.metadata));
    let lvsingresses = facts.snapshot.lvs_ingresses.iter().map(|(name, ingress)| (name, &ingress.metadata));
    let all = services.chain(ericingresses).chain(lvsingresses);
    let all = all.filter(|(name, metadata)| facts.scope.covers(name, metadata, facts.snapshot));
    all.map(|(name, metadata)| (name.clone(), status(name, metadata, &index, facts))).collect()
}

fn wants_vips(spec: &ServiceSpec) -> bool {
    is_load_balancer_of_ours(spec) || spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty())
}

/// Whether what a Node's RouterNode says still counts: it may be gone, or not there to change its mind.
#[must_use]
pub fn is_heard(node: Option<&Node>) -> bool {
    let status = node.and_then(|node| node.status.as_ref());
    let ready = status.and_then(|status| status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready"));
    node.is_some() && ready.is_none_or(|ready| ready.status == "True")
}

/// By object.
struct Index<'a> {
    vips: BTreeMap<&'a ObjectRef, BTreeSet<IpAddr>>,
    rejections: BTreeMap<&'a ObjectRef, Vec<&'a Rejection>>,
}

impl<'a> Index<'a> {
    fn new(facts: &Facts<'a>) -> Self {
        let mut vips: BTreeMap<&ObjectRef, BTreeSet<IpAddr>> = BTreeMap::new();
        for (vip, desired) in &facts.compiled.desired.vips {
            for owner in &desired.owners {
                vips.entry(owner).or_default().insert(*vip);
            }
        }
        let mut rejections: BTreeMap<&ObjectRef, Vec<&Rejection>> = BTreeMap::new();
        for rejection in &facts.compiled.rejections {
            if let Subject::Object { object, .. } = &rejection.subject {
                rejections.entry(object).or_default().push(rejection);
            }
        }
        Self { vips, rejections }
    }
}

fn status(name: &ObjectRef, metadata: &ObjectMeta, index: &Index<'_>, facts: &Facts<'_>) -> ObjectStatus {
    let rejections = index.rejections.get(name).map(Vec::as_slice).unwrap_or_default();
    let assignment = facts.assignments.get(name);
    let mut vips = index.vips.get(name).cloned().unwrap_or_default();
    let refused = |vip: &IpAddr| rejections.iter().any(|rejection| is_about(rejection, *vip) && !vips.contains(vip));
    // An address that was given a moment ago is one of its VIPs as soon as it is written down.
    let given: Vec<IpAddr> = assignment.iter().flat_map(|assignment| &assignment.addresses).copied().filter(|vip| !refused(vip)).collect();
    vips.extend(given);
    let accepted = accepted(&vips, rejections, assignment, facts.compiled.kept.contains_key(name));
    let standings: Vec<(IpAddr, Standing<'_>)> = vips.iter().map(|vip| (*vip, facts.reports.standing(*vip))).collect();
    let announcing = standings.iter().flat_map(|(_, standing)| standing.announcing.keys().map(|node| (*node).to_owned())).collect();
    ObjectStatus {
        uid: metadata.uid.clone(),
        generation: metadata.generation,
        verdicts: [
            accepted,
            over_vips(PROGRAMMED, &standings, Standing::programmed),
            over_vips(ADVERTISED, &standings, Standing::advertised),
        ],
        announcing,
        addresses: assignment.map(|assignment| assignment.addresses.clone()),
    }
}

fn is_about(rejection: &Rejection, address: IpAddr) -> bool {
    matches!(rejection.subject, Subject::Object { vip: Some(vip), .. } if vip == address)
}

/// `is_refused` where not what the object says is in force, but its last good content.
fn accepted(vips: &BTreeSet<IpAddr>, rejections: &[&Rejection], assignment: Option<&Assignment>, is_refused: bool) -> Verdict {
    let lacking = assignment.and_then(|assignment| assignment.lacking.as_ref());
    let refuses = |rejection: &&&Rejection| match rejection.subject {
        _ if is_refused => rejection.reason.is_of_content(),
        Subject::Object { vip: Some(vip), .. } => !vips.contains(&vip),
        _ => vips.is_empty() || rejection.reason == RejectionReason::ServiceNotFound,
    };
    let messages = rejections.iter().map(|rejection| rejection.message.clone()).chain(lacking.map(|lacking| lacking.message.clone()));
    let messages: Vec<String> = messages.collect::<BTreeSet<_>>().into_iter().collect();
    let has = if vips.is_empty() { "it has no VIP".to_owned() } else { format!("VIP {}", listed(vips.iter(), vips.len())) };
    let message = if messages.is_empty() { has } else { format!("{has}; {}", messages.join("; ")) };
    let verdict = |status, reason: String| Verdict::new(ACCEPTED, status, reason, message.clone());
    match (rejections.iter().find(refuses), lacking) {
        (Some(rejection), _) => verdict(Truth::False, format!("{:?}", rejection.reason)),
        (None, Some(lacking)) if !lacking.is_tolerable => verdict(Truth::False, lacking.reason.to_owned()),
        (None, _) if vips.is_empty() => verdict(Truth::False, "NoAddress".to_owned()),
        (None, None) if rejections.is_empty() => verdict(Truth::True, "Accepted".to_owned()),
        (None, _) => verdict(Truth::True, "PartlyHonoured".to_owned()),
    }
}

/// What holds of an object is what holds of the VIP of which least does.
fn over_vips<'a>(kind: &'static str, standings: &[(IpAddr, Standing<'a>)], of: fn(&Standing<'a>) -> (Truth, String, String)) -> Verdict {
    let mut said: Vec<(IpAddr, (Truth, String, String))> = standings.iter().map(|(vip, standing)| (*vip, of(standing))).collect();
    let rank = |status: Truth| match status {
        Truth::False => 0,
        Truth::Unknown => 1,
        Truth::True => 2,
    };
    said.sort_by_key(|(vip, (status, ..))| (rank(*status), *vip));
    let Some((_, (status, reason, _))) = said.first().cloned() else {
        return Verdict::new(kind, Truth::False, "NotAccepted", "it has no VIP; see Accepted");
    };
    let messages: Vec<String> = said.iter().map(|(vip, (_, _, message))| format!("{vip}: {message}")).collect();
    Verdict::new(kind, status, reason, messages.join("; "))
}

/// A list for persons: the first ten.
pub(super) fn listed(names: impl Iterator<Item = impl ToString>, count: usize) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<String> = names.take(SHOWN).map(|name| name.to_string()).collect();
    let rest = count.saturating_sub(shown.len());
    if rest == 0 { shown.join(", ") } else { format!("{} and {rest} more", shown.join(", ")) }
}

/// The kinds on which something is said.
pub const KINDS: [Kind; 3] = [Kind::Service, Kind::EricIngress, Kind::LvsIngress];

#[cfg(test)]
mod tests;
