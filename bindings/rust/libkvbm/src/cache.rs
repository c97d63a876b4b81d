// SPDX-License-Identifier: Apache-2.0
//! Attached caches: an engine's own paged KV cache, with blocks stored and loaded by key.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use libkvbm_sys as sys;

use crate::device::{MemoryKind, Stream, WaitLayers};
use crate::error::{check, explained, Error, Result, Status};
use crate::handle::{nanoseconds, options, pointer, Handle};
use crate::key::{raw_key, raw_keys, Key};
use crate::ledger::{Access, Claim, Region};
use crate::lookup::Match;
use crate::manager::Manager;
use crate::memory::{BlockMut, BlockRef, CacheMemory, Form, Memory, TensorMut, TensorRef};
use crate::namespace::Namespace;
use crate::queue::{Operation, Queue};
use crate::types::{Part, Priority};

/// A tensor of an engine, for [`Cache::attach_raw`].
#[derive(Clone, Copy, Debug)]
pub struct RawTensor {
    /// Address in host memory, or on the device.
    pub data: *mut u8,
    /// Its whole extent.
    pub bytes: u64,
    /// Bytes from a block to the next; 0 = dense as the form says.
    pub block_stride: u64,
    /// Opaque: bytes of a block in this tensor; else 0.
    pub page_bytes: u64,
}

/// One part of an engine's cache, for [`Cache::attach_raw`].
#[derive(Clone, Debug)]
pub struct RawPart {
    /// Which component and shard.
    pub part: Part,
    /// The order of its axes.
    pub form: Form,
    /// Its tensors, in the order that the form wants.
    pub tensors: Vec<RawTensor>,
}

/// Which tensors a part has, and which layers.
#[derive(Clone)]
pub(crate) struct PartPlace {
    pub(crate) component: u32,
    pub(crate) first_layer: u32,
    pub(crate) layers: u32,
    pub(crate) first_tensor: usize,
    pub(crate) n_tensors: usize,
}

impl PartPlace {
    /// Tensors of one layer, if it has its own.
    pub(crate) fn tensors_of(&self, layer: u32) -> Option<(usize, usize)> {
        let (layers, at) = (self.layers as usize, layer.checked_sub(self.first_layer)? as usize);
        if layers < 2 || at >= layers || self.n_tensors % layers != 0 {
            return None;
        }
        let each = self.n_tensors / layers;
        Some((self.first_tensor + at * each, each))
    }
}

pub(crate) struct CacheInner {
    // First: its release waits for whatever uses the memory.
    handle: Handle<sys::kvbm_cache>,
    pub(crate) memory: Option<Arc<Memory>>,
    _keep: Option<Box<dyn Any + Send + Sync>>,
    pub(crate) manager: Manager,
    pub(crate) parts: Vec<PartPlace>,
    pub(crate) units: usize,
    pub(crate) tokens_per_block: u64,
}

/// An engine's paged cache, attached to a manager. Clones are the same cache. The last of its clones and operations
/// waits, when it is dropped, for what touches the memory.
///
/// The memory belongs to the cache ([`Cache::attach`]), and safe code reaches it through [`Cache::block`],
/// [`Cache::block_mut`] and those of whole tensors: while an operation writes a block, guards of it are refused with
/// IN_USE, and the other way round. So an engine that keeps its memory elsewhere needs [`Cache::attach_raw`].
///
/// A guard cannot outlive the cache:
/// ```compile_fail,E0505
/// fn outlive(cache: libkvbm::Cache) -> u8 {
///     let block = cache.block(0, 0).unwrap();
///     drop(cache);
///     block[0]
/// }
/// ```
/// And what is read is not written:
/// ```compile_fail,E0594
/// fn write(cache: &libkvbm::Cache) { cache.block(0, 0).unwrap()[0] = 1; }
/// ```
#[derive(Clone)]
pub struct Cache {
    pub(crate) inner: Arc<CacheInner>,
}

/// The position that a block under a content key was computed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Position {
    /// Of its first token.
    pub first_token: u64,
    /// Fingerprint of the rotary parameters, of the caller's choosing.
    pub rotation: u64,
    /// Fingerprint of what stood before; 0 = nothing.
    pub left_context: u64,
}
const _: () = assert!(std::mem::size_of::<Position>() == std::mem::size_of::<sys::kvbm_position_t>());

pub(crate) fn check_positions(positions: &[Position], keys: usize) -> Result<()> {
    if positions.is_empty() || positions.len() == keys {
        return Ok(());
    }
    Err(Error::invalid(format!("{} positions are given for {keys} keys", positions.len())))
}

