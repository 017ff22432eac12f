// SPDX-License-Identifier: Apache-2.0
//! Cases about what nft does beside balancing, with traffic, for each dataplane: who is let in, and what real servers see of a client.
//!
//! Input: the dataplane. Invariant: whoever calls one has a kernel with what that dataplane needs.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::common::{Namespace, wait_until};
use super::stage::{PATIENCE, ROUTER, Stage, VIP, eric, service, slice};

const VIP6: &str = "2001:db8:7::1";
const SERVER: &str = "192.168.1.1";
const SERVER6: &str = "2001:db8:1::11";
const CLIENT: &str = "10.99.0.2";
const OTHER_CLIENT: &str = "10.99.0.3";

/// A stage with a real server of each family that answers on port 80, which finds clients through the router; the client has two addresses.
pub(crate) fn stage(dataplane: &'static str, tag: &str) -> Stage {
    let stage = Stage::with(dataplane, tag, &[SERVER, SERVER6]);
    stage.answer_tcp(80);
    stage.servers.ip("route add default via 192.168.0.1");
    stage.servers.ip("-6 route add default via 2001:db8:1::1");
    stage.client.ip("addr add 10.99.0.3/24 dev eth0");
    // Taken only where it is asked for.
    stage.client.ip("addr add 2001:db8:99::3/64 dev eth0 preferred_lft 0");
    stage
}

pub(crate) fn pods() -> String {
    let ports = "{port: 80}";
    service("pods", ports) + &slice("pods", ports, &[SERVER]) + &slice("pods", ports, &[SERVER6])
}

fn annotated(manifest: &str, annotations: &str) -> String {
    manifest.replacen("metadata: {", &format!("metadata: {{annotations: {{{annotations}}}, "), 1)
}

/// A Service with both VIPs, and more of its spec.
fn with_vips(more: &str) -> String {
    let ports = "{port: 80}";
    let head = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n";
    let spec = format!("spec: {{externalIPs: [{VIP}, \"{VIP6}\"], ports: [{ports}]{more}}}\n");
    head.to_owned() + &spec + &slice("web", ports, &[SERVER]) + &slice("web", ports, &[SERVER6])
}

pub(crate) fn seen(stage: &Stage, vip: &str, port: u16) -> String {
    stage.connect(vip, port).map_or_else(|error| error.to_string(), |connection| connection.client)
}

/// Whether a client whose packets have a header of destination options (RFC 8200 §4.6) is answered.
fn with_extension_header(stage: &Stage, from: &str) -> bool {
    let script = format!(
        "import socket\ns = socket.socket(socket.AF_INET6)\ns.settimeout(2)\n\
         s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, bytes([0, 0, 1, 4, 0, 0, 0, 0]))\n\
         s.bind(('{from}', 0))\ns.connect(('{VIP6}', 80))\nassert s.recv(1)\n"
    );
    stage.client.command("python3").args(["-c", &script]).output().unwrap().status.success()
}

pub(crate) fn real_servers_see_the_client_where_object_or_configuration_say_so(dataplane: &'static str) {
    let mut stage = stage(dataplane, "preserve");
    stage.answer_tcp(30_080);
    let mappings = [("80", "80", "algo: rr"), ("30000-30999", "30000-30999", "algo: rr")];
    let web = |vip, name| eric(name, vip, "pods", &mappings);
    let yes = "vipherald.io/preserve-client-address: \"true\"";
    stage.publish("pods", &pods());
    stage.publish("web", &(annotated(&web(VIP, "four"), yes) + &web(VIP6, "six")));
    stage.publish("other", &eric("other", VIP, "pods", &[("81", "80", "algo: rr")]));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    stage.wait_for_vip(VIP6, true);
    for (vip, port, client) in [(VIP, 80, CLIENT), (VIP, 30_080, CLIENT), (VIP, 81, ROUTER), (VIP6, 80, "2001:db8:1::1")] {
        wait_until(&format!("{vip} {port} shows {client}"), PATIENCE, || seen(&stage, vip, port) == client);
    }
    // The other way round; the range needs another mark.
    stage.publish("web", &(web(VIP, "four") + &annotated(&web(VIP6, "six"), yes)));
    for (vip, port, client) in [(VIP, 80, ROUTER), (VIP, 30_080, ROUTER), (VIP6, 80, "2001:db8:99::2"), (VIP6, 30_080, "2001:db8:99::2")] {
        wait_until(&format!("{vip} {port} shows {client}"), PATIENCE, || seen(&stage, vip, port) == client);
    }
    stage.drain();
}

