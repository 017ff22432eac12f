// SPDX-License-Identifier: Apache-2.0
//! Virtual services with their servers, and the rules that `ipvsadm -Sn` prints for them.

use std::net::Ipv4Addr;

use ipvs::{
    AddressFamily, Command, Encapsulation, EncapsulationFlags, ForwardingMethod, Netmask, Persistence, Protocol, RealServer, Scheduler,
    ServiceAddress, ServiceFlags, VirtualService, Weight,
};

/// One service.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// As `ipvsadm -Sn` prints it, servers in the order in which it sorts them.
    pub(crate) rules: String,
    pub(crate) service: VirtualService,
    /// In the order in which they are added.
    pub(crate) servers: Vec<RealServer>,
}

impl Case {
    /// Adds the service and its servers.
    pub(crate) fn commands(&self) -> impl Iterator<Item = Command> {
        let add = Command::AddService(self.service.clone());
        let address = self.service.address;
        [add].into_iter().chain(self.servers.iter().map(move |server| Command::AddServer(address, server.clone())))
    }
}

/// One case for each thing that can be set.
pub(crate) fn cases() -> Vec<Case> {
    schedulers().chain(flags()).chain(persistence()).chain(forwarding()).chain(marks()).collect()
}

fn schedulers() -> impl Iterator<Item = Case> {
    (1..).zip(Scheduler::ALL).map(|(port, scheduler)| {
        let vip = format!("10.0.0.1:{port}");
        Case {
            rules: format!("-A -t {vip} -s {scheduler}\n-a -t {vip} -r 10.1.0.1:8080 -m -w 1\n-a -t {vip} -r 10.1.0.2:8080 -m -w 0\n"),
            service: VirtualService::new(address(Protocol::TCP, &vip), scheduler),
            servers: vec![masquerade("10.1.0.1:8080", 1), masquerade("10.1.0.2:8080", 0)],
        }
    })
}

fn flags() -> impl Iterator<Item = Case> {
    let (mh, sh) = (Scheduler::Mh, Scheduler::Sh);
    [
        ("-A -t 10.0.0.2:1 -s mh -b mh-fallback,mh-port\n", mh.clone(), ServiceFlags::MH_FALLBACK | ServiceFlags::MH_PORT),
        ("-A -t 10.0.0.2:2 -s mh -b mh-port\n", mh, ServiceFlags::MH_PORT),
        ("-A -t 10.0.0.2:3 -s sh -b sh-fallback,sh-port\n", sh.clone(), ServiceFlags::SH_FALLBACK | ServiceFlags::SH_PORT),
        ("-A -t 10.0.0.2:4 -s sh -b sh-fallback\n", sh, ServiceFlags::SH_FALLBACK),
        ("-A -t 10.0.0.2:5 -s rr -b flag-1,flag-2,flag-3\n", Scheduler::Rr, ServiceFlags::from_bits(0x38)),
        ("-A -u 10.0.0.2:6 -s rr -o\n", Scheduler::Rr, ServiceFlags::ONE_PACKET),
        ("-A --sctp-service 10.0.0.2:7 -s wlc\n", Scheduler::Wlc, ServiceFlags::NONE),
    ]
    .into_iter()
    .map(|(rules, scheduler, flags)| {
        let mut words = rules.split(' ').skip(1);
        let protocol = match words.next() {
            Some("-t") => Protocol::TCP,
            Some("-u") => Protocol::UDP,
            _ => Protocol::SCTP,
        };
        let service = VirtualService { flags, ..VirtualService::new(address(protocol, words.next().unwrap()), scheduler) };
        Case { rules: rules.to_owned(), service, servers: Vec::new() }
    })
}

fn persistence() -> impl Iterator<Item = Case> {
    let cases = [
        ("-A -t 10.0.0.3:1 -s rr -p 360\n", "10.0.0.3:1", 360, Netmask::Ipv4(Ipv4Addr::BROADCAST)),
        ("-A -t 10.0.0.3:0 -s rr -p 60 -M 255.255.0.0\n", "10.0.0.3:0", 60, Netmask::Ipv4([255, 255, 0, 0].into())),
        ("-A -t [2001:db8::3]:1 -s rr -p 60 -M 64\n", "[2001:db8::3]:1", 60, Netmask::Ipv6(64)),
        ("-A -t [2001:db8::3]:2 -s rr -p 3600\n", "[2001:db8::3]:2", 3600, Netmask::Ipv6(128)),
    ];
    let sip = VirtualService {
        flags: ServiceFlags::ONE_PACKET,
        persistence: Some(Persistence { timeout: 60, netmask: Netmask::Ipv4(Ipv4Addr::BROADCAST) }),
        persistence_engine: Some("sip".to_owned()),
        ..VirtualService::new(address(Protocol::UDP, "10.0.0.3:5060"), Scheduler::Rr)
    };
    let cases = cases.into_iter().map(|(rules, vip, timeout, netmask)| {
        let persistence = Some(Persistence { timeout, netmask });
        let service = VirtualService { persistence, ..VirtualService::new(address(Protocol::TCP, vip), Scheduler::Rr) };
        Case { rules: rules.to_owned(), service, servers: Vec::new() }
    });
    cases.chain([Case { rules: "-A -u 10.0.0.3:5060 -s rr -p 60 --pe sip -o\n".to_owned(), service: sip, servers: Vec::new() }])
}

