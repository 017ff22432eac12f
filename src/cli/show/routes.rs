// SPDX-License-Identifier: Apache-2.0
//! `vipherald show routes advertised|received NAME`: one peer's routes with their attributes. The daemon is asked for them alone, since there may be many.

use super::super::table::table;
use super::super::{Failure, Output, PeerPrefix, RoutesNoun, block_on, complain, print};
use super::{Daemon, PATIENCE, write};
use crate::admin::{self, RoutesQuestion};
use crate::driver::bgp::RoutesOf;
use crate::status::{Answer, PeerRoutesStatus, RouteDetails};

pub(super) fn show(of: RoutesNoun, output: Option<Output>, daemon: &Daemon) -> Result<(), Failure> {
    let (of, PeerPrefix { name, prefix }) = match of {
        RoutesNoun::Advertised(which) => (RoutesOf::Advertised, which),
        RoutesNoun::Received(which) => (RoutesOf::Received, which),
    };
    let question = RoutesQuestion { peer: name, of, only: prefix.map(|prefix| prefix.to_string()) };
    let asked = block_on("show", admin::routes_of(&daemon.socket(), PATIENCE, &question))?;
    let Answer { envelope, content } = asked.map_err(|source| Failure::Daemon { verb: "show", source })?;
    complain(&envelope.warnings);
    print(&match output {
        None | Some(Output::Wide) => text(&content, output.is_some()),
        Some(form) => write(envelope, content, form)?,
    })
}

fn text(found: &PeerRoutesStatus, wide: bool) -> String {
    let mut headings = vec!["PREFIX", "PATH ID", "STATE", "NEXT HOP", "AS PATH", "MED", "LOCAL PREF", "COMMUNITIES"];
    if wide {
        headings.extend(["ORIGIN", "EXTENDED COMMUNITIES", "ORIGINATOR", "CLUSTERS", "OTHER"]);
    }
    headings.push("REASON");
    table(&headings, &found.routes.iter().map(|route| row(route, wide)).collect::<Vec<_>>())
}

fn row(route: &RouteDetails, wide: bool) -> Vec<String> {
    let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    let next_hops = route.next_hop.into_iter().chain(route.link_local_next_hop).map(|address| address.to_string());
    let mut row = vec![
        route.prefix.clone(),
        number(route.path_id),
        format!("{:?}", route.state),
        next_hops.collect::<Vec<_>>().join(" "),
        route.as_path.clone().unwrap_or_default(),
        number(route.med),
        number(route.local_preference),
        [route.communities.as_slice(), route.large_communities.as_slice()].concat().join(" "),
    ];
    if wide {
        row.push(route.origin.clone().unwrap_or_default());
        row.push(route.extended_communities.join(", "));
        row.push(route.originator_id.map(|originator| originator.to_string()).unwrap_or_default());
        row.push(route.cluster_list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
        row.push(others(route));
    }
    row.push(route.reason.clone().unwrap_or_default());
    row
}

/// Attributes that few routes have.
fn others(route: &RouteDetails) -> String {
    let mut words = Vec::new();
    words.extend(route.atomic_aggregate.then(|| "ATOMIC_AGGREGATE".to_owned()));
    words.extend(route.aggregator.as_ref().map(|aggregator| format!("AGGREGATOR {aggregator}")));
    words.extend(route.only_to_customer.map(|asn| format!("ONLY_TO_CUSTOMER {asn}")));
    words.extend(route.unknown.iter().map(|unknown| format!("attribute {unknown}")));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::RouteStanding;

    #[test]
    fn tables() {
        let plain = RouteDetails {
            prefix: "10.0.0.7/32".to_owned(),
            next_hop: Some([192, 0, 2, 1].into()),
            as_path: Some("65001 65001".to_owned()),
            med: Some(50),
            communities: vec!["65001:100".to_owned(), "NO_EXPORT".to_owned()],
            large_communities: vec!["65001:100:7".to_owned()],
            origin: Some("IGP".to_owned()),
            ..RouteDetails::default()
        };
        let reflected = RouteDetails {
            path_id: Some(2),
            state: RouteStanding::Stale,
            originator_id: Some([192, 0, 2, 9].into()),
            cluster_list: vec![[192, 0, 2, 8].into(), [192, 0, 2, 7].into()],
            atomic_aggregate: true,
            aggregator: Some("65009 192.0.2.9".to_owned()),
            unknown: vec!["99: 00".to_owned()],
            ..plain.clone()
        };
        let reason = Some("the session does not carry ipv6-unicast".to_owned());
        let withheld =
            RouteDetails { prefix: "2001:db8::1/128".to_owned(), state: RouteStanding::Withheld, reason, ..RouteDetails::default() };
        let found = PeerRoutesStatus { peer: "tor".to_owned(), note: None, routes: vec![plain, reflected, withheld] };
        let document = include_str!("../../../docs/show.md");
        let narrow = text(&found, false);
        assert!(document.contains(&format!("```text\n{narrow}```")), "docs/show.md lacks:\n{narrow}");
        insta::assert_snapshot!(format!("{narrow}\n{}", text(&found, true)));
    }
}
