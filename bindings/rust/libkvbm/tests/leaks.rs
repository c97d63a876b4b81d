// SPDX-License-Identifier: Apache-2.0
//! Drops end what they should, in any order, and rounds of everything do not grow the process.

mod common;
use common::{world, World};
use libkvbm::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Counts what is allocated through Rust; the library's own memory is seen by its counters.
struct Counting;
static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything to the system's allocator.
unsafe impl std::alloc::GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { std::alloc::System.alloc(layout) }
    }
    unsafe fn dealloc(&self, data: *mut u8, layout: std::alloc::Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { std::alloc::System.dealloc(data, layout) }
    }
}
#[global_allocator]
static COUNTING: Counting = Counting;

fn use_everything(w: &World, round: u32) {
    let cache = w.cache(8);
    let queue = Queue::new(&w.context, 4).unwrap();
    let keys = w.keys(1000 * round, 4);
    let blocks = w.registered(&keys, 1);
    let weak = blocks.downgrade().unwrap();
    drop(blocks.clone());
    drop(weak.upgrade().unwrap());
    cache.store(&w.keys(1000 * round + 500, 2), &[0, 1], &StoreOptions::default()).unwrap().all().unwrap();
    let found = w.manager.lookup(&w.ns, &keys, &LookupOptions::default()).unwrap();
    let loaded = cache.load_async(&found, &[4, 5, 6, 7], &LoadOptions::default(), &queue).unwrap();
    if round % 2 == 0 {
        drop(loaded);
    } else {
        loaded.wait().unwrap().all().unwrap();
    }
    assert!(cache.load_async(&found, &[99], &LoadOptions::default(), &queue).is_err());
    drop((cache, queue, blocks, weak, found));
}

/// Waits until the queue's threads have ended by themselves and released their objects: at once, unless the machine is
/// busy.
fn within_a_minute(is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

fn settle(w: &World, want: impl Fn(&Stats) -> bool) {
    assert!(within_a_minute(|| want(&w.manager.stats().unwrap())), "still there: {:?}", w.manager.stats().unwrap());
}

#[test]
fn rounds_of_everything_leave_nothing_and_any_order_of_drops_will_do() {
    let w = world(64);
    let nothing = |s: &Stats| s.holds == 0 && s.matches == 0 && s.operations_in_flight == 0;
    (0..10).for_each(|round| use_everything(&w, round));
    settle(&w, nothing);
    let before = LIVE.load(Ordering::SeqCst);
    (10..200).for_each(|round| use_everything(&w, round));
    settle(&w, nothing);
    // Threads that end now may hold a little; a leak of one cache would be 190 times 64 KiB.
    let grown = || LIVE.load(Ordering::SeqCst).saturating_sub(before);
    assert!(within_a_minute(|| grown() < 64 << 10), "{} bytes more than before", grown());

    // Parents first, then what hangs on them.
    let World { context, manager, ns } = w;
    let keys = ns.key_chain(None, &[1, 2, 3, 4], 2).unwrap();
    let cache = Cache::attach(&manager, &ns, CacheMemory::opaque(4, common::BLOCK).unwrap()).unwrap();
    let queue = Queue::new(&context, 2).unwrap();
    drop(context);
    let mut blocks = manager.allocate(&ns, 2).unwrap();
    blocks.views_mut().unwrap().into_slices().for_each(|b| b.fill(3));
    let blocks = blocks.complete().unwrap().register(&ns, &keys).unwrap();
    let found = manager.lookup(&ns, &keys, &LookupOptions::default()).unwrap();
    drop((manager, ns));
    let loaded = cache.load_async(&found, &[0, 1], &LoadOptions::default(), &queue).unwrap();
    drop((found, queue, cache));
    loaded.wait().unwrap().all().unwrap();
    assert_eq!(blocks.views().unwrap()[1][0], 3);
}
