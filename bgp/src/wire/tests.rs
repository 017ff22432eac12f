// SPDX-License-Identifier: Apache-2.0
//! What the tests of the codec share; and tests of whole messages: exact octets, round trips, and input of every kind.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Asn, BgpIdentifier, Family, HoldTime, Prefix};

/// Octets from hexadecimal digits; spaces do not count.
pub(super) fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<_> = digits.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// A message from the octets after its marker.
pub(super) fn with_marker(digits: &str) -> Vec<u8> {
    [vec![0xFF; 16], hex(digits)].concat()
}

/// An UPDATE from its three fields.
pub(super) fn update_octets(withdrawn: &[u8], attributes: &[u8], announced: &[u8]) -> Vec<u8> {
    let length = |octets: &[u8]| u16::try_from(octets.len()).unwrap().to_be_bytes();
    let body = [&length(withdrawn), withdrawn, &length(attributes), attributes, announced].concat();
    let total = u16::try_from(HEADER_LENGTH + body.len()).unwrap().to_be_bytes();
    [&[0xFF; 16][..], &total, &[2], &body].concat()
}

/// The first message of these octets.
pub(super) fn decode(octets: &[u8], negotiated: &Negotiated) -> Result<Option<Message>, Error> {
    let mut deframer = Deframer::default();
    deframer.push(octets);
    deframer.next(negotiated)
}

/// All messages of these octets.
pub(super) fn decode_all(octets: &[u8], negotiated: &Negotiated) -> Vec<Message> {
    let mut deframer = Deframer::default();
    deframer.push(octets);
    std::iter::from_fn(|| deframer.next(negotiated).unwrap()).collect()
}

/// Code, subcode and data of the NOTIFICATION that these octets are answered with.
pub(super) fn answer(octets: &[u8], negotiated: &Negotiated) -> (u8, u8, Vec<u8>) {
    let Notification { code, subcode, data } = decode(octets, negotiated).unwrap_err().notification;
    (code, subcode, data.to_vec())
}

pub(super) fn asn(number: u32) -> Asn {
    Asn::new(number).unwrap()
}

/// A path of one AS_SEQUENCE.
pub(super) fn sequence(ases: impl IntoIterator<Item = Asn>) -> AsPath {
    AsPath(vec![AsPathSegment::Sequence(ases.into_iter().collect())])
}

/// The only path to a destination.
pub(super) fn route(text: &str) -> Nlri {
    prefix(text).into()
}

pub(super) fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
}

/// A session of AS 65001 with AS 65002 that has agreed on everything.
pub(super) fn external() -> Negotiated {
    Negotiated {
        four_octet_as: true,
        families: BTreeSet::from(Family::ALL),
        route_refresh: true,
        hold_time: HoldTime::from_secs(90).unwrap(),
        remote_asn: asn(65002),
        internal: false,
        ..Negotiated::before_open(asn(65001))
    }
}

/// The same with path identifiers of both families in both directions.
pub(super) fn with_add_path(negotiated: Negotiated) -> Negotiated {
    let families = BTreeSet::from(Family::ALL);
    Negotiated { add_path_send: families.clone(), add_path_receive: families, ..negotiated }
}

/// The same with IPv6 next hops of IPv4 routes, and link-local ones alone.
pub(super) fn with_next_hops(negotiated: Negotiated) -> Negotiated {
    Negotiated { extended_next_hop: BTreeSet::from([Family::Ipv4Unicast]), link_local_next_hop: true, ..negotiated }
}

/// The same with messages of up to 65,535 octets.
pub(super) fn with_extended_messages(negotiated: Negotiated) -> Negotiated {
    Negotiated { max_send_length: MAX_EXTENDED_MESSAGE_LENGTH, max_receive_length: MAX_EXTENDED_MESSAGE_LENGTH, ..negotiated }
}

/// A session inside AS 65001 that has agreed on everything.
pub(super) fn internal() -> Negotiated {
    Negotiated { remote_asn: asn(65001), internal: true, ..external() }
}

