// SPDX-License-Identifier: Apache-2.0
//! The fuzz target with fixed seeds. KVBMTEST_FUZZ says how many programs, KVBMTEST_FIRST which is the first.

#[path = "../../fuzz/calls.rs"]
mod calls;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn random(state: &mut u64) -> u64 {
    // splitmix64
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn programs_of_random_calls_do_not_crash_and_get_their_own_bytes() {
    let first = from_environment("KVBMTEST_FIRST", 1);
    for seed in first..first + from_environment("KVBMTEST_FUZZ", 300) {
        let mut state = seed;
        let program: Vec<u8> = (0..50 + random(&mut state) % 400).map(|_| random(&mut state) as u8).collect();
        if let Err(panic) = std::panic::catch_unwind(|| calls::run(&program)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
