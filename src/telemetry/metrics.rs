// SPDX-License-Identifier: Apache-2.0
//! Metrics for Prometheus: what the reconcile loop counts, and the status, turned into numbers at each scrape.
//!
//! Names and labels are part of the product's interface and kept by a golden; a series of a peer or VIP that is gone is gone too.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Error, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, TextEncoder};

use super::process::count;
use super::{line_writer, process};
use crate::plan::Step;
use crate::status::{
    MessageCounts, NodeStatus, PeerStatus, RouteState, SourceState, StatusReader, VipState, VirtualRouterStatus, VrrpGroupStatus,
};

/// From a pass that found nothing to do to one that waited for a slow kernel.
const BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// All metrics of the daemon. Clones count into the same numbers.
#[derive(Clone, Debug)]
pub struct Metrics {
    status: StatusReader,
    steps: IntCounterVec,
    duration: Histogram,
    repairs: IntCounter,
}

impl Metrics {
    /// All counts at zero.
    ///
    /// # Errors
    /// None in practice: a name is malformed.
    pub fn new(status: StatusReader) -> Result<Self, Error> {
        let steps = IntCounterVec::new(
            Opts::new("vipherald_reconcile_steps_total", "Steps carried out, by kind and result."),
            &["step", "result"],
        )?;
        let help = "Time from the beginning of a pass of the reconcile loop to its end, in seconds.";
        let duration = Histogram::with_opts(HistogramOpts::new("vipherald_reconcile_duration_seconds", help).buckets(BUCKETS.to_vec()))?;
        let repairs = IntCounter::new("vipherald_repairs_total", "Times that something of ours was lost from outside and put back.")?;
        Ok(Self { status, steps, duration, repairs })
    }

    /// Counts one step.
    pub fn count_step(&self, step: &Step, succeeded: bool) {
        self.steps.with_label_values(&[step_name(step), if succeeded { "ok" } else { "error" }]).inc();
    }

    /// Counts one pass of the reconcile loop.
    pub fn count_pass(&self, took: Duration) {
        self.duration.observe(took.as_secs_f64());
    }

    /// Counts one loss from outside that was put right.
    pub fn count_repair(&self) {
        self.repairs.inc();
    }

    /// All of them, in the text format of Prometheus.
    ///
    /// # Errors
    /// None in practice: a metric is inconsistent.
    pub fn text(&self) -> Result<String, Error> {
        let status = self.status.read();
        let mut families = of_status(&status)?;
        families.extend([self.steps.collect(), self.duration.collect(), self.repairs.collect()].into_iter().flatten());
        families.extend(process::families(seconds(status.identity.started.seconds()))?);
        families.retain(|family| !family.get_metric().is_empty());
        families.sort_by(|one, other| one.name().cmp(other.name()));
        for family in &mut families {
            family
                .mut_metric()
                .sort_by_cached_key(|metric| metric.get_label().iter().map(|label| label.value().to_owned()).collect::<Vec<_>>());
        }
        TextEncoder::new().encode_to_string(&families)
    }
}

const fn step_name(step: &Step) -> &'static str {
    match step {
        Step::Advertise(_) => "advertise",
        Step::RecordPending(_) => "record_pending",
        Step::AddAddress(_) => "add_address",
        Step::RecordConfirmed(_) => "record_confirmed",
        Step::RemoveAddress(_) => "remove_address",
        Step::RecordRemoved(_) => "record_removed",
        Step::ClosePorts(_) => "close_ports",
        Step::OpenPorts(_) => "open_ports",
        Step::MoveRanges(_) => "move_range",
        Step::WriteFilters(_) => "write_filters",
        Step::WriteRules(_) => "write_rules",
        Step::SetSysctl(_) => "set_sysctl",
        Step::SetInterfaces(_) => "set_interfaces",
        Step::SetTimeouts(_) => "set_timeouts",
        Step::StartDaemon(_) => "start_daemon",
        Step::StopDaemon(_) => "stop_daemon",
        Step::AddVirtualService(..) => "add_virtual_service",
        Step::ChangeVirtualService(..) => "change_virtual_service",
        Step::RemoveVirtualService(_) => "remove_virtual_service",
        Step::RemoveFormer(_) => "remove_former",
        Step::RemoveRetired(_) => "remove_retired",
        Step::ForgetConnections(_) => "forget_connections",
        Step::ConfigureSpeaker(..) => "configure_speaker",
        Step::ReleaseSpeaker => "release_speaker",
        Step::StopSpeaker => "stop_speaker",
        Step::ConfigureVirtualRouters(_) => "configure_virtual_routers",
        Step::StopVirtualRouters => "stop_virtual_routers",
        Step::SuspendVirtualRouters => "suspend_virtual_routers",
        Step::DropRecord => "drop_record",
    }
}

