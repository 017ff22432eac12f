// SPDX-License-Identifier: Apache-2.0
//! What this crate sends against what `ipvsadm` sends: `ipvsadm.txt` holds the octets, captured by `capture-ipvsadm`, and here stands what each of its
//! lines means. Octets are those of a little-endian machine.
#![cfg(target_endian = "little")]
#![expect(clippy::unwrap_used, reason = "a test ends there")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ipvs::wire::encode_command;
use ipvs::{
    AddressFamily, Command, Encapsulation, EncapsulationFlags, ForwardingMethod, Netmask, Persistence, Protocol, RealServer, Scheduler,
    ServerAddress, ServiceAddress, ServiceFlags, SyncDaemon, SyncRole, Thresholds, Timeouts, VirtualService, Weight,
};

const NETLINK_HEADER: usize = 16;

#[test]
fn commands_are_those_of_ipvsadm_octet_by_octet() {
    let mut captured: BTreeMap<&str, &str> = include_str!("ipvsadm.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once('|').map(|(arguments, octets)| (arguments.trim(), octets.trim())).unwrap())
        .collect();
    for (arguments, command) in commands() {
        let mut message = Vec::new();
        encode_command(&mut message, 0x1B, 1, &command);
        // Behind the IPv4 address of a server of an IPv6 service, `ipvsadm` leaves octets of the service's address.
        let captured =
            captured.remove(arguments).unwrap_or_default().replace("c6336401000000000000000000000001", "c6336401000000000000000000000000");
        assert_eq!(hex(&message[NETLINK_HEADER..]), hex(&without_padding(&command, unhex(&captured))), "{arguments}");
    }
    assert!(captured.is_empty(), "without a meaning here: {captured:?}");
}

fn commands() -> Vec<(&'static str, Command)> {
    services().into_iter().chain(servers()).chain(others()).collect()
}

fn services() -> Vec<(&'static str, Command)> {
    use Scheduler::*;
    let persistent = |timeout, netmask| Some(Persistence { timeout, netmask });
    let host = Netmask::host(AddressFamily::Ipv4);
    vec![
        ("-A -t 192.0.2.1:80 -s rr", Command::AddService(VirtualService::new(tcp("192.0.2.1:80"), Rr))),
        (
            "-A -u 192.0.2.1:53 -s wrr -o",
            Command::AddService(VirtualService { flags: ServiceFlags::ONE_PACKET, ..VirtualService::new(udp("192.0.2.1:53"), Wrr) }),
        ),
        (
            "-A --sctp-service 192.0.2.1:3868 -s wlc",
            Command::AddService(VirtualService::new(ServiceAddress::transport(Protocol::SCTP, "192.0.2.1:3868".parse().unwrap()), Wlc)),
        ),
        (
            "-A -t [2001:db8::1]:443 -s mh -b mh-port,mh-fallback",
            Command::AddService(VirtualService {
                flags: ServiceFlags::MH_PORT | ServiceFlags::MH_FALLBACK,
                ..VirtualService::new(tcp("[2001:db8::1]:443"), Mh)
            }),
        ),
        (
            "-A -t 192.0.2.1:1389 -s sh -b sh-port",
            Command::AddService(VirtualService { flags: ServiceFlags::SH_PORT, ..VirtualService::new(tcp("192.0.2.1:1389"), Sh) }),
        ),
        ("-A -f 80 -s lc", Command::AddService(VirtualService::new(mark(AddressFamily::Ipv4), Lc))),
        ("-A -f 80 -6 -s sed", Command::AddService(VirtualService::new(mark(AddressFamily::Ipv6), Sed))),
        (
            "-A -t 192.0.2.1:8080 -s nq -p 600 -M 255.255.255.0",
            Command::AddService(VirtualService {
                persistence: persistent(600, Netmask::Ipv4([255, 255, 255, 0].into())),
                ..VirtualService::new(tcp("192.0.2.1:8080"), Nq)
            }),
        ),
        (
            "-A -t [2001:db8::1]:8080 -s dh -p 600 -M 64",
            Command::AddService(VirtualService {
                persistence: persistent(600, Netmask::Ipv6(64)),
                ..VirtualService::new(tcp("[2001:db8::1]:8080"), Dh)
            }),
        ),
        (
            "-A -u 192.0.2.1:5060 -s rr -p 60 --pe sip -o",
            Command::AddService(VirtualService {
                flags: ServiceFlags::ONE_PACKET,
                persistence: persistent(60, host),
                persistence_engine: Some("sip".to_owned()),
                ..VirtualService::new(udp("192.0.2.1:5060"), Rr)
            }),
        ),
        (
            "-A -t 192.0.2.1:0 -s lblc -p",
            Command::AddService(VirtualService { persistence: persistent(360, host), ..VirtualService::new(tcp("192.0.2.1:0"), Lblc) }),
        ),
        ("-E -t 192.0.2.1:80 -s lblcr", Command::EditService(VirtualService::new(tcp("192.0.2.1:80"), Lblcr))),
        (
            "-E -f 80 -s fo -b flag-3",
            Command::EditService(VirtualService { flags: ServiceFlags::SCHEDULER_3, ..VirtualService::new(mark(AddressFamily::Ipv4), Fo) }),
        ),
    ]
}

fn servers() -> Vec<(&'static str, Command)> {
    use ForwardingMethod::*;
    let gue = |flags| Tunnel(Encapsulation::Gue { port: 6080, flags });
    let ipip = Tunnel(Encapsulation::Ipip);
    let add = |service, address: &str, forwarding, weight| {
        Command::AddServer(service, RealServer::new(address.parse().unwrap(), forwarding, Weight(weight)))
    };
    let (v4, v6) = (tcp("192.0.2.1:80"), tcp("[2001:db8::1]:443"));
    let bounded = RealServer {
        thresholds: Thresholds { upper: 1000, lower: 500 },
        ..RealServer::new("198.51.100.3:80".parse().unwrap(), ipip, Weight(65535))
    };
    vec![
        ("-a -t 192.0.2.1:80 -r 198.51.100.1:8080 -m", add(v4, "198.51.100.1:8080", Masquerade, 1)),
        ("-a -t 192.0.2.1:80 -r 198.51.100.2 -g -w 0", add(v4, "198.51.100.2:80", DirectRouting, 0)),
        ("-a -t 192.0.2.1:80 -r 198.51.100.3 -i -w 65535 -x 1000 -y 500", Command::AddServer(v4, bounded)),
        (
            "-a -t 192.0.2.1:80 -r 198.51.100.4 -i --tun-type gue --tun-port 6080 --tun-nocsum",
            add(v4, "198.51.100.4:80", gue(EncapsulationFlags::NO_CHECKSUM), 1),
        ),
        (
            "-a -t 192.0.2.1:80 -r 198.51.100.5 -i --tun-type gue --tun-port 6080 --tun-csum",
            add(v4, "198.51.100.5:80", gue(EncapsulationFlags::CHECKSUM), 1),
        ),
        (
            "-a -t 192.0.2.1:80 -r 198.51.100.6 -i --tun-type gue --tun-port 6080 --tun-remcsum",
            add(v4, "198.51.100.6:80", gue(EncapsulationFlags::REMOTE_CHECKSUM), 1),
        ),
        (
            "-a -t 192.0.2.1:80 -r 198.51.100.7 -i --tun-type gre --tun-csum",
            add(v4, "198.51.100.7:80", Tunnel(Encapsulation::Gre { flags: EncapsulationFlags::CHECKSUM }), 1),
        ),
        (
            "-a -t 192.0.2.1:80 -r 198.51.100.8 -i --tun-type gre",
            add(v4, "198.51.100.8:80", Tunnel(Encapsulation::Gre { flags: EncapsulationFlags::NO_CHECKSUM }), 1),
        ),
        ("-a -t 192.0.2.1:80 -r [2001:db8:1::1]:80 -i", add(v4, "[2001:db8:1::1]:80", ipip, 1)),
        ("-a -t [2001:db8::1]:443 -r [2001:db8:1::1]:8443 -m", add(v6, "[2001:db8:1::1]:8443", Masquerade, 1)),
        ("-a -t [2001:db8::1]:443 -r 198.51.100.1:443 -i", add(v6, "198.51.100.1:443", ipip, 1)),
        ("-a -f 80 -r 198.51.100.1:0 -m", add(mark(AddressFamily::Ipv4), "198.51.100.1:0", Masquerade, 1)),
        ("-a -f 80 -6 -r [2001:db8:1::1]:0 -g", add(mark(AddressFamily::Ipv6), "[2001:db8:1::1]:0", DirectRouting, 1)),
        (
            "-e -t 192.0.2.1:80 -r 198.51.100.1:8080 -m -w 3",
            Command::EditServer(v4, RealServer::new("198.51.100.1:8080".parse().unwrap(), Masquerade, Weight(3))),
        ),
        ("-d -t 192.0.2.1:80 -r 198.51.100.1:8080", Command::DeleteServer(v4, ServerAddress::new("198.51.100.1:8080".parse().unwrap()))),
        ("-d -t [2001:db8::1]:443 -r 198.51.100.1:443", Command::DeleteServer(v6, ServerAddress::new("198.51.100.1:443".parse().unwrap()))),
    ]
}

fn others() -> Vec<(&'static str, Command)> {
    let daemon = |role| SyncDaemon { role, interface: "eth9".to_owned(), sync_id: 0, max_length: None, group: None, port: None, ttl: None };
    let master = daemon(SyncRole::Master);
    vec![
        ("-Z -t 192.0.2.1:80", Command::Zero(Some(tcp("192.0.2.1:80")))),
        ("-Z", Command::Zero(None)),
        ("-D -t 192.0.2.1:80", Command::DeleteService(tcp("192.0.2.1:80"))),
        ("-D -f 80 -6", Command::DeleteService(mark(AddressFamily::Ipv6))),
        ("--set 1800 60 120", Command::SetTimeouts(Timeouts { tcp: 1800, tcp_fin: 60, udp: 120 })),
        ("--start-daemon backup --mcast-interface eth9", Command::StartDaemon(daemon(SyncRole::Backup))),
        ("--stop-daemon backup", Command::StopDaemon(SyncRole::Backup)),
        (
            "--start-daemon master --mcast-interface eth9 --syncid 5 --sync-maxlen 1400 --mcast-group 239.0.0.1 --mcast-port 8849 --mcast-ttl 2",
            Command::StartDaemon(SyncDaemon {
                sync_id: 5,
                max_length: Some(1400),
                group: Some([239, 0, 0, 1].into()),
                port: Some(8849),
                ttl: Some(2),
                ..master.clone()
            }),
        ),
        ("--stop-daemon master", Command::StopDaemon(SyncRole::Master)),
        (
            "--start-daemon master --mcast-interface eth9 --mcast-group ff05::100",
            Command::StartDaemon(SyncDaemon { group: Some("ff05::100".parse().unwrap()), ..master }),
        ),
        ("-C", Command::Flush),
    ]
}

fn tcp(address: &str) -> ServiceAddress {
    ServiceAddress::transport(Protocol::TCP, address.parse().unwrap())
}

fn udp(address: &str) -> ServiceAddress {
    ServiceAddress::transport(Protocol::UDP, address.parse().unwrap())
}

fn mark(family: AddressFamily) -> ServiceAddress {
    ServiceAddress::Fwmark { mark: 80.try_into().unwrap(), family }
}

/// What the kernel looks at. Where a service, a server or a daemon is only named, `ipvsadm` adds empty settings to its key.
fn without_padding(command: &Command, octets: Vec<u8>) -> Vec<u8> {
    const SERVICE: (u16, &[u16]) = (1, &[1, 2, 3, 4, 5]);
    const SERVER: (u16, &[u16]) = (2, &[1, 2, 11]);
    const DAEMON: (u16, &[u16]) = (3, &[1]);
    match command {
        Command::DeleteService(_) | Command::Zero(Some(_)) | Command::AddServer(..) | Command::EditServer(..) => {
            keys_only(&octets, &[SERVICE])
        }
        Command::DeleteServer(..) => keys_only(&octets, &[SERVICE, SERVER]),
        Command::StopDaemon(_) => keys_only(&octets, &[DAEMON]),
        _ => octets,
    }
}

/// The same message, in whose named attributes only those of the types beside them are left.
fn keys_only(octets: &[u8], keys: &[(u16, &[u16])]) -> Vec<u8> {
    let mut kept = octets[..4].to_vec();
    for attribute in attributes(&octets[4..]) {
        match keys.iter().find(|(kind, _)| *kind == kind_of(attribute)) {
            None => kept.extend_from_slice(attribute),
            Some((_, kinds)) => {
                let inner: Vec<_> =
                    attributes(&attribute[4..]).into_iter().filter(|inner| kinds.contains(&kind_of(inner))).flatten().copied().collect();
                kept.extend(u16::try_from(4 + inner.len()).unwrap().to_le_bytes());
                kept.extend_from_slice(&attribute[2..4]);
                kept.extend(inner);
            }
        }
    }
    kept
}

/// Attributes with their headers and padding.
fn attributes(mut octets: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let [low, high, ..] = octets {
        let (attribute, rest) = octets.split_at(usize::from(u16::from_le_bytes([*low, *high])).next_multiple_of(4));
        found.push(attribute);
        octets = rest;
    }
    found
}

fn kind_of(attribute: &[u8]) -> u16 {
    u16::from_le_bytes([attribute[2], attribute[3]]) & 0x3FFF
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        write!(text, "{octet:02x}").unwrap();
        text
    })
}