/// The same with a peer that sends two-octet AS numbers.
pub(super) fn two_octet(negotiated: Negotiated) -> Negotiated {
    Negotiated { four_octet_as: false, ..negotiated }
}

/// Decoding gives the message, encoding gives the octets.
fn assert_same(octets: &[u8], message: &Message, negotiated: &Negotiated) {
    assert_eq!(decode(octets, negotiated).unwrap().as_ref(), Some(message));
    assert_eq!(message.encode(negotiated).unwrap(), octets);
}

#[test]
fn rfc4271_4_4_keepalive() {
    assert_same(&with_marker("0013 04"), &Message::Keepalive, &external());
}

#[test]
fn rfc4271_4_3_update_to_an_external_peer() {
    let update = Update {
        attributes: vec![
            PathAttribute::Origin(Origin::Igp),
            PathAttribute::AsPath(sequence([asn(65533)])),
            PathAttribute::NextHop(Ipv4Addr::new(10, 0, 1, 254)),
        ],
        announced: vec![route("10.0.0.0/24")],
        ..Update::default()
    };
    let octets = with_marker("002F 02 0000 0014 40010100 40020602010000FFFD 4003040A0001FE 180A0000");
    assert_same(&octets, &Message::Update(update), &external());
}

#[test]
fn rfc6793_4_2_update_with_two_octet_numbers() {
    let update = Update {
        attributes: vec![
            PathAttribute::Origin(Origin::Igp),
            PathAttribute::AsPath(sequence([asn(100)])),
            PathAttribute::NextHop(Ipv4Addr::new(10, 0, 255, 254)),
            PathAttribute::LocalPref(100),
        ],
        announced: vec![route("10.0.1.0/24")],
        ..Update::default()
    };
    let octets = with_marker("0034 02 0000 0019 40010100 40020402010064 4003040A00FFFE 40050400000064 180A0001");
    assert_same(&octets, &Message::Update(update), &two_octet(internal()));
}

#[test]
fn rfc5492_4_open() {
    let octets = with_marker("0035 01 04 FFFD 00B4 0A000002 18 0206010400020001 02064104 0000FFFD 02020600 02024D00");
    let open = Open {
        asn: asn(65533),
        hold_time: HoldTime::from_secs(180).unwrap(),
        identifier: BgpIdentifier::try_from(Ipv4Addr::new(10, 0, 0, 2)).unwrap(),
        capabilities: vec![
            Capability::Multiprotocol(Family::Ipv6Unicast),
            Capability::FourOctetAs,
            Capability::ExtendedMessage,
            Capability::LinkLocalNextHop,
        ],
    };
    assert_eq!(decode(&octets, &external()).unwrap(), Some(Message::Open(open.clone())));
    let in_one_parameter = with_marker("002F 01 04 FFFD 00B4 0A000002 12 0210 010400020001 41040000FFFD 0600 4D00");
    assert_same(&in_one_parameter, &Message::Open(open), &external());
}

#[test]
fn b34_rfc4724_2_end_of_rib() {
    for (family, octets) in [(Family::Ipv4Unicast, "0017 02 00000000"), (Family::Ipv6Unicast, "001E 02 0000 0007 900F0003 000201")] {
        let update = Update::end_of_rib(family);
        assert_eq!(update.is_end_of_rib(), Some(family));
        assert_same(&with_marker(octets), &Message::Update(update), &external());
    }
}

#[test]
fn rfc2918_3_route_refresh() {
    let refresh = RouteRefresh::request(Family::Ipv6Unicast);
    assert_eq!(refresh.requested(), Some(Family::Ipv6Unicast));
    assert_same(&with_marker("0017 05 0002 00 01"), &Message::RouteRefresh(refresh), &external());
}

