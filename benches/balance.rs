// SPDX-License-Identifier: Apache-2.0
//! What a node with many virtual services costs: 5,000 VIPs with three ports each and four endpoints behind every port. `balance` is for a kernel with
//! IPVS, which `tests/uml/run-in-vm` boots where the machine's own has none; `balance-nft` is the same with the dataplane `nftables`.
//!
//! The loop is that of the daemon, from objects to kernel and back; the speaker is one without neighbours, that does at once what it is told.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vipherald::actuator::Kernel;
use vipherald::config::Config;
use vipherald::desired::{BalancerKind, Compiled, Desired, churn, compile};
use vipherald::observed::{Observed, ObservedSpeaker, stamp};
use vipherald::plan::{Step, plan, plan_churn};
use vipherald::source::Snapshot;

use crate::common::Namespace;
use crate::objects::{self, ENDPOINTS, PORTS, VIPS, endpoint, vip};
use crate::table::{median, ms};

const CHANGES: usize = 21;

pub(crate) fn compare() {
    let (restored, measured) = beside_ipvsadm(VIPS);
    head(VIPS);
    println!("| `ipvsadm -R` of them | {} |", ms(restored));
    measured.print();
}

pub(crate) fn compare_nft() {
    let measured = in_namespace(VIPS, BalancerKind::Nftables);
    head(VIPS);
    measured.print();
    println!("| of the change of an endpoint outside of `nft`, median | {} |", ms(measured.begun));
}

/// With fewer of them, so that it does not take long.
pub(crate) fn check() {
    const BOUND: Duration = Duration::from_millis(50);
    const FEWER: u32 = 1_000;
    let (restored, measured) = beside_ipvsadm(FEWER);
    println!(
        "{FEWER} VIPs are programmed in {} ms, by ipvsadm -R in {} ms; a change of an endpoint is in the kernel after {} ms",
        ms(measured.programmed),
        ms(restored),
        ms(measured.changed)
    );
    assert!(measured.programmed < restored, "slower than ipvsadm -R");
    assert!(measured.changed < BOUND, "a change of an endpoint must not take {BOUND:?}");
}

/// As [`check`], beside `nft -f` of the same rules.
pub(crate) fn check_nft() {
    const FEWER: u32 = 300;
    /// Ten times what it takes, in units of what `nft` takes.
    const TIMES: f64 = 20.0;
    const CHANGED: Duration = Duration::from_millis(400);
    const BEGUN: Duration = Duration::from_millis(10);
    let node = node();
    let measured = node.enter(|| measure(FEWER, BalancerKind::Nftables));
    let loaded = load(&node.output(&["nft", "list", "ruleset"]));
    let times = measured.programmed.as_secs_f64() / loaded.as_secs_f64();
    println!(
        "{FEWER} VIPs are programmed by nft in {} ms, {times:.1} times what nft -f takes, {} ms; a change of an endpoint is in the kernel after {} ms, of which \
         {} ms outside of nft",
        ms(measured.programmed),
        ms(loaded),
        ms(measured.changed),
        ms(measured.begun)
    );
    assert!(times < TIMES, "it must not take {TIMES} times as long as nft -f");
    assert!(measured.changed < CHANGED, "a change of an endpoint must not take {CHANGED:?}");
    assert!(measured.begun < BEGUN, "what is to be changed must not take {BEGUN:?} to find");
}

fn head(vips: u32) {
    println!("\n| {} virtual services of {ENDPOINTS} real servers | ms |\n|---|---:|", vips * u32::from(PORTS));
}

/// What `ipvsadm -R` takes, and what we take.
fn beside_ipvsadm(vips: u32) -> (Duration, Measured) {
    let restored = restore(vips);
    (restored, in_namespace(vips, BalancerKind::Ipvs))
}

fn in_namespace(vips: u32, balancer: BalancerKind) -> Measured {
    node().enter(|| measure(vips, balancer))
}

/// A host with a link.
fn node() -> Namespace {
    let node = Namespace::new("balance");
    node.ip("link add uplink type veth peer name fabric");
    for end in ["uplink", "fabric"] {
        node.ip(&format!("link set {end} up"));
    }
    node.ip("addr add 192.0.2.1/24 dev uplink");
    node
}

struct Measured {
    programmed: Duration,
    /// Until it was handed to the kernel, or to `nft`.
    begun: Duration,
    changed: Duration,
    settled: Duration,
    audited: Duration,
}

impl Measured {
    fn print(&self) {
        println!("| first programming, with record, addresses and reading back | {} |", ms(self.programmed));
        println!("| one endpoint more or less: until the kernel has it, median | {} |", ms(self.changed));
        println!("| the same, until all is compiled, read and planned again, median | {} |", ms(self.settled));
        println!("| full audit, which changes nothing | {} |", ms(self.audited));
    }
}

async fn measure(vips: u32, balancer: BalancerKind) -> Measured {
    let (config, mut snapshot) = (objects::config(balancer), objects::snapshot(vips));
    let mut node = Node::new(balancer).await;
    let programmed = node.settle(&snapshot, &config).await.changed;
    let (mut begun, mut changed, mut settled) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..CHANGES {
        objects::change(&mut snapshot, vips, number);
        let took = node.settle(&snapshot, &config).await;
        assert_eq!(took.steps, usize::from(PORTS), "each port of one VIP has an endpoint more or less");
        begun.push(took.begun);
        changed.push(took.changed);
        settled.push(took.settled);
    }
    node.kernel.distrust();
    let start = Instant::now();
    assert_eq!(node.settle(&snapshot, &config).await.steps, 0, "a full audit changes nothing");
    Measured { programmed, begun: median(begun), changed: median(changed), settled: median(settled), audited: start.elapsed() }
}