fn of_status(status: &NodeStatus) -> Result<Vec<MetricFamily>, Error> {
    let mut families =
        gauge("vipherald_build_info", "Always 1; says which version runs.", &["version"], [(vec![status.identity.version.clone()], 1.0)])?;
    families.extend(of_vips(status)?);
    families.extend(of_inputs(status)?);
    families.extend(of_peers(&status.peers)?);
    families.extend(of_virtual_routers(&status.vrrp)?);
    let help = "Connections closed because there were as many dynamic peers as bgp.listen.limit allows.";
    let refused = IntCounter::new("vipherald_bgp_dynamic_peers_refused_total", help)?;
    refused.inc_by(status.speaker.dynamic_refused);
    families.extend(refused.collect());
    let dropped = IntCounter::new("vipherald_log_lines_dropped_total", "Log lines dropped because nobody read them.")?;
    dropped.inc_by(line_writer::dropped());
    families.extend(dropped.collect());
    Ok(families)
}

fn of_vips(status: &NodeStatus) -> Result<Vec<MetricFamily>, Error> {
    let in_state = |state| status.vips.iter().filter(|vip| vip.state == state).count();
    let states = VipState::ALL.map(|state| (vec![state.as_str().to_owned()], count(in_state(state))));
    let announced = status.vips.iter().map(|vip| (vec![vip.address.to_string()], truth(vip.state == VipState::Announced)));
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for rejection in &status.rejections {
        *reasons.entry(format!("{:?}", rejection.reason)).or_default() += 1;
    }
    let rejections = reasons.into_iter().map(|(reason, number)| (vec![reason], count(number)));
    let mut families = gauge("vipherald_vips", "VIPs that are wanted or on their way out, by state.", &["state"], states)?;
    families.extend(gauge("vipherald_vip_announced", "Whether some peer was told of the VIP.", &["vip"], announced)?);
    families.extend(gauge("vipherald_rejections", "Objects and files that take no part, by reason.", &["reason"], rejections)?);
    let unclaimed = count(status.unclaimed.len());
    families.extend(single("vipherald_unclaimed_addresses", "Addresses that look like ours and are not proven to be.", unclaimed)?);
    let failing = count(status.failures.len());
    families.extend(single("vipherald_reconcile_failing_steps", "Steps that failed last and are tried again.", failing)?);
    Ok(families)
}

fn of_inputs(status: &NodeStatus) -> Result<Vec<MetricFamily>, Error> {
    let config = &status.config;
    let complete = truth(matches!(status.source.state, SourceState::Complete | SourceState::Stale));
    let mut families = single("vipherald_source_complete", "Whether all intent could be read.", complete)?;
    if let Some(stale) = status.source.api_stale_seconds {
        let help = "For how long the API server has not been followed; 0 while it is.";
        families.extend(single("vipherald_api_stale_seconds", help, seconds(stale))?);
    }
    let success = truth(config.error.is_none());
    families.extend(single("vipherald_config_reload_success", "Whether the configuration file as it is now is in force.", success)?);
    let loaded = seconds(config.since.seconds());
    let help = "Since when the configuration in force is, in seconds since 1970.";
    families.extend(single("vipherald_config_loaded_timestamp_seconds", help, loaded)?);
    let waiting = count(config.waiting_for_restart.len());
    families.extend(single("vipherald_config_keys_waiting_for_restart", "Keys whose new value needs a restart.", waiting)?);
    Ok(families)
}