#[test]
fn rfc2918_4_a_refresh_of_another_family_and_rfc7313_marks_are_no_request() {
    for octets in ["0017 05 0001 00 80", "0017 05 0001 01 01", "0017 05 0001 02 01", "0017 05 0001 FF 01"] {
        let Some(Message::RouteRefresh(refresh)) = decode(&with_marker(octets), &external()).unwrap() else { panic!("{octets}") };
        assert_eq!(refresh.requested(), None);
        assert_same(&with_marker(octets), &Message::RouteRefresh(refresh), &external());
    }
}

#[test]
fn rfc7313_4_the_marks_of_a_refresh() {
    let family = Family::Ipv6Unicast;
    let (beginning, end) = (RouteRefresh::beginning(family), RouteRefresh::end(family));
    assert_eq!((beginning.requested(), beginning.begun(), beginning.ended()), (None, Some(family), None));
    assert_eq!((end.requested(), end.begun(), end.ended()), (None, None, Some(family)));
    assert_same(&with_marker("0017 05 0002 01 01"), &Message::RouteRefresh(beginning), &external());
    assert_same(&with_marker("0017 05 0002 02 01"), &Message::RouteRefresh(end), &external());
}

#[test]
fn rfc7313_5_a_mark_of_another_length() {
    let enhanced = Negotiated { enhanced_route_refresh: true, ..external() };
    for octets in ["0018 05 0001 01 01 00", "0019 05 0001 02 01 0000"] {
        let octets = with_marker(octets);
        assert_eq!(answer(&octets, &enhanced), (7, 1, octets.clone()));
        assert!(decode(&octets, &external()).is_ok());
    }
    let cut = with_marker("0016 05 0001 01");
    assert_eq!(answer(&cut, &enhanced), (7, 1, cut.clone()));
    assert_eq!(answer(&cut, &external()), (1, 2, vec![0, 22]), "nobody knows of marks");
    assert_eq!(answer(&with_marker("0016 05 0001 00"), &enhanced), (1, 2, vec![0, 22]), "a request that is cut");
    // A request with route filters behind it (RFC 5291) is not a mark.
    assert!(decode(&with_marker("0018 05 0001 00 01 00"), &enhanced).is_ok());
}

/// Which session a message is of, and in which ways it differs from [`external`].
#[derive(Clone, Copy, Debug)]
struct Session {
    of_one_as: bool,
    four_octet_as: bool,
    add_path: bool,
    next_hops: bool,
    extended_messages: bool,
}

impl Session {
    fn negotiated(self) -> Negotiated {
        let negotiated = Negotiated { four_octet_as: self.four_octet_as, ..if self.of_one_as { internal() } else { external() } };
        let negotiated = if self.add_path { with_add_path(negotiated) } else { negotiated };
        let negotiated = if self.next_hops { with_next_hops(negotiated) } else { negotiated };
        if self.extended_messages { with_extended_messages(negotiated) } else { negotiated }
    }
}

fn any_session() -> impl Strategy<Value = Session> {
    any::<[bool; 5]>().prop_map(|[of_one_as, four_octet_as, add_path, next_hops, extended_messages]| Session {
        of_one_as,
        four_octet_as,
        add_path,
        next_hops,
        extended_messages,
    })
}

fn any_asn() -> impl Strategy<Value = Asn> {
    prop_oneof![1..=u32::from(u16::MAX), 1..=u32::MAX].prop_map(asn)
}

/// A host's address, as next hop.
fn any_host() -> impl Strategy<Value = Ipv4Addr> {
    any::<Ipv4Addr>().prop_filter("no host", |address| multiprotocol::is_host(*address))
}

fn any_ipv4_route(add_path: bool) -> impl Strategy<Value = Nlri> {
    (any::<Ipv4Addr>(), 0..=32_u8, any_path_id(add_path)).prop_filter_map("multicast", unicast_route)
}

fn any_ipv6_route(add_path: bool) -> impl Strategy<Value = Nlri> {
    (any::<Ipv6Addr>(), 0..=128_u8, any_path_id(add_path)).prop_filter_map("multicast", unicast_route)
}

fn any_path_id(add_path: bool) -> impl Strategy<Value = u32> {
    any::<u32>().prop_map(move |path_id| if add_path { path_id } else { 0 })
}

