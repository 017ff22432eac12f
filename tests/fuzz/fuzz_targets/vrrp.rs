// SPDX-License-Identifier: Apache-2.0
//! What [`targets::advertisement`] is given by the fuzzer.
#![no_main]

#[path = "../src/vrrp.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| targets::advertisement(input));
