// SPDX-License-Identifier: Apache-2.0
//! What [`vipherald_fuzz::open`] is given by the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vipherald_fuzz::open(input));