/// With IPVS.
#[allow(dead_code, reason = "the dataplane nftables needs no mark for a range")]
pub(crate) fn ranges_of_ports_move_to_the_marks_that_the_configuration_gives_us() {
    let mut stage = stage("ipvs", "marks");
    stage.answer_tcp(30_080);
    stage.publish("pods", &pods());
    stage.publish("web", &eric("web", VIP, "pods", &[("30000-30999", "30000-30999", "algo: rr")]));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    assert_eq!(seen(&stage, VIP, 30_080), ROUTER);
    assert!(stage.table().starts_with("FWM  64 rr\n"));
    stage.configure("vipherald", "type: ipvs, fwmarkFrom: 2048");
    wait_until("it has another mark", PATIENCE, || stage.table().starts_with("FWM  2048 rr\n"));
    wait_until("it is served by that", PATIENCE, || seen(&stage, VIP, 30_080) == ROUTER);
    stage.drain();
}

pub(crate) fn exceptions_from_masquerading_are_clients_or_real_servers(dataplane: &'static str) {
    for (tag, prefix, of_other) in [("except-a", "10.99.0.2/32", ROUTER), ("except-b", "192.168.1.0/24", OTHER_CLIENT)] {
        let mut stage = stage(dataplane, tag);
        stage.publish("web", &with_vips(""));
        stage.start(&format!(", masquerade: {{exceptPrefixes: [{prefix}, \"2001:db8:99::2/128\"]}}"));
        stage.wait_for_vip(VIP, true);
        stage.wait_for_vip(VIP6, true);
        assert_eq!(seen(&stage, VIP, 80), CLIENT);
        assert_eq!(seen(&stage, VIP6, 80), "2001:db8:99::2");
        assert_eq!(Stage::connect_in(&stage.client, Some(OTHER_CLIENT), VIP, 80).unwrap().client, of_other);
        stage.drain();
    }
}

pub(crate) fn only_clients_that_a_service_admits_are_let_in(dataplane: &'static str) {
    let mut stage = stage(dataplane, "ranges");
    stage.publish("web", &with_vips(", loadBalancerSourceRanges: [10.99.0.2/32, 10.99.0.0/31, \"2001:db8:99::2/128\", 10.0.0.0/33]"));
    stage.publish("pods", &pods());
    stage.publish("open", &eric("open", VIP, "pods", &[("81", "80", "algo: rr")]));
    stage.start(", unservedPorts: reject");
    stage.wait_for_vip(VIP, true);
    stage.wait_for_vip(VIP6, true);
    let from = |from, vip, port| Stage::connect_in(&stage.client, Some(from), vip, port);
    for (client, vip) in [(CLIENT, VIP), ("2001:db8:99::2", VIP6)] {
        assert!(from(client, vip, 80).is_ok(), "{client}");
    }
    for (client, vip) in [(OTHER_CLIENT, VIP), ("2001:db8:99::3", VIP6)] {
        assert_eq!(from(client, vip, 80).err().unwrap().kind(), ErrorKind::ConnectionRefused, "{client}");
    }
    assert!(from(OTHER_CLIENT, VIP, 81).is_ok());
    assert!(!with_extension_header(&stage, "2001:db8:99::3"), "an extension header is no way around");
    // The other one is let in instead; then, since nothing of it can be read, nobody; then everybody. None of these was wholly good, so that none stays.
    stage.publish("web", &with_vips(", loadBalancerSourceRanges: [10.99.0.3/32, 10.0.0.0/33]"));
    wait_until("the other one is let in", PATIENCE, || from(OTHER_CLIENT, VIP, 80).is_ok());
    assert!(from(CLIENT, VIP, 80).is_err());
    assert!(from("2001:db8:99::2", VIP6, 80).is_err(), "a VIP of a family without ranges is for nobody");
    stage.publish("web", &with_vips(", loadBalancerSourceRanges: [everybody]"));
    wait_until("nobody is let in", PATIENCE, || from(OTHER_CLIENT, VIP, 80).is_err());
    assert!(from(CLIENT, VIP, 80).is_err());
    stage.publish("web", &with_vips(", loadBalancerSourceRanges: [0.0.0.0/0, \"::/0\"]"));
    wait_until("everybody is let in", PATIENCE, || from(OTHER_CLIENT, VIP, 80).is_ok() && from("2001:db8:99::3", VIP6, 80).is_ok());
    assert!(with_extension_header(&stage, "2001:db8:99::3"));
    stage.drain();
}

pub(crate) fn every_router_serves_a_local_service_whose_real_servers_see_the_client(dataplane: &'static str) {
    let mut stage = stage(dataplane, "local");
    let local = with_vips(", externalTrafficPolicy: Local");
    stage.publish("web", &local);
    stage.start(", localPolicy: preserveSource");
    wait_until("it says what it needs", PATIENCE, || stage.said().contains("NoLocalEndpoints"));
    stage.publish("web", &local.replacen("metadata: {", "metadata: {annotations: {vipherald.io/preserve-client-address: \"true\"}, ", 1));
    stage.wait_for_vip(VIP, true);
    assert_eq!(seen(&stage, VIP, 80), CLIENT);
    stage.drain();
}