fn unicast_route((address, length, path_id): (impl Into<IpAddr>, u8, u32)) -> Option<Nlri> {
    let prefix = Prefix::truncated(address.into(), length).unwrap();
    (!prefix.address().is_multicast()).then_some(Nlri { prefix, path_id })
}

/// A path that survives two-octet numbers: AS4_PATH does not keep the bounds of adjacent sequences, nor segments of a confederation.
fn any_as_path(of_one_as: bool) -> impl Strategy<Value = AsPath> {
    let confederation = vec((1..=u32::from(u16::MAX)).prop_map(asn), 1..4).prop_map(AsPathSegment::ConfedSequence);
    let sequence = proptest::option::of(vec(any_asn(), 1..60).prop_map(AsPathSegment::Sequence));
    (vec(confederation, 0..if of_one_as { 3 } else { 1 }), sequence)
        .prop_map(|(confederation, sequence)| AsPath(confederation.into_iter().chain(sequence).collect()))
}

fn any_mp_reach(session: Session) -> impl Strategy<Value = MpReach> {
    let global = any::<Ipv6Addr>().prop_filter("no host", |a| !(a.is_unspecified() || a.is_multicast() || a.is_loopback()));
    let link_local = || any::<u64>().prop_map(|host| Ipv6Addr::from_bits(0xFE80 << 112 | u128::from(host)));
    let both = (global, proptest::option::of(link_local())).prop_map(|(global, link_local)| NextHop::V6 { global, link_local });
    let lonely = link_local().prop_map(|global| NextHop::V6 { global, link_local: None });
    let next_hop = if session.next_hops { prop_oneof![both, lonely].boxed() } else { both.boxed() };
    let ipv4_next_hop = any_host().prop_map(NextHop::V4);
    let ipv4_next_hop = if session.next_hops { prop_oneof![ipv4_next_hop, next_hop.clone()].boxed() } else { ipv4_next_hop.boxed() };
    let ipv6 = (next_hop, vec(any_ipv6_route(session.add_path), 0..40));
    let ipv4 = (ipv4_next_hop, vec(any_ipv4_route(session.add_path), 0..40));
    prop_oneof![
        ipv6.prop_map(|(next_hop, announced)| MpReach { family: Family::Ipv6Unicast, next_hop, announced }),
        ipv4.prop_map(|(next_hop, announced)| MpReach { family: Family::Ipv4Unicast, next_hop, announced }),
    ]
}

/// A value with the Partial bit or without.
fn any_partial<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Transitive<T>> {
    (value, any::<bool>()).prop_map(|(value, partial)| Transitive { value, partial })
}

fn any_unknown() -> impl Strategy<Value = PathAttribute> {
    let flags = prop_oneof![Just(0x80), Just(0xC0), Just(0xE0)];
    (flags, 36..=255_u8, vec(any::<u8>(), 0..300)).prop_map(|(flags, type_code, value)| PathAttribute::Unknown {
        flags: Flags(flags),
        type_code,
        value: value.into(),
    })
}

