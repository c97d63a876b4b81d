// SPDX-License-Identifier: Apache-2.0
//! Attached caches: bytes that come back, and memory that is never aliased while the library uses it.

mod common;
use common::{world, world_of, BLOCK};
use libkvbm::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

fn fill(cache: &Cache, n: u32) {
    (0..n).for_each(|i| cache.block_mut(0, i).unwrap().fill(i as u8 + 1));
}

#[test]
fn stored_blocks_come_back() {
    let w = world(32);
    let cache = w.cache(16);
    let keys = w.keys(1, 8);
    fill(&cache, 8);
    cache.store(&keys, &(0..8).collect::<Vec<_>>(), &StoreOptions::default()).unwrap().all().unwrap();
    let found = cache.lookup(&keys, &LookupOptions::default()).unwrap();
    assert_eq!(found.hits(), 8);
    let done = cache.load(&found, &(8..16).collect::<Vec<_>>(), &LoadOptions::default()).unwrap();
    assert_eq!((done.status, done.item_status), (Status::OK, vec![Status::OK; 8]));
    for i in 0..8 {
        assert!(cache.block(0, 8 + i).unwrap().iter().all(|b| *b == i as u8 + 1));
    }
    assert_eq!(found.blocks(0, 2..4).unwrap().views().unwrap()[0][0], 3);
}

#[test]
fn a_guard_and_an_operation_exclude_each_other() {
    let w = world(32);
    let cache = w.cache(16);
    let keys = w.keys(1, 2);
    let in_use = |r: Result<Outcome>| assert_eq!(r.unwrap_err().status(), Status::IN_USE);
    {
        let _written = cache.block_mut(0, 1).unwrap();
        in_use(cache.store(&keys, &[0, 1], &StoreOptions::default()));
        assert_eq!(cache.block(0, 1).err().unwrap().status(), Status::IN_USE);
        assert_eq!(cache.tensor(0).err().unwrap().status(), Status::IN_USE);
    }
    {
        let _read = cache.block(0, 1).unwrap();
        let _too = cache.tensor(0).unwrap();
        cache.store(&keys, &[0, 1], &StoreOptions::default()).unwrap().all().unwrap();
        let found = cache.lookup(&keys, &LookupOptions::default()).unwrap();
        in_use(cache.load(&found, &[2, 1], &LoadOptions::default()));
    }
    let found = cache.lookup(&keys, &LookupOptions::default()).unwrap();
    in_use(cache.load(&found, &[2, 2], &LoadOptions::default()));
    cache.load(&found, &[2, 1], &LoadOptions::default()).unwrap().all().unwrap();
    // A guard that is forgotten keeps its block for good.
    std::mem::forget(cache.block(0, 5).unwrap());
    assert!(cache.block_mut(0, 5).is_err());
    assert!(cache.block_mut(0, 6).is_ok());
}

#[test]
fn what_an_operation_in_flight_uses_is_claimed_until_its_completion_is_taken() {
    let w = world(32);
    let cache = w.cache(16);
    let queue = Queue::new(&w.context, 8).unwrap();
    fill(&cache, 4);
    let keys = w.keys(1, 4);
    let stored = cache.store_async(&keys, &[0, 1, 2, 3], &StoreOptions::default(), &queue).unwrap();
    // The completion was not taken yet, so this holds whatever the library has done.
    assert_eq!(cache.block_mut(0, 2).err().unwrap().status(), Status::IN_USE);
    assert!(cache.block(0, 2).is_ok());
    let done = stored.wait().unwrap();
    assert_eq!((done.op, done.items_done, done.items, done.item_status.len()), (OpKind::Store, 4, 4, 4));
    assert!(cache.block_mut(0, 2).is_ok());
    let found = cache.lookup(&keys, &LookupOptions::default()).unwrap();
    let loaded = cache.load_async(&found, &[8, 9, 10, 11], &LoadOptions::default(), &queue).unwrap();
    assert!(cache.block(0, 9).is_err());
    drop(found);
    loaded.wait().unwrap().all().unwrap();
    assert_eq!(cache.block(0, 9).unwrap()[0], 2);
}