pub(crate) fn segments_of_translated_connections_are_clamped(dataplane: &'static str) {
    for (tag, clamp, size) in [("mss-a", "1000", 1000), ("mss-b", "pmtu", 1240)] {
        let mut stage = stage(dataplane, tag);
        // The way to the real server is narrower than what its own link tells it.
        stage.router.ip("link set back mtu 1280");
        stage.publish("web", &with_vips(""));
        stage.start(&format!(", mssClamp: {clamp}"));
        stage.wait_for_vip(VIP, true);
        let connection = stage.connect(VIP, 80).unwrap();
        let shown = stage.servers.output(&["ss", "-tinH", "state", "established"]);
        let shown_to_server = shown.split_whitespace().find_map(|word| word.strip_prefix("mss:")?.parse::<u32>().ok());
        // Timestamps take 12 octets of each segment.
        assert_eq!(shown_to_server, Some(size - 12), "{shown}");
        if clamp == "1000" {
            let shown = stage.client.output(&["ss", "-tinH", "state", "established"]);
            assert!(shown.contains(" mss:988 "), "{shown}");
        }
        drop(connection);
        stage.drain();
    }
}

/// Listeners of the router itself are there, on a port that all know and on node ports.
pub(crate) fn ports_that_nobody_serves_are_silent_or_refused(dataplane: &'static str) {
    let ports = [22, 30_000, 32_767];
    let mut stage = stage(dataplane, "unserved");
    for port in ports {
        Stage::answer_tcp_in(&stage.router, port);
    }
    let listens = stage.router.run(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 161)).unwrap());
    stage.publish("web", &with_vips(""));
    stage.start("");
    stage.wait_for_vip(VIP, true);
    stage.wait_for_vip(VIP6, true);
    let tcp = |vip: &str, port| stage.connect(vip, port).err().map(|error| error.kind());
    let udp = |vip: &str| {
        let vip = SocketAddr::new(vip.parse().unwrap(), 161);
        let socket = stage.client.run(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mapped = |ip: IpAddr| if let IpAddr::V4(v4) = ip { v4.to_ipv6_mapped().into() } else { ip };
        socket.connect(SocketAddr::new(mapped(vip.ip()), vip.port())).unwrap();
        socket.send(b"?").unwrap();
        socket.recv(&mut [0; 8]).unwrap_err().kind()
    };
    for vip in [VIP, VIP6] {
        for port in ports {
            assert_eq!(tcp(vip, port), Some(ErrorKind::TimedOut), "{vip} {port}");
        }
        assert_eq!(udp(vip), ErrorKind::WouldBlock, "{vip}");
        assert_eq!(tcp(vip, 80), None, "{vip}");
    }
    // Other addresses of the node are nobody's business.
    for node in ["10.99.0.1", "2001:db8:99::1"] {
        assert!(ports.iter().all(|port| tcp(node, *port).is_none()), "{node}");
    }
    stage.change_dataplane(dataplane, ", unservedPorts: reject");
    wait_until("it is refused", PATIENCE, || tcp(VIP, 22) == Some(ErrorKind::ConnectionRefused));
    for vip in [VIP, VIP6] {
        for port in ports {
            assert_eq!(tcp(vip, port), Some(ErrorKind::ConnectionRefused), "{vip} {port}");
        }
        assert_eq!(udp(vip), ErrorKind::ConnectionRefused, "{vip}");
        assert_eq!(tcp(vip, 80), None, "{vip}");
    }
    listens.set_nonblocking(true).unwrap();
    assert_eq!(listens.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock, "something came to the node's own listener");
    stage.drain();
}