/// Attributes in the order in which they are sent; the mandatory ones always.
fn any_attributes(of_one_as: bool) -> impl Strategy<Value = Vec<PathAttribute>> {
    use proptest::option::of;
    let communities = (
        of(any_partial(vec(any::<u32>(), 1..80)).prop_map(PathAttribute::Communities)),
        of(any_partial(vec(any::<u64>(), 1..20)).prop_map(PathAttribute::ExtendedCommunities)),
        of(any_partial(vec(any::<[u8; 20]>(), 1..4)).prop_map(PathAttribute::Ipv6ExtendedCommunities)),
        of(any_partial(vec(any::<[u32; 3]>(), 1..8)).prop_map(PathAttribute::LargeCommunities)),
        of(any_partial(any_asn()).prop_map(PathAttribute::OnlyToCustomer)),
    );
    let inside = (
        of(any::<u32>().prop_map(PathAttribute::LocalPref)),
        of(any::<Ipv4Addr>().prop_map(PathAttribute::OriginatorId)),
        of(vec(any::<Ipv4Addr>(), 1..5).prop_map(PathAttribute::ClusterList)),
    );
    (
        prop_oneof![Just(Origin::Igp), Just(Origin::Egp), Just(Origin::Incomplete)],
        any_as_path(of_one_as),
        any_host(),
        of(any::<u32>().prop_map(PathAttribute::MultiExitDisc)),
        of(Just(PathAttribute::AtomicAggregate)),
        of(any_partial((any_asn(), any_host()).prop_map(|(asn, address)| Aggregator { asn, address })).prop_map(PathAttribute::Aggregator)),
        communities,
        inside,
        of(any_unknown()),
    )
        .prop_map(move |(origin, path, next_hop, med, atomic, aggregator, communities, inside, unknown)| {
            let (standard, extended, ipv6, large, only_to_customer) = communities;
            let (local_pref, originator, clusters) = if of_one_as { inside } else { (None, None, None) };
            let mandatory = [PathAttribute::Origin(origin), PathAttribute::AsPath(path), PathAttribute::NextHop(next_hop)];
            let others =
                [med, local_pref, atomic, aggregator, standard, originator, clusters, extended, ipv6, large, only_to_customer, unknown];
            mandatory.into_iter().chain(others.into_iter().flatten()).collect()
        })
}

fn any_update(session: Session) -> impl Strategy<Value = Update> {
    let (ipv4, ipv6) = (|| any_ipv4_route(session.add_path), || any_ipv6_route(session.add_path));
    let multiprotocol = prop_oneof![
        any_mp_reach(session).prop_map(PathAttribute::MpReach),
        vec(ipv6(), 0..40).prop_map(|withdrawn| PathAttribute::MpUnreach(MpUnreach { family: Family::Ipv6Unicast, withdrawn })),
    ];
    let announced = (vec(ipv4(), 0..60), vec(ipv4(), 1..60), any_attributes(session.of_one_as));
    let announced =
        announced.prop_map(|(withdrawn, announced, attributes)| Update { withdrawn, attributes, announced, ..Update::default() });
    let withdrawn = vec(ipv4(), 0..60).prop_map(|withdrawn| Update { withdrawn, ..Update::default() });
    let other_family = (multiprotocol, any_attributes(session.of_one_as)).prop_map(|(multiprotocol, attributes)| {
        let mut attributes: Vec<_> = attributes.into_iter().filter(|attribute| !matches!(attribute, PathAttribute::NextHop(_))).collect();
        attributes.insert(0, multiprotocol);
        Update { attributes, ..Update::default() }
    });
    prop_oneof![announced, withdrawn, other_family]
}

fn any_capability() -> impl Strategy<Value = Capability> {
    let families =
        || any::<(bool, bool)>().prop_map(|(v4, v6)| Family::ALL.into_iter().zip([v4, v6]).filter_map(|(f, is)| is.then_some(f)));
    let restart = (any::<(bool, bool, bool)>(), 0..=GracefulRestart::MAX_RESTART_TIME, families()).prop_map(
        |((restarting, notification, forwarding), restart_time, families)| GracefulRestart {
            restarting,
            notification,
            restart_time,
            families: families.map(|family| (family, forwarding)).collect(),
        },
    );
    let mode = prop_oneof![Just(AddPathMode::Receive), Just(AddPathMode::Send), Just(AddPathMode::Both)];
    let add_path = (families(), mode).prop_map(|(families, mode)| families.map(|family| (family, mode)).collect());
    let long_lived = (families(), any::<bool>(), 0..=LongLivedFamily::MAX_STALE_TIME).prop_map(|(families, forwarding, stale_time)| {
        families.map(|family| (family, LongLivedFamily { forwarding, stale_time })).collect()
    });
    prop_oneof![
        Just(Capability::Multiprotocol(Family::Ipv4Unicast)),
        Just(Capability::Multiprotocol(Family::Ipv6Unicast)),
        Just(Capability::RouteRefresh),
        Just(Capability::FourOctetAs),
        Just(Capability::ExtendedNextHop(BTreeSet::from([Family::Ipv4Unicast]))),
        Just(Capability::ExtendedMessage),
        Just(Capability::EnhancedRouteRefresh),
        Just(Capability::LinkLocalNextHop),
        restart.prop_map(Capability::GracefulRestart),
        add_path.prop_map(Capability::AddPath),
        long_lived.prop_map(Capability::LongLivedGracefulRestart),
        ("[a-z0-9-]{0,64}", "[a-z0-9.-]{0,64}").prop_map(|(host, domain)| Capability::Fqdn { host, domain }),
        "[ -\\[\\]-~]{0,64}".prop_map(Capability::SoftwareVersion),
        (80..=255_u8, vec(any::<u8>(), 0..=255)).prop_map(|(code, value)| Capability::Unknown { code, value: value.into() }),
    ]
}

