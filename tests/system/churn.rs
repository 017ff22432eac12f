// SPDX-License-Identifier: Apache-2.0
//! Many VIPs that come and go without rest: the session does not notice, and in the end everything is exact.

use std::time::{Duration, Instant};

use crate::rig::{Random, Rig, Settings, many, wait_until_equal};

const FOR: Duration = Duration::from_secs(60);

#[test]
fn five_hundred_vips_for_a_minute() {
    let mut random = Random::new();
    let pool = many(250);
    let mut desired = random.subset(&pool, 50);
    let rig = Rig::serving("churn", Settings::default(), &desired);
    let session = rig.session();
    let start = Instant::now();
    let (mut rounds, mut changes, mut settled) = (0_u32, 0, 0_u32);
    while start.elapsed() < FOR {
        rounds += 1;
        let percent = [0, 5, 50, 95, 100][usize::try_from(random.below(5)).unwrap()];
        let next = random.subset(&pool, percent);
        changes += next.symmetric_difference(&desired).count();
        desired = next;
        rig.daemon.publish(&desired);
        if random.below(4) == 0 {
            wait_until_equal("routes of BIRD", &desired, || rig.tor.learned());
            assert_eq!(rig.session(), session, "after {rounds} rounds");
            settled += 1;
        } else {
            random.pause(Duration::from_millis(400));
        }
    }
    println!(
        "{rounds} rounds with {changes} additions and removals, {settled} of them waited for; {} withdrawals came",
        rig.tor.withdrawals()
    );
    desired = random.subset(&pool, 50);
    rig.daemon.publish(&desired);
    rig.wait_until_exact(&desired);
    assert_eq!(rig.session(), session);
    assert_eq!(rig.tor.notifications(), Vec::<String>::new());
}