/// How long it took until the first steps were under way, until the last was carried out, and until nothing was left to do; and how many steps there were.
struct Took {
    begun: Duration,
    changed: Duration,
    settled: Duration,
    steps: usize,
}

struct Node {
    kernel: Kernel,
    observed: Observed,
    speaker: ObservedSpeaker,
    /// The intent in force, and what it was compiled from.
    in_force: Option<(Snapshot, Compiled)>,
}

impl Node {
    async fn new(balancer: BalancerKind) -> Self {
        let mut kernel = Kernel::new("lo", "bench").await.unwrap();
        kernel.balance(Some(balancer));
        Self { kernel, observed: Observed::default(), speaker: ObservedSpeaker::default(), in_force: None }
    }

    /// Makes the kernel follow the objects, until nothing is left to do.
    async fn settle(&mut self, snapshot: &Snapshot, config: &Config) -> Took {
        let start = Instant::now();
        let mut took =
            Took { begun: Duration::ZERO, changed: Duration::ZERO, settled: Duration::ZERO, steps: self.hurry(snapshot, config).await };
        took.begun = start.elapsed();
        while took.steps > 0 && self.kernel.is_busy() {
            self.kernel.changed().await;
        }
        took.changed = start.elapsed();
        let compiled = compile(snapshot, config);
        loop {
            match self.pass(&compiled.desired).await {
                0 if self.kernel.is_busy() => self.kernel.changed().await,
                0 => break,
                steps => (took.changed, took.steps) = (start.elapsed(), took.steps + steps),
            }
        }
        took.settled = start.elapsed();
        self.in_force = Some((snapshot.clone(), compiled));
        took
    }

    async fn hurry(&mut self, snapshot: &Snapshot, config: &Config) -> usize {
        let Some((before, compiled)) = &self.in_force else { return 0 };
        let churn = churn(before, snapshot, compiled, config);
        let steps = plan_churn(&churn, &compiled.desired, &self.observed, Instant::now());
        let count = steps.len();
        self.execute(steps).await;
        count
    }

    async fn pass(&mut self, desired: &Desired) -> usize {
        let state = self.kernel.observe().await.unwrap();
        for (step, outcome) in self.kernel.outcomes() {
            outcome.unwrap();
            self.observed.complete(&step);
        }
        let now = Instant::now();
        self.observed = stamp(&self.observed, state, self.speaker.clone(), now);
        let steps = plan(desired, &self.observed, now).steps;
        let steps: Vec<Step> = steps.into_iter().filter(|step| !(self.kernel.is_busy() && self.kernel.takes_nft(step))).collect();
        // What the connection table has to forget is looked for after each real server that goes.
        let count = steps.iter().filter(|step| !matches!(step, Step::ForgetConnections(_))).count();
        self.execute(steps).await;
        count
    }

    async fn execute(&mut self, steps: Vec<Step>) {
        let (mut of_nft, mut of_kernel) = (Vec::new(), Vec::new());
        for step in steps {
            match &step {
                _ if self.kernel.takes_nft(&step) => of_nft.push(step),
                Step::Advertise(set) => self.speaker.advertised = Some(Arc::clone(set)),
                Step::ConfigureSpeaker(desired, set) => {
                    self.speaker.configured = Some(Arc::clone(desired));
                    self.speaker.advertised = set.clone().or_else(|| self.speaker.advertised.take());
                }
                _ => of_kernel.push(step),
            }
        }
        if !of_nft.is_empty() {
            self.kernel.begin(of_nft);
        }
        for (step, outcome) in of_kernel.iter().zip(self.kernel.execute_all(&of_kernel).await) {
            outcome.unwrap();
            self.observed.complete(step);
        }
    }
}

/// How long `ipvsadm -R` takes to make the same, in a namespace of its own: for two minutes IPVS keeps real servers that were removed, and looks through
/// them.
fn restore(vips: u32) -> Duration {
    let namespace = Namespace::new("restored");
    let mut child = namespace.command("ipvsadm").arg("-R").stdin(Stdio::piped()).spawn().unwrap();
    let mut rules = String::new();
    for (number, port) in (0..vips).flat_map(|number| (0..PORTS).map(move |port| (number, port))) {
        let service = format!("{}:{}", vip(number), 80 + port);
        rules += &format!("-A -u {service} -s mh -b mh-port,mh-fallback\n");
        for of in 0..ENDPOINTS {
            rules += &format!("-a -u {service} -r {}:{} -m -w 1\n", endpoint(number, of), 8080 + port);
        }
    }
    let start = Instant::now();
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    start.elapsed()
}

/// How long `nft -f` takes for these rules, in a namespace of its own.
fn load(rules: &str) -> Duration {
    let namespace = Namespace::new("loaded");
    let start = Instant::now();
    namespace.nft(rules);
    start.elapsed()
}
