// SPDX-License-Identifier: Apache-2.0
//! Connections and statistics, of datagrams that are balanced within one namespace.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use ipvs::{Command, Protocol, Scheduler, Statistics, VirtualService, list};

use crate::cases::{address, masquerade};
use crate::execute;
use crate::namespace::{run, with_client};

/// The kernel sums counters up every two seconds.
const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn statistics_are_counted_shown_and_zeroed() {
    with_client(async |mut client| {
        run("ip", &["address", "add", "10.0.0.1/32", "dev", "lo"]);
        let vip = address(Protocol::UDP, "10.0.0.1:53");
        let server = UdpSocket::bind("127.0.0.1:5353").unwrap();
        server.set_read_timeout(Some(DEADLINE)).unwrap();
        execute(
            &mut client,
            &[Command::AddService(VirtualService::new(vip, Scheduler::Rr)), Command::AddServer(vip, masquerade("127.0.0.1:5353", 1))],
        )
        .await;
        let asker = UdpSocket::bind("10.0.0.1:0").unwrap();
        for _ in 0..3 {
            asker.send_to(b"12345678", "10.0.0.1:53").unwrap();
            server.recv(&mut [0; 16]).unwrap();
        }
        let until = Instant::now() + DEADLINE;
        let statistics = loop {
            let entry = client.service(&vip).await.unwrap().unwrap();
            if entry.statistics.incoming_packets == 3 {
                break entry.statistics;
            }
            assert!(Instant::now() < until, "{entry:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        // An IPv4 and a UDP header on top of eight octets.
        assert_eq!((statistics.connections, statistics.incoming_octets), (1, 3 * (20 + 8 + 8)));
        let servers = client.servers(&vip).await.unwrap();
        assert_eq!((servers[0].active_connections, servers[0].inactive_connections), (0, 1));
        assert_eq!(list::list(&client.info().await.unwrap(), &client.table().await.unwrap()), run("ipvsadm", &["-Ln"]));
        execute(&mut client, &[Command::Zero(Some(vip))]).await;
        let zeroed = client.service(&vip).await.unwrap().unwrap().statistics;
        assert_eq!(Statistics { connections: 0, incoming_packets: 0, incoming_octets: 0, ..zeroed }, zeroed);
    });
}
