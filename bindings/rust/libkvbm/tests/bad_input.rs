// SPDX-License-Identifier: Apache-2.0
//! What is wrong is an error of the caller's band, says what, and changes nothing.

mod common;
use common::{world, world_of, BLOCK};
use libkvbm::*;
use std::error::Error as _;
use std::time::Duration;

fn refused<T>(result: Result<T>, status: Status, text: &str) {
    let error = result.err().expect("refused");
    assert_eq!(error.status(), status, "{error}");
    assert!(error.message().contains(text), "no {text:?} in {error}");
    assert!(error.to_string().starts_with(status.name()) && error.source().is_none());
}

#[test]
fn texts_that_c_cannot_take() {
    let w = world(4);
    refused(Context::with_settings([("a\0b", "1")]), Status::INVALID, "zero byte");
    refused(Context::with_settings([("host.capacity", "1\0")]), Status::INVALID, "host.capacity");
    refused(Context::with_settings([("no.such", "1")]), Status::CONFIG, "no.such");
    let who = |model: &str| NamespaceOptions { model: model.into(), ..Default::default() };
    refused(Namespace::open(&w.manager, &who("a\0")), Status::INVALID, "model");
    refused(Namespace::open(&w.manager, &who("")), Status::INVALID, "model");
    let policy = ManagerOptions { policy: Some("none such".into()), ..Default::default() };
    refused(Manager::new(&w.context, &policy), Status::CONFIG, "none such");
    let file = ContextOptions { config_file: Some("/nowhere/kvbm.toml".into()), ..Default::default() };
    refused(Context::new(&file), Status::CONFIG, "/nowhere/kvbm.toml");
}

#[test]
fn lists_whose_lengths_do_not_agree() {
    let w = world(16);
    let cache = w.cache(8);
    let keys = w.keys(1, 4);
    refused(w.ns.key_chain(None, &[1, 2], 0), Status::INVALID, "block_tokens");
    refused(w.ns.key_chain_with(None, &[1, 2], 1, &[b"x"]), Status::INVALID, "1 extras");
    refused(w.ns.key_from_hashes(&[1, 2, 3], 2), Status::INVALID, "hashes");
    refused(w.ns.key_from_hashes(&[], 0), Status::INVALID, "hashes");
    refused(w.ns.key_from_hashes(&[0; 65], 65), Status::INVALID, "");
    refused(w.ns.key_from_hashes(&[0; 30], 15), Status::INVALID, "weak_hashes");
    let store = StoreOptions::default();
    refused(cache.store(&keys, &[0, 1, 2], &store), Status::INVALID, "3 block ids");
    refused(cache.store(&keys, &[0, 1, 2, 8], &store), Status::INVALID, "");
    let positions = StoreOptions { positions: vec![Position::default(); 3], ..Default::default() };
    refused(cache.store(&keys, &[0, 1, 2, 3], &positions), Status::INVALID, "3 positions");
    let units = StoreOptions { unit_keys: keys[..1].to_vec(), ..Default::default() };
    refused(cache.store(&keys, &[0, 1, 2, 3], &units), Status::INVALID, "1 unit_keys");
    cache.store(&keys, &[0, 1, 2, 3], &store).unwrap().all().unwrap();
    let found = cache.lookup(&keys, &LookupOptions::default()).unwrap();
    refused(cache.load(&found, &[0, 1, 2, 3, 4], &LoadOptions::default()), Status::INVALID, "");
    let first = LoadOptions { first_key: 9, ..Default::default() };
    refused(cache.load(&found, &[0], &first), Status::INVALID, "");
    let positions = LoadOptions { positions: vec![Position::default()], ..Default::default() };
    refused(cache.load(&found, &[0, 1], &positions), Status::INVALID, "1 positions");
    refused(found.items(2..5), Status::INVALID, "2..5");
    refused(found.blocks(1, 0..1), Status::INVALID, "");
    refused(found.blocks(0, 3..usize::MAX), Status::INVALID, "");
    let parts = LookupOptions { parts: vec![Part { component: 3, ..Default::default() }], ..Default::default() };
    refused(cache.lookup(&keys, &parts), Status::INVALID, "");
    let split = LocateOptions { request_keys: vec![3, 3], ..Default::default() };
    refused(w.manager.locate(&w.ns, &keys, &split), Status::INVALID, "");
    assert_eq!(w.manager.stats().unwrap().operations_in_flight, 0);
    assert!(cache.tensor_mut(0).is_ok(), "what was refused claims nothing");
}

#[test]
fn what_is_not_there() {
    let w = world(16);
    let cache = w.cache(8);
    let none = w.manager.lookup(&w.ns, &w.keys(1, 2), &LookupOptions::default()).unwrap();
    assert_eq!((none.hits(), none.count(), none.units()), (0, 0, 0));
    assert!(none.items(0..0).unwrap().is_empty() && none.blocks(0, 0..0).unwrap().is_empty());
    refused(none.items(0..1), Status::MISS, "nothing was found");
    refused(cache.load(&none, &[0], &LoadOptions::default()), Status::MISS, "nothing was found");
    refused(cache.block(1, 0).map(drop), Status::INVALID, "tensor 1");
    refused(cache.block(0, 8).map(drop), Status::INVALID, "block 8");
    refused(cache.block(0, NO_BLOCK).map(drop), Status::INVALID, "block");
    refused(w.manager.unpin(Pin(12345)), Status::STALE, "");
    refused(w.manager.offload(&w.ns, Part::default(), &w.keys(1, 1), 1), Status::INVALID, "");
    refused(w.manager.allocate(&w.ns, usize::MAX), Status::NO_MEMORY, "");
    refused(w.manager.allocate(&w.ns, 1 << 20), Status::NO_ROOM, "");
    assert!(w.manager.allocate(&w.ns, 0).unwrap().complete().unwrap().register(&w.ns, &[]).unwrap().is_empty());
}

