// SPDX-License-Identifier: Apache-2.0
//! The matrix: every feature against every peer, and the table that comes of a run.
//!
//! A feature is one test that is given a peer; [`FEATURES`] says which peers do not have it, and why. Output: a table in which a cell says "yes" only
//! where that test has passed in this run.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::features::{attributes, capabilities, reflection, restart, routes, session, transport, unnumbered};
use crate::peers::Software::{self, ExaBgp, GoBgp, OpenBgpd};

/// A row.
pub(crate) struct Feature {
    /// Names its tests.
    pub(crate) name: &'static str,
    /// What a reader of the table sees.
    title: &'static str,
    /// Proves it with a peer, or panics.
    pub(crate) test: fn(Software),
    /// The peers that do not have it, and why.
    without: &'static [(Software, &'static str)],
}

impl Feature {
    pub(crate) fn is_tested_with(&self, software: Software) -> bool {
        !self.without.iter().any(|(other, _)| *other == software)
    }
}

const NO_TABLE: (Software, &str) = (ExaBgp, "keeps no table of routes, so that there is nothing for it to keep over a restart");

const NOT_HEARD: [(Software, &str); 3] = [
    (GoBgp, "sends no router advertisements, by which we find out where a peer is"),
    (OpenBgpd, "sends no router advertisements, by which we find out where a peer is"),
    (ExaBgp, "takes no link-local address with an interface, nor sends it router advertisements, by which we find out where a peer is"),
];

const REFLECTS_NOTHING: (Software, &str) = (ExaBgp, "keeps no table of routes, so that it cannot reflect any");

/// The rows, in the order of the table.
pub(crate) const FEATURES: &[Feature] = &[
    Feature { name: "session", title: "Sessions over IPv4 and IPv6; again after the peer's crash", test: session::life, without: &[] },
    Feature {
        name: "shutdown",
        title: "`peer shutdown --message`: its operator sees our text (RFC 9003)",
        test: session::shutdown,
        without: &[(ExaBgp, "fails on the text with an error of its own; the session ends all the same")],
    },
    Feature {
        name: "wrong_as",
        title: "A wrong AS is refused on either side, and we say why (RFC 4271 §6.2)",
        test: session::wrong_as,
        without: &[],
    },
    Feature { name: "ipv4_routes", title: "IPv4 routes to it, over IPv4 and IPv6", test: routes::ipv4, without: &[] },
    Feature { name: "ipv6_routes", title: "IPv6 routes to it, over IPv4 and IPv6 (RFC 4760)", test: routes::ipv6, without: &[] },
    Feature { name: "withdraw", title: "Withdrawals, and nothing else goes", test: routes::withdraw, without: &[] },
    Feature { name: "its_routes", title: "Its IPv4 and IPv6 routes to us, and their withdrawal", test: routes::from_it, without: &[] },
    Feature {
        name: "refresh_by_it",
        title: "Route refresh that it asks for (RFC 2918)",
        test: routes::refresh_by_it,
        without: &[(GoBgp, "`softresetin` applies its policy again and asks nobody; no command sends a ROUTE-REFRESH")],
    },
    Feature {
        name: "refresh_by_us",
        title: "`peer reset --soft=in`: it is asked for its routes, and tells them again (RFC 2918)",
        test: routes::refresh_by_us,
        without: &[
            (OpenBgpd, "answers nobody's ROUTE-REFRESH: it calls the family not negotiated"),
            (ExaBgp, "fails on a ROUTE-REFRESH, and closes the connection"),
        ],
    },
    Feature {
        name: "told_again",
        title: "`peer reset --soft=out`: it hears all again in the session that there is",
        test: routes::told_again,
        without: &[],
    },
    Feature {
        name: "attributes",
        title: "LOCAL_PREF, MED, communities and large communities, changed in the session that there is (RFC 1997, RFC 8092)",
        test: attributes::internal,
        without: &[],
    },
    Feature { name: "policy", title: "Policies of single VIPs: attributes, and which peers are told", test: routes::policy, without: &[] },
    Feature { name: "external", title: "External, our AS of four octets, prepended (RFC 6793)", test: attributes::external, without: &[] },
    Feature {
        name: "roles",
        title: "Roles: refused where they do not fit, ONLY_TO_CUSTOMER where it belongs (RFC 9234)",
        test: capabilities::roles,
        without: &[(GoBgp, "has no roles"), (ExaBgp, "has no roles")],
    },
    Feature {
        name: "extended_messages",
        title: "A route with 1,500 communities, in an extended message (RFC 8654)",
        test: capabilities::extended_messages,
        without: &[
            (GoBgp, "takes no message of more than 4,096 octets: its OPEN has no such capability"),
            (OpenBgpd, "takes no message of more than 4,096 octets: its OPEN has no such capability"),
        ],
    },
    Feature {
        name: "extended_next_hop",
        title: "IPv4 routes with an IPv6 next hop (RFC 8950)",
        test: capabilities::extended_next_hop,
        without: &[(OpenBgpd, "has no such capability")],
    },
    Feature {
        name: "link_local_next_hop",
        title: "IPv6 next hops of 32 octets on a shared link, of 16 from afar (RFC 2545 §3)",
        test: capabilities::link_local_next_hop,
        without: &[
            (GoBgp, "takes these routes, and shows only the global next hop"),
            (OpenBgpd, "takes these routes, and shows only the global next hop"),
        ],
    },
    Feature {
        name: "unnumbered_dialled",
        title: "Unnumbered, over link-local addresses: we dial it",
        test: unnumbered::it_is_dialled,
        without: &NOT_HEARD,
    },
    Feature { name: "unnumbered_dials", title: "The same, it dials us", test: unnumbered::it_dials, without: &NOT_HEARD },
    Feature {
        name: "tcp_md5",
        title: "TCP-MD5: no session with a wrong key, one when the file has the right one, and again with a new key (RFC 2385)",
        test: transport::tcp_md5,
        without: &[],
    },
    Feature {
        name: "ttl_security",
        title: "TTL security on both sides (RFC 5082)",
        test: transport::ttl_security,
        without: &[(ExaBgp, "checks the TTL on connections that it accepts, and sends 255 only on those that it dials")],
    },
    Feature { name: "multihop", title: "External, two hops away", test: transport::multihop, without: &[] },
    Feature {
        name: "dynamic_ipv4",
        title: "It dials us over IPv4: a dynamic peer, signed with the key of a prefix",
        test: transport::dynamic_over_ipv4,
        without: &[],
    },
    Feature { name: "dynamic_ipv6", title: "The same over IPv6", test: transport::dynamic_over_ipv6, without: &[] },
    Feature {
        name: "both_dial",
        title: "Both dial before either can speak: one session (RFC 4271 §6.8)",
        test: transport::both_dial,
        without: &[],
    },
    Feature {
        name: "restart_keep",
        title: "`onTermination: keep` and a start: it never deletes a route (RFC 4724)",
        test: restart::keep,
        without: &[NO_TABLE],
    },
    Feature { name: "restart_kill", title: "The same after `kill -9`", test: restart::kill, without: &[NO_TABLE] },
    Feature {
        name: "long_lived",
        title: "It keeps our routes beyond the restart time as the last resort (RFC 9494)",
        test: restart::long_lived,
        without: &[(OpenBgpd, "has no such capability, and deletes the routes when the restart time is over"), NO_TABLE],
    },
    Feature {
        name: "graceful_shutdown",
        title: "`drain.gracefulShutdown`: it sees GRACEFUL_SHUTDOWN and LOCAL_PREF 0 before the withdrawal (RFC 8326)",
        test: restart::graceful_shutdown,
        without: &[],
    },
    Feature { name: "we_reflect", title: "We are its route reflector (RFC 4456)", test: reflection::by_us, without: &[] },
    Feature { name: "it_reflects", title: "It is our route reflector", test: reflection::by_it, without: &[REFLECTS_NOTHING] },
    Feature {
        name: "add_path_to_it",
        title: "Several paths to it, as its reflector (ADD-PATH, RFC 7911)",
        test: reflection::add_path_to_it,
        without: &[],
    },
    Feature { name: "add_path_to_us", title: "Several paths from it", test: reflection::add_path_to_us, without: &[] },
];