#[test]
fn a_dropped_operation_and_cache_leave_nothing_behind() {
    let w = world(64);
    let queue = Queue::new(&w.context, 64).unwrap();
    for round in 0..20 {
        let cache = w.cache(16);
        let keys = w.keys(1000 * round, 8);
        let operation =
            cache.store_async(&keys, &(0..8).collect::<Vec<_>>(), &StoreOptions::default(), &queue).unwrap();
        drop(operation);
        drop(cache);
    }
    drop(queue);
    while w.manager.stats().unwrap().operations_in_flight != 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_forgotten_operation_keeps_its_memory_and_lets_go_of_it_when_it_ends() {
    let w = world(32);
    let queue = Queue::new(&w.context, 8).unwrap();
    let cache = w.cache(4);
    let keys = w.keys(1, 4);
    std::mem::forget(cache.store_async(&keys, &[0, 1, 2, 3], &StoreOptions::default(), &queue).unwrap());
    assert!(cache.block_mut(0, 0).is_err());
    while queue.in_flight() != 0 {
        queue.poll().unwrap();
    }
    assert!(cache.block_mut(0, 0).is_ok());
    // And with the queue and the cache gone first, the library still has all it writes to.
    std::mem::forget(cache.store_async(&w.keys(90, 4), &[0, 1, 2, 3], &StoreOptions::default(), &queue).unwrap());
    drop((cache, queue));
}

struct Told(Arc<AtomicBool>);
impl Drop for Told {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn raw_memory_is_kept_until_the_last_operation_ends() {
    let w = world(32);
    let gone = Arc::new(AtomicBool::new(false));
    let mut memory = vec![3u8; 4 * BLOCK];
    let tensor =
        RawTensor { data: memory.as_mut_ptr(), bytes: 4 * BLOCK as u64, block_stride: 0, page_bytes: BLOCK as u64 };
    let part = RawPart { part: Part::default(), form: Form::Opaque, tensors: vec![tensor] };
    let keep: Box<dyn std::any::Any + Send + Sync> = Box::new((Told(gone.clone()), memory));
    // SAFETY: the memory lives in `keep`, and only the operations below use it.
    let cache = unsafe { Cache::attach_raw(&w.manager, &w.ns, 4, &[part], Some(keep)) }.unwrap();
    assert_eq!(cache.block(0, 0).err().unwrap().status(), Status::UNSUPPORTED);
    let queue = Queue::new(&w.context, 8).unwrap();
    let operation = cache.store_async(&w.keys(1, 4), &[0, 1, 2, 3], &StoreOptions::default(), &queue).unwrap();
    drop(cache);
    assert!(!gone.load(Ordering::SeqCst));
    operation.wait().unwrap().all().unwrap();
    assert!(gone.load(Ordering::SeqCst));
}

#[test]
fn layouts_of_a_geometry_are_stored_and_loaded_in_another_form() {
    let bf16 = Component { element: Element::Bf16, layers: 2, heads: 2, head_dim: 8, ..Default::default() };
    let geometry = Geometry::new(4, 1, &[bf16]).unwrap();
    let w = world(4);
    assert_eq!(geometry.record_bytes(0, None).unwrap(), 2 * 2 * 4 * 2 * 8 * 2);
    let who = NamespaceOptions { model: "shaped".into(), geometry: Some(geometry.clone()), ..Default::default() };
    let ns = Namespace::open(&w.manager, &who).unwrap();
    let layer = 2 * 8 * 4 * 2 * 8 * 2;
    let attach = |form| {
        let part = PartLayout { part: Part::default(), form, tensor_bytes: vec![layer; 2] };
        Cache::attach(&w.manager, &ns, CacheMemory::new(8, &[part]).unwrap()).unwrap()
    };
    let (from, to) = (attach(Form::BlocksNhd), attach(Form::Nhd));
    for tensor in 0..2 {
        from.block_mut(tensor, 5).unwrap().iter_mut().enumerate().for_each(|(i, b)| *b = (i + tensor) as u8);
    }
    assert_eq!(to.block(0, 1).err().unwrap().status(), Status::UNSUPPORTED);
    let keys = ns.key_chain(None, &[1, 2, 3, 4], 4).unwrap();
    from.store(&keys, &[5], &StoreOptions::default()).unwrap().all().unwrap();
    let found = to.lookup(&keys, &LookupOptions::default()).unwrap();
    to.load(&found, &[1], &LoadOptions::default()).unwrap().all().unwrap();
    // [K,V][block][...] of 8 blocks: K of block 1 is row 1, V is row 9.
    let (half, tensor, block) = (4 * 2 * 8 * 2, to.tensor(1).unwrap(), from.block(1, 5).unwrap());
    assert_eq!(tensor[half..2 * half], block[..half]);
    assert_eq!(tensor[9 * half..10 * half], block[half..]);
    assert!(geometry.fingerprint() != 0);
}

#[test]
fn a_disk_tier_gets_blocks_and_gives_them_back() {
    let folder = std::env::temp_dir().join(format!("kvbm-rust-{}", std::process::id()));
    let tier = Tier::disk(&folder, 64 << 20);
    let options = ManagerOptions {
        block_bytes: BLOCK as u64,
        host_capacity_bytes: 4096 + 16 * (BLOCK as u64 + 384),
        tiers: Some(vec![tier]),
        ..Default::default()
    };
    let w = world_of(&[], options.clone());
    let keys = w.keys(1, 4);
    drop(w.registered(&keys, 4));
    w.manager.offload(&w.ns, Part::default(), &keys, 1).unwrap();
    assert!(w.manager.flush(Some(Duration::from_secs(60))).unwrap().is_ok());
    drop(w);
    let w = world_of(&[], options);
    let queue = Queue::new(&w.context, 4).unwrap();
    assert_eq!(w.hits(&keys), 4);
    w.manager.prefetch_async(&w.ns, Part::default(), &keys, &queue).unwrap().wait().unwrap().all().unwrap();
    let found = w.manager.lookup(&w.ns, &keys, &LookupOptions::default()).unwrap();
    assert_eq!(found.blocks(0, 0..4).unwrap().views().unwrap()[3][BLOCK - 1], 4);
    drop((found, queue, w));
    let _ = std::fs::remove_dir_all(folder);
}
