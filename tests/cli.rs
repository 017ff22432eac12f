// SPDX-License-Identifier: Apache-2.0
//! The binary as its users meet it: usage, exit codes, what is said where.
#![expect(clippy::unwrap_used, reason = "a test ends there")]

use std::fs;
use std::io::pipe;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vipherald::admin::{AdminSocket, Desk};
use vipherald::driver::bgp::Speaker;
use vipherald::status::{IpvsReader, IpvsStatus, NodeStatus, StatusReader};

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn vipherald(arguments: &[&str]) -> Ended {
    ended(Command::new(env!("CARGO_BIN_EXE_vipherald")).args(arguments).env("NODE_NAME", "node-1"))
}

fn ended(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |octets| String::from_utf8(octets).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/config").join(name).display().to_string()
}

/// A file that is gone with the directory.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.yaml");
    fs::write(&path, text).unwrap();
    (directory, path.display().to_string())
}

#[test]
fn help_and_version() {
    let help = vipherald(&["--help"]);
    assert_eq!(help.code, Some(0));
    for word in [
        "run",
        "plan",
        "show",
        "doctor",
        "peer",
        "cleanup",
        "uninstall",
        "config",
        "Exit codes: 0 all is well, 1 a finding, 2 wrong usage, 3 no daemon answers.",
    ] {
        assert!(help.stdout.contains(word), "{word} in:\n{}", help.stdout);
    }
    let version = vipherald(&["--version"]);
    assert_eq!((version.code, version.stdout), (Some(0), format!("vipherald {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn wrong_usage_is_2() {
    let minimal = example("minimal.yaml");
    let wrong: [&[&str]; 38] = [
        &["run", "--config", &minimal],
        &["plan", "--config", &minimal],
        &["show", "peer", ""],
        &["show", "peers", ""],
        &["show", "routes", "received", ""],
        &["peer", "start", ""],
        &["doctor", "me"],
        &["doctor", "-o", "xml"],
        &["show", "routes", "advertised", "tor", "foo"],
        &["show", "routes", "received", "tor", "10.0.0.7/33"],
        &["show", "routes", "advertised", "tor", "10.0.0.7/24"],
        &["show", "ipvs", "tor"],
        &["show", "vips", "--instance", "../x"],
        &["peer", "reset", "tor", "--soft=up"],
        &["peer", "reset", "tor", "--soft", "in"],
        &["show", "peer"],
        &["show", "routes", "sent", "tor"],
        &["show", "routes", "advertised"],
        &["show", "vips", "tor"],
        &["peer"],
        &["peer", "reset"],
        &["peer", "start", "tor", "--message", "x"],
        &[],
        &["fly"],
        &["run"],
        &["run", "--manifests", "d"],
        &["plan", "--manifests", "d"],
        &["show"],
        &["show", "nothing"],
        &["show", "vips", "-o", "xml"],
        &["show", "vips", "--socket", "a", "--instance", "b"],
        &["config"],
        &["config", "check"],
        &["cleanup"],
        &["cleanup", "--instance", ""],
        &["uninstall", "--instance", "vipherald"],
        &["uninstall", "--instance", "Vipherald", "--workload", "DaemonSet/networking/vipherald"],
        &["uninstall", "--instance", "vipherald", "--workload", "Deployment/networking/vipherald"],
    ];
    for arguments in wrong {
        let ended = vipherald(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(!ended.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn config_check_names_all_mistakes() {
    for name in ["minimal.yaml", "all-keys.yaml"] {
        let good = vipherald(&["config", "check", &example(name)]);
        assert_eq!((good.code, good.stdout, good.stderr.as_str()), (Some(0), format!("{}: good\n", example(name)), ""));
    }
    let (_directory, path) = file("bgp:\n  asn: 0\n  peer: []\n");
    let bad = vipherald(&["config", "check", &path]);
    let expected = format!(
        "vipherald: config: {path}:2:8: bgp.asn: expected an AS number from 1 to 4294967294, found '0': no speaker may use it (RFC 7607)\n\
         vipherald: config: {path}:3:3: bgp.peer: unknown key; did you mean 'peers'?\n"
    );
    assert_eq!((bad.code, bad.stdout.as_str(), bad.stderr), (Some(1), "", expected));

    let absent = vipherald(&["config", "check", "/nonexistent/c.yaml"]);
    let expected = "vipherald: config: /nonexistent/c.yaml: cannot be read: No such file or directory (os error 2)\n";
    assert_eq!((absent.code, absent.stderr.as_str()), (Some(1), expected));
}

#[test]
fn a_cluster_needs_a_way_to_it_and_allowed_prefixes() {
    let (directory, path) = file("bgp: {asn: 65001}\n");
    let ended = vipherald(&["run", "--config", &path]);
    let expected =
        "vipherald: run: there is no API server: give --kubeconfig FILE, set KUBECONFIG, run in a pod, or give --manifests DIR\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), expected));
    let kubeconfig = directory.path().join("kubeconfig").display().to_string();
    let ended = vipherald(&["run", "--config", &path, "--kubeconfig", &kubeconfig]);
    assert!(ended.code == Some(1) && ended.stderr.contains("vips.allow: is required with Kubernetes"), "{}", ended.stderr);
}

#[test]
fn the_definitions_are_printed() {
    let ended = vipherald(&["crds"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let names =
        ["ericingresses.routing.ericingress.ericsson.com", "lvsingresses.routing.lvsingress.ericsson.com", "routernodes.vipherald.io"];
    assert!(names.iter().all(|name| ended.stdout.contains(&format!("name: {name}\n"))), "{}", ended.stdout);
    let ended = vipherald(&["crds", "apply", "--kubeconfig", "/nonexistent"]);
    assert!(ended.code == Some(1) && ended.stderr.contains("cannot use the kubeconfig /nonexistent"), "{}", ended.stderr);
}

#[test]
fn a_bad_configuration_starts_nothing() {
    let (directory, path) = file("bgp: {asn: 65001, bfd: {}}\n");
    let manifests = directory.path().display().to_string();
    for verb in ["run", "plan"] {
        let ended = vipherald(&[verb, "--config", &path, "--manifests", &manifests]);
        let expected = format!(
            "vipherald: config: {path}:1:19: bgp.bfd: unknown key; expected one of asn, routerId, clusterId, sendHostName, sendSoftwareVersion, listen, peers, policies, aggregates\n"
        );
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr), (Some(1), "", expected), "{verb}");
    }
}

#[test]
fn without_a_daemon_it_is_3() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock").display().to_string();
    for noun in ["vips", "peers", "routes", "rejections", "ipvs"] {
        let ended = vipherald(&["show", noun, "--socket", &socket]);
        let expected = format!("vipherald: show: no vipherald answers at {socket}: No such file or directory (os error 2)\n");
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr), (Some(3), "", expected));
    }
    let ended = vipherald(&["show", "vips", "--instance", "nobody-has-this"]);
    assert_eq!(ended.code, Some(3));
    assert!(ended.stderr.contains(" /run/vipherald/nobody-has-this/admin.sock: "), "{}", ended.stderr);
}

/// A daemon's socket, served by a thread until the end of the test.
fn serve(directory: &Path, status: &str) -> PathBuf {
    let status: Arc<NodeStatus> = Arc::new(serde_json::from_str(status).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The name of an instance is taken for the whole machine.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let instance = format!("test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let socket = {
        let _runtime = runtime.enter();
        AdminSocket::bind(directory, &instance).unwrap()
    };
    let path = socket.path().to_owned();
    std::thread::spawn(move || {
        let speaker = Speaker::spawn("vipherald", 1).unwrap();
        let table: IpvsStatus = serde_json::from_str(TABLE).unwrap();
        let ipvs = IpvsReader::new(move || {
            let table = table.clone();
            Box::pin(async { Ok(table) })
        });
        runtime.block_on(socket.serve(Desk { status: StatusReader::new(move || Arc::clone(&status)), ipvs, operator: speaker.operator() }))
    });
    path
}

const STATUS: &str = r#"{
    "apiVersion": "vipherald.io/v1alpha1",
    "identity": {"instance": "test", "node": "node-1", "interface": "lo", "version": "0.1.0", "started": "2026-11-28T00:00:00Z"},
    "observedAt": "2026-11-28T00:01:00Z",
    "lifecycle": "Serving",
    "source": {"state": "Complete", "message": ""},
    "config": {"file": "c.yaml", "since": "2026-11-28T00:00:00Z", "waitingForRestart": ["instance"]},
    "speaker": {"asn": 65001, "routerId": "192.0.2.1", "started": true},
    "vips": [{
        "address": "10.0.0.7",
        "owners": [{"kind": "Service", "namespace": "default", "name": "nginx"}],
        "state": "Pending", "reason": "NoPeers", "message": "no peer in bgp.peers is for this node",
        "since": "2026-11-28T00:00:30Z", "placement": "Ours", "conditions": [], "peers": [], "newerField": 1
    }],
    "unclaimed": [], "rejections": [], "peers": [], "failures": []
}"#;

const TABLE: &str = r#"{
    "version": "1.2.1", "connectionTableSize": 4096,
    "services": [{
        "line": "TCP  10.0.0.7:80 mh (mh-port)", "service": "TCP 10.0.0.7:80", "family": "IPv4", "scheduler": "mh", "flags": ["mh-port"],
        "owner": {"kind": "Service", "namespace": "default", "name": "nginx"}, "foreign": false, "realServers": [],
        "statistics": {"connections": 7, "incomingPackets": 1, "outgoingPackets": 2, "incomingOctets": 3, "outgoingOctets": 4}
    }]
}"#;

#[test]
fn show_ipvs_prints_the_table_and_whose_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let socket = serve(directory.path(), STATUS).display().to_string();
    let table = vipherald(&["show", "ipvs", "--socket", &socket]);
    let expected = "IP Virtual Server version 1.2.1 (size=4096)\n\
                    Prot LocalAddress:Port Scheduler Flags\n\
                    \x20 -> RemoteAddress:Port           Forward Weight ActiveConn InActConn  Owner\n\
                    TCP  10.0.0.7:80 mh (mh-port)                                          Service default/nginx\n";
    assert_eq!((table.code, table.stdout.as_str()), (Some(0), expected));
    assert_eq!(table.stderr, "vipherald: config: a restart is needed for instance\n");
    let json = vipherald(&["show", "ipvs", "-o", "json", "--socket", &socket]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&value["services"][0]["owner"]["name"], &value["node"]), (&"nginx".into(), &"node-1".into()));
    let yaml = vipherald(&["show", "ipvs", "-o", "yaml", "--socket", &socket]);
    assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&yaml.stdout).unwrap(), value);
}