/// A CNI marks packets as they come, and looks at marks as they leave.
pub(crate) fn marks_of_others_are_in_nobodys_way_and_ours_do_not_leave(dataplane: &'static str) {
    let mut stage = stage(dataplane, "foreign-marks");
    stage.answer_tcp(30_080);
    stage.router.nft(
        "table inet cni {
            chain comes { type filter hook prerouting priority mangle; meta mark set meta mark | 0x18000; }
            chain leaves {
                type filter hook postrouting priority 300;
                meta l4proto tcp ip daddr 192.168.0.0/16 counter
                meta l4proto tcp meta mark & 0xfff != 0 counter
            }
        }",
    );
    let yes = "vipherald.io/preserve-client-address: \"true\"";
    stage.publish("pods", &pods());
    stage.publish("web", &eric("web", VIP, "pods", &[("80", "80", "algo: rr"), ("30000-30999", "30000-30999", "algo: rr")]));
    stage.publish(
        "six",
        &annotated(&eric("six", VIP6, "pods", &[("80", "80", "algo: rr"), ("30000-30999", "30000-30999", "algo: rr")]), yes),
    );
    stage.start("");
    stage.wait_for_vip(VIP, true);
    stage.wait_for_vip(VIP6, true);
    for (vip, port, client) in [(VIP, 80, ROUTER), (VIP, 30_080, ROUTER), (VIP6, 80, "2001:db8:99::2"), (VIP6, 30_080, "2001:db8:99::2")] {
        wait_until(&format!("{vip} {port} shows {client}"), PATIENCE, || seen(&stage, vip, port) == client);
    }
    let listed = stage.router.output(&["nft", "list", "chain", "inet", "cni", "leaves"]);
    let counted: Vec<&str> = listed.lines().filter_map(|line| line.split_once("counter packets ")).map(|(_, rest)| rest).collect();
    assert!(counted.len() == 2 && !counted[0].starts_with("0 ") && counted[1].starts_with("0 "), "{listed}");
    let daemon = stage.daemon.take().unwrap();
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.wait(PATIENCE).success());
}

/// A router on the way says so to the VIP, and the real server sends less from then on.
pub(crate) fn large_answers_pass_a_link_that_is_narrower_than_others(dataplane: &'static str) {
    const OCTETS: usize = 200_000;
    let mut stage = stage(dataplane, "narrow");
    let far = Namespace::new("narrow-far");
    far.veth("eth0", &stage.client, "narrow");
    for (host, device, last) in [(&far, "eth0", 2), (&stage.client, "narrow", 1)] {
        host.ip(&format!("addr add 10.98.0.{last}/24 dev {device}"));
        host.ip(&format!("addr add 2001:db8:98::{last}/64 dev {device}"));
    }
    far.ip("route add default via 10.98.0.1");
    far.ip("-6 route add default via 2001:db8:98::1");
    stage.client.ip("link set narrow mtu 1280");
    stage.client.sysctl("net/ipv4/ip_forward", "1");
    stage.client.sysctl("net/ipv6/conf/all/forwarding", "1");
    stage.router.ip("route add 10.98.0.0/24 via 10.99.0.2");
    stage.router.ip("-6 route add 2001:db8:98::/64 via 2001:db8:99::2");
    let listener = stage.servers.run(|| TcpListener::bind("[::]:81").unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            stream.unwrap().write_all(&[7; OCTETS]).ok();
        }
    });
    stage.publish("web", &with_vips("").replace("{port: 80}", "{port: 81}"));
    stage.start("");
    for (vip, router) in [(VIP, ROUTER), (VIP6, "2001:db8:1::1")] {
        stage.wait_for_vip(vip, true);
        let mut stream = far.run(|| TcpStream::connect((vip, 81)).unwrap());
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut octets = Vec::new();
        stream.read_to_end(&mut octets).unwrap_or_else(|error| panic!("{vip}: {error} after {} octets", octets.len()));
        assert_eq!(octets.len(), OCTETS, "{vip}");
        let learned = stage.servers.output(&["ip", "route", "get", router]);
        assert!(learned.contains("mtu 1280"), "{vip}: {learned}");
    }
    stage.drain();
}

/// A VIP answers those who ask whether it is there, and a flood of such questions only as far as its bound goes; what it serves does not suffer.
pub(crate) fn echo_is_answered_up_to_a_bound(dataplane: &'static str) {
    const FLOOD: u32 = 1_000;
    let mut stage = stage(dataplane, "echo");
    stage.publish("web", &with_vips(""));
    stage.start("");
    for (vip, node) in [(VIP, "10.99.0.1"), (VIP6, "2001:db8:99::1")] {
        stage.wait_for_vip(vip, true);
        wait_until("it is served", PATIENCE, || stage.connect(vip, 80).is_ok());
        let answered = |words: &[&str], address| -> u32 {
            let told = stage.client.command("ping").args(["-n", "-q"]).args(words).arg(address).output().unwrap();
            let told = String::from_utf8_lossy(&told.stdout).into_owned();
            let received = told.split(", ").find_map(|part| part.strip_suffix(" received")?.parse().ok());
            received.unwrap_or_else(|| panic!("{words:?} {address}: {told}"))
        };
        let number = FLOOD.to_string();
        // Each as soon as the one before is answered.
        let flood = ["-f", "-c", &number, "-W", "1"];
        assert_eq!(answered(&["-c", "20", "-i", "0.01"], vip), 20, "{vip}");
        wait_until("a flood is held up", PATIENCE, || (1..FLOOD).contains(&answered(&flood, vip)));
        assert!(stage.connect(vip, 80).is_ok());
        // Other addresses of the node are nobody's business.
        wait_until("all of a flood is answered", PATIENCE, || answered(&flood, node) == FLOOD);
    }
    stage.drain();
}
