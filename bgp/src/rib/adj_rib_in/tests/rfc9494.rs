// SPDX-License-Identifier: Apache-2.0
//! Long-lived stale routes over several losses.

use super::*;

/// Restarts for 60 s and lists only these families there.
fn listed(families: &[Family], long_lived: u32) -> Negotiated {
    let mut negotiated = restarting(long_lived);
    let restart = negotiated.graceful_restart.as_mut().unwrap();
    restart.families.retain(|family, _| families.contains(family));
    negotiated
}

/// Long-lived since second 60, until second 3660.
fn long_lived() -> Bench {
    let mut bench = Bench::new(restarting(3600));
    bench.announce([1, 2]);
    bench.lose(0);
    bench.expire(60);
    assert_eq!(bench.adj_rib_in.deadline(), Some(at(3660)));
    bench
}

#[test]
fn rfc9494_section_4_2_consecutive_restarts_do_not_end_long_lived_stale_routes() {
    let mut bench = long_lived();
    bench.come_back(restarting(3600));
    bench.announce([2, 3]);
    bench.lose(1000);
    assert_eq!(bench.used(), [1, 2, 3]);
    assert!(bench.used[&nlri(1)].is_long_lived_stale() && !bench.used[&nlri(3)].is_long_lived_stale());
    bench.expire(1060);
    assert!(bench.used.values().all(|route| route.is_long_lived_stale()), "the restart time of the second loss is over");
    bench.expire(3660);
    assert_eq!(bench.used(), []);
}

#[test]
fn rfc9494_section_4_2_the_time_is_not_set_anew_before_the_peer_has_told_everything() {
    let mut bench = long_lived();
    for loss in [1000, 2000, 3000] {
        bench.come_back(restarting(3600));
        assert_eq!(bench.adj_rib_in.deadline(), Some(at(3660)), "it goes on while the session is up");
        bench.lose(loss);
        assert_eq!(bench.adj_rib_in.deadline(), Some(at(loss + 60)));
        bench.expire(loss + 60);
        assert_eq!(bench.adj_rib_in.deadline(), Some(at(3660)));
    }
    bench.come_back(restarting(3600));
    bench.announce([1]);
    bench.receive(&Update::end_of_rib(Family::Ipv4Unicast));
    bench.receive(&Update::end_of_rib(Family::Ipv6Unicast));
    assert_eq!(bench.used(), [1]);
    bench.lose(3500);
    bench.expire(3560);
    assert_eq!((bench.used(), bench.adj_rib_in.deadline()), (vec![1], Some(at(7160))));
}

#[test]
fn rfc9494_section_4_2_a_loss_near_the_end_waits_no_longer() {
    let mut bench = long_lived();
    bench.come_back(restarting(3600));
    bench.lose(3630);
    bench.expire(3659);
    assert_eq!(bench.used(), [1, 2]);
    bench.expire(3660);
    assert_eq!(bench.used(), []);

    let mut bench = long_lived();
    bench.come_back(restarting(3600));
    bench.announce([2]);
    bench.expire(3660);
    assert_eq!(bench.used(), [2], "synchronizing");
}

#[test]
fn rfc9494_section_4_2_what_is_kept_no_longer_goes_at_once() {
    let mut bench = long_lived();
    bench.come_back(restarting(3600));
    let learnt = bench.adj_rib_in.session_lost(None, at(1000));
    bench.take(learnt);
    assert_eq!((bench.used(), bench.adj_rib_in.deadline()), (vec![], None));
    let mut bench = long_lived();
    bench.come_back(negotiated(65001));
    assert_eq!((bench.used(), bench.adj_rib_in.deadline()), (vec![], None));
}

#[test]
fn rfc9494_section_4_2_a_family_that_is_not_listed_has_a_restart_time_of_zero() {
    let mut bench = Bench::new(listed(&[Family::Ipv6Unicast], 3600));
    bench.announce([1]);
    bench.lose(0);
    assert!(bench.used[&nlri(1)].is_long_lived_stale());
    bench.expire(3600);
    assert_eq!(bench.used(), []);
    let mut bench = Bench::new(listed(&[Family::Ipv6Unicast], 0));
    bench.announce([1]);
    bench.lose(0);
    assert_eq!(bench.used(), [], "both are zero");
}

#[test]
fn rfc9494_section_4_2_both_times_apply_one_after_the_other() {
    for (restart_time, long_lived, tagged_at, gone_at) in [(0, 3600, Some(0), 3600), (60, 0, None, 60), (60, 3600, Some(60), 3660)] {
        let mut negotiated = restarting(long_lived);
        negotiated.graceful_restart.as_mut().unwrap().restart_time = restart_time;
        let mut bench = Bench::new(negotiated);
        bench.announce([1]);
        bench.lose(0);
        for second in [0, 59, 60, 3599, 3600, 3659, 3660] {
            bench.expire(second);
            let tagged = bench.used.get(&nlri(1)).map(|route| route.is_long_lived_stale());
            let expected = (second < gone_at).then(|| tagged_at.is_some_and(|at| at <= second));
            assert_eq!(tagged, expected, "{restart_time} {long_lived} at {second}");
        }
    }
}
