//! kvbm-logical at the work of `kvbm bench index` (tools/benchmark/index.cc): the same number of blocks, the same
//! batches, the same order of calls. Prints a JSON array of {name, value, unit, backend}.
//!
//! What favours the crate: all its eviction backends that need no frequency sketch are measured; hashes are made
//! beforehand; no block has bytes; no metrics are read; its batch calls wherever it has them.
use std::env;
use std::error::Error;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use kvbm_logical::manager::{BlockManagerConfigBuilder, LineageEviction};
use kvbm_logical::{BlockManager, BlockRegistry, CompleteBlock, SequenceHash};
use serde_json::json;

const BLOCKS: usize = 131_072;
const BATCH: usize = 64;
const WIDE: usize = 256;
const BLOCK_TOKENS: usize = 16;

#[derive(Clone)]
struct Host;
type Manager = BlockManager<Host>;
type Builder = BlockManagerConfigBuilder<Host>;
type Failure = Box<dyn Error>;

/// The first is what the crate takes when none is named; like ours it evicts children before their parents.
const BACKENDS: [(&str, fn(Builder) -> Builder); 4] = [
    ("default", |b| b.with_lineage_backend()),
    ("lineage, first in first out", |b| b.with_lineage_backend_eviction(LineageEviction::Fifo)),
    ("lru", |b| b.with_lru_backend()),
    ("hash map", |b| b.with_hashmap_backend()),
];

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Hashes that no earlier call gave: chains of one batch each, as the crate's lineage wants them.
#[derive(Default)]
struct FreshHashes {
    count: u64,
}

impl FreshHashes {
    fn next(&mut self, n: usize) -> Vec<SequenceHash> {
        let mut parent = None;
        (0..n)
            .map(|i| {
                let position = i % BATCH;
                self.count += 1;
                let current = mix(self.count.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let hash = SequenceHash::new(current, parent.filter(|_| position != 0), position as u64);
                parent = Some(current);
                hash
            })
            .collect()
    }
}

/// One batch of the life of blocks: absent, allocated over others, completed, registered, released.
/// Returns the time inside `register_blocks`.
fn churn_batch(manager: &Manager, hashes: &[SequenceHash], split: bool) -> Result<f64, Failure> {
    if manager.match_blocks_scattered(hashes).iter().any(Option::is_some) {
        return Err("a fresh hash was found".into());
    }
    let (blocks, _evicted) =
        manager.allocate_blocks_with_evictions(hashes.len()).ok_or("blocks could not be allocated")?;
    let mut complete: Vec<CompleteBlock<Host>> = Vec::with_capacity(hashes.len());
    for (block, hash) in blocks.into_iter().zip(hashes) {
        complete.push(block.stage(*hash, BLOCK_TOKENS).map_err(|e| e.to_string())?);
    }
    let watch = split.then(Instant::now);
    let registered = manager.register_blocks(complete);
    let took = watch.map_or(0.0, |w| w.elapsed().as_nanos() as f64);
    if registered.len() != hashes.len() {
        return Err("blocks were not registered".into());
    }
    Ok(took) // `registered` is released here
}

/// Nanoseconds of everything and of registering.
fn churn(manager: &Manager, hashes: &[SequenceHash], split: bool) -> Result<(f64, f64), Failure> {
    let mut registering = 0.0;
    let watch = Instant::now();
    for batch in hashes.chunks(BATCH) {
        registering += churn_batch(manager, batch, split)?;
    }
    Ok((watch.elapsed().as_nanos() as f64, registering))
}

/// Looks up runs of `width` hashes in the order given; the release is part of the time if asked for.
fn hits(
    manager: &Manager,
    hashes: &[SequenceHash],
    order: &[usize],
    width: usize,
    with_release: bool,
) -> Result<f64, Failure> {
    let mut whole = 0.0;
    for &at in order {
        let watch = Instant::now();
        let matched = manager.match_blocks(&hashes[at..at + width]);
        let n = matched.len();
        if with_release {
            drop(matched);
            whole += watch.elapsed().as_nanos() as f64;
        } else {
            whole += watch.elapsed().as_nanos() as f64;
            drop(matched);
        }
        if n != width {
            return Err("a registered hash was not found".into());
        }
    }
    Ok(whole)
}

/// Two threads on one manager, each with its half; nanoseconds until both are done.
fn churn_on_two_threads(manager: &Manager, halves: &[Vec<SequenceHash>; 2]) -> Result<f64, Failure> {
    let ready = AtomicUsize::new(0);
    let took = thread::scope(|scope| {
        let threads = halves.each_ref().map(|half| {
            let ready = &ready;
            scope.spawn(move || {
                ready.fetch_add(1, Ordering::SeqCst);
                while ready.load(Ordering::SeqCst) != 2 {
                    spin_loop();
                }
                churn(manager, half, false).map(|(whole, _)| whole).map_err(|e| e.to_string())
            })
        });
        threads.map(|thread| thread.join().unwrap_or_else(|_| Err("a thread died".into())))
    });
    let [first, second] = took;
    Ok(first?.max(second?))
}

fn shuffled(width: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..BLOCKS).step_by(width).collect();
    for i in (2..=order.len()).rev() {
        order.swap(i - 1, (mix(i as u64) % i as u64) as usize);
    }
    order
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Nanoseconds per block, in the order of NAMES.
fn measure(backend: fn(Builder) -> Builder, rounds: usize) -> Result<[f64; 5], Failure> {
    let manager =
        backend(Manager::builder().block_count(BLOCKS).block_size(BLOCK_TOKENS).registry(BlockRegistry::new()))
            .build()?;
    let mut fresh = FreshHashes::default();
    // Filled, and twice the capacity goes by before anything is measured.
    for _ in 0..3 {
        churn(&manager, &fresh.next(BLOCKS), false)?;
    }
    let mut samples: [Vec<f64>; 5] = Default::default();
    for _ in 0..rounds {
        samples[0].push(churn(&manager, &fresh.next(BLOCKS), false)?.0);
        samples[1].push(churn(&manager, &fresh.next(BLOCKS), true)?.1);
        let halves = [fresh.next(BLOCKS / 2), fresh.next(BLOCKS / 2)];
        samples[2].push(churn_on_two_threads(&manager, &halves)?);
    }
    manager.reset_inactive_pool()?;
    let hashes = fresh.next(BLOCKS);
    churn(&manager, &hashes, false)?;
    let (order, wide_order) = (shuffled(BATCH), shuffled(WIDE));
    for _ in 0..rounds {
        samples[3].push(hits(&manager, &hashes, &order, BATCH, true)?);
        samples[4].push(hits(&manager, &hashes, &wide_order, WIDE, false)?);
    }
    Ok(samples.map(|mut of_rounds| median(&mut of_rounds) / BLOCKS as f64))
}

const NAMES: [&str; 5] =
    ["index.churn", "index.register", "index.churn_two_threads", "index.hit_cycle", "index.lookup_batch256"];

/// Takes the number of rounds.
fn main() -> Result<(), Failure> {
    let rounds = env::args().nth(1).map_or(Ok(3), |text| text.parse::<usize>())?.max(1);
    let mut rows = Vec::new();
    for (backend, configure) in BACKENDS {
        for (name, value) in NAMES.iter().zip(measure(configure, rounds)?) {
            rows.push(json!({"name": name, "value": value, "unit": "ns", "backend": backend}));
        }
    }
    println!("{:#}", serde_json::Value::from(rows));
    Ok(())
}
