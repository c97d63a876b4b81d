// SPDX-License-Identifier: Apache-2.0
//! What the safe layer costs: medians of calls through it, as one line of JSON. bindings/rust/bench runs it.

use std::time::Instant;

use libkvbm::{
    Cache, CacheMemory, Context, Key, LoadOptions, LookupOptions, Manager, ManagerOptions, Namespace, NamespaceOptions,
    Part, Result, StoreOptions,
};

const MIB: usize = 1 << 20;

fn world(block_bytes: usize) -> Result<(Manager, Namespace)> {
    let context = Context::with_settings([("host.capacity", "64MiB")])?;
    let manager = Manager::new(&context, &ManagerOptions { block_bytes: block_bytes as u64, ..Default::default() })?;
    let ns = Namespace::open(&manager, &NamespaceOptions { model: "bench".into(), ..Default::default() })?;
    Ok((manager, ns))
}

fn keys(ns: &Namespace, n: u32) -> Result<Vec<Key>> {
    let tokens: Vec<u32> = (0..n * 16).collect();
    ns.key_chain(None, &tokens, 16)
}

/// The median of `rounds` calls, after a quarter as many that do not count.
fn median(rounds: usize, mut call: impl FnMut() -> Result<()>, mut before: impl FnMut() -> Result<()>) -> Result<u128> {
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds + rounds / 4 {
        before()?;
        let start = Instant::now();
        call()?;
        if round >= rounds / 4 {
            times.push(start.elapsed().as_nanos());
        }
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn small() -> Result<(u128, u128)> {
    let (manager, ns) = world(4096)?;
    let all = keys(&ns, 1024)?;
    let blocks = manager.allocate(&ns, all.len())?.complete()?.register(&ns, &all)?;
    let options = LookupOptions::default();
    let some = &all[..256];
    let lookup = median(
        4000,
        || {
            let found = manager.lookup(&ns, some, &options)?;
            assert_eq!(found.hits(), 256);
            Ok(())
        },
        || Ok(()),
    )?;
    let held = manager.lookup(&ns, some, &options)?.blocks(0, 0..256)?;
    let view = median(
        4000,
        || {
            let views = held.views()?;
            std::hint::black_box(views.get(255));
            Ok(())
        },
        || Ok(()),
    )?;
    drop(blocks);
    Ok((lookup, view))
}

fn large() -> Result<(u128, u128)> {
    const BATCH: usize = 16;
    let (manager, ns) = world(MIB)?;
    let cache = Cache::attach(&manager, &ns, CacheMemory::opaque(32, MIB)?)?;
    for (i, byte) in cache.tensor_mut(0)?.iter_mut().enumerate() {
        *byte = (i % 251) as u8;
    }
    let keys = keys(&ns, BATCH as u32)?;
    let blocks: Vec<u32> = (0..BATCH as u32).collect();
    let (store, load) = (StoreOptions::default(), LoadOptions::default());
    let stored = median(
        200,
        || cache.store(&keys, &blocks, &store)?.all(),
        || manager.drop_keys(&ns, Part::default(), &keys).map(drop),
    )?;
    let found = cache.lookup(&keys, &LookupOptions::default())?;
    let loaded = median(200, || cache.load(&found, &blocks, &load)?.all(), || Ok(()))?;
    Ok((stored / BATCH as u128, loaded / BATCH as u128))
}

fn main() -> Result<()> {
    let (lookup, view) = small()?;
    let (store, load) = large()?;
    println!(
        "{{\"language\":\"rust\",\"lookup_256_ns\":{lookup},\"view_256_ns\":{view},\"store_1MiB_ns\":{store},\
         \"load_1MiB_ns\":{load}}}"
    );
    Ok(())
}
