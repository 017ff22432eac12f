// SPDX-License-Identifier: Apache-2.0
//! A node in a cluster with thousands of Services, on a real API server, with nft and a BIRD as its router.
//!
//! Four figures: from the start of the daemon until the router has a route to every VIP; what the daemon has in memory then; what it uses of a processor while a hundred Nodes a second report that they
//! live; and how long one change of an endpoint takes, to the kernel and, where it is the last one of a VIP, to the table of the router. The clock of a change starts when another client that watches
//! EndpointSlices has its event.

use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use netlink_sys::{Socket, SocketAddr as NetlinkAddress, protocols::NETLINK_NETFILTER};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::PATIENCE;
use crate::accounts::{ACCOUNTS, RIGHTS};
use crate::announce::receiver;
use crate::apiserver::{ApiServer, block_on};
use crate::common::{Namespace, run, wait_until_async};
use crate::passage::Passage;
use crate::router::{Monitor, Router};
use crate::table::{median, mib, ms, spread};
use crate::topology::{RECEIVER, RECEIVER_AS, SENDER, SENDER_AS};

/// Where the objects are.
const NAMESPACE: &str = "enm";
const SERVICES: u32 = 5_000;
const ENDPOINTS: u8 = 4;
const FIRST_VIP: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 1);
const FIRST_ENDPOINT: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);
/// Nodes that report that they live, each once a second.
const NODES: u32 = 100;
const ADVERTISED: &str = "vipherald.io/Advertised";
/// Each status is a request to the server, and each condition an Event.
const UNTIL_TOLD: Duration = Duration::from_secs(600);
const AT_REST: Duration = Duration::from_secs(10);
const CHANGES: u32 = 21;
/// Requests of the benchmark at a time.
const AT_A_TIME: usize = 16;
/// Of nf_tables, in `linux/netfilter/nfnetlink.h`: NFNLGRP_NFTABLES.
const NFTABLES_GROUP: u32 = 7;

pub(crate) fn compare() {
    let found = measure(SERVICES);
    println!("| {SERVICES} Services with {} endpoints | |", SERVICES * u32::from(ENDPOINTS));
    println!("|---|---:|");
    println!("| from the start of the daemon until the router has all routes, ms | {} |", ms(found.started));
    println!("| until the status of all Services says so, ms | {} |", ms(found.told));
    println!("| memory at the peak of that, MiB | {} |", mib(found.peak_kib));
    println!("| of it heap and stacks, MiB | {} |", mib(found.anonymous_kib));
    println!("| of a processor at rest, with {NODES} heartbeats a second, % | {:.2} |", found.share * 100.0);
    println!("| one endpoint less or more, until the kernel has it, median ms and range | {} |", spread(found.kernel).1);
    println!(
        "| the last endpoint gone, or the first one there, until the router has it, median ms and range | {} |",
        spread(found.router).1
    );
}

/// A fifth of it, with ten times what the figures are.
pub(crate) fn check() {
    let found = measure(SERVICES / 5);
    let (kernel, router) = (median(found.kernel), median(found.router));
    println!(
        "{} Services: announced {} ms after the start, {} MiB, {:.2} % at rest, a change is in the kernel after {} ms, at the router after {} ms",
        SERVICES / 5,
        ms(found.started),
        mib(found.peak_kib),
        found.share * 100.0,
        ms(kernel),
        ms(router)
    );
    assert!(found.started < Duration::from_secs(20), "all are announced late");
    assert!(found.peak_kib < 256 * 1024, "they take 256 MiB");
    assert!(found.share < 0.2, "heartbeats keep a fifth of a processor busy");
    assert!(kernel < Duration::from_millis(100) && router < Duration::from_millis(100), "a change takes 100 ms");
}

struct Found {
    started: Duration,
    told: Duration,
    peak_kib: u64,
    anonymous_kib: u64,
    share: f64,
    kernel: Vec<Duration>,
    router: Vec<Duration>,
}

fn measure(services: u32) -> Found {
    let (ours, theirs) = (Namespace::new("bench-s"), Namespace::new("bench-r"));
    ours.veth("eth0", &theirs, "eth0");
    ours.ip(&format!("address add {SENDER}/24 dev eth0"));
    theirs.ip(&format!("address add {RECEIVER}/24 dev eth0"));
    let cluster = Cluster::with(services);
    let receiver = receiver(&theirs, "passive");
    let mut monitor = Monitor::connect(&receiver.control());
    let _passage = Passage::open(&ours, cluster.server.address());

    let start = Instant::now();
    let daemon = cluster.start_daemon(&ours);
    until_routes(&mut monitor, services);
    let started = start.elapsed();
    cluster.until_told();
    let told = start.elapsed();
    daemon.settle();
    let (peak_kib, anonymous_kib) = (daemon.peak_kib(), daemon.anonymous_kib());
    let share = cluster.share_at_rest(&daemon);
    daemon.settle();
    let events = cluster.watch();
    let kernel = (0..CHANGES).map(|round| cluster.change_one(&ours, &events, round)).collect();
    let router = (0..CHANGES).map(|round| cluster.change_last(&mut monitor, &events, round, services)).collect();
    Found { started, told, peak_kib, anonymous_kib, share, kernel, router }
}