/// How blocks are stored.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// Hint about the blocks.
    pub priority: Priority,
    /// The key before the first.
    pub parent: Option<Key>,
    /// The keys are no prefix in order.
    pub unchained: bool,
    /// Content keys only: one for each key, or empty.
    pub positions: Vec<Position>,
    /// Blocks not stored by then are DEADLINE; `None` = no deadline.
    pub timeout: Option<Duration>,
    /// The engine's own keys of the blocks within each stored block: `units` for each key, or empty.
    pub unit_keys: Vec<Key>,
    /// A cache on a device: the blocks are read after what this stream holds at submit. `None` = they are ready.
    pub stream: Option<Stream>,
}

/// How blocks are loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Skip this many keys of the match.
    pub first_key: u32,
    /// Content-keyed blocks may be used at any position.
    pub any_position: bool,
    /// Load only layers from this one on,
    pub first_layer: u32,
    /// and their number; 0 = all.
    pub n_layers: u32,
    /// Do not keep blocks from lower tiers in the host tier.
    pub keep_below: bool,
    /// Where the blocks will stand: content keys only, one for each key, or empty.
    pub positions: Vec<Position>,
    /// `None` = no deadline.
    pub timeout: Option<Duration>,
    /// Time in which the engine computes one of its blocks. Only the leading blocks are loaded for which loading is
    /// faster, and a late load stops. Blocks left to compute are DEADLINE, and the outcome is PARTIAL. `None` =
    /// unknown: all blocks are loaded.
    pub compute_block: Option<Duration>,
    /// A cache on a device: the blocks are written after what this stream holds at submit. `None` = at once.
    pub stream: Option<Stream>,
    /// A cache on a device: unless it is off layers land in their order, and [`Cache::wait_layer`] makes streams wait
    /// for them. Of [`Cache::load_async`] alone.
    pub wait_layers: WaitLayers,
}

/// Result of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// OK, or PARTIAL.
    pub status: Status,
    /// Of each key. An item that failed to load leaves its engine blocks undefined: compute it.
    pub item_status: Vec<Status>,
}

impl Outcome {
    /// The first failure, unless everything was done.
    pub fn all(self) -> Result<()> {
        match self.item_status.iter().find(|s| s.0 < 0) {
            Some(failed) => Err(Error::from(*failed)),
            None if self.status.is_ok() => Ok(()),
            None => Err(self.status.into()),
        }
    }
}

fn places<'a>(ns: &Namespace, parts: impl Iterator<Item = (&'a Part, usize)>) -> Vec<PartPlace> {
    let mut first_tensor = 0;
    parts
        .map(|(part, n_tensors)| {
            let whole = ns.facts.as_ref().and_then(|f| f.component_layers.get(part.component as usize));
            let layers = match part.shard.layers {
                0 => whole.copied().unwrap_or(0),
                n => n.into(),
            };
            let place = PartPlace {
                component: part.component,
                first_layer: part.shard.first_layer.into(),
                layers,
                first_tensor,
                n_tensors,
            };
            first_tensor += n_tensors;
            place
        })
        .collect()
}

impl Cache {
    /// Attaches memory that the cache owns from now on. Errors: INVALID naming the part, tensor, what the layout needs
    /// and what is there; UNSUPPORTED.
    pub fn attach(manager: &Manager, ns: &Namespace, memory: CacheMemory) -> Result<Cache> {
        let CacheMemory { memory, parts } = memory;
        let n_blocks = memory.n_blocks;
        let mut next = 0;
        let raw: Vec<RawPart> = parts
            .iter()
            .map(|part| {
                let tensors = part.tensor_bytes.iter().map(|_| {
                    let (data, bytes) = memory.tensor_pointer(next);
                    next += 1;
                    let page_bytes = if part.form == Form::Opaque { bytes as u64 / u64::from(n_blocks) } else { 0 };
                    RawTensor { data, bytes: bytes as u64, block_stride: 0, page_bytes }
                });
                RawPart { part: part.part, form: part.form, tensors: tensors.collect() }
            })
            .collect();
        // SAFETY: the pointers are those of `memory`, which lives as long as the cache and is used through claims.
        let mut cache = unsafe { Cache::attach_in(manager, ns, n_blocks, &raw, MemoryKind::Host, None) }?;
        if let Some(inner) = Arc::get_mut(&mut cache.inner) {
            inner.memory = Some(Arc::new(memory));
        }
        Ok(cache)
    }

