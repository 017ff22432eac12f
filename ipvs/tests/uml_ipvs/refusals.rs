// SPDX-License-Identifier: Apache-2.0
//! What the kernel refuses, in words; and that a refusal in the middle of a batch stops nothing.

use ipvs::{
    Command, Encapsulation, EncapsulationFlags, ForwardingMethod, Protocol, RealServer, Refusal, Scheduler, SyncRole, Thresholds,
    VirtualService, Weight,
};

use crate::cases::{address, masquerade};
use crate::namespace::with_client;

#[test]
fn each_refusal_says_what_is_wrong() {
    with_client(async |mut client| {
        let (vip, strange) = (address(Protocol::TCP, "10.0.0.1:80"), address(Protocol::TCP, "10.0.0.2:80"));
        let service = |scheduler| VirtualService::new(vip, scheduler);
        let server = masquerade("10.1.0.1:80", 1);
        let of_other_family = masquerade("[2001:db8:1::1]:80", 1);
        let gue = Encapsulation::Gue { port: 0, flags: EncapsulationFlags::NO_CHECKSUM };
        let without_port = RealServer { forwarding: ForwardingMethod::Tunnel(gue), ..masquerade("10.1.0.2:80", 1) };
        let commands = [
            Command::AddService(service(Scheduler::Rr)),
            Command::AddService(service(Scheduler::Rr)),
            Command::EditService(service(Scheduler::Other("absent".to_owned()))),
            Command::EditService(VirtualService { persistence_engine: Some("lost".to_owned()), ..service(Scheduler::Rr) }),
            Command::EditService(VirtualService::new(strange, Scheduler::Rr)),
            Command::DeleteService(strange),
            Command::AddServer(strange, server.clone()),
            Command::EditServer(vip, server.clone()),
            Command::DeleteServer(vip, server.address),
            Command::AddServer(vip, server.clone()),
            Command::AddServer(vip, server.clone()),
            Command::AddServer(vip, of_other_family),
            Command::AddServer(vip, without_port),
            Command::EditServer(vip, RealServer { thresholds: Thresholds { upper: 1, lower: 2 }, ..server.clone() }),
            Command::EditServer(vip, RealServer { weight: Weight(u32::MAX), ..server.clone() }),
            Command::StopDaemon(SyncRole::Master),
            Command::DeleteServer(vip, server.address),
        ];
        let results = client.execute(&commands).await.unwrap();
        let words: Vec<_> = results.iter().map(|result| result.as_ref().err().map(ToString::to_string)).collect();
        assert_eq!(
            words.iter().map(|words| words.as_deref().unwrap_or_default().split(" (").next().unwrap_or_default()).collect::<Vec<_>>(),
            [
                "",
                "it exists already",
                "the kernel has no scheduler 'absent'",
                "the kernel has no scheduler 'rr'",
                "there is no such virtual service",
                "there is no such virtual service",
                "there is no such virtual service",
                "the virtual service has no such real server",
                "the virtual service has no such real server",
                "",
                "it exists already",
                "the kernel takes no such combination",
                "the kernel takes no such combination",
                "a weight or threshold is out of range, or the lower threshold is above the upper one",
                "a weight or threshold is out of range, or the lower threshold is above the upper one",
                "no synchronisation daemon of this role runs",
                "",
            ]
        );
        assert!(words[3].as_ref().unwrap().ends_with(", or no persistence engine 'lost'"), "{words:?}");
        assert_eq!(results.iter().filter(|result| result.as_ref().is_err_and(Refusal::is_already_gone)).count(), 6);
    });
}

#[test]
fn a_thousand_refusals_are_told_one_by_one() {
    with_client(async |mut client| {
        let delete: Vec<_> = (1..=1000).map(|port| Command::DeleteService(address(Protocol::TCP, &format!("10.0.0.1:{port}")))).collect();
        let results = client.execute(&delete).await.unwrap();
        assert_eq!(results.len(), 1000);
        assert!(results.iter().all(|result| matches!(result, Err(Refusal::NoSuchService))), "{results:?}");
    });
}
