// SPDX-License-Identifier: Apache-2.0
//! Bytes as a program of calls of the safe crate, with arguments that fit and that do not. Nothing may crash, and what
//! comes back under a key must be what was written under it.

use libkvbm::codec::{self, Form, Mode};
use libkvbm::{
    Cache, CacheMemory, CodeOptions, CompleteBlocks, Context, Element, Key, LoadOptions, LookupMode, LookupOptions,
    Manager, ManagerOptions, Match, Namespace, NamespaceOptions, Operation, Part, PartialBlocks, Position, Queue,
    RegisteredBlocks, Shard, StoreOptions, Stream, WeakBlocks, NO_BLOCK,
};

const BLOCK: usize = 512;
const ENGINE_BLOCKS: u32 = 8;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(f, r)| (*f, r));
        self.0 = rest;
        first
    }
    fn below(&mut self, n: usize) -> usize {
        self.byte() as usize % n
    }
    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }
    /// Mostly small, now and then the largest.
    fn number(&mut self) -> u64 {
        match self.byte() {
            255 => u64::MAX,
            254 => u64::from(u32::MAX),
            n => (n % 32).into(),
        }
    }
    fn ids(&mut self) -> Vec<u32> {
        (0..self.below(6))
            .map(|_| match self.byte() {
                255 => NO_BLOCK,
                n => u32::from(n % 10),
            })
            .collect()
    }
}

struct World {
    manager: Manager,
    ns: Namespace,
    cache: Cache,
    queue: Queue,
    keys: Vec<Key>,
}

fn world() -> World {
    let context = Context::with_settings([("host.capacity", "32KiB")]).expect("a context");
    let options = ManagerOptions { block_bytes: BLOCK as u64, tiers: Some(vec![]), ..Default::default() };
    let manager = Manager::new(&context, &options).expect("a manager");
    let who = NamespaceOptions { model: "fuzz".into(), ..Default::default() };
    let ns = Namespace::open(&manager, &who).expect("a namespace");
    let memory = CacheMemory::opaque(ENGINE_BLOCKS, BLOCK).expect("memory");
    let cache = Cache::attach(&manager, &ns, memory).expect("a cache");
    let queue = Queue::new(&context, 4).expect("a queue");
    let keys = ns.key_chain(None, &(0..32).collect::<Vec<u32>>(), 1).expect("keys");
    World { manager, ns, cache, queue, keys }
}

#[derive(Default)]
struct Things {
    partial: Vec<PartialBlocks>,
    complete: Vec<CompleteBlocks>,
    registered: Vec<RegisteredBlocks>,
    weak: Vec<WeakBlocks>,
    matches: Vec<Match>,
    operations: Vec<Operation>,
    coded: Vec<Vec<u8>>,
}

/// Every block under key i is filled with i, in every store.
fn check(w: &World, keys: &[Key], blocks: &RegisteredBlocks) {
    let Ok(views) = blocks.views() else { return };
    for (key, view) in keys.iter().zip(views.iter()) {
        let i = w.keys.iter().position(|k| k == key).expect("a key of this world");
        assert!(view.iter().all(|b| *b as usize == i), "another block's bytes");
    }
}

fn some_keys<'a>(w: &'a World, input: &mut Input<'_>) -> (usize, &'a [Key]) {
    let first = input.below(w.keys.len());
    let n = input.below(6).min(w.keys.len() - first);
    (first, &w.keys[first..first + n])
}

fn pool(w: &World, input: &mut Input<'_>, things: &mut Things) {
    match input.below(7) {
        0 => {
            // A fuzzer's allocator ends the program where the system's would refuse.
            let n = input.number().min(1 << 24) as usize;
            things.partial.extend(w.manager.allocate(&w.ns, n));
        }
        1 => {
            // Fill them for the keys they will get, then register them.
            let (Some(mut blocks), (first, keys)) = (things.partial.pop(), some_keys(w, input)) else { return };
            if let Ok(views) = blocks.views_mut() {
                views.into_slices().enumerate().for_each(|(i, b)| b.fill((first + i) as u8));
            }
            let Ok(blocks) = blocks.complete().map_err(|refused| things.partial.push(refused.blocks)) else { return };
            match blocks.register(&w.ns, keys) {
                Ok(blocks) => {
                    check(w, keys, &blocks);
                    things.registered.push(blocks);
                }
                Err(refused) => things.complete.push(refused.blocks),
            }
        }
        2 => {
            let lengths: Vec<u64> = (0..input.below(4)).map(|_| input.number()).collect();
            let Some(blocks) = things.partial.pop() else { return };
            match blocks.complete_with(&lengths) {
                // Of other lengths and bytes: not for any key.
                Ok(blocks) => drop(blocks),
                Err(refused) => things.partial.push(refused.blocks),
            }
        }
        3 => things.weak.extend(things.registered.last().and_then(|b| b.downgrade().ok())),
        4 => things.registered.extend(things.weak.last().and_then(|b| b.upgrade().ok()).map(|p| p.blocks)),
        5 => {
            let clone = things.registered.last().cloned();
            things.registered.extend(clone);
        }
        _ => {
            let at = input.below(4);
            things.partial.truncate(at);
            things.complete.truncate(at);
            things.registered.truncate(at);
            things.weak.truncate(at);
        }
    }
}

