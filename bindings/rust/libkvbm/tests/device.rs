// SPDX-License-Identifier: Apache-2.0
//! Caches in the memory of a device, on the fake of the CUDA driver that the library's own tests use.

mod common;
#[path = "common/fake.rs"]
mod fake;
use common::{world, world_of, World};
use fake::Fake;
use libkvbm::codec::{self, Mode};
use libkvbm::*;
use std::io::Write;

const PAGE: usize = 4096;
const BLOCKS: u32 = 16;
const LAYERS: usize = 2;

/// Where the fake is, if it was built.
fn driver() -> Option<String> {
    let found = fake::driver();
    if found.is_none() {
        // Not by a macro: what these print is kept from the output.
        let _ = writeln!(std::io::stderr(), "skipped: {}", fake::NOT_BUILT);
    }
    found
}

fn memory(fake: &Fake) -> *mut u8 {
    fake.allocate(0, BLOCKS as usize * PAGE)
}

fn world_on(library: &str) -> World {
    let options = ManagerOptions {
        block_bytes: (LAYERS * PAGE) as u64,
        host_capacity_bytes: 4 << 20,
        tiers: Some(vec![]),
        ..Default::default()
    };
    world_of(&[("device.library", library), ("device.cuda", "auto")], options)
}

fn attach(w: &World, tensors: [*mut u8; LAYERS], kind: MemoryKind) -> Result<Cache> {
    let bytes = u64::from(BLOCKS) * PAGE as u64;
    let raw = |data| RawTensor { data, bytes, block_stride: 0, page_bytes: PAGE as u64 };
    let part = RawPart { part: Part::default(), form: Form::Opaque, tensors: tensors.into_iter().map(raw).collect() };
    // SAFETY: the fake's memory lives as long as the process, and what is none is refused.
    unsafe { Cache::attach_in(&w.manager, &w.ns, BLOCKS, &[part], kind, None) }
}

#[test]
fn without_a_driver_a_cache_on_a_device_is_refused_in_words() {
    let w = world_on("/nowhere/libcuda.so.1");
    let refused = attach(&w, [PAGE as *mut u8; LAYERS], MemoryKind::Cuda(0)).err().unwrap();
    assert_eq!(refused.status(), Status::UNSUPPORTED);
    assert!(refused.to_string().contains("/nowhere/libcuda.so.1"), "{refused}");
    assert!(w.manager.devices().unwrap().is_empty());
}

#[test]
fn a_cache_in_host_memory_has_no_streams() {
    let w = world(8);
    let cache = w.cache(4);
    let behind = StoreOptions { stream: Some(Stream::LEGACY), ..Default::default() };
    assert_eq!(cache.store(&w.keys(1, 1), &[0], &behind).unwrap_err().status(), Status::INVALID);
    let queue = Queue::new(&w.context, 4).unwrap();
    cache.store(&w.keys(1, 1), &[0], &StoreOptions::default()).unwrap().all().unwrap();
    let found = cache.lookup(&w.keys(1, 1), &LookupOptions::default()).unwrap();
    for wait_layers in [WaitLayers::OnDevice, WaitLayers::Issued] {
        let wanted = LoadOptions { wait_layers, ..Default::default() };
        assert_eq!(cache.load_async(&found, &[1], &wanted, &queue).err().unwrap().status(), Status::INVALID);
    }
    assert!(w.manager.devices().unwrap().is_empty());
}

#[test]
fn what_is_stored_from_a_device_comes_back_layer_by_layer() {
    [WaitLayers::OnDevice, WaitLayers::Issued].into_iter().for_each(load_by_layers);
}

fn load_by_layers(wait_layers: WaitLayers) {
    let Some(path) = driver() else { return };
    let fake = Fake::open(&path);
    let w = world_on(&path);
    let tensors = [memory(&fake), memory(&fake)];
    let cache = attach(&w, tensors, MemoryKind::Cuda(0)).unwrap();
    let value = |layer: usize, block: usize| (10 * layer + block + 1) as u8;
    for (layer, memory) in tensors.iter().enumerate() {
        // SAFETY: the fake's memory, which nothing else uses yet.
        (0..3).for_each(|b| unsafe { memory.add(b * PAGE).write_bytes(value(layer, b), PAGE) });
    }
    let (keys, stream) = (w.keys(1, 3), fake.stream(0));
    let behind = StoreOptions { stream: Some(stream), ..Default::default() };
    cache.store(&keys, &[0, 1, 2], &behind).unwrap().all().unwrap();
    let found = cache.lookup(&keys, &LookupOptions::default()).unwrap();
    let queue = Queue::new(&w.context, 4).unwrap();
    let wanted = LoadOptions { stream: Some(stream), wait_layers, ..Default::default() };
    let load = cache.load_async(&found, &[5, 6, 7], &wanted, &queue).unwrap();
    (0..LAYERS).for_each(|layer| cache.wait_layer(&load, layer as u32, stream).unwrap());
    assert_eq!(cache.wait_layer(&load, LAYERS as u32, stream).unwrap_err().status(), Status::INVALID);
    fake.synchronize(stream);
    for (layer, memory) in tensors.iter().enumerate() {
        for block in 0..3 {
            // SAFETY: the stream has waited for the layer.
            let page = unsafe { std::slice::from_raw_parts(memory.add((5 + block) * PAGE), PAGE) };
            assert!(page.iter().all(|b| *b == value(layer, block)));
        }
    }
    let done = load.wait().unwrap();
    assert_eq!((done.status, done.items_done), (Status::OK, 3));
    let rows = w.manager.devices().unwrap();
    assert_eq!((rows.len(), rows[0].ordinal, rows[0].lost, &*rows[0].state), (1, 0, false, "ready"));
    assert!(rows[0].pinned_bytes != 0 && rows[0].memory_bytes != 0);
    assert_eq!((rows[0].gathers.bytes, rows[0].scatters.leaves), ((3 * LAYERS * PAGE) as u64, 3 * LAYERS as u64));
}

