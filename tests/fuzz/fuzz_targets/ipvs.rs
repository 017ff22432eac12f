// SPDX-License-Identifier: Apache-2.0
//! What [`targets::datagram`] is given by the fuzzer.
#![no_main]

#[path = "../src/ipvs.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| targets::datagram(input));
