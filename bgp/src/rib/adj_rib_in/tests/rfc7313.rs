// SPDX-License-Identifier: Apache-2.0
//! The marks of a refresh, beside graceful restart.

use super::*;

fn refresh_ends(bench: &mut Bench) {
    let learnt = bench.adj_rib_in.refresh_ends(Family::Ipv4Unicast);
    bench.take(learnt);
}

#[test]
fn rfc7313_section_4_a_beginning_before_end_of_rib_is_ignored() {
    let mut bench = Bench::new(restarting(0));
    bench.announce([1, 2]);
    bench.lose(0);
    bench.come_back(restarting(0));
    bench.announce([1]);
    bench.adj_rib_in.refresh_begins(Family::Ipv4Unicast);
    refresh_ends(&mut bench);
    assert_eq!(bench.used(), [1, 2], "neither what is told is stale, nor is the first set complete");
    bench.receive(&Update::end_of_rib(Family::Ipv4Unicast));
    assert_eq!(bench.used(), [1]);
    bench.adj_rib_in.refresh_begins(Family::Ipv4Unicast);
    refresh_ends(&mut bench);
    assert_eq!(bench.used(), [], "it counts after End-of-RIB");
}

#[test]
fn rfc7313_section_4_a_peer_without_graceful_restart_needs_no_end_of_rib() {
    let mut bench = Bench::new(negotiated(65001));
    bench.come_back(negotiated(65001));
    bench.announce([1, 2]);
    bench.adj_rib_in.refresh_begins(Family::Ipv4Unicast);
    bench.announce([2]);
    refresh_ends(&mut bench);
    assert_eq!(bench.used(), [2]);
}

#[test]
fn rfc7313_section_4_an_end_without_a_beginning_takes_nothing() {
    let mut bench = Bench::new(restarting(0));
    bench.announce([1, 2]);
    bench.lose(0);
    bench.come_back(restarting(0));
    refresh_ends(&mut bench);
    assert_eq!(bench.used(), [1, 2], "they are stale by the restart, and End-of-RIB is to come");
}

#[test]
fn rfc7313_section_4_a_refresh_ends_with_its_session() {
    let mut bench = Bench::new(restarting(0));
    bench.announce([1, 2]);
    bench.adj_rib_in.refresh_begins(Family::Ipv4Unicast);
    bench.lose(0);
    bench.come_back(restarting(0));
    refresh_ends(&mut bench);
    assert_eq!(bench.used(), [1, 2]);
}
