// SPDX-License-Identifier: Apache-2.0
//! A forked child gets errors from its parent's objects, and its drops leave the parent alone.

mod common;
use common::world;
use libkvbm::*;
use std::ffi::c_int;

extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(code: c_int) -> !;
}

fn forked<T>(result: Result<T>) -> bool {
    result.err().is_some_and(|error| error.status() == Status::FORKED && error.band() == Band::Caller)
}

#[test]
fn a_forked_child_is_told_so() {
    let w = world(16);
    let cache = w.cache(8);
    let queue = Queue::new(&w.context, 8).unwrap();
    let keys = w.keys(1, 2);
    let blocks = w.registered(&keys, 1);
    let partial = w.manager.allocate(&w.ns, 1).unwrap();
    let found = cache.lookup(&keys, &LookupOptions::default()).unwrap();
    // The completion is taken by the parent.
    let stored = cache.store_async(&w.keys(50, 2), &[0, 1], &StoreOptions::default(), &queue).unwrap();
    // SAFETY: the child calls the crate and ends itself.
    let child = unsafe { fork() };
    if child == 0 {
        let part = Part::default();
        let answers = [
            forked(w.context.config()),
            forked(Queue::new(&w.context, 1)),
            forked(w.manager.lookup(&w.ns, &keys, &LookupOptions::default())),
            forked(w.manager.allocate(&w.ns, 1)),
            forked(w.manager.stats()),
            forked(w.ns.key_chain(None, &[1], 1)),
            forked(blocks.views()),
            forked(blocks.try_clone()),
            partial.complete().err().is_some_and(|refused| forked(Err::<(), _>(refused.error))),
            forked(cache.block(0, 0)),
            forked(cache.store(&keys, &[0, 1], &StoreOptions::default())),
            forked(cache.load(&found, &[0, 1], &LoadOptions::default())),
            forked(w.manager.prefetch_async(&w.ns, part, &keys, &queue)),
            forked(queue.poll()),
            forked(stored.cancel()),
            forked(stored.wait()),
        ];
        let wrong = answers.iter().position(|told| !told);
        drop((blocks, found, cache, queue, w));
        // SAFETY: ends this child, without what the parent's test harness does at exit.
        unsafe { _exit(wrong.map_or(0, |i| i as c_int + 1)) };
    }
    let mut status = 0;
    // SAFETY: the child was made above.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "question number {} minus one was answered wrongly, or it crashed", status >> 8);
    stored.wait().unwrap().all().unwrap();
    assert_eq!(blocks.views().unwrap()[1][0], 1);
    assert_eq!(w.hits(&keys), 2);
    drop(partial);
}