fn forwarding() -> impl Iterator<Item = Case> {
    use ForwardingMethod::{DirectRouting, Tunnel};
    let gue = |flags| Tunnel(Encapsulation::Gue { port: 6080, flags });
    let gre = |flags| Tunnel(Encapsulation::Gre { flags });
    let ipip = Tunnel(Encapsulation::Ipip);
    let v4 = [
        ("-r 10.1.0.1:80 -m -w 65535", masquerade("10.1.0.1:80", 65535)),
        ("-r 10.1.0.2:80 -g -w 1", server("10.1.0.2:80", DirectRouting)),
        ("-r 10.1.0.3:80 -i -w 1 --tun-type ipip", server("10.1.0.3:80", ipip)),
        ("-r 10.1.0.4:80 -i -w 1 --tun-type gue --tun-port 6080 --tun-nocsum", server("10.1.0.4:80", gue(EncapsulationFlags::NO_CHECKSUM))),
        ("-r 10.1.0.5:80 -i -w 1 --tun-type gue --tun-port 6080 --tun-csum", server("10.1.0.5:80", gue(EncapsulationFlags::CHECKSUM))),
        (
            "-r 10.1.0.6:80 -i -w 1 --tun-type gue --tun-port 6080 --tun-remcsum",
            server("10.1.0.6:80", gue(EncapsulationFlags::REMOTE_CHECKSUM)),
        ),
        ("-r 10.1.0.7:80 -i -w 1 --tun-type gre --tun-csum", server("10.1.0.7:80", gre(EncapsulationFlags::CHECKSUM))),
        ("-r [2001:db8:1::1]:80 -i -w 1 --tun-type ipip", server("[2001:db8:1::1]:80", ipip)),
    ];
    let v6 = [
        ("-r 10.1.0.1:80 -i -w 1 --tun-type ipip", server("10.1.0.1:80", ipip)),
        ("-r [2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535 -m -w 1", masquerade("[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535", 1)),
        ("-r [2001:db8:1::1]:80 -m -w 1", masquerade("[2001:db8:1::1]:80", 1)),
    ];
    [("10.0.0.4:80", v4.to_vec()), ("[2001:db8::4]:80", v6.to_vec())].into_iter().map(|(vip, servers)| Case {
        rules: [format!("-A -t {vip} -s wlc\n")]
            .into_iter()
            .chain(servers.iter().map(|(rule, _)| format!("-a -t {vip} {rule}\n")))
            .collect(),
        service: VirtualService::new(address(Protocol::TCP, vip), Scheduler::Wlc),
        servers: servers.into_iter().map(|(_, server)| server).collect(),
    })
}

fn marks() -> impl Iterator<Item = Case> {
    let mark = |mark: u32, family| ServiceAddress::Fwmark { mark: mark.try_into().unwrap(), family };
    [
        Case {
            rules: "-A -f 64 -s rr\n-a -f 64 -r 10.1.0.1:0 -m -w 1\n".to_owned(),
            service: VirtualService::new(mark(64, AddressFamily::Ipv4), Scheduler::Rr),
            servers: vec![masquerade("10.1.0.1:0", 1)],
        },
        Case {
            rules: "-A -f 64 -6 -s rr\n-a -f 64 -6 -r [2001:db8:1::1]:0 -m -w 1\n".to_owned(),
            service: VirtualService::new(mark(64, AddressFamily::Ipv6), Scheduler::Rr),
            servers: vec![masquerade("[2001:db8:1::1]:0", 1)],
        },
    ]
    .into_iter()
}

pub(crate) fn address(protocol: Protocol, address: &str) -> ServiceAddress {
    ServiceAddress::transport(protocol, address.parse().unwrap())
}

pub(crate) fn masquerade(address: &str, weight: u32) -> RealServer {
    RealServer::new(address.parse().unwrap(), ForwardingMethod::Masquerade, Weight(weight))
}

fn server(address: &str, forwarding: ForwardingMethod) -> RealServer {
    RealServer::new(address.parse().unwrap(), forwarding, Weight::default())
}
