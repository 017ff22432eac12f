// SPDX-License-Identifier: Apache-2.0
//! Large tables: written faster than by `ipvsadm -R`, read whole, and read again after a reader that gave up.

use std::time::{Duration, Instant};

use ipvs::{Command, Protocol, RealServer, Scheduler, ServiceAddress, VirtualService};

use crate::cases::masquerade;
use crate::execute;
use crate::namespace::{restore, run, with_client};

const SERVICES: u16 = 15_000;
const PORTS: u16 = 3;
const SERVERS: u8 = 4;

/// Each in a namespace of its own: for two minutes the kernel keeps servers that were removed, and looks through them whenever one is added.
#[test]
fn fifteen_thousand_services_of_four_servers() {
    let [restored, listed] = with_client(async |_client| {
        let rules: String = (0..SERVICES).map(rules).collect();
        let start = Instant::now();
        restore(&rules);
        let restored = start.elapsed();
        let start = Instant::now();
        let listed = run("ipvsadm", &["-Ln"]);
        assert_eq!(listed.lines().count(), 3 + usize::from(SERVICES) * (1 + usize::from(SERVERS)));
        [restored, start.elapsed()]
    });
    let [written, read] = with_client(async |mut client| {
        let commands: Vec<_> = (0..SERVICES).flat_map(commands).collect();
        let start = Instant::now();
        execute(&mut client, &commands).await;
        let written = start.elapsed();
        let start = Instant::now();
        let table = client.table().await.unwrap();
        let read = start.elapsed();
        assert_eq!(table.len(), usize::from(SERVICES));
        assert!(table.iter().all(|entry| entry.servers.len() == usize::from(SERVERS)));
        [written, read]
    });
    eprintln!(
        "{SERVICES} services of {SERVERS} servers: written in {written:.2?} (ipvsadm -R {restored:.2?}), read in {read:.2?} (ipvsadm -Ln {listed:.2?})"
    );
    assert!(written < restored, "{written:?} is not faster than {restored:?}");
}

/// After a reader that gave up, at whatever point of a dump, the next one reads what it asked for.
#[test]
fn a_reader_that_gives_up_leaves_no_trace() {
    with_client(async |mut client| {
        execute(&mut client, &(0..200).flat_map(commands).collect::<Vec<_>>()).await;
        let table = client.table().await.unwrap();
        for answers_before in 0..6 {
            tokio::task::yield_now().await;
            // tokio interrupts a task after a fixed number of answers, here at another one each time.
            let reader = async {
                for _ in 0..answers_before {
                    client.info().await.unwrap();
                }
                client.table().await
            };
            assert!(tokio::time::timeout(Duration::ZERO, reader).await.is_err());
            assert_eq!(client.table().await.unwrap(), table);
        }
    });
}

fn address(number: u16) -> ServiceAddress {
    let [high, low] = (number / PORTS).to_be_bytes();
    ServiceAddress::transport(Protocol::TCP, ([10, 0, high, low], 80 + number % PORTS).into())
}

fn servers() -> impl Iterator<Item = RealServer> {
    (1..=SERVERS).map(|number| masquerade(&format!("10.1.0.{number}:8080"), 1))
}

fn commands(number: u16) -> impl Iterator<Item = Command> {
    let address = address(number);
    let add = Command::AddService(VirtualService::new(address, Scheduler::Wlc));
    [add].into_iter().chain(servers().map(move |server| Command::AddServer(address, server)))
}

fn rules(number: u16) -> String {
    let ServiceAddress::Transport { address, port, .. } = address(number) else { unreachable!("none is a mark") };
    let servers = servers().map(|server| format!("-a -t {address}:{port} -r {} -m -w 1\n", server.address));
    [format!("-A -t {address}:{port} -s wlc\n")].into_iter().chain(servers).collect()
}