fn any_open() -> impl Strategy<Value = Open> {
    let hold_time = any::<u16>().prop_filter_map("1 or 2", HoldTime::from_secs);
    (any_asn(), hold_time, 1..=u32::MAX, vec(any_capability(), 0..6)).prop_map(|(asn, hold_time, identifier, mut capabilities)| {
        if asn.number() > u16::MAX.into() {
            capabilities.push(Capability::FourOctetAs);
        }
        Open { asn, hold_time, identifier: BgpIdentifier::new(identifier).unwrap(), capabilities }
    })
}

fn any_message(session: Session) -> impl Strategy<Value = Message> {
    prop_oneof![
        1 => any_open().prop_map(Message::Open),
        4 => any_update(session).prop_map(Message::Update),
        1 => (any::<u8>(), any::<u8>(), vec(any::<u8>(), 0..300))
            .prop_map(|(code, subcode, data)| Message::Notification(Notification { code, subcode, data: data.into() })),
        1 => Just(Message::Keepalive),
        1 => (any::<u16>(), any::<u8>(), any::<u8>())
            .prop_map(|(afi, subtype, safi)| Message::RouteRefresh(RouteRefresh { afi, subtype, safi })),
    ]
}

fn any_session_and_messages(count: usize) -> impl Strategy<Value = (Session, Vec<Message>)> {
    any_session().prop_flat_map(move |session| (Just(session), vec(any_message(session), 1..=count)))
}