/// Looks without pause.
fn until_routes(monitor: &mut Monitor, count: u32) {
    let deadline = Instant::now() + PATIENCE;
    while monitor.routes() != Some(count) {
        assert!(Instant::now() < deadline, "the router does not have {count} routes within {PATIENCE:?}");
    }
}

struct Cluster {
    server: ApiServer,
    files: TempDir,
}

impl Cluster {
    /// So many Services, each with a VIP and endpoints, the definitions, and what the chart grants.
    fn with(services: u32) -> Self {
        let cluster = Self { server: ApiServer::start(), files: TempDir::new().unwrap() };
        let mut definitions = Command::new(daemon_program());
        run(definitions.args(["crds", "apply", "--kubeconfig"]).arg(cluster.server.administrator_kubeconfig()));
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
        cluster.server.kubectl(&["apply", "-f", "-"], &format!("{ACCOUNTS}---\n{namespace}"));
        cluster.server.kubectl(&["apply", "--namespace=vip", "-f", "-"], RIGHTS);
        let token = block_on(async || {
            let client = cluster.server.administrator().await;
            cluster.create((0..NODES).map(|number| (Api::<Node>::all(client.clone()), node(number)))).await;
            let of_namespace = Api::<Service>::namespaced(client.clone(), NAMESPACE);
            cluster.create((0..services).map(|number| (of_namespace.clone(), service(number)))).await;
            let of_namespace = Api::<EndpointSlice>::namespaced(client, NAMESPACE);
            cluster.create((0..services).map(|number| (of_namespace.clone(), endpoints(number, ENDPOINTS)))).await;
            cluster.server.service_account_token("vip", "vipherald").await
        });
        let mut kubeconfig: Value = serde_json::from_str(&cluster.server.kubeconfig(&token)).unwrap();
        kubeconfig["contexts"][0]["context"]["namespace"] = "vip".into();
        std::fs::write(cluster.files.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        cluster
    }

    async fn create<K>(&self, objects: impl Iterator<Item = (Api<K>, Value)>)
    where
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let created = stream::iter(objects).map(|(api, object)| async move {
            api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        });
        created.buffer_unordered(AT_A_TIME).for_each(|()| async {}).await;
    }

    /// The daemon on the first Node.
    fn start_daemon(&self, namespace: &Namespace) -> Router {
        let path = |name: &str| self.files.path().join(name);
        let configuration = format!(
            "node: {{name: node-0}}\nvips: {{allow: [{{prefix: 10.64.0.0/16}}]}}\ndataplane: {{type: nftables}}\n\
             bgp:\n  asn: {SENDER_AS}\n  routerId: {SENDER}\n  peers:\n  - {{name: router, address: {RECEIVER}, asn: {RECEIVER_AS}, timers: {{connectRetry: 1s}}}}\n\
             stateDir: {}\nhttp: {{address: \"127.0.0.1:0\"}}\nlog: {{level: warn, format: text}}\n",
            path("state").display()
        );
        std::fs::write(path("config.yaml"), configuration).unwrap();
        let mut command = namespace.command(daemon_program().to_str().unwrap());
        command.args(["run", "--config"]).arg(path("config.yaml")).arg("--kubeconfig").arg(path("kubeconfig"));
        Router::of(&mut command)
    }

    /// Waits until the status of every Service says that its VIP is announced.
    fn until_told(&self) {
        block_on(async || {
            let services = Api::<Service>::namespaced(self.server.administrator().await, NAMESPACE);
            wait_until_async("all Services are told that they are announced", UNTIL_TOLD, async || {
                let all = services.list(&ListParams::default()).await.unwrap();
                all.items.iter().all(|service| {
                    let conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
                    conditions.into_iter().any(|condition| condition.type_ == ADVERTISED && condition.status == "True")
                })
            })
            .await;
        });
    }

    /// What part of a processor the daemon uses while every Node says once a second that it lives.
    fn share_at_rest(&self, daemon: &Router) -> f64 {
        let (start, before) = (Instant::now(), daemon.processor_time());
        let sent = block_on(async || {
            let nodes = Api::<Node>::all(self.server.administrator().await);
            let mut each = tokio::time::interval(Duration::from_secs(1) / NODES);
            each.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
            let mut sent = 0;
            while start.elapsed() < AT_REST {
                each.tick().await;
                let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
                let condition =
                    json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": time});
                let name = format!("node-{}", sent % NODES);
                let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
                nodes.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
                sent += 1;
            }
            sent
        });
        let (took, used) = (start.elapsed(), daemon.processor_time() - before);
        let rate = f64::from(sent) / took.as_secs_f64();
        assert!(rate > f64::from(NODES) * 0.9, "the server takes {rate:.0} heartbeats a second only");
        used.as_secs_f64() / took.as_secs_f64()
    }