#[test]
fn doctor_needs_no_daemon_and_exits_1_where_there_is_a_problem() {
    let (_directory, path) =
        file("bgp: {asn: 65001, peers: [{name: tor, address: 192.0.2.1, asn: 65001, passwordFile: /nonexistent/key}]}\n");
    let table = vipherald(&["doctor", "--config", &path]);
    assert_eq!(table.code, Some(1));
    assert!(table.stdout.starts_with("CHECK "), "{}", table.stdout);
    assert!(
        table.stdout.lines().any(|line| line.starts_with("key file /nonexistent/key ") && line.contains(" problem ")),
        "{}",
        table.stdout
    );
    assert!(table.stderr.starts_with("vipherald: doctor: there ") && table.stderr.lines().count() == 1, "{}", table.stderr);

    let json = vipherald(&["doctor", "--config", &path, "-o", "json"]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&value["apiVersion"], &value["node"], json.code), (&"vipherald.io/v1alpha1".into(), &"node-1".into(), Some(1)));
    let yaml = vipherald(&["doctor", "--config", &path, "-o", "yaml"]);
    let value: serde_json::Value = serde_saphyr::from_str(&yaml.stdout).unwrap();
    let findings = value["findings"].as_array().unwrap();
    let key = findings.iter().find(|finding| finding["check"] == "key file /nonexistent/key").unwrap();
    assert_eq!((&key["state"], &key["remedy"]), (&"problem".into(), &"put the key there, readable for the daemon".into()));

    let without = vipherald(&["doctor"]);
    assert_eq!(without.code, Some(i32::from(without.stdout.contains(" problem "))));
    let bad = vipherald(&["doctor", "--config", "/nonexistent/c.yaml"]);
    assert_eq!((bad.code, bad.stdout.as_str()), (Some(1), ""));
}