fn store(w: &World, input: &mut Input<'_>, things: &mut Things) {
    let (first, keys) = some_keys(w, input);
    let ids = input.ids();
    for (i, id) in ids.iter().enumerate() {
        if let Ok(mut block) = w.cache.block_mut(0, *id) {
            block.fill((first + i) as u8);
        }
    }
    // A block id that stands there twice holds the later key's bytes, and one in use was not filled.
    let wrong = |(i, id): (usize, &u32)| {
        *id < ENGINE_BLOCKS && !w.cache.block(0, *id).is_ok_and(|b| b[0] as usize == first + i)
    };
    if ids.iter().enumerate().any(wrong) {
        return;
    }
    let options = StoreOptions {
        unchained: input.flag(),
        positions: vec![Position::default(); if input.byte() == 9 { input.below(4) } else { 0 }],
        unit_keys: w.keys[..if input.byte() == 9 { input.below(4) } else { 0 }].to_vec(),
        ..Default::default()
    };
    if input.flag() {
        let _ = w.cache.store(keys, &ids, &options);
    } else {
        things.operations.extend(w.cache.store_async(keys, &ids, &options, &w.queue));
    }
}

fn look_up(w: &World, input: &mut Input<'_>, things: &mut Things) {
    let (first, keys) = some_keys(w, input);
    let part =
        Part { component: input.number() as u32, shard: Shard { layers: input.number() as u16, ..Default::default() } };
    let options = LookupOptions {
        mode: LookupMode::try_from(u32::from(input.byte() % 4)).unwrap_or_default(),
        parts: if input.byte() == 9 { vec![part; input.below(3)] } else { Vec::new() },
        host_only: input.flag(),
        ..Default::default()
    };
    let found = if input.flag() { w.cache.lookup(keys, &options) } else { w.manager.lookup(&w.ns, keys, &options) };
    let Ok(found) = found else { return };
    let (from, to) = (input.number() as usize, input.number() as usize);
    let _ = (found.items(from..to), found.present(input.number() as u32, from..to));
    if let Ok(present) = found.present(0, 0..found.count()) {
        let names: Vec<Key> = present.indices.iter().map(|i| w.keys[first + i]).collect();
        check(w, &names, &present.blocks);
    }
    things.matches.push(found);
}

fn load(w: &World, input: &mut Input<'_>, things: &mut Things) {
    let ids = input.ids();
    let options = LoadOptions {
        first_key: input.number() as u32 % 40,
        first_layer: if input.byte() == 9 { input.number() as u32 } else { 0 },
        positions: vec![Position::default(); if input.byte() == 9 { input.below(4) } else { 0 }],
        ..Default::default()
    };
    let Some(found) = things.matches.last() else { return };
    if input.flag() {
        let _ = w.cache.load(found, &ids, &options);
    } else {
        things.operations.extend(w.cache.load_async(found, &ids, &options, &w.queue));
    }
}

/// The bytes of engine blocks, one after the other.
fn bytes_of(w: &World, ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| w.cache.block(0, *id).expect("a block that was coded").to_vec()).collect()
}

fn code(w: &World, input: &mut Input<'_>, things: &mut Things) {
    let ids = input.ids();
    let form = Form {
        element: Element::try_from(u32::from(input.byte() % 8)).unwrap_or_default(),
        row_elements: input.number() as u32,
        rows: if input.byte() == 9 { input.number() as u32 } else { 0 },
    };
    let given = CodeOptions {
        part: u32::from(input.byte() == 9),
        form,
        stream: Some(Stream::LEGACY).filter(|_| input.byte() == 9),
    };
    if input.flag() || things.coded.is_empty() {
        let mode = Mode::try_from(u32::from(input.byte() % 26)).unwrap_or_default();
        let mut into = vec![0; input.number() as usize % 8192];
        let _ = w.cache.encode_into(&ids, mode, &given, &mut into);
        let Ok(coded) = w.cache.encode(&ids, mode, &given) else { return };
        assert!(coded.len() <= w.cache.code_room(ids.len(), &given).expect("the room that was used"));
        if let Ok(plain) = codec::decode(&coded, false) {
            assert!(plain == bytes_of(w, &ids), "other bytes were coded");
        }
        things.coded.push(coded);
        return;
    }
    let at = input.below(things.coded.len());
    let mut coded = things.coded.swap_remove(at);
    if input.byte() < 16 {
        let end = (input.number() as usize).min(coded.len());
        coded.truncate(end);
    } else if input.byte() < 16 && !coded.is_empty() {
        let at = (input.byte() as usize * 256 + input.byte() as usize) % coded.len();
        coded[at] ^= 1 + input.byte() % 255;
    }
    if w.cache.decode(&coded, &ids, input.flag(), &given).is_ok() {
        let plain = codec::decode(&coded, true).expect("a buffer that was decoded");
        assert!(plain == bytes_of(w, &ids), "other bytes came into the blocks");
    }
}

fn care(w: &World, input: &mut Input<'_>, things: &mut Things) {
    let (_, keys) = some_keys(w, input);
    match input.below(7) {
        0 => drop(w.manager.drop_keys(&w.ns, Part::default(), keys)),
        1 => drop(w.manager.pin(&w.ns, Part::default(), keys, input.number(), None)),
        2 => drop(w.manager.unpin_owner(input.number())),
        3 => drop(w.manager.scan_page(&mut input.number(), input.number() as usize)),
        4 => {
            if let Some(operation) = things.operations.pop() {
                let _ = operation.wait();
            }
        }
        5 => drop(things.operations.pop()),
        _ => things.matches.clear(),
    }
}

/// Runs one program.
pub fn run(data: &[u8]) {
    let w = world();
    let mut things = Things::default();
    let mut input = Input(data);
    while !input.0.is_empty() {
        match input.below(6) {
            0 => pool(&w, &mut input, &mut things),
            1 => store(&w, &mut input, &mut things),
            2 => look_up(&w, &mut input, &mut things),
            3 => load(&w, &mut input, &mut things),
            4 => code(&w, &mut input, &mut things),
            _ => care(&w, &mut input, &mut things),
        }
    }
}
