// SPDX-License-Identifier: Apache-2.0
//! The codec by itself. Against `ipvsadm` and the kernel it is held by `ipvs/tests`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::entry::{Attribute, ServerEntry, ServiceEntry, Statistics};
use crate::{
    AddressFamily, Encapsulation, EncapsulationFlags, ForwardingMethod, Info, Netmask, Persistence, Protocol, RealServer, Scheduler,
    ServerAddress, ServiceAddress, ServiceFlags, SyncDaemon, SyncRole, Thresholds, Timeouts, VirtualService, Weight,
};

/// Attributes of this type and above have no name in this version of the family.
const UNNAMED: u16 = 16;

proptest! {
    #[test]
    fn what_is_shown_survives_being_written_and_read(message in messages()) {
        prop_assert_eq!(Message::decode(&message.encode()).unwrap(), message);
    }

    #[test]
    fn a_message_cut_short_is_an_error_or_a_message(message in messages(), cut in any::<prop::sample::Index>()) {
        let octets = message.encode();
        drop(Message::decode(&octets[..cut.index(octets.len())]));
    }

    #[test]
    fn octets_without_sense_are_no_panic(octets in vec(any::<u8>(), 0..400)) {
        Frames::new(&octets).for_each(drop);
        drop(Message::decode(&octets));
    }

    #[test]
    fn one_wrong_octet_is_no_panic(message in messages(), at in any::<prop::sample::Index>(), octet in any::<u8>()) {
        let mut octets = message.encode();
        let at = at.index(octets.len());
        octets[at] = octet;
        drop(Message::decode(&octets));
    }
}

#[test]
fn settings_without_effect_are_not_held() {
    let service = VirtualService::new(ServiceAddress::transport(Protocol::TCP, "192.0.2.1:80".parse().unwrap()), Scheduler::Rr);
    let mut written = Vec::new();
    service::encode(&mut written, &service);
    // The timeout of a service without persistence.
    let timeout = written.windows(4).position(|four| four == [8, 0, 8, 0]).unwrap() + 4;
    written[timeout..timeout + 4].copy_from_slice(&360_u32.to_ne_bytes());
    let mut octets = vec![command::NEW_SERVICE, VERSION, 0, 0];
    attribute::nest(&mut octets, top::SERVICE, |buffer| buffer.extend_from_slice(&written));
    let Message::Service(entry) = Message::decode(&octets).unwrap() else { panic!("{octets:?}") };
    assert_eq!(entry.service, service);
    assert_eq!(ServiceFlags::from_bits(0b11), ServiceFlags::NONE, "persistence and the kernel's own bit are no flags");
}

#[test]
fn a_missing_attribute_is_named() {
    let octets = [command::NEW_SERVICE, VERSION, 0, 0];
    assert_eq!(Message::decode(&octets).unwrap_err().to_string(), "the attribute service is missing");
    let mut octets = octets.to_vec();
    attribute::nest(&mut octets, top::SERVICE, |buffer| attribute::put_family(buffer, 1, AddressFamily::Ipv4));
    assert_eq!(Message::decode(&octets).unwrap_err().to_string(), "the attribute service protocol is missing");
}

#[test]
fn a_value_of_the_wrong_length_is_shown() {
    let mut octets = vec![command::NEW_SERVICE, VERSION, 0, 0];
    attribute::nest(&mut octets, top::SERVICE, |buffer| attribute::put(buffer, 1, &[2]));
    assert_eq!(Message::decode(&octets).unwrap_err().to_string(), "the attribute service address family has the value [02]");
}

#[test]
fn a_datagram_is_cut_into_messages() {
    let mut datagram = Vec::new();
    framed(&mut datagram, 0x1B, 0x12, &Message::Timeouts(Timeouts { tcp: 900, tcp_fin: 120, udp: 300 }).encode());
    framed(&mut datagram, 2, 0, &(-libc::EEXIST).to_ne_bytes());
    framed(&mut datagram, 3, 0, &0_i32.to_ne_bytes());
    let frames: Vec<_> = Frames::new(&datagram).collect::<Result<_, _>>().unwrap();
    assert!(matches!(frames[0], Frame { sequence: 7, interrupted: true, payload: Payload::Message(Message::Timeouts(_)) }), "{frames:?}");
    let Payload::Acknowledged(Err(error)) = &frames[1].payload else { panic!("{frames:?}") };
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert!(matches!(frames[2], Frame { interrupted: false, payload: Payload::Done(Ok(())), .. }), "{frames:?}");
    assert_eq!(frames.len(), 3);
}

