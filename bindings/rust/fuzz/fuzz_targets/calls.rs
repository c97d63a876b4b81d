// SPDX-License-Identifier: Apache-2.0
#![no_main]
#[path = "../calls.rs"]
mod calls;

libfuzzer_sys::fuzz_target!(|data: &[u8]| calls::run(data));
