// SPDX-License-Identifier: Apache-2.0
//! What a busy client sees of changes, with IPVS: nothing. Runs in the guest that `tests/uml` boots; `tests/nft_balancing.rs` has the same cases for nft.
#![allow(clippy::disallowed_macros, clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking, and prints its figures")]

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/expanded.rs"]
mod expanded;
#[path = "common/stage.rs"]
mod stage;
#[path = "common/traffic.rs"]
mod traffic;

#[test]
fn no_error_while_schedulers_back_ends_and_ports_change() {
    traffic::no_error_while_schedulers_back_ends_and_ports_change("ipvs", &["rr", "wrr", "lc", "wlc", "sed", "nq", "lblc", "sh", "mh"]);
}

#[test]
fn only_connections_of_removed_back_ends_end() {
    traffic::only_connections_of_removed_back_ends_end("ipvs");
}

#[test]
fn no_error_while_kube_proxy_takes_over_and_gives_back() {
    traffic::no_error_while_kube_proxy_takes_over_and_gives_back("ipvs");
}

#[test]
fn no_error_while_kube_proxy_gives_back_and_a_setting_is_missing() {
    traffic::no_error_while_kube_proxy_gives_back_and_a_setting_is_missing("ipvs", "net/ipv4/vs/conntrack");
}

#[test]
fn no_error_while_a_long_range_of_ports_changes() {
    traffic::no_error_while_a_long_range_of_ports_changes("ipvs");
}

#[test]
fn no_error_where_a_hand_over_ends_halfway() {
    traffic::no_error_where_a_hand_over_ends_halfway("ipvs");
}

#[test]
fn no_error_while_a_range_is_expanded_and_back() {
    traffic::no_error_while_a_range_is_expanded_and_back("ipvs");
}

#[test]
fn no_error_while_ranges_are_split_and_joined() {
    traffic::no_error_while_ranges_are_split_and_joined("ipvs");
}

#[test]
fn connections_go_on_where_single_ports_with_an_offset_become_a_range() {
    expanded::connections_go_on_where_single_ports_with_an_offset_become_a_range("ipvs");
}

#[test]
fn a_client_keeps_its_real_server_while_a_range_is_expanded_and_back() {
    expanded::a_client_keeps_its_real_server_while_a_range_is_expanded_and_back("ipvs");
}