fn framed(datagram: &mut Vec<u8>, kind: u16, flags: u16, body: &[u8]) {
    datagram.extend_from_slice(&u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
    datagram.extend_from_slice(&kind.to_ne_bytes());
    datagram.extend_from_slice(&flags.to_ne_bytes());
    datagram.extend_from_slice(&7_u32.to_ne_bytes());
    datagram.extend_from_slice(&[0; 4]);
    datagram.extend_from_slice(body);
    datagram.resize(datagram.len().next_multiple_of(4), 0);
}

fn messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        (services(), statistics(), unknown()).prop_map(|(service, statistics, unknown)| Message::Service(ServiceEntry {
            service,
            statistics,
            unknown
        })),
        (servers(), any::<[u32; 3]>(), statistics(), unknown()).prop_map(|(server, connections, statistics, unknown)| {
            let [active_connections, inactive_connections, persistent_connections] = connections;
            Message::Server(ServerEntry { server, active_connections, inactive_connections, persistent_connections, statistics, unknown })
        }),
        daemons().prop_map(Message::Daemon),
        any::<[u32; 3]>().prop_map(|[tcp, tcp_fin, udp]| Message::Timeouts(Timeouts { tcp, tcp_fin, udp })),
        (any::<(u8, u8, u8)>(), any::<u32>())
            .prop_map(|(version, connection_table_size)| Message::Info(Info { version, connection_table_size })),
        (command::ZERO..).prop_map(Message::Other),
    ]
}

fn services() -> impl Strategy<Value = VirtualService> {
    let address = prop_oneof![
        (any::<u16>(), any::<SocketAddr>())
            .prop_map(|(protocol, address)| ServiceAddress::transport(Protocol::from_number(protocol), address)),
        (any::<NonZeroU32>(), any::<bool>()).prop_map(|(mark, is_v6)| ServiceAddress::Fwmark { mark, family: family(is_v6) }),
    ];
    let scheduler = prop_oneof![prop::sample::select(Scheduler::ALL.to_vec()), "[a-z]{1,15}".prop_map(|name| Scheduler::named(&name))];
    (address, scheduler, any::<u32>(), option::of(any::<(u32, [u8; 4])>()), option::of("[a-z]{1,15}")).prop_map(
        |(address, scheduler, flags, persistence, persistence_engine)| VirtualService {
            address,
            scheduler,
            flags: ServiceFlags::from_bits(flags),
            persistence: persistence.map(|(timeout, mask)| Persistence {
                timeout,
                netmask: match address.family() {
                    AddressFamily::Ipv4 => Netmask::Ipv4(mask.into()),
                    AddressFamily::Ipv6 => Netmask::Ipv6(u32::from_ne_bytes(mask)),
                },
            }),
            persistence_engine,
        },
    )
}

fn servers() -> impl Strategy<Value = RealServer> {
    let encapsulation =
        (any::<u8>(), any::<u16>(), any::<u16>().prop_map(EncapsulationFlags)).prop_map(|(kind, port, flags)| match kind % 4 {
            0 => Encapsulation::Ipip,
            1 => Encapsulation::Gue { port, flags },
            2 => Encapsulation::Gre { flags },
            _ => Encapsulation::Other { kind: kind | 3, port, flags },
        });
    let forwarding = prop_oneof![
        Just(ForwardingMethod::Masquerade),
        Just(ForwardingMethod::DirectRouting),
        encapsulation.prop_map(ForwardingMethod::Tunnel),
        Just(ForwardingMethod::LocalNode),
        Just(ForwardingMethod::Bypass),
        (5_u8..8).prop_map(ForwardingMethod::Other),
    ];
    (any::<(IpAddr, u16)>(), forwarding, any::<[u32; 3]>()).prop_map(|((address, port), forwarding, [weight, upper, lower])| RealServer {
        address: ServerAddress { address, port },
        forwarding,
        weight: Weight(weight),
        thresholds: Thresholds { upper, lower },
    })
}

fn daemons() -> impl Strategy<Value = SyncDaemon> {
    let optional = any::<(Option<u16>, Option<IpAddr>, Option<u16>, Option<u8>)>();
    (any::<bool>(), "[a-z0-9.]{0,15}", any::<u32>(), optional).prop_map(
        |(is_master, interface, sync_id, (max_length, group, port, ttl))| SyncDaemon {
            role: if is_master { SyncRole::Master } else { SyncRole::Backup },
            interface,
            sync_id,
            max_length,
            group,
            port,
            ttl,
        },
    )
}

fn statistics() -> impl Strategy<Value = Statistics> {
    any::<[u64; 10]>().prop_map(|[connections, in_packets, out_packets, in_octets, out_octets, cps, in_pps, out_pps, in_bps, out_bps]| {
        Statistics {
            connections,
            incoming_packets: in_packets,
            outgoing_packets: out_packets,
            incoming_octets: in_octets,
            outgoing_octets: out_octets,
            connections_per_second: cps,
            incoming_packets_per_second: in_pps,
            outgoing_packets_per_second: out_pps,
            incoming_octets_per_second: in_bps,
            outgoing_octets_per_second: out_bps,
        }
    })
}

fn unknown() -> impl Strategy<Value = Vec<Attribute>> {
    vec((UNNAMED..1 << 14, any::<bool>(), vec(any::<u8>(), 0..20)), 0..3).prop_map(|attributes| {
        attributes
            .into_iter()
            .map(|(kind, is_nested, value)| Attribute { kind: kind | if is_nested { 0x8000 } else { 0 }, value })
            .collect()
    })
}

const fn family(is_v6: bool) -> AddressFamily {
    if is_v6 { AddressFamily::Ipv6 } else { AddressFamily::Ipv4 }
}