fn of_peers(peers: &[PeerStatus]) -> Result<Vec<MetricFamily>, Error> {
    let each = |value: fn(&PeerStatus) -> Option<f64>| peers.iter().filter_map(move |peer| Some((vec![peer.name.clone()], value(peer)?)));
    let up = each(|peer| Some(truth(peer.established_since.is_some())));
    let since = each(|peer| peer.established_since.map(|since| seconds(since.seconds())));
    let advertised = peers.iter().flat_map(|peer| {
        let routes =
            |family: &str| peer.routes.iter().filter(|route| route.state == RouteState::Advertised && route.family == family).count();
        peer.families.iter().map(|family| (vec![peer.name.clone(), family.clone()], count(routes(family)))).collect::<Vec<_>>()
    });
    let mut families = gauge("vipherald_bgp_session_up", "Whether the session is Established.", &["peer"], up)?;
    let help = "Since when the session is Established, in seconds since 1970.";
    families.extend(gauge("vipherald_bgp_session_established_timestamp_seconds", help, &["peer"], since)?);
    let help = "Prefixes that the peer was told and holds, by negotiated family.";
    families.extend(gauge("vipherald_bgp_prefixes_advertised", help, &["peer", "family"], advertised)?);

    let established =
        IntCounterVec::new(Opts::new("vipherald_bgp_sessions_established_total", "How often the session came up."), &["peer"])?;
    let help = "BGP messages, by direction (received, sent) and type.";
    let messages = IntCounterVec::new(Opts::new("vipherald_bgp_messages_total", help), &["peer", "direction", "type"])?;
    for peer in peers {
        established.with_label_values(&[&peer.name]).inc_by(peer.established_count);
        for (direction, counts) in [("received", peer.received), ("sent", peer.sent)] {
            for (kind, number) in by_type(counts) {
                messages.with_label_values(&[peer.name.as_str(), direction, kind]).inc_by(number);
            }
        }
    }
    families.extend(established.collect());
    families.extend(messages.collect());
    families.extend(of_peers_updates(peers)?);
    Ok(families)
}

/// What peers have told, and how their sessions ended.
fn of_peers_updates(peers: &[PeerStatus]) -> Result<Vec<MetricFamily>, Error> {
    let help = "Destinations in UPDATEs of the peer, by family and by whether they were announced or withdrawn.";
    let received = IntCounterVec::new(Opts::new("vipherald_bgp_prefixes_received_total", help), &["peer", "family", "change"])?;
    let help = "Malformed parts of UPDATEs that did not end the session (RFC 7606), by how they were handled.";
    let malformed = IntCounterVec::new(Opts::new("vipherald_bgp_malformed_updates_total", help), &["peer", "handling"])?;
    let help = "Sessions and attempts that ended, by a NOTIFICATION of ours (sent), of the peer (received), or without one (transport).";
    let failures = IntCounterVec::new(Opts::new("vipherald_bgp_session_failures_total", help), &["peer", "cause"])?;
    for peer in peers {
        for (family, counts) in &peer.prefixes {
            for (change, number) in [("announced", counts.announced), ("withdrawn", counts.withdrawn)] {
                received.with_label_values(&[peer.name.as_str(), family, change]).inc_by(number);
            }
        }
        let handled =
            [("treat_as_withdraw", peer.malformed.treated_as_withdraw), ("attribute_discard", peer.malformed.attributes_discarded)];
        for (handling, number) in handled {
            malformed.with_label_values(&[peer.name.as_str(), handling]).inc_by(number);
        }
        let ended = peer.details.failures;
        for (cause, number) in [("sent", ended.sent), ("received", ended.received), ("transport", ended.transport)] {
            failures.with_label_values(&[peer.name.as_str(), cause]).inc_by(number);
        }
    }
    let held = peers.iter().flat_map(|peer| {
        peer.held.iter().map(|(family, number)| (vec![peer.name.clone(), family.clone()], f64::from(*number))).collect::<Vec<_>>()
    });
    let help = "Routes of the peer that are kept, to be reflected or to be looked at, by family.";
    let mut families = gauge("vipherald_bgp_prefixes_held", help, &["peer", "family"], held)?;
    families.extend([received.collect(), malformed.collect(), failures.collect()].into_iter().flatten());
    Ok(families)
}

