// SPDX-License-Identifier: Apache-2.0
//! Two routers that tell each other of connections: what the fabric moves from one to the other goes on, whatever the scheduler, with nat too.
//!
//! Runs in the guest that `tests/uml` boots. The scheduler is `rr`, so that a router which knows nothing of a connection would choose anew.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/fabric.rs"]
mod fabric;
#[path = "common/router.rs"]
mod router;
#[path = "common/stage.rs"]
mod stage;

use common::wait_until;
use fabric::Fabric;
use router::{PATIENCE, Router, VIP};
use stage::{Connection, Stage, eric, service, slice};

const PORT: &str = "{port: 80}";
const SERVERS: [&str; 3] = ["192.168.1.1", "192.168.1.2", "192.168.1.3"];
const CONNECTIONS: usize = 30;
const SYNC: &str = ", connectionSync: {interface: eth0, syncId: 7}";

/// Two routers with connection synchronisation, and three real servers.
fn pair(forwarding: &str) -> Fabric {
    let mut fabric = Fabric::new("sync", 2, SERVERS.len(), forwarding, |_, host| Stage::answer_tcp_in(host, 80));
    for router in &mut fabric.routers {
        router.publish("pods", &(service("pods", PORT) + &slice("pods", PORT, &SERVERS)));
        router.publish("web", &eric("web", VIP, "pods", &[("80", "80", &format!("algo: rr, mode: {forwarding}"))]));
        router.start(&format!("type: ipvs, preserveClientAddress: true{SYNC}"));
    }
    for router in &fabric.routers {
        router.wait_for_vip();
        wait_until("both daemons run", PATIENCE, || daemons(router).len() == 2);
    }
    fabric
}

/// The ToR, and with nat the real servers, have this router for next hop.
fn route(fabric: &Fabric, router: usize, forwarding: &str) {
    fabric.route(&[router]);
    for server in fabric.servers.iter().filter(|_| forwarding == "nat") {
        server.ip(&format!("route replace default via 192.168.0.1{router}"));
    }
}

fn daemons(router: &Router) -> Vec<String> {
    router.namespace.output(&["ipvsadm", "-L", "--daemon"]).lines().map(str::to_owned).collect()
}

/// How many established connections the router knows of.
fn known(router: &Router) -> usize {
    let entries = router.namespace.output(&["ipvsadm", "-Lnc"]);
    entries.lines().filter(|line| line.contains("ESTABLISHED") && line.contains(VIP)).count()
}

fn connections_go_on_where_the_fabric_moves_them(forwarding: &str) {
    let mut pair = pair(forwarding);
    route(&pair, 1, forwarding);
    let connect = || Stage::connect_in(&pair.client, None, VIP, 80).unwrap();
    let mut connections: Vec<Connection> = (0..CONNECTIONS).map(|_| connect()).collect();
    assert!(connections.iter().all(|connection| connection.client == "10.99.0.2"), "{forwarding}");
    // Told at once, whether or not there are more packets.
    wait_until("the other router knows of all of them", PATIENCE, || known(&pair.routers[1]) == CONNECTIONS);
    route(&pair, 2, forwarding);
    assert!(connections.iter_mut().all(Connection::works), "{forwarding}: a connection ended with its router");
    // New ones by the second router, then all of it by the first again.
    connections.extend((0..CONNECTIONS).map(|_| connect()));
    wait_until("the first one knows too", PATIENCE, || known(&pair.routers[0]) == 2 * CONNECTIONS);
    route(&pair, 1, forwarding);
    assert!(connections.iter_mut().all(Connection::works), "{forwarding}: a connection ended on its way back");
    pair.routers.iter_mut().for_each(Router::drain);
    for router in &pair.routers {
        assert_eq!(daemons(router), [""; 0], "{forwarding}");
        assert_eq!(router.namespace.output(&["nft", "list", "tables"]), "");
    }
}

#[test]
fn connections_by_nat_go_on_where_the_fabric_moves_them() {
    connections_go_on_where_the_fabric_moves_them("nat");
}

#[test]
fn connections_by_direct_routing_go_on_where_the_fabric_moves_them() {
    connections_go_on_where_the_fabric_moves_them("dr");
}

/// As keepalived starts it; ours beside it, changed, over a crash, and gone.
#[test]
fn a_daemon_of_somebody_else_is_left_alone_and_ours_follow_the_configuration() {
    let mut router = Router::new("sync-others", |host| {
        host.ip("link add eth0 type dummy");
        host.ip("addr add 192.168.0.1/16 dev eth0");
        host.ip("link set eth0 up");
    });
    let theirs = ["ipvsadm", "--start-daemon", "master", "--mcast-interface", "eth0", "--syncid", "7"];
    router.namespace.output(&theirs);
    router.start(&format!("type: ipvs{SYNC}"));
    let has = |router: &Router, words: &str| daemons(router).iter().any(|line| line.starts_with(words));
    wait_until("the other one is ours", PATIENCE, || has(&router, "backup sync daemon (mcast=eth0, syncid=7"));
    wait_until("it says whose the first one is", PATIENCE, || {
        router.said_aside().contains("the master sync daemon (mcast=eth0, syncid=7")
            && router.said_aside().contains("is somebody else's and is left alone")
    });
    router.drain();
    assert!(has(&router, "master sync daemon") && !has(&router, "backup sync daemon"), "{:?}", daemons(&router));
    router.namespace.output(&["ipvsadm", "--stop-daemon", "master"]);
    // The kernel gives a backup daemon more room than that.
    router.start("type: ipvs, connectionSync: {interface: eth0, syncId: 7, maxLength: 576}");
    wait_until("both are ours", PATIENCE, || {
        daemons(&router).len() == 2 && router.namespace.output(&["nft", "list", "ruleset"]).contains("\"master\"")
    });
    let is_recorded = |router: &Router| {
        let listed = router.namespace.output(&["nft", "list", "set", "inet", "vipherald", "daemons"]);
        listed.contains("\"master\"") && listed.contains("\"backup\"")
    };
    wait_until("both are recorded", PATIENCE, || is_recorded(&router));
    assert_eq!(router.said_aside(), "");
    router.daemon.take().unwrap().kill();
    // While nobody looks, they are asked to be others.
    let changed = "type: ipvs, connectionSync: {interface: eth0, syncId: 8, port: 9000, roles: [master]}";
    router.start(changed);
    wait_until("only the one that is asked for", PATIENCE, || {
        let daemons = daemons(&router);
        daemons.len() == 1 && daemons[0].starts_with("master sync daemon (mcast=eth0, syncid=8") && daemons[0].contains("port=9000")
    });
    // Somebody puts another one in its place: of this process's, and of one that the record tells to be ours.
    let ours = "master sync daemon (mcast=eth0, syncid=8";
    for restarted in [false, true] {
        if restarted {
            router.daemon.take().unwrap().kill();
            router.start(changed);
            wait_until("it answers", PATIENCE, || router.said_aside().is_empty());
        }
        router.namespace.output(&["ipvsadm", "--stop-daemon", "master"]);
        router.namespace.output(&theirs);
        wait_until("it says whose that is", PATIENCE, || router.said_aside().contains("is somebody else's and is left alone"));
        assert!(has(&router, "master sync daemon (mcast=eth0, syncid=7"), "{restarted} {:?}", daemons(&router));
        router.namespace.output(&["ipvsadm", "--stop-daemon", "master"]);
        wait_until("it is ours again", PATIENCE, || has(&router, ours));
    }
    router.drain();
    assert_eq!(daemons(&router), [""; 0]);
}