/// What the connection gives when its octets come in pieces of these sizes, over and over.
fn decode_in_pieces(octets: &[u8], sizes: &[usize], negotiated: &Negotiated) -> (Vec<Message>, Option<Error>) {
    let mut deframer = Deframer::default();
    let mut messages = Vec::new();
    let mut rest = octets;
    for size in sizes.iter().cycle() {
        let (piece, behind) = rest.split_at((*size).min(rest.len()));
        deframer.push(piece);
        rest = behind;
        loop {
            match deframer.next(negotiated) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    (messages, None)
}

proptest! {
    #[test]
    fn messages_survive_the_round_trip((session, messages) in any_session_and_messages(1)) {
        let negotiated = session.negotiated();
        for message in messages {
            let octets = message.encode(&negotiated).unwrap();
            prop_assert!(octets.len() <= negotiated.max_send_length);
            prop_assert_eq!(decode(&octets, &negotiated).unwrap(), Some(message));
        }
    }

    #[test]
    fn the_sizes_of_pieces_do_not_matter(
        (session, messages) in any_session_and_messages(6),
        sizes in vec(1..700_usize, 1..5),
        (at, octet) in (any::<prop::sample::Index>(), any::<u8>()),
    ) {
        let negotiated = session.negotiated();
        let mut octets: Vec<u8> = messages.iter().flat_map(|message| message.encode(&negotiated).unwrap()).collect();
        prop_assert_eq!(decode_in_pieces(&octets, &sizes, &negotiated), (messages, None));
        let at = at.index(octets.len());
        octets[at] = octet;
        prop_assert_eq!(decode_in_pieces(&octets, &sizes, &negotiated), decode_in_pieces(&octets, &[octets.len()], &negotiated));
    }

    #[test]
    fn arbitrary_octets_end_in_messages_or_an_error(session in any_session(), octets in vec(any::<u8>(), 0..500)) {
        let negotiated = session.negotiated();
        decode_in_pieces(&octets, &[octets.len().max(1)], &negotiated);
        for message_type in 0..7 {
            let length = u16::try_from(HEADER_LENGTH + octets.len()).unwrap().to_be_bytes();
            let message = [&[0xFF; 16][..], &length, &[message_type], &octets].concat();
            decode_in_pieces(&message, &[message.len()], &negotiated);
        }
        let update = update_octets(&[], &octets, &[24, 10, 0, 0]);
        decode_in_pieces(&update, &[update.len()], &negotiated);
    }

    #[test]
    fn mutated_messages_end_in_messages_or_an_error(
        (session, messages) in any_session_and_messages(2),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let negotiated = session.negotiated();
        for message in &messages {
            let mut octets = message.encode(&negotiated).unwrap().to_vec();
            for (at, octet) in &changes {
                let at = at.index(octets.len() - HEADER_LENGTH + 1) + HEADER_LENGTH - 1;
                octets[at] = *octet;
            }
            decode_in_pieces(&octets, &[octets.len()], &negotiated);
            octets.truncate(HEADER_LENGTH + cut.index(octets.len() - HEADER_LENGTH + 1));
            let length = u16::try_from(octets.len()).unwrap().to_be_bytes();
            octets[16..18].copy_from_slice(&length);
            decode_in_pieces(&octets, &[octets.len()], &negotiated);
        }
    }

    /// What was decoded from malformed attributes can be sent on, and is well-formed then.
    #[test]
    fn what_was_decoded_can_be_encoded_again(
        (session, messages) in any_session_and_messages(1),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let negotiated = session.negotiated();
        for message in &messages {
            let mut octets = message.encode(&negotiated).unwrap().to_vec();
            for (at, octet) in &changes {
                let at = at.index(octets.len());
                octets[at] = *octet;
            }
            let Ok(Some(Message::Update(update))) = decode(&octets, &negotiated) else { continue };
            if update.handling() == Some(ErrorHandling::TreatAsWithdraw) {
                continue;
            }
            let Ok(again) = Message::Update(update.clone()).encode(&negotiated) else { continue };
            let Ok(Some(Message::Update(decoded))) = decode(&again, &negotiated) else { panic!("not decoded again: {update:?}") };
            prop_assert_eq!(decoded.errors, Vec::new());
            prop_assert_eq!(decoded.announced, update.announced);
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test measures, the core does not")]
fn time_of_200_prefixes() {
    use std::time::Instant;
    const ROUNDS: u32 = 200;
    let routes: Vec<Nlri> = (0..200).map(|host| Prefix::host(Ipv4Addr::from_bits(0x0A00_0000 + host).into()).into()).collect();
    let attributes = [PathAttribute::Origin(Origin::Igp), PathAttribute::AsPath(sequence([asn(65001)]))];
    let (negotiated, next_hop) = (external(), NextHop::V4(Ipv4Addr::new(10, 0, 1, 254)));

    let mut octets = Vec::new();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        octets.clear();
        let told = encode_announcement(&attributes, next_hop, Family::Ipv4Unicast, &routes, &negotiated, &mut octets);
        assert_eq!(told, Ok(routes.len()));
    }
    let encoded = start.elapsed() / ROUNDS;
    let start = Instant::now();
    for _ in 0..ROUNDS {
        assert_eq!(decode_all(&octets, &negotiated).len(), 1);
    }
    let decoded = start.elapsed() / ROUNDS;
    writeln!(std::io::stderr(), "200 prefixes: encoded in {encoded:?}, decoded in {decoded:?}").unwrap();
    assert!(encoded.as_millis() < 100 && decoded.as_millis() < 100);
}
