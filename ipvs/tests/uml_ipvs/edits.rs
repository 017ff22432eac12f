// SPDX-License-Identifier: Apache-2.0
//! Changes in place, and the order of servers.

use ipvs::{
    Client, Command, ForwardingMethod, Netmask, Persistence, Protocol, RealServer, Scheduler, ServerAddress, ServiceFlags, Thresholds,
    VirtualService, Weight,
};

use crate::cases::{address, masquerade};
use crate::execute;
use crate::namespace::{run, with_client};

#[test]
fn a_service_is_edited_in_place() {
    with_client(async |mut client| {
        let vip = address(Protocol::TCP, "10.0.0.1:80");
        let before = VirtualService {
            flags: ServiceFlags::MH_PORT,
            persistence: Some(Persistence { timeout: 60, netmask: Netmask::Ipv4([255, 255, 255, 0].into()) }),
            ..VirtualService::new(vip, Scheduler::Mh)
        };
        let servers = [masquerade("10.1.0.1:80", 1), masquerade("10.1.0.2:80", 2)];
        let add = servers.clone().map(|server| Command::AddServer(vip, server));
        execute(&mut client, &[&[Command::AddService(before.clone())][..], &add].concat()).await;
        for scheduler in Scheduler::ALL {
            let after = VirtualService::new(vip, scheduler);
            execute(&mut client, &[Command::EditService(after.clone())]).await;
            assert_eq!(client.service(&vip).await.unwrap().unwrap().service, after, "no flag and no persistence is left");
        }
        execute(&mut client, &[Command::EditService(before.clone())]).await;
        assert_eq!(client.service(&vip).await.unwrap().unwrap().service, before);
        assert_eq!(servers_of(&mut client, vip).await, servers.into_iter().rev().collect::<Vec<_>>());
    });
}

#[test]
fn a_server_is_edited_in_place_and_a_new_one_stands_first() {
    with_client(async |mut client| {
        let vip = address(Protocol::TCP, "10.0.0.1:80");
        let [first, second, third] = [masquerade("10.1.0.1:80", 1), masquerade("10.1.0.2:80", 1), masquerade("10.1.0.3:80", 1)];
        execute(&mut client, &[Command::AddService(VirtualService::new(vip, Scheduler::Rr))]).await;
        for server in [&first, &second, &third] {
            execute(&mut client, &[Command::AddServer(vip, server.clone())]).await;
        }
        let edited = RealServer { forwarding: ForwardingMethod::DirectRouting, weight: Weight::QUIESCE, ..second.clone() };
        execute(&mut client, &[Command::EditServer(vip, edited.clone())]).await;
        assert_eq!(servers_of(&mut client, vip).await, [third.clone(), edited.clone(), first.clone()]);
        execute(&mut client, &[Command::DeleteServer(vip, third.address), Command::AddServer(vip, third.clone())]).await;
        execute(&mut client, &[Command::DeleteServer(vip, first.address), Command::AddServer(vip, first.clone())]).await;
        assert_eq!(servers_of(&mut client, vip).await, [first, third, edited]);
    });
}

#[test]
fn thresholds_are_those_that_ipvsadm_shows() {
    with_client(async |mut client| {
        let vip = address(Protocol::TCP, "10.0.0.1:80");
        let bounded = RealServer { thresholds: Thresholds { upper: 1000, lower: 500 }, ..masquerade("10.1.0.1:80", 1) };
        execute(&mut client, &[Command::AddService(VirtualService::new(vip, Scheduler::Rr)), Command::AddServer(vip, bounded.clone())])
            .await;
        assert_eq!(servers_of(&mut client, vip).await, [bounded]);
        let shown = run("ipvsadm", &["-Ln", "--thresholds"]);
        let words: Vec<_> = shown.lines().last().unwrap_or_default().split_whitespace().collect();
        assert_eq!(words[..4], ["->", "10.1.0.1:80", "1000", "500"], "{shown}");
    });
}

#[test]
fn what_is_deleted_is_gone() {
    with_client(async |mut client| {
        let vips = ["10.0.0.1:80", "10.0.0.2:80", "[2001:db8::1]:80"].map(|vip| address(Protocol::UDP, vip));
        let tunnelled = |address: &str| {
            RealServer::new(address.parse().unwrap(), ForwardingMethod::Tunnel(ipvs::Encapsulation::Ipip), Weight::default())
        };
        for vip in vips {
            execute(
                &mut client,
                &[
                    Command::AddService(VirtualService::new(vip, Scheduler::Wlc)),
                    Command::AddServer(vip, tunnelled("10.1.0.1:80")),
                    Command::AddServer(vip, tunnelled("[2001:db8:1::1]:80")),
                ],
            )
            .await;
        }
        for vip in vips {
            execute(&mut client, &[Command::DeleteServer(vip, ServerAddress::new("10.1.0.1:80".parse().unwrap()))]).await;
            assert_eq!(servers_of(&mut client, vip).await, [tunnelled("[2001:db8:1::1]:80")]);
        }
        execute(&mut client, &[Command::DeleteService(vips[0]), Command::Zero(Some(vips[1])), Command::Zero(None)]).await;
        assert_eq!(client.table().await.unwrap().len(), 2);
        execute(&mut client, &[Command::Flush]).await;
        assert_eq!(client.table().await.unwrap(), []);
    });
}

async fn servers_of(client: &mut Client, vip: ipvs::ServiceAddress) -> Vec<RealServer> {
    client.servers(&vip).await.unwrap().into_iter().map(|entry| entry.server).collect()
}