/// A cell whose test passed.
pub(crate) type Passed = BTreeSet<(&'static str, Software)>;

/// The cells that are to be tested.
pub(crate) fn cells() -> impl Iterator<Item = (&'static Feature, Software)> {
    FEATURES.iter().flat_map(|feature| {
        Software::ALL.into_iter().filter(|software| feature.is_tested_with(*software)).map(move |software| (feature, software))
    })
}

/// The table of a run, in Markdown. A cell whose test did not pass is no "yes".
pub(crate) fn table(passed: &Passed) -> String {
    let mut text = String::from("| |");
    let mut notes: Vec<String> = Vec::new();
    for software in Software::ALL {
        write!(text, " {} {} |", software.name(), software.version()).unwrap();
    }
    text += &format!("\n|---|{}\n", "---|".repeat(Software::ALL.len()));
    for feature in FEATURES {
        write!(text, "| {} |", feature.title).unwrap();
        for software in Software::ALL {
            let without = feature.without.iter().find(|(other, _)| *other == software);
            let cell = match without {
                Some((_, why)) => format!("no {}", note(&mut notes, format!("{} {why}.", software.name()))),
                None if passed.contains(&(feature.name, software)) => "yes".to_owned(),
                None => "fails".to_owned(),
            };
            write!(text, " {cell} |").unwrap();
        }
        text.push('\n');
    }
    text.push('\n');
    for (number, note) in notes.iter().enumerate() {
        writeln!(text, "{}. {note}", number + 1).unwrap();
    }
    text
}

/// The number under which a note stands below the table.
fn note(notes: &mut Vec<String>, text: String) -> String {
    let known = notes.iter().position(|other| *other == text);
    let position = known.unwrap_or_else(|| {
        notes.push(text);
        notes.len() - 1
    });
    format!("({})", position + 1)
}
