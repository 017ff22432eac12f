// SPDX-License-Identifier: Apache-2.0
//! What nft does beside IPVS, with traffic: who is let in, what real servers see of a client, and who else may be on the node.
//!
//! Runs in the guest that `tests/uml` boots, on the stage of `tests/common/stage.rs`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/filters.rs"]
mod filters;
#[path = "common/stage.rs"]
mod stage;

#[test]
fn real_servers_see_the_client_where_object_or_configuration_say_so() {
    filters::real_servers_see_the_client_where_object_or_configuration_say_so("ipvs");
}

#[test]
fn ranges_of_ports_move_to_the_marks_that_the_configuration_gives_us() {
    filters::ranges_of_ports_move_to_the_marks_that_the_configuration_gives_us();
}

#[test]
fn exceptions_from_masquerading_are_clients_or_real_servers() {
    filters::exceptions_from_masquerading_are_clients_or_real_servers("ipvs");
}

#[test]
fn only_clients_that_a_service_admits_are_let_in() {
    filters::only_clients_that_a_service_admits_are_let_in("ipvs");
}

#[test]
fn every_router_serves_a_local_service_whose_real_servers_see_the_client() {
    filters::every_router_serves_a_local_service_whose_real_servers_see_the_client("ipvs");
}

#[test]
fn segments_of_translated_connections_are_clamped() {
    filters::segments_of_translated_connections_are_clamped("ipvs");
}

#[test]
fn echo_is_answered_up_to_a_bound() {
    filters::echo_is_answered_up_to_a_bound("ipvs");
}

#[test]
fn ports_that_nobody_serves_are_silent_or_refused() {
    filters::ports_that_nobody_serves_are_silent_or_refused("ipvs");
}

#[test]
fn marks_of_others_are_in_nobodys_way_and_ours_do_not_leave() {
    filters::marks_of_others_are_in_nobodys_way_and_ours_do_not_leave("ipvs");
}

#[test]
fn large_answers_pass_a_link_that_is_narrower_than_others() {
    filters::large_answers_pass_a_link_that_is_narrower_than_others("ipvs");
}
