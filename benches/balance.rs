// SPDX-License-Identifier: Apache-2.0
//! What a node with many virtual services costs: 5,000 VIPs with three ports each and four endpoints behind every port. For a kernel with IPVS, which
//! `tests/uml/run-in-vm` boots where the machine's own has none.
//!
//! The loop is that of the daemon, from objects to kernel and back; the speaker is one without neighbours, that does at once what it is told.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vipherald::actuator::Kernel;
use vipherald::config::Config;
use vipherald::desired::{BalancerKind, Desired, compile};
use vipherald::observed::{Observed, ObservedSpeaker, stamp};
use vipherald::plan::{Step, StepKey, plan};
use vipherald::source::Snapshot;

use crate::common::Namespace;
use crate::objects::{self, ENDPOINTS, PORTS, VIPS, endpoint, vip};
use crate::table::{median, ms};

const CHANGES: usize = 11;

pub(crate) fn compare() {
    let restored = restore();
    let node = Namespace::new("balance");
    node.ip("link add uplink type dummy");
    node.ip("link set uplink up");
    node.ip("addr add 192.0.2.1/24 dev uplink");
    let [programmed, changed, audited] = node.enter(measure);
    println!("\n| {} virtual services of {ENDPOINTS} real servers | ms |\n|---|---:|", VIPS * u32::from(PORTS));
    println!("| `ipvsadm -R` of them | {} |", ms(restored));
    println!("| first programming, with record, addresses and reading back | {} |", ms(programmed));
    println!("| one endpoint more or less: until the kernel has it, median | {} |", ms(changed));
    println!("| full audit, which changes nothing | {} |", ms(audited));
    assert!(programmed < restored, "faster than ipvsadm -R");
}

async fn measure() -> [Duration; 3] {
    let (config, mut snapshot) = (objects::config(), objects::snapshot());
    let mut node = Node::new().await;
    let (programmed, _) = node.settle(&snapshot, &config).await;
    let mut changes = Vec::new();
    for number in 0..CHANGES {
        objects::change(&mut snapshot, number);
        let (changed, steps) = node.settle(&snapshot, &config).await;
        assert_eq!(steps, usize::from(PORTS), "each port of one VIP has an endpoint more or less");
        changes.push(changed);
    }
    node.kernel.distrust();
    let start = Instant::now();
    assert_eq!(node.settle(&snapshot, &config).await.1, 0, "a full audit changes nothing");
    [programmed, median(changes), start.elapsed()]
}

struct Node {
    kernel: Kernel,
    observed: Observed,
    speaker: ObservedSpeaker,
}

impl Node {
    async fn new() -> Self {
        let mut kernel = Kernel::new("lo", "bench").await.unwrap();
        kernel.balance(Some(BalancerKind::Ipvs));
        Self { kernel, observed: Observed::default(), speaker: ObservedSpeaker::default() }
    }

    /// Compiles the objects, and passes until nothing is left to do: how long it took until the last step was carried out, and how many there were.
    async fn settle(&mut self, snapshot: &Snapshot, config: &Config) -> (Duration, usize) {
        let (start, mut last, mut count) = (Instant::now(), Duration::ZERO, 0);
        let desired = compile(snapshot, config).desired;
        loop {
            match self.pass(&desired).await {
                0 if self.kernel.is_busy() => self.kernel.changed().await,
                0 => return (last, count),
                steps => (last, count) = (start.elapsed(), count + steps),
            }
        }
    }

    async fn pass(&mut self, desired: &Desired) -> usize {
        let state = self.kernel.observe().await.unwrap();
        self.kernel.outcomes().into_iter().for_each(|(_, outcome)| outcome.unwrap());
        let now = Instant::now();
        self.observed = stamp(&self.observed, state, self.speaker.clone(), now);
        let busy = self.kernel.is_busy();
        let steps: Vec<Step> =
            plan(desired, &self.observed, now).steps.into_iter().filter(|step| !(busy && step.key() == StepKey::Record)).collect();
        let (count, mut of_record, mut of_kernel) = (steps.len(), Vec::new(), Vec::new());
        for step in steps {
            match (step.key(), &step) {
                (StepKey::Record, _) => of_record.push(step),
                (_, Step::Advertise(set)) => self.speaker.advertised = Some(Arc::clone(set)),
                (_, Step::ConfigureSpeaker(desired)) => self.speaker.configured = Some(Arc::clone(desired)),
                _ => of_kernel.push(step),
            }
        }
        if !of_record.is_empty() {
            self.kernel.begin(of_record);
        }
        self.kernel.execute_all(&of_kernel).await.into_iter().for_each(Result::unwrap);
        count
    }
}

/// How long `ipvsadm -R` takes to make the same, in a namespace of its own: for two minutes IPVS keeps real servers that were removed, and looks through
/// them.
fn restore() -> Duration {
    let namespace = Namespace::new("restored");
    let mut child = namespace.command("ipvsadm").arg("-R").stdin(Stdio::piped()).spawn().unwrap();
    let mut rules = String::new();
    for (number, port) in (0..VIPS).flat_map(|number| (0..PORTS).map(move |port| (number, port))) {
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