/// Where addresses are, and what the virtual routers say to each other.
fn of_virtual_routers(groups: &[VrrpGroupStatus]) -> Result<Vec<MetricFamily>, Error> {
    let all = || groups.iter().flat_map(|group| group.routers.iter().map(move |router| (group, router)));
    let labels = |group: &VrrpGroupStatus, router: &VirtualRouterStatus| vec![group.name.clone(), router.family.clone()];
    let is_active = |router: &VirtualRouterStatus| truth(router.state == "Active");
    let states = all().map(|(group, router)| (labels(group, router), is_active(router)));
    let help = "Whether the virtual router of this node is Active: it has the addresses.";
    let mut families = gauge("vipherald_vrrp_active", help, &["group", "family"], states)?;
    let held = all().flat_map(|(group, router)| {
        let held = |address: &IpAddr| truth(router.state == "Active" && router.placed.contains(address));
        router.addresses.iter().map(move |address| (vec![group.name.clone(), address.to_string()], held(address)))
    });
    let help = "Whether this node has the address of a virtual router, and answers for it.";
    families.extend(gauge("vipherald_vrrp_address_held", help, &["group", "address"], held)?);
    let foreign = all().map(|(group, router)| {
        let foreign = router.others.iter().filter(|other| other.problem.is_some()).count();
        (labels(group, router), count(foreign))
    });
    let help = "Other routers with the VRID on the link that list other addresses, or of which something is discarded.";
    families.extend(gauge("vipherald_vrrp_foreign_routers", help, &["group", "family"], foreign)?);

    let help = "How often the virtual router of this node became Active.";
    let became = IntCounterVec::new(Opts::new("vipherald_vrrp_became_active_total", help), &["group", "family"])?;
    let help = "VRRP advertisements, by direction (received, sent) and by whether they resign (priority zero).";
    let told =
        IntCounterVec::new(Opts::new("vipherald_vrrp_advertisements_total", help), &["group", "family", "direction", "priority_zero"])?;
    let help = "VRRP datagrams with the VRID that were not taken, by the check that they did not pass.";
    let discarded = IntCounterVec::new(Opts::new("vipherald_vrrp_discarded_total", help), &["group", "family", "reason"])?;
    for (group, router) in all() {
        let (name, family) = (group.name.as_str(), router.family.as_str());
        became.with_label_values(&[name, family]).inc_by(router.became_active);
        for (direction, total, zero) in
            [("sent", router.sent, router.sent_priority_zero), ("received", router.received, router.received_priority_zero)]
        {
            told.with_label_values(&[name, family, direction, "no"]).inc_by(total.saturating_sub(zero));
            told.with_label_values(&[name, family, direction, "yes"]).inc_by(zero);
        }
        for (reason, number) in &router.discarded {
            discarded.with_label_values(&[name, family, reason.as_str()]).inc_by(*number);
        }
    }
    families.extend([became.collect(), told.collect(), discarded.collect()].into_iter().flatten());
    Ok(families)
}

const fn by_type(counts: MessageCounts) -> [(&'static str, u64); 5] {
    [
        ("open", counts.open),
        ("update", counts.update),
        ("notification", counts.notification),
        ("keepalive", counts.keepalive),
        ("route_refresh", counts.route_refresh),
    ]
}

fn gauge(
    name: &str,
    help: &str,
    labels: &[&str],
    series: impl IntoIterator<Item = (Vec<String>, f64)>,
) -> Result<Vec<MetricFamily>, Error> {
    let gauge = GaugeVec::new(Opts::new(name, help), labels)?;
    for (values, number) in series {
        gauge.get_metric_with_label_values(&values)?.set(number);
    }
    Ok(gauge.collect())
}

fn single(name: &str, help: &str, value: f64) -> Result<Vec<MetricFamily>, Error> {
    gauge(name, help, &[], [(Vec::new(), value)])
}

const fn truth(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "no clock comes near 2^53 seconds")]
const fn seconds(seconds: u64) -> f64 {
    seconds as f64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::status::tests::Node;

    fn metrics(node: &Node) -> Metrics {
        let status = Arc::new(node.status(None));
        Metrics::new(StatusReader::new(move || Arc::clone(&status))).unwrap()
    }

    /// Without what depends on the process that runs the test.
    fn stable(text: &str) -> String {
        let stable = |line: &&str| !line.starts_with("process_") && !line.starts_with("vipherald_log_lines_dropped_total ");
        text.lines().filter(stable).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn names_and_labels_are_an_interface() {
        let metrics = metrics(&Node::eventful());
        let vip = IpAddr::from([10, 0, 0, 9]);
        metrics.count_step(&Step::AddAddress(vip), false);
        metrics.count_step(&Step::AddAddress(vip), true);
        metrics.count_step(&Step::DropRecord, true);
        metrics.count_pass(Duration::from_millis(2));
        metrics.count_pass(Duration::from_secs(20));
        metrics.count_repair();
        insta::assert_snapshot!(stable(&metrics.text().unwrap()));
    }

    #[test]
    fn what_is_gone_leaves_no_series() {
        let mut node = Node::eventful();
        assert!(metrics(&node).text().unwrap().contains("peer=\"tor\""));
        node.speaker.peers.remove("tor");
        assert!(!metrics(&node).text().unwrap().contains("peer=\"tor\""));
    }

    #[test]
    fn each_metric_says_what_it_is() {
        let text = metrics(&Node::eventful()).text().unwrap();
        let names = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split([' ', '{']).next());
        for name in names {
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
            assert!(text.contains(&format!("# HELP {family} ")) && text.contains(&format!("# TYPE {family} ")), "{name}");
            let counter = text.contains(&format!("# TYPE {family} counter"));
            assert_eq!(counter, family.ends_with("_total"), "{family}");
        }
    }
}