    /// When a client like the daemon has which EndpointSlice, for as long as the receiver is there.
    fn watch(&self) -> Receiver<(String, Instant)> {
        let (sender, receiver) = channel();
        let (ready, is_ready) = channel();
        let kubeconfig = self.server.administrator_kubeconfig();
        thread::spawn(move || {
            let text = std::fs::read_to_string(kubeconfig).unwrap();
            block_on(async || {
                let client: Client = crate::apiserver::client(&text).await;
                let slices = Api::<EndpointSlice>::namespaced(client, NAMESPACE);
                let version = slices.list_metadata(&ListParams::default().limit(1)).await.unwrap().metadata.resource_version.unwrap();
                let mut events = slices.watch(&WatchParams::default(), &version).await.unwrap().boxed();
                ready.send(()).unwrap();
                while let Some(Ok(event)) = events.next().await {
                    let now = Instant::now();
                    if let WatchEvent::Modified(slice) = event
                        && sender.send((slice.metadata.name.unwrap_or_default(), now)).is_err()
                    {
                        return;
                    }
                }
            });
        });
        is_ready.recv().unwrap();
        receiver
    }

    /// Gives a Service other endpoints; when the watching client had that.
    fn give(&self, number: u32, count: u8, events: &Receiver<(String, Instant)>) -> Instant {
        block_on(async || {
            let slices = Api::<EndpointSlice>::namespaced(self.server.administrator().await, NAMESPACE);
            let patch = Patch::Merge(json!({"endpoints": endpoints(number, count)["endpoints"]}));
            slices.patch(&slice_name(number), &PatchParams::default(), &patch).await.unwrap();
        });
        let (name, at) = events.recv_timeout(PATIENCE).unwrap();
        assert_eq!(name, slice_name(number), "an EndpointSlice has changed that nobody has changed");
        at
    }

    /// From the event to the kernel.
    fn change_one(&self, namespace: &Namespace, events: &Receiver<(String, Instant)>, round: u32) -> Duration {
        let changed = RulesetChange::listen(namespace);
        let count = if round.is_multiple_of(2) { ENDPOINTS - 1 } else { ENDPOINTS };
        let in_kernel = thread::spawn(move || changed.wait());
        let at = self.give(round / 2, count, events);
        in_kernel.join().unwrap().saturating_duration_since(at)
    }

    /// From the event to the table of the router.
    fn change_last(&self, monitor: &mut Monitor, events: &Receiver<(String, Instant)>, round: u32, services: u32) -> Duration {
        let (count, routes) = if round.is_multiple_of(2) { (0, services - 1) } else { (ENDPOINTS, services) };
        thread::scope(|scope| {
            let at_router = scope.spawn(|| {
                until_routes(monitor, routes);
                Instant::now()
            });
            let at = self.give(100 + round / 2, count, events);
            at_router.join().unwrap().saturating_duration_since(at)
        })
    }
}

/// The next change of the nft rule set of a namespace.
struct RulesetChange(Socket);

impl RulesetChange {
    fn listen(namespace: &Namespace) -> Self {
        namespace.run(|| {
            let mut socket = Socket::new(NETLINK_NETFILTER).unwrap();
            socket.bind(&NetlinkAddress::new(0, 0)).unwrap();
            socket.add_membership(NFTABLES_GROUP).unwrap();
            Self(socket)
        })
    }

    /// The kernel tells of a transaction once it is in force.
    fn wait(self) -> Instant {
        let mut descriptors = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(PATIENCE).unwrap();
        assert_eq!(poll(&mut descriptors, limit).unwrap(), 1, "the rule set has not changed within {PATIENCE:?}");
        Instant::now()
    }
}

/// Built beside this program.
fn daemon_program() -> PathBuf {
    let directory = std::env::current_exe().unwrap().parent().unwrap().with_file_name("vipherald");
    assert!(directory.exists(), "there is no {}: cargo build --release --bins", directory.display());
    directory
}

fn node(number: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number}")}})
}

fn service(number: u32) -> Value {
    let spec = json!({"externalIPs": [Ipv4Addr::from_bits(FIRST_VIP.to_bits() + number)], "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("web-{number}")}, "spec": spec})
}

fn slice_name(number: u32) -> String {
    format!("web-{number}-1")
}

fn endpoints(number: u32, count: u8) -> Value {
    let address = |endpoint: u8| Ipv4Addr::from_bits(FIRST_ENDPOINT.to_bits() + number * u32::from(ENDPOINTS) + u32::from(endpoint));
    let each: Vec<Value> = (0..count).map(|endpoint| json!({"addresses": [address(endpoint)], "conditions": {"ready": true}})).collect();
    let labels = json!({"kubernetes.io/service-name": format!("web-{number}")});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": slice_name(number), "labels": labels},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}], "endpoints": each,
    })
}
