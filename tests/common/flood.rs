// SPDX-License-Identifier: Apache-2.0
//! Datagrams while balancing passes from us to kube-proxy and back: thousands of flows a second, of one datagram each, so that some of them are on their
//! way at every moment of a change of rules.
//!
//! Input: the dataplane. Invariant: each datagram reaches a real server, whoever chose it: none is dropped, and none stays on the router. Whoever calls it
//! has a kernel with what that dataplane needs.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::common::{Namespace, POLL, inside, wait_until};
use super::stage::{PATIENCE, Stage, VIP, service, slice};

const SERVERS: [&str; 3] = ["192.168.1.1", "192.168.1.2", "192.168.1.4"];
const PORT: u16 = 53;
/// How long what was sent may take.
const IN_FLIGHT: Duration = Duration::from_secs(2);
/// Evenly, and no more than the connection table has room for.
const BETWEEN_FLOWS: Duration = Duration::from_micros(25);
/// So many that the connection table has forgotten a flow before its port comes again.
const CLIENTS: [&str; 8] = ["10.99.0.2", "10.99.0.3", "10.99.0.4", "10.99.0.5", "10.99.0.6", "10.99.0.7", "10.99.0.8", "10.99.0.9"];
const SOURCE_PORTS: std::ops::Range<u16> = 1_024..65_535;

/// The client at work.
struct Flood {
    sent: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn start(client: &Namespace) -> Self {
        let (sent, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (name, count, until) = (client.name().to_owned(), Arc::clone(&sent), Arc::clone(&over));
        let thread = thread::spawn(move || {
            inside(&name, || {
                let sources = CLIENTS.iter().flat_map(|client| SOURCE_PORTS.map(move |port| (*client, port)));
                let mut due = Instant::now();
                for source in sources.cycle().take_while(|_| !until.load(Ordering::Relaxed)) {
                    while Instant::now() < due {
                        thread::yield_now();
                    }
                    due = due.max(Instant::now()) + BETWEEN_FLOWS;
                    UdpSocket::bind(source).unwrap().send_to(b"?", (VIP, PORT)).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        Self { sent, over, thread: Some(thread) }
    }

    /// Ends it, and says how many datagrams there were.
    fn finish(mut self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A daemon that balances what the client sends.
fn stage(dataplane: &'static str, tag: &str) -> Stage {
    let mut stage = Stage::with(dataplane, tag, &SERVERS);
    CLIENTS.iter().skip(1).for_each(|client| drop(stage.client.ip(&format!("addr add {client}/24 dev eth0"))));
    stage.router.sysctl("net/ipv4/ip_forward", "1");
    // Who answers with ICMP would make packets that this is not about.
    let count = format!("table ip count {{ chain input {{ type filter hook input priority 0; udp dport {PORT} counter drop; }}\n}}");
    stage.servers.nft(&count);
    let ports = format!("{{name: dns, port: {PORT}, protocol: UDP}}");
    let with_vip = service("dns", &ports).replace("clusterIP: None", &format!("externalIPs: [{VIP}]"));
    stage.publish("dns", &(with_vip + &slice("dns", &ports, &SERVERS[..2])));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    wait_until("it is announced", PATIENCE, || done(&stage, "advertise 10") == 1);
    stage.router.sysctl("net/netfilter/nf_conntrack_udp_timeout", "1");
    stage
}

/// How often the daemon has done this.
fn done(stage: &Stage, step: &str) -> usize {
    stage.daemon.as_ref().unwrap().log().matches(&format!("done step={step}")).count()
}

/// Ends it all, and makes sure that the real servers got each datagram.
fn finish(mut stage: Stage, flood: Flood, what: &str) {
    let sent = flood.finish();
    assert!(sent > 0);
    let deadline = Instant::now() + IN_FLIGHT;
    while count(&stage.servers) < sent && Instant::now() < deadline {
        thread::sleep(POLL);
    }
    let arrived = count(&stage.servers);
    println!("{what}: {arrived} of {sent} flows have a server");
    assert_eq!(arrived, sent, "{what}: some were dropped, or are still on the router");
    stage.drain();
}

/// How many datagrams the real servers got.
fn count(servers: &Namespace) -> u64 {
    let listed = servers.output(&["nft", "list", "chain", "ip", "count", "input"]);
    let (_, counted) = listed.split_once("counter packets ").unwrap();
    counted.split(' ').next().unwrap().parse().unwrap()
}

/// kube-proxy, whose rules are there all the time, takes over and gives back.
pub(crate) fn every_flow_has_a_server_while_kube_proxy_takes_over_and_gives_back(dataplane: &'static str) {
    let stage = stage(dataplane, "flood-proxy");
    let theirs = SERVERS[2];
    stage.router.nft(&format!(
        "table ip kube-proxy {{
            map service-ips {{ type ipv4_addr . inet_proto . inet_service : verdict; elements = {{ {VIP} . udp . {PORT} : goto service-dns }} }}
            chain service-dns {{ meta l4proto udp dnat to {theirs}; }}
            chain nat-prerouting {{ type nat hook prerouting priority dstnat; ip daddr . meta l4proto . th dport vmap @service-ips; }}
        }}"
    ));
    let flood = Flood::start(&stage.client);
    for _ in 0..4 {
        for (kind, step) in [("kube-proxy", "remove the rules"), (dataplane, "write the rules")] {
            let before = done(&stage, step);
            stage.change_dataplane(kind, "");
            wait_until(&format!("{kind}: {step}"), PATIENCE, || done(&stage, step) > before);
        }
    }
    stage.router.nft("delete table ip kube-proxy");
    finish(stage, flood, &format!("{dataplane} and kube-proxy"));
}
