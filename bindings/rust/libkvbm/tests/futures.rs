// SPDX-License-Identifier: Apache-2.0
//! Operations as futures: on the queue's own thread in any executor, in loops of one's own, and waits of many threads at
//! once.

mod common;
use common::{world, World, BLOCK};
use libkvbm::*;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

struct Unpark(Thread);
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor there is.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

async fn round_trip(w: &World, cache: &Cache, queue: &Queue, first: u32, at: u32) {
    let keys = w.keys(first, 2);
    cache.block_mut(0, at).unwrap().fill(first as u8);
    cache.block_mut(0, at + 1).unwrap().fill(first as u8 + 1);
    let stored = cache.store_async(&keys, &[at, at + 1], &StoreOptions::default(), queue).unwrap();
    stored.await.unwrap().all().unwrap();
    let found = cache.lookup(&keys, &LookupOptions::default()).unwrap();
    // The other way round, so that the load is seen.
    let loaded = cache.load_async(&found, &[at + 1, at], &LoadOptions::default(), queue).unwrap().await.unwrap();
    assert_eq!((loaded.op, loaded.status, loaded.bytes), (OpKind::Load, Status::OK, 2 * BLOCK as u64));
    assert_eq!(cache.block(0, at + 1).unwrap()[0], first as u8);
}

#[test]
fn a_future_is_woken_in_any_executor() {
    let w = world(64);
    let cache = w.cache(8);
    let queue = Queue::new(&w.context, 8).unwrap();
    for round in 0..20 {
        block_on(round_trip(&w, &cache, &queue, 100 * round, 0));
    }
}

#[test]
fn many_threads_wait_on_one_queue() {
    let w = world(256);
    let cache = w.cache(64);
    let queue = Queue::new(&w.context, 64).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6u32 {
            let (w, cache, queue) = (&w, &cache, &queue);
            scope.spawn(move || {
                for round in 0..10 {
                    let keys = w.keys(10_000 * thread + 100 * round, 4);
                    let ids: Vec<u32> = (0..4).map(|i| 8 * thread + i).collect();
                    let stored = cache.store_async(&keys, &ids, &StoreOptions::default(), queue).unwrap();
                    if thread % 2 == 0 {
                        stored.wait().unwrap().all().unwrap();
                    } else {
                        block_on(stored).unwrap().all().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_wait_with_a_timeout_gives_the_operation_back() {
    let w = world(64);
    let cache = w.cache(8);
    let queue = Queue::new(&w.context, 8).unwrap();
    let mut stored = cache.store_async(&w.keys(1, 4), &[0, 1, 2, 3], &StoreOptions::default(), &queue).unwrap();
    let done = loop {
        if let Some(done) = stored.wait_for(Duration::ZERO).unwrap() {
            break done;
        }
    };
    done.all().unwrap();
    assert_eq!(stored.cancel().err().unwrap().status(), Status::STALE);
}

#[test]
fn a_full_queue_refuses_and_claims_nothing() {
    let w = world(64);
    let cache = w.cache(8);
    let queue = Queue::new(&w.context, 1).unwrap();
    let first = cache.store_async(&w.keys(1, 1), &[0], &StoreOptions::default(), &queue).unwrap();
    let second = cache.store_async(&w.keys(50, 1), &[1], &StoreOptions::default(), &queue);
    assert_eq!(second.err().unwrap().status(), Status::AGAIN);
    assert!(cache.block_mut(0, 1).is_ok());
    first.wait().unwrap().all().unwrap();
}

#[test]
fn dropped_futures_are_cancelled_and_their_claims_end() {
    let w = world(64);
    let cache = w.cache(8);
    let queue = Queue::new(&w.context, 8).unwrap();
    for round in 0..50 {
        let mut stored =
            cache.store_async(&w.keys(100 * round, 4), &[0, 1, 2, 3], &StoreOptions::default(), &queue).unwrap();
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut task = TaskContext::from_waker(&waker);
        let _ = std::pin::Pin::new(&mut stored).poll(&mut task);
        drop(stored);
        while queue.in_flight() != 0 {
            std::thread::yield_now();
        }
        assert!(cache.block_mut(0, 0).is_ok());
    }
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn the_driver_wakes_futures_without_a_thread_of_the_queue() {
        let w = world(256);
        let cache = w.cache(64);
        let queue = Queue::new(&w.context, 64).unwrap();
        runtime().block_on(async {
            let _driver = Driver::spawn(&queue).unwrap();
            for round in 0..20 {
                round_trip(&w, &cache, &queue, 100 * round, 0).await;
            }
        });
        // And with the runtime gone, the queue's own thread goes on.
        block_on(round_trip(&w, &cache, &queue, 5000, 0));
    }

    #[test]
    fn a_thread_that_waits_does_not_starve_the_driver() {
        let w = world(256);
        let cache = w.cache(64);
        let queue = Queue::new(&w.context, 64).unwrap();
        std::thread::scope(|scope| {
            let (w, cache, queue) = (&w, &cache, &queue);
            scope.spawn(move || {
                for round in 0..50 {
                    let keys = w.keys(500_000 + 100 * round, 2);
                    let stored = cache.store_async(&keys, &[30, 31], &StoreOptions::default(), queue).unwrap();
                    stored.wait().unwrap().all().unwrap();
                }
            });
            runtime().block_on(async {
                let _driver = Driver::spawn(queue).unwrap();
                for round in 0..50 {
                    round_trip(w, cache, queue, 100 * round, 0).await;
                }
            });
        });
    }

    #[test]
    fn events_are_waited_for() {
        let w = world(16);
        let events = Events::new(&w.context).unwrap();
        w.manager.subscribe(Some(&events)).unwrap();
        runtime().block_on(async {
            assert!(tokio::time::timeout(Duration::from_millis(1), events.next(8)).await.is_err());
            drop(w.registered(&w.keys(1, 2), 1));
            assert_eq!(events.next(8).await.unwrap().len(), 2);
        });
        assert_eq!(Driver::spawn(&Queue::new(&w.context, 1).unwrap()).err().unwrap().status(), Status::STATE);
    }
}
