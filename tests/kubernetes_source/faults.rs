// SPDX-License-Identifier: Apache-2.0
//! An API server that fails in every way: nothing is taken away, the trouble is told, and it is over soon after it ends.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use vipherald::api::Kind;
use vipherald::source::Snapshots;

use crate::api_proxy::{Fault, Flow, Requests, Verb};
use crate::apiserver::block_on;
use crate::common::wait_until_async;
use crate::scene::{Followed, LIMIT, Scene, services};

/// What is promised: news come within this time after the fault has ended.
const RECOVERY: Duration = Duration::from_secs(5);

/// Looks at every snapshot; fails when one lacks what was there before.
struct Witness(JoinHandle<()>);

impl Witness {
    fn of(mut snapshots: Snapshots) -> Self {
        Self(tokio::spawn(async move {
            while snapshots.changed().await.is_ok() {
                let snapshot = snapshots.borrow_and_update().clone().unwrap();
                assert!(services(&snapshot).contains(&"web"), "{:?}", snapshot.services.keys());
                assert!(snapshot.endpoint_slices.keys().any(|name| name.name == "web-1"));
                assert_eq!((snapshot.nodes.len(), snapshot.complete), (1, true));
            }
        }))
    }

    fn assert_content(&self) {
        assert!(!self.0.is_finished(), "something was taken away");
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits until the source has asked for Services so often since then.
async fn until_asked(scene: &Scene, since: Instant, times: usize) {
    wait_until_async("it is tried again", LIMIT, async || {
        scene.proxy.seen().iter().filter(|seen| seen.at >= since && seen.resource == "services").count() >= times
    })
    .await;
}

/// Waits until the watches of all kinds are under way.
async fn until_watched(scene: &Scene) {
    wait_until_async("all kinds are watched", LIMIT, async || watches(scene, Flow::Pass) == Kind::ALL.len()).await;
}

/// Does this to the watches under way, and tells how many they are.
fn watches(scene: &Scene, flow: Flow) -> usize {
    scene.proxy.streams(&Requests::verb(Verb::Watch), flow)
}

async fn recovers(scene: &Scene, followed: &mut Followed, name: &str) {
    let ended = Instant::now();
    followed.until_service(name, true).await;
    followed.until_health("all kinds are followed again", |health| health.lost_since().is_none()).await;
    assert!(ended.elapsed() < RECOVERY, "{name}: {:?}", ended.elapsed());
    scene.server.kubectl(&["-n", "enm", "delete", "service", name], "");
    followed.until_service(name, false).await;
}

#[test]
fn refusals_take_nothing_away_and_are_soon_over() {
    block_on(async || {
        let scene = Scene::new().await;
        let mut followed = scene.follow().await;
        followed.until_well().await;
        let witness = Witness::of(followed.snapshots.clone());
        let faults = [
            ("status-401", Fault::Status(401)),
            ("status-403", Fault::Status(403)),
            ("status-404", Fault::Status(404)),
            ("status-410", Fault::Status(410)),
            ("status-429", Fault::TooManyRequests { retry_after: 1 }),
            ("status-500", Fault::Status(500)),
            ("status-504", Fault::Status(504)),
        ];
        for (name, fault) in faults {
            until_watched(&scene).await;
            let begun = Instant::now();
            scene.proxy.fault(Requests::all(), fault);
            watches(&scene, Flow::Break);
            followed
                .until_health(&format!("{name} is told"), |health| health.lost_since().is_some_and(|since| since <= Instant::now()))
                .await;
            scene.add_service(name, "10.0.0.9");
            until_asked(&scene, begun, 4).await;
            witness.assert_content();
            scene.proxy.heal();
            recovers(&scene, &mut followed, name).await;
            followed.until_well().await;
        }
        witness.assert_content();
    });
}

#[test]
fn false_empty_lists_in_a_row_are_not_believed() {
    block_on(async || {
        let scene = Scene::new().await;
        let mut followed = scene.follow().await;
        followed.until_well().await;
        let witness = Witness::of(followed.snapshots.clone());
        until_watched(&scene).await;
        let begun = Instant::now();
        scene.proxy.fault(Requests::verb(Verb::List), Fault::EmptyList);
        scene.proxy.fault(Requests::verb(Verb::Watch), Fault::Expired);
        watches(&scene, Flow::Break);
        let told = followed.until_health("it is told", |health| health.troubles().iter().any(|trouble| trouble.contains("misses"))).await;
        assert!(told.lost_since().is_some());
        scene.add_service("empty-lists", "10.0.0.9");
        wait_until_async("several lists were empty", LIMIT, async || {
            let lists = |resource| {
                scene.proxy.seen().iter().filter(|seen| seen.at >= begun && seen.verb == Verb::List && seen.resource == resource).count()
            };
            lists("services") >= 4 && lists("nodes") >= 4 && lists("endpointslices") >= 4
        })
        .await;
        witness.assert_content();
        scene.proxy.heal();
        recovers(&scene, &mut followed, "empty-lists").await;
        witness.assert_content();
    });
}

#[test]
fn dropped_streams_and_a_server_that_is_away_take_nothing_away() {
    block_on(async || {
        let scene = Scene::new().await;
        let mut followed = scene.follow().await;
        followed.until_well().await;
        let witness = Witness::of(followed.snapshots.clone());
        for (name, flow) in [("broken", Flow::Break), ("ended", Flow::End)] {
            until_watched(&scene).await;
            watches(&scene, flow);
            scene.add_service(name, "10.0.0.9");
            recovers(&scene, &mut followed, name).await;
        }
        scene.proxy.go_away();
        let health = followed.until_health("it is told", |health| health.lost_since().is_some()).await;
        assert!(health.troubles().iter().any(|trouble| trouble.contains("cannot be reached")), "{:?}", health.troubles());
        scene.add_service("away", "10.0.0.9");
        tokio::time::timeout(LIMIT, async {
            // Longer than the longest pause, so that it is tried in vain at least once at each length.
            while health.lost_since().unwrap().elapsed() < Duration::from_secs(8) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await
        .unwrap();
        witness.assert_content();
        scene.proxy.come_back();
        recovers(&scene, &mut followed, "away").await;
        witness.assert_content();
    });
}

#[test]
fn a_restarted_server_is_followed_again_with_all_that_happened_meanwhile() {
    block_on(async || {
        let scene = Scene::new().await;
        let mut followed = scene.follow().await;
        followed.until_well().await;
        let witness = Witness::of(followed.snapshots.clone());
        scene.server.stop();
        followed.until_health("it is told", |health| health.lost_since().is_some()).await;
        scene.server.resume();
        followed.until_well().await;
        scene.add_service("after", "10.0.0.9");
        followed.until_service("after", true).await;
        witness.assert_content();
    });
}
