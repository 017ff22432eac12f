// SPDX-License-Identifier: Apache-2.0
//! The client against the kernel, with `ipvsadm` as the judge. Runs in a guest with IPVS (`tests/uml`), each test in a network namespace of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "tests have threads, clocks, traffic and figures"
)]

mod cases;
mod edits;
mod namespace;
mod refusals;
mod scale;
mod settings;
mod traffic;

use std::collections::BTreeMap;

use cases::cases;
use ipvs::{Client, Command, RealServer, ServiceAddress, TableEntry, VirtualService, list};
use namespace::{restore, run, with_client};

/// Carries out commands that must not be refused.
async fn execute(client: &mut Client, commands: &[Command]) {
    for (command, result) in commands.iter().zip(client.execute(commands).await.unwrap()) {
        result.unwrap_or_else(|refusal| panic!("{command:?}: {refusal}"));
    }
}

#[test]
fn what_is_written_is_what_ipvsadm_saves() {
    with_client(async |mut client| {
        execute(&mut client, &cases().iter().flat_map(cases::Case::commands).collect::<Vec<_>>()).await;
        let saved = by_service(&run("ipvsadm", &["-Sn"]));
        let expected: BTreeMap<_, _> = cases().into_iter().flat_map(|case| by_service(&case.rules)).collect();
        for (service, rules) in &expected {
            assert_eq!(saved.get(service), Some(rules), "{service}");
        }
        assert_eq!(saved.len(), expected.len());
    });
}

#[test]
fn what_ipvsadm_restores_is_what_is_read() {
    with_client(async |mut client| {
        restore(&cases().iter().map(|case| case.rules.as_str()).collect::<String>());
        let mut table = settings_of(client.table().await.unwrap());
        for case in cases() {
            let (service, servers) = table.remove(&case.service.address).unwrap_or_else(|| panic!("{}", case.rules));
            assert_eq!(service, case.service, "{}", case.rules);
            assert_eq!(servers, case.servers.into_iter().rev().collect::<Vec<_>>(), "the kernel prepends: {}", case.rules);
        }
        assert!(table.is_empty(), "{table:?}");
    });
}

#[test]
fn what_is_read_is_what_was_written() {
    with_client(async |mut client| {
        execute(&mut client, &cases().iter().flat_map(cases::Case::commands).collect::<Vec<_>>()).await;
        let table = client.table().await.unwrap();
        assert!(table.iter().all(|entry| entry.service.unknown.is_empty()), "this kernel has a new attribute: {table:?}");
        let table = settings_of(table);
        for case in cases() {
            let (service, servers) = &table[&case.service.address];
            assert_eq!(*service, case.service);
            assert_eq!(*servers, case.servers.into_iter().rev().collect::<Vec<_>>());
            assert_eq!(client.service(&service.address).await.unwrap().unwrap().service, *service);
        }
        assert_eq!(client.service(&cases::address(ipvs::Protocol::TCP, "10.9.9.9:9")).await.unwrap(), None);
    });
}

#[test]
fn the_list_is_that_of_ipvsadm() {
    with_client(async |mut client| {
        assert_eq!(list::list(&client.info().await.unwrap(), &client.table().await.unwrap()), run("ipvsadm", &["-Ln"]));
        execute(&mut client, &cases().iter().flat_map(cases::Case::commands).collect::<Vec<_>>()).await;
        let listed = list::list(&client.info().await.unwrap(), &client.table().await.unwrap());
        let expected = run("ipvsadm", &["-Ln"]);
        for (line, expected) in listed.lines().zip(expected.lines()) {
            assert_eq!(line, expected);
        }
        assert_eq!(listed, expected);
    });
}

#[test]
fn the_list_is_sorted_as_ipvsadm_sorts() {
    with_client(async |mut client| {
        let services = [
            "-t 10.0.0.1:80",
            "-t 192.168.0.1:80",
            "-t 172.16.0.1:9",
            "-t 127.0.0.1:9",
            "-u 1.1.1.1:53",
            "-t [2001:db8:ffff::1]:80",
            "-t [2001:db8::1]:80",
            "-t [fd00::1]:80",
            "-f 5",
            "-f 3 -6",
            "-f 2147483700",
            "-t 10.0.0.1:8080",
            "-t 10.0.0.1:65000",
        ];
        let servers = ["10.0.0.1:80", "192.168.0.1:80", "172.16.0.1:80", "200.0.0.1:80", "64.0.0.1:80", "10.0.0.1:9"];
        let rules = services.map(|service| format!("-A {service} -s rr\n")).into_iter();
        restore(&rules.chain(servers.map(|server| format!("-a -t 10.0.0.1:80 -r {server} -m\n"))).collect::<String>());
        assert_eq!(list::list(&client.info().await.unwrap(), &client.table().await.unwrap()), run("ipvsadm", &["-Ln"]));
    });
}

#[test]
fn the_list_of_an_ingress_reads_as_operators_know_it() {
    with_client(async |mut client| {
        restore(
            "-A -t 10.232.35.199:1389 -s lc\n-a -t 10.232.35.199:1389 -r 192.168.182.140:1389 -m -w 1\n\
             -a -t 10.232.35.199:1389 -r 192.168.67.114:1389 -m -w 1\n\
             -A -t 10.232.35.199:4569 -s sh\n-a -t 10.232.35.199:4569 -r 192.168.26.214:4569 -m -w 1\n",
        );
        let listed = list::list(&client.info().await.unwrap(), &client.table().await.unwrap());
        let lines: Vec<_> = listed.lines().skip(3).map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "TCP  10.232.35.199:1389 lc",
                "  -> 192.168.67.114:1389          Masq    1      0          0",
                "  -> 192.168.182.140:1389         Masq    1      0          0",
                "TCP  10.232.35.199:4569 sh",
                "  -> 192.168.26.214:4569          Masq    1      0          0",
            ]
        );
    });
}

/// The rules of each service, by the words that name it.
fn by_service(rules: &str) -> BTreeMap<String, String> {
    let mut services = BTreeMap::<String, String>::new();
    for rule in rules.lines() {
        let mut words: Vec<_> = rule.split(' ').skip(1).take(3).collect();
        words.truncate(if words.last() == Some(&"-6") { 3 } else { 2 });
        let service = services.entry(words.join(" ")).or_default();
        service.push_str(rule.trim_end());
        service.push('\n');
    }
    services
}

fn settings_of(table: Vec<TableEntry>) -> BTreeMap<ServiceAddress, (VirtualService, Vec<RealServer>)> {
    table
        .into_iter()
        .map(|TableEntry { service, servers }| {
            (service.service.address, (service.service, servers.into_iter().map(|entry| entry.server).collect()))
        })
        .collect()
}