#[test]
fn what_belongs_to_another_manager() {
    let (a, b) = (world(8), world(8));
    let keys = a.keys(1, 2);
    let cache = a.cache(4);
    refused(b.manager.lookup(&a.ns, &keys, &LookupOptions::default()), Status::FOREIGN, "");
    refused(b.manager.allocate(&a.ns, 1), Status::FOREIGN, "");
    refused(Cache::attach(&b.manager, &a.ns, CacheMemory::opaque(1, BLOCK).unwrap()).map(drop), Status::FOREIGN, "");
    drop(b.registered(&b.keys(1, 2), 1));
    let found = b.manager.lookup(&b.ns, &b.keys(1, 2), &LookupOptions::default()).unwrap();
    refused(cache.load(&found, &[0, 1], &LoadOptions::default()), Status::FOREIGN, "");
}

#[test]
fn memory_and_queues_of_impossible_sizes() {
    let w = world(8);
    refused(CacheMemory::opaque(0, 1), Status::INVALID, "at least one block");
    refused(CacheMemory::opaque(1, 0), Status::INVALID, "0 bytes");
    refused(CacheMemory::opaque(u32::MAX, usize::MAX), Status::INVALID, "too large");
    refused(CacheMemory::opaque(1, usize::MAX / 2 + 1), Status::INVALID, "too large");
    let odd = PartLayout { part: Part::default(), form: Form::Opaque, tensor_bytes: vec![100] };
    refused(CacheMemory::new(3, &[odd]), Status::INVALID, "100 bytes");
    let large = CacheMemory::opaque(2, 2 * BLOCK).unwrap();
    refused(Cache::attach(&w.manager, &w.ns, large).map(drop), Status::INVALID, "part 0");
    refused(Cache::attach(&w.manager, &w.ns, CacheMemory::new(2, &[]).unwrap()).map(drop), Status::INVALID, "part");
    assert!(CacheMemory::opaque(2, 8).unwrap().tensor_mut(1).is_none());
    refused(Queue::new(&w.context, 0), Status::INVALID, "depth");
    refused(Queue::new(&w.context, u32::MAX), Status::INVALID, "depth");
    refused(Geometry::new(4, 1, &[]), Status::INVALID, "");
    refused(Form::try_from(20), Status::INVALID, "form 20");
    refused(Element::try_from(99), Status::INVALID, "element 99");
    let small = ManagerOptions { block_bytes: 1 << 20, host_capacity_bytes: 4096, ..Default::default() };
    refused(Manager::new(&w.context, &small), Status::CONFIG, "");
}

#[test]
fn offers_and_sessions_that_cannot_be() {
    let w = world(8);
    let cache = w.cache(4);
    let id = RequestId([1; 16]);
    refused(Offer::open(&cache, id, &[], &OfferOptions::default(), None).map(drop), Status::INVALID, "0 block ids");
    refused(Offer::open(&cache, id, &[0], &OfferOptions::default(), None).map(drop), Status::STATE, "");
    let source = |node: &str| Source { node: node.into(), rank: 0 };
    let open = |sources: &[Source]| Session::open(&cache, id, &[0], sources, &SessionOptions::default(), None);
    refused(open(&[]).map(drop), Status::INVALID, "sources");
    refused(open(&[source("a\0")]).map(drop), Status::INVALID, "zero byte");
    refused(open(&[source("a")]).map(drop), Status::STATE, "");
    assert!(cache.tensor_mut(0).is_ok());
}

#[test]
fn holds_that_ended_and_raw_ones_of_nobody() {
    let w = world(8);
    let raw = w.manager.allocate(&w.ns, 1).unwrap().into_raw();
    // SAFETY: no view is made of these.
    let (twin, stale) =
        unsafe { (PartialBlocks::from_raw(&w.manager, raw.clone()), RegisteredBlocks::from_raw(&w.manager, raw)) };
    refused(stale.try_clone(), Status::STATE, "");
    refused(stale.downgrade(), Status::STATE, "");
    twin.release().unwrap();
    refused(stale.views().map(drop), Status::STALE, "");
    refused(stale.release(), Status::STALE, "");
    // SAFETY: as above.
    let nobody = unsafe { WeakBlocks::from_raw(&w.manager, vec![0, u64::MAX]) };
    assert_eq!(nobody.upgrade().err().unwrap().band(), Band::Caller);
    assert_eq!(nobody.release().err().unwrap().band(), Band::Caller);
}

#[test]
fn a_closed_directory_and_a_missed_deadline() {
    let w = world(64);
    let cache = w.cache(16);
    let late = StoreOptions { timeout: Some(Duration::ZERO), ..Default::default() };
    let ids: Vec<u32> = (0..16).collect();
    // In time or not, never half said.
    match cache.store(&w.keys(1, 16), &ids, &late) {
        Ok(done) => assert_eq!(done.item_status.len(), 16),
        Err(error) => assert_eq!(error.status(), Status::DEADLINE),
    }
    let folder = std::env::temp_dir().join(format!("kvbm-rust-twice-{}", std::process::id()));
    let tier = Tier::disk(&folder, 64 << 20);
    let options = ManagerOptions { block_bytes: 4096, tiers: Some(vec![tier]), ..Default::default() };
    let first = world_of(&[("host.capacity", "1MiB")], options.clone());
    refused(Manager::new(&first.context, &options), Status::IN_USE, "");
    drop(first);
    let _ = std::fs::remove_dir_all(folder);
}