#[test]
fn a_request_moves_between_devices_behind_their_streams() {
    let Some(path) = driver() else { return };
    let fake = Fake::open(&path);
    let side = |setting: (&str, &str)| {
        let options = ManagerOptions {
            block_bytes: 65536,
            host_capacity_bytes: 4 << 20,
            tiers: Some(vec![]),
            ..Default::default()
        };
        let mut w = world_of(&[("device.library", &path), ("node.pool", "rust-device"), setting], options);
        // A page for each layer of a block.
        let part =
            Component { element: Element::Bf16, layers: LAYERS as u32, heads: 2, head_dim: 32, ..Default::default() };
        let geometry = Geometry::new(16, 1, &[part]).unwrap();
        let who = NamespaceOptions { model: "m".into(), geometry: Some(geometry), ..Default::default() };
        w.ns = Namespace::open(&w.manager, &who).unwrap();
        let tensors = [memory(&fake), memory(&fake)];
        let bytes = u64::from(BLOCKS) * PAGE as u64;
        let raw = |data| RawTensor { data, bytes, block_stride: 0, page_bytes: 0 };
        let list = tensors.into_iter().map(raw).collect();
        let part = RawPart { part: Part::default(), form: Form::BlocksNhd, tensors: list };
        // SAFETY: the fake's memory lives as long as the process.
        let cache = unsafe { Cache::attach_in(&w.manager, &w.ns, BLOCKS, &[part], MemoryKind::Cuda(0), None) }.unwrap();
        (w, cache, tensors)
    };
    let (prefill, from, sent) = side(("node.listen", "127.0.0.1:0"));
    let node = prefill.manager.node_address().unwrap();
    let (_decode, to, got) = side(("node.peers", &node));
    let request = RequestId(*b"rust device 0001");
    let wanted = SessionOptions { stream: Some(fake.stream(0)), ..Default::default() };
    let session = Session::open(&to, request, &[3, 1], &[Source { node, rank: 0 }], &wanted, None).unwrap();
    let offer = Offer::open(&from, request, &[0, 2], &OfferOptions::default(), None).unwrap();
    let computing = fake.stream(0);
    for layer in 0..LAYERS {
        // SAFETY: it is not published yet.
        unsafe { sent[layer].write_bytes(layer as u8 + 1, BLOCKS as usize * PAGE) };
        offer.publish_on_stream(0, layer as u32, 1, 0, 0, computing).unwrap();
        session.wait_layer(0, layer as u32, None).unwrap();
        // SAFETY: the layer is in place.
        let page = unsafe { std::slice::from_raw_parts(got[layer].add(3 * PAGE), PAGE) };
        assert!(page.iter().all(|b| *b == layer as u8 + 1));
    }
    session.wait(None).unwrap();
    offer.wait(None).unwrap();
}

#[test]
fn a_device_codes_its_blocks_to_the_bytes_of_the_processor() {
    let Some(path) = driver() else { return };
    let fake = Fake::open(&path);
    let w = world_on(&path);
    let tensors = [memory(&fake), memory(&fake)];
    let device = attach(&w, tensors, MemoryKind::Cuda(0)).unwrap();
    let tensor_bytes = vec![BLOCKS as usize * PAGE; LAYERS];
    let layout = PartLayout { part: Part::default(), form: Form::Opaque, tensor_bytes };
    let host = Cache::attach(&w.manager, &w.ns, CacheMemory::new(BLOCKS, &[layout]).unwrap()).unwrap();
    for (layer, memory) in tensors.iter().enumerate() {
        // bf16 between 0.5 and 1
        let values: Vec<u8> =
            (0..BLOCKS as usize * PAGE / 2).flat_map(|i| [((i * 7 + layer) % 128) as u8, 0x3F]).collect();
        host.tensor_mut(layer).unwrap().copy_from_slice(&values);
        // SAFETY: the fake's memory, which nothing else uses yet.
        unsafe { memory.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }
    let form = codec::Form { element: Element::Bf16, row_elements: 64, rows: 0 };
    let here = CodeOptions { form, ..Default::default() };
    let behind = CodeOptions { stream: Some(fake.stream(0)), ..here };
    for mode in [Mode::Default, Mode::Int8, Mode::Zstd, Mode::Off] {
        let lossy = mode == Mode::Int8;
        let coded = device.encode(&[3, 0, 7], mode, &behind).unwrap();
        let there = host.encode(&[3, 0, 7], mode, &here).unwrap();
        // The last digits of what was lost may differ.
        assert_eq!(coded.len(), there.len());
        assert!(lossy || coded == there, "{mode}");
        if lossy {
            let refused = device.decode(&coded, &[9, 10, 11], false, &behind).unwrap_err();
            assert_eq!(refused.status(), Status::PERMISSION);
        }
        device.decode(&coded, &[9, 10, 11], lossy, &behind).unwrap();
        let plain = codec::decode(&coded, lossy).unwrap();
        for (i, layer) in (0..3).flat_map(|i| (0..LAYERS).map(move |layer| (i, layer))) {
            // SAFETY: decoding is done.
            let page = unsafe { std::slice::from_raw_parts(tensors[layer].add((9 + i) * PAGE), PAGE) };
            assert_eq!(page, &plain[(i * LAYERS + layer) * PAGE..][..PAGE], "{mode}");
        }
    }
    assert_eq!(host.encode(&[0], Mode::Off, &behind).unwrap_err().status(), Status::INVALID);
}