    /// [`Cache::attach_in`], where the library finds out whether the tensors are in host memory or on a device.
    ///
    /// # Safety
    /// As [`Cache::attach_in`].
    pub unsafe fn attach_raw(
        manager: &Manager,
        ns: &Namespace,
        n_blocks: u32,
        parts: &[RawPart],
        keep: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Cache> {
        // SAFETY: as the caller promises.
        unsafe { Cache::attach_in(manager, ns, n_blocks, parts, MemoryKind::Auto, keep) }
    }

    /// Attaches an engine's memory by address, in the host or on a device. `keep` is dropped when the cache is.
    /// Errors: as [`Cache::attach`]; INVALID also for memory that is not where it is said to be; UNSUPPORTED, naming it: no
    /// driver, one that is too old, no such device, or one for which there are no kernels; TIER_DISABLED: the device
    /// was lost. The first cache on a device waits while the host tier is registered with it.
    ///
    /// # Safety
    /// The tensors are initialised memory of that kind that stays where it is until the cache and its operations are dropped
    /// (or as long as `keep` lives). While a load, or a session, may write a block, nothing else reads or writes it;
    /// while a store, or an offer, may read one, nothing writes it. What the operations of this cache are given is the
    /// caller's part of this.
    pub unsafe fn attach_in(
        manager: &Manager,
        ns: &Namespace,
        n_blocks: u32,
        parts: &[RawPart],
        memory: MemoryKind,
        keep: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Cache> {
        let tensors: Vec<Vec<sys::kvbm_tensor_t>> = parts
            .iter()
            .map(|part| {
                let raw = |t: &RawTensor| sys::kvbm_tensor_t {
                    data: t.data.cast(),
                    bytes: t.bytes,
                    block_stride: t.block_stride,
                    page_bytes: t.page_bytes,
                };
                part.tensors.iter().map(raw).collect()
            })
            .collect();
        let list: Vec<_> = parts
            .iter()
            .zip(&tensors)
            .map(|(part, tensors)| sys::kvbm_cache_part_t {
                part: part.part.raw(),
                form: part.form as u32,
                tensors: pointer(tensors),
                n_tensors: tensors.len(),
                ..Default::default()
            })
            .collect();
        let mut options = options!(kvbm_cache_options_init, kvbm_cache_options_t);
        options.n_blocks = n_blocks;
        options.parts = pointer(&list);
        options.n_parts = list.len();
        (options.memory, options.device) = memory.raw();
        let (raw_manager, raw_ns) = (manager.raw()?, ns.raw()?);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the lists live until the call is over; the memory is as the caller promises.
        explained(|err| unsafe { sys::kvbm_cache_attach(raw_manager, raw_ns, &options, &mut raw, err) })?;
        let inner = CacheInner {
            // SAFETY: the call has given an owned reference.
            handle: unsafe { Handle::new(raw) }?,
            memory: None,
            _keep: keep,
            manager: manager.clone(),
            parts: places(ns, parts.iter().map(|p| (&p.part, p.tensors.len()))),
            units: ns.units(),
            tokens_per_block: ns.facts.as_ref().map_or(0, |f| f.tokens_per_block.into()),
        };
        Ok(Cache { inner: Arc::new(inner) })
    }

    pub(crate) fn raw(&self) -> Result<*mut sys::kvbm_cache> {
        self.inner.handle.get()
    }

    fn owned(&self) -> Result<&Memory> {
        self.inner.handle.process().check()?;
        self.inner.memory.as_deref().ok_or_else(|| {
            Error::new(Status::UNSUPPORTED, "the memory of this cache is its engine's: it was attached by address")
        })
    }

    /// Reads one block in a tensor. Errors: IN_USE while it is written; UNSUPPORTED for a form with blocks of several
    /// pieces, or memory that is not the cache's own.
    pub fn block(&self, tensor: usize, block: u32) -> Result<BlockRef<'_>> {
        self.owned()?.read(tensor, Some(block))
    }
    /// Writes one block in a tensor. Errors: as [`Cache::block`], IN_USE also while it is read.
    pub fn block_mut(&self, tensor: usize, block: u32) -> Result<BlockMut<'_>> {
        self.owned()?.write(tensor, Some(block))
    }
    /// Reads a whole tensor. Errors: as [`Cache::block`], of any of its blocks.
    pub fn tensor(&self, tensor: usize) -> Result<TensorRef<'_>> {
        self.owned()?.read(tensor, None)
    }
    /// Writes a whole tensor. Errors: as [`Cache::block_mut`], of any of its blocks.
    pub fn tensor_mut(&self, tensor: usize) -> Result<TensorMut<'_>> {
        self.owned()?.write(tensor, None)
    }

    /// The blocks that an operation uses: `ids` is one list for each part, one after the other.
    pub(crate) fn claim(&self, access: Access, ids: &[u32]) -> Result<Option<Claim>> {
        let Some(memory) = &self.inner.memory else { return Ok(None) };
        let each = ids.len() / self.inner.parts.len().max(1);
        let regions = self.inner.parts.iter().enumerate().map(|(i, part)| Region {
            first: part.first_tensor,
            n: part.n_tensors,
            ids: ids[i * each..(i + 1) * each].to_vec(),
        });
        Claim::take(memory, access, regions.collect()).map(Some)
    }

    fn check_store(&self, keys: &[Key], block_ids: &[u32], given: &StoreOptions) -> Result<()> {
        let per_part = keys.len() * self.inner.units;
        let wanted = per_part * self.inner.parts.len();
        if block_ids.len() != wanted {
            let n = block_ids.len();
            return Err(Error::invalid(format!("{n} block ids are given, and {} keys need {wanted}", keys.len())));
        }
        if !given.unit_keys.is_empty() && given.unit_keys.len() != per_part {
            return Err(Error::invalid(format!("{} unit_keys are given for {per_part} blocks", given.unit_keys.len())));
        }
        check_positions(&given.positions, keys.len())
    }

    fn store_options(given: &StoreOptions) -> Result<sys::kvbm_store_options_t> {
        let mut options = options!(kvbm_store_options_init, kvbm_store_options_t);
        options.priority = given.priority as u32;
        options.parent = raw_key(&given.parent);
        options.unchained = given.unchained.into();
        options.positions = pointer(&given.positions).cast();
        options.timeout_ns = nanoseconds(given.timeout);
        options.unit_keys = raw_keys(&given.unit_keys);
        (options.stream, options.has_stream) = Stream::given(given.stream);
        Ok(options)
    }

    /// Copies engine blocks into the host tier under their keys, and waits for it. `block_ids` is one list for each
    /// part, each with `units` ids a key; [`crate::NO_BLOCK`] where there is none.
    pub fn store(&self, keys: &[Key], block_ids: &[u32], given: &StoreOptions) -> Result<Outcome> {
        self.check_store(keys, block_ids, given)?;
        let raw = self.raw()?;
        let _claim = self.claim(Access::Read, block_ids)?;
        let mut item_status = vec![Status::OK; keys.len()];
        let mut options = Cache::store_options(given)?;
        options.item_status = item_status.as_mut_ptr().cast();
        // SAFETY: the lists have the lengths checked above, and the blocks are claimed until the call is over.
        let status = check(unsafe {
            let none = std::ptr::null_mut();
            sys::kvbm_cache_store(raw, raw_keys(keys), pointer(block_ids), keys.len(), &options, none, 0)
        })?;
        Ok(Outcome { status, item_status })
    }

    /// [`Cache::store`] without waiting: the blocks stay claimed until the operation has ended. Errors besides: AGAIN
    /// (the queue is full).
    pub fn store_async(
        &self,
        keys: &[Key],
        block_ids: &[u32],
        given: &StoreOptions,
        queue: &Queue,
    ) -> Result<Operation> {
        self.check_store(keys, block_ids, given)?;
        let raw = self.raw()?;
        let claim = self.claim(Access::Read, block_ids)?;
        let mut options = Cache::store_options(given)?;
        queue.submit(keys.len(), Box::new((claim, self.clone())), |slots, queue, user_data| {
            options.item_status = slots.item_status;
            options.out_operation = slots.operation;
            // SAFETY: as in store; claim, statuses and operation are kept until the completion was taken.
            unsafe {
                sys::kvbm_cache_store(raw, raw_keys(keys), pointer(block_ids), keys.len(), &options, queue, user_data)
            }
        })
    }

    /// How many ids each part has, and keys these are.
    fn check_load(&self, block_ids: &[u32], given: &LoadOptions) -> Result<(usize, usize)> {
        let parts = self.inner.parts.len();
        if block_ids.len() % parts != 0 {
            return Err(Error::invalid(format!("{} block ids are no whole lists for {parts} parts", block_ids.len())));
        }
        let ids = block_ids.len() / parts;
        let keys = ids.div_ceil(self.inner.units);
        check_positions(&given.positions, keys)?;
        Ok((ids, keys))
    }

    fn load_options(given: &LoadOptions) -> Result<sys::kvbm_load_options_t> {
        let mut options = options!(kvbm_load_options_init, kvbm_load_options_t);
        options.first_key = given.first_key;
        options.any_position = given.any_position.into();
        options.first_layer = given.first_layer;
        options.n_layers = given.n_layers;
        options.keep_below = given.keep_below.into();
        options.positions = pointer(&given.positions).cast();
        options.timeout_ns = nanoseconds(given.timeout);
        options.compute_block_ns = given.compute_block.map_or(0, |t| nanoseconds(Some(t)));
        (options.stream, options.has_stream) = Stream::given(given.stream);
        options.wait_layers = given.wait_layers as u32;
        Ok(options)
    }

    /// Brings matched blocks into engine blocks, every byte verified on the way, and waits for it. `block_ids` is one
    /// list for each part, `units` ids a key; the last key may have fewer. Without ids nothing is loaded, also of a match
    /// of nothing.
    pub fn load(&self, found: &Match, block_ids: &[u32], given: &LoadOptions) -> Result<Outcome> {
        let (n_ids, n_keys) = self.check_load(block_ids, given)?;
        let (raw, raw_match) = (self.raw()?, found.raw_for_load(n_ids)?);
        let _claim = self.claim(Access::Write, block_ids)?;
        let mut item_status = vec![Status::OK; n_keys];
        let mut options = Cache::load_options(given)?;
        options.item_status = item_status.as_mut_ptr().cast();
        // SAFETY: the lists have the lengths checked above, and the blocks are claimed until the call is over.
        let status = check(unsafe {
            sys::kvbm_cache_load(raw, raw_match, pointer(block_ids), n_ids, &options, std::ptr::null_mut(), 0)
        })?;
        Ok(Outcome { status, item_status })
    }

    /// [`Cache::load`] without waiting: the blocks stay claimed until the operation has ended. Errors besides: AGAIN
    /// (the queue is full).
    pub fn load_async(
        &self,
        found: &Match,
        block_ids: &[u32],
        given: &LoadOptions,
        queue: &Queue,
    ) -> Result<Operation> {
        let (n_ids, n_keys) = self.check_load(block_ids, given)?;
        let (raw, raw_match) = (self.raw()?, found.raw_for_load(n_ids)?);
        let claim = self.claim(Access::Write, block_ids)?;
        let mut options = Cache::load_options(given)?;
        queue.submit(n_keys, Box::new((claim, self.clone())), |slots, queue, user_data| {
            options.item_status = slots.item_status;
            options.out_operation = slots.operation;
            // SAFETY: as in load; claim, statuses and operation are kept until the completion was taken.
            unsafe { sys::kvbm_cache_load(raw, raw_match, pointer(block_ids), n_ids, &options, queue, user_data) }
        })
    }

    /// Makes a stream wait for a layer of a load with [`LoadOptions::wait_layers`], numbered as in
    /// [`LoadOptions::first_layer`]: what is enqueued on `stream` from now on runs after that layer of every part and
    /// key has landed and been checked. With [`WaitLayers::Issued`] it blocks the thread until the layer was given to
    /// the driver or the load has ended, which [`Operation::cancel`] and [`LoadOptions::timeout`] see to.
    ///
    /// The stream goes on in the end also when the load fails: blocks then hold NaN, or what was there before. So what
    /// was computed behind a wait counts only once the operation's completion and statuses have said that its blocks
    /// were loaded.
    ///
    /// Errors: INVALID (a layer that the load does not bring, or another device's stream); STALE (no such load of this
    /// cache, or 1,024 later ones); TIER_DISABLED (the device was lost).
    pub fn wait_layer(&self, load: &Operation, layer: u32, stream: Stream) -> Result<()> {
        let raw = self.raw()?;
        // SAFETY: the handle is live, and so is the stream, as its maker has promised.
        check(unsafe { sys::kvbm_cache_wait_layer(raw, load.number(), layer, stream.as_raw()) }).map(drop)
    }

    /// How many parts it has; operations take one list of block ids for each.
    pub fn n_parts(&self) -> usize {
        self.inner.parts.len()
    }

    /// The raw pointer, valid while this object is.
    pub fn as_raw(&self) -> *mut sys::kvbm_cache {
        self.inner.handle.raw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_has_the_number_of_how_its_layers_are_waited_for() {
        let numbers = [sys::KVBM_WAIT_LAYERS_OFF, sys::KVBM_WAIT_LAYERS_ON_DEVICE, sys::KVBM_WAIT_LAYERS_ISSUED];
        for number in numbers {
            let given = LoadOptions { wait_layers: WaitLayers::try_from(number).unwrap(), ..Default::default() };
            assert_eq!(Cache::load_options(&given).unwrap().wait_layers, number);
        }
        assert!(WaitLayers::try_from(3).is_err());
    }
}