#[test]
fn show_prints_what_the_daemon_says() {
    let directory = tempfile::tempdir().unwrap();
    let socket = serve(directory.path(), STATUS).display().to_string();
    let table = vipherald(&["show", "vips", "--socket", &socket]);
    let expected = "VIP       STATE    REASON   OWNER                  ADDRESS  SINCE\n\
                    10.0.0.7  Pending  NoPeers  Service default/nginx  Ours     2026-11-28T00:00:30Z\n";
    assert_eq!((table.code, table.stdout.as_str()), (Some(0), expected));
    assert_eq!(table.stderr, "vipherald: config: a restart is needed for instance\n");

    let json = vipherald(&["show", "vips", "-o", "json", "--socket", &socket]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &value["vips"][0]["reason"], &value["node"]), (Some(0), &"NoPeers".into(), &"node-1".into()));
    assert_eq!(value["warnings"], serde_json::json!(["config: a restart is needed for instance"]));
    let yaml = vipherald(&["show", "vips", "-o", "yaml", "--socket", &socket]);
    assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&yaml.stdout).unwrap(), value);
}

#[test]
fn an_order_about_a_peer_that_is_not_there_is_a_finding() {
    let directory = tempfile::tempdir().unwrap();
    let socket = serve(directory.path(), STATUS).display().to_string();
    let soft =
        [&["reset", "tor", "--soft"][..], &["reset", "--soft", "tor"], &["reset", "tor", "--soft=in"], &["reset", "--soft=out", "tor"]];
    let orders = [&["shutdown", "tor", "--message", "new line card"][..], &["start", "tor"], &["reset", "tor"]];
    for order in orders.into_iter().chain(soft) {
        let ended = vipherald(&[&["peer"], order, &["--socket", &socket]].concat());
        let expected = "vipherald: peer: there is no peer 'tor'; there is none\n";
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(1), "", expected), "{order:?}");
    }
    for question in [&["routes", "advertised", "tor"][..], &["routes", "received", "tor", "10.0.0.7"], &["peer", "tor"], &["peers", "tor"]]
    {
        let ended = vipherald(&[&["show"], question, &["--socket", &socket]].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{question:?}");
        assert!(ended.stderr.ends_with("vipherald: show: there is no peer 'tor'; there is none\n"), "{}", ended.stderr);
    }
    let long = vipherald(&["peer", "shutdown", "tor", "--message", &"x".repeat(256), "--socket", &socket]);
    assert_eq!(long.code, Some(2));
    assert!(long.stderr.contains("a NOTIFICATION carries 255 at most (RFC 9003)"), "{}", long.stderr);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let good = ended(Command::new(env!("CARGO_BIN_EXE_vipherald")).args(["config", "check", &example("minimal.yaml")]).stdout(writer));
    assert_eq!((good.code, good.stderr.as_str()), (Some(0), ""));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let full = ended(Command::new(env!("CARGO_BIN_EXE_vipherald")).args(["config", "check", &example("minimal.yaml")]).stdout(full));
    let expected = "vipherald: cannot write to standard output: No space left on device (os error 28)\n";
    assert_eq!((full.code, full.stderr.as_str()), (Some(1), expected));
}
