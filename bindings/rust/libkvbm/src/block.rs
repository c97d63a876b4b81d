// SPDX-License-Identifier: Apache-2.0
//! The life of blocks of a managed pool, in types: [`PartialBlocks`] are written and exclusive, [`CompleteBlocks`] are
//! final, [`RegisteredBlocks`] are found by key, read-only and shared, [`WeakBlocks`] do not keep what they name.

use std::sync::Arc;

use libkvbm_sys as sys;

use crate::cache::{check_positions, Position};
use crate::error::{check, Error, Refused, Result, Status};
use crate::handle::{options, pointer};
use crate::key::{raw_key, raw_keys, Key};
use crate::manager::Manager;
use crate::namespace::Namespace;
use crate::types::{from_number, Part, Priority};
use crate::view::{raw_views, Views, ViewsMut};

/// A batch of holds that ends with its owner.
struct Holds {
    manager: Manager,
    raw: Vec<sys::kvbm_block_t>,
}

impl Holds {
    fn views(&self) -> Result<Vec<sys::kvbm_view_t>> {
        raw_views(self.manager.raw()?, &self.raw)
    }
    fn take(&mut self) -> Vec<sys::kvbm_block_t> {
        std::mem::take(&mut self.raw)
    }
    /// Ends the holds, and says how.
    fn end(&mut self) -> Result<()> {
        let raw = self.take();
        let manager = self.manager.raw()?;
        // SAFETY: the manager is live; the library checks every hold.
        check(unsafe { sys::kvbm_block_release(manager, pointer(&raw), raw.len()) }).map(drop)
    }
    fn split_off(&mut self, at: usize) -> Holds {
        Holds { manager: self.manager.clone(), raw: self.raw.split_off(at.min(self.raw.len())) }
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        if !self.raw.is_empty() {
            // An ended hold does no harm, and a drop cannot return an error.
            let _ = self.end();
        }
    }
}

macro_rules! batch {
    ($name:ident) => {
        impl $name {
            /// How many blocks there are.
            pub fn len(&self) -> usize {
                self.holds.raw.len()
            }
            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.holds.raw.is_empty()
            }
            /// The manager they belong to.
            pub fn manager(&self) -> &Manager {
                &self.holds.manager
            }
            /// Takes holds over. The library checks every one when it is used, so a wrong one is an error.
            ///
            /// # Safety
            /// The holds are in the state that this type stands for, nothing else uses them, and none is there twice:
            /// views depend on it.
            pub unsafe fn from_raw(manager: &Manager, holds: Vec<sys::kvbm_block_t>) -> Self {
                Self { holds: Holds { manager: manager.clone(), raw: holds }.into() }
            }
        }
    };
}

macro_rules! exclusive_batch {
    ($name:ident) => {
        batch!($name);
        impl $name {
            /// Takes away the blocks from `at` on; none if there are not so many.
            #[must_use]
            pub fn split_off(&mut self, at: usize) -> Self {
                Self { holds: self.holds.split_off(at) }
            }
            /// Ends the holds, as a drop does, and says how.
            pub fn release(mut self) -> Result<()> {
                self.holds.end()
            }
            /// Gives the holds up as numbers, which the caller must release.
            pub fn into_raw(mut self) -> Vec<sys::kvbm_block_t> {
                self.holds.take()
            }
        }
    };
}

/// Blocks that are being filled: exclusive, writable, not findable.
///
/// They cannot be shared:
/// ```compile_fail,E0599
/// fn both(blocks: libkvbm::PartialBlocks) { let _ = (blocks.clone(), blocks); }
/// ```
/// Nor written twice at once:
/// ```compile_fail,E0499
/// fn twice(mut blocks: libkvbm::PartialBlocks) {
///     let (first, second) = (blocks.views_mut().unwrap(), blocks.views_mut().unwrap());
///     drop((first, second));
/// }
/// ```
/// Nor used after they were completed:
/// ```compile_fail,E0382
/// fn after(blocks: libkvbm::PartialBlocks) { let done = blocks.complete(); drop((done, blocks)); }
/// ```
/// Nor can a view outlive them:
/// ```compile_fail,E0505
/// fn outlive(mut blocks: libkvbm::PartialBlocks) {
///     let views = blocks.views_mut().unwrap();
///     drop(blocks);
///     drop(views);
/// }
/// ```
pub struct PartialBlocks {
    holds: Holds,
}
exclusive_batch!(PartialBlocks);

/// Result of an allocation: blocks, and evictions.
#[derive(Debug)]
pub struct Allocation {
    /// The new blocks.
    pub blocks: PartialBlocks,
    /// Keys of blocks that were evicted, as many as there was room for.
    pub evicted: Vec<Key>,
    /// How many were evicted in all.
    pub n_evicted: usize,
}

impl Manager {
    /// Takes `n` blocks, all or none, evicting what nothing holds if need be. Errors: NO_ROOM (everything is held),
    /// QUOTA.
    pub fn allocate(&self, ns: &Namespace, n: usize) -> Result<PartialBlocks> {
        self.allocate_with(ns, n, 0).map(|a| a.blocks)
    }

    /// [`Manager::allocate`] which also tells up to `evicted_capacity` keys of evicted blocks.
    pub fn allocate_with(&self, ns: &Namespace, n: usize, evicted_capacity: usize) -> Result<Allocation> {
        let (manager, ns) = (self.raw()?, ns.raw()?);
        let mut raw: Vec<sys::kvbm_block_t> = Vec::new();
        let mut evicted: Vec<Key> = Vec::new();
        let no_memory = |_| Error::new(Status::NO_MEMORY, "the system refused memory for the list of holds");
        // Not touched before the library has agreed: n may be more than there is memory for.
        raw.try_reserve_exact(n).map_err(no_memory)?;
        evicted.try_reserve_exact(evicted_capacity).map_err(no_memory)?;
        let mut n_evicted = 0;
        let (out, wanted) = match evicted_capacity {
            0 => (std::ptr::null_mut(), std::ptr::null_mut()),
            _ => (evicted.as_mut_ptr().cast(), std::ptr::from_mut(&mut n_evicted)),
        };
        // SAFETY: both handles are live, and there is room as is said.
        check(unsafe { sys::kvbm_manager_allocate(manager, ns, n, raw.as_mut_ptr(), out, evicted_capacity, wanted) })?;
        // SAFETY: the library has written all holds, and keys as far as there was room for them.
        unsafe {
            raw.set_len(n);
            evicted.set_len(n_evicted.min(evicted_capacity));
        }
        Ok(Allocation { blocks: PartialBlocks { holds: Holds { manager: self.clone(), raw } }, evicted, n_evicted })
    }
}

impl PartialBlocks {
    /// The bytes of the blocks, to be written. Those of a new block are whatever was there before.
    pub fn views_mut(&mut self) -> Result<ViewsMut<'_>> {
        let raw = self.holds.views()?;
        // SAFETY: only the holder writes Partial blocks; it is borrowed exclusively, and they do not overlap.
        Ok(unsafe { ViewsMut::new(raw) })
    }

    /// The bytes are final; each block has all of its `block_bytes`. Errors: STALE, STATE.
    pub fn complete(self) -> Result<CompleteBlocks, Refused<PartialBlocks>> {
        self.complete_raw(std::ptr::null())
    }

    /// The bytes are final; block `i` has `bytes[i]` of them.
    pub fn complete_with(self, bytes: &[u64]) -> Result<CompleteBlocks, Refused<PartialBlocks>> {
        if bytes.len() != self.len() {
            let error = Error::invalid(format!("{} lengths are given for {} blocks", bytes.len(), self.len()));
            return Err(Refused { blocks: self, error });
        }
        self.complete_raw(pointer(bytes))
    }

    fn complete_raw(mut self, bytes: *const u64) -> Result<CompleteBlocks, Refused<PartialBlocks>> {
        let holds = &self.holds;
        // SAFETY: the manager is live, and `bytes` is NULL or has an entry for each block.
        let done = holds.manager.raw().and_then(|manager| {
            check(unsafe { sys::kvbm_manager_complete(manager, pointer(&holds.raw), holds.raw.len(), bytes) })
        });
        match done {
            Ok(_) => Ok(CompleteBlocks { holds: self.holds.split_off(0) }),
            Err(error) => Err(Refused { blocks: self, error }),
        }
    }
}

/// Blocks with final bytes, still exclusive and not findable.
///
/// They cannot be written:
/// ```compile_fail,E0599
/// fn write(mut blocks: libkvbm::CompleteBlocks) { let _ = blocks.views_mut(); }
/// ```
/// Nor used after they were registered:
/// ```compile_fail,E0382
/// fn after(blocks: libkvbm::CompleteBlocks, ns: &libkvbm::Namespace, keys: &[libkvbm::Key]) {
///     let found = blocks.register(ns, keys);
///     drop((found, blocks));
/// }
/// ```
pub struct CompleteBlocks {
    holds: Holds,
}
exclusive_batch!(CompleteBlocks);

/// Treatment of a block with a key that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DuplicateMode {
    /// The block that is there is given, and yours is freed.
    #[default]
    Reuse = 0,
    /// Yours stays private until it is released, and is not findable.
    Keep = 1,
}

/// How blocks are registered.
#[derive(Clone, Debug, Default)]
pub struct RegisterOptions {
    /// Treatment of existing keys.
    pub duplicates: DuplicateMode,
    /// Which component and shard.
    pub part: Part,
    /// The key before the first.
    pub parent: Option<Key>,
    /// The keys are no prefix in order; blocks have no parents.
    pub unchained: bool,
    /// Hint about the blocks.
    pub priority: Priority,
    /// Where each was computed; content keys only. Empty: not said.
    pub positions: Vec<Position>,
}

/// Result of registering blocks.
#[derive(Debug)]
#[must_use]
pub struct Registration {
    /// Blocks that are now found by their keys, or kept private as duplicates, in order.
    pub blocks: RegisteredBlocks,
    /// Refused blocks, in order.
    pub refused: CompleteBlocks,
    /// Of each: OK, EXISTS, or why it was refused.
    pub item_status: Vec<Status>,
}

impl CompleteBlocks {
    /// Read-only views of the blocks.
    pub fn views(&self) -> Result<Views<'_>> {
        // SAFETY: nothing writes to a Complete block, and the holds are borrowed.
        Ok(unsafe { Views::new(self.holds.views()?) })
    }

    /// Makes the blocks findable under `keys`, a prefix in order, with default options. Refused blocks are returned.
    pub fn register(self, ns: &Namespace, keys: &[Key]) -> Result<RegisteredBlocks, Refused<CompleteBlocks>> {
        let done = self.register_with(ns, keys, &RegisterOptions::default())?;
        if done.refused.is_empty() {
            return Ok(done.blocks);
        }
        let error = done.item_status.iter().find_map(|s| s.check().err().filter(|e| e.status() != Status::EXISTS));
        Err(Refused { blocks: done.refused, error: error.unwrap_or(Status::PARTIAL.into()) })
    }

    /// Makes the blocks findable under `keys`.
    pub fn register_with(
        mut self,
        ns: &Namespace,
        keys: &[Key],
        given: &RegisterOptions,
    ) -> Result<Registration, Refused<CompleteBlocks>> {
        if keys.len() != self.len() {
            let error = Error::invalid(format!("{} keys are given for {} blocks", keys.len(), self.len()));
            return Err(Refused { blocks: self, error });
        }
        if let Err(error) = check_positions(&given.positions, keys.len()) {
            return Err(Refused { blocks: self, error });
        }
        // Nothing has this status before the library has decided.
        let mut items = vec![Status::AGAIN; self.len()];
        let done = self.register_raw(ns, keys, given, &mut items);
        if done.is_err() && items.iter().all(|s| *s == Status::AGAIN) {
            let error = done.err().unwrap_or(Status::INTERNAL.into());
            return Err(Refused { blocks: self, error });
        }
        let manager = self.holds.manager.clone();
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for (hold, status) in self.holds.take().into_iter().zip(&items) {
            let list = if matches!(*status, Status::OK | Status::EXISTS) { &mut found } else { &mut refused };
            list.push(hold);
        }
        Ok(Registration {
            blocks: RegisteredBlocks::new(&manager, found),
            refused: CompleteBlocks { holds: Holds { manager, raw: refused } },
            item_status: items,
        })
    }

    fn register_raw(
        &mut self,
        ns: &Namespace,
        keys: &[Key],
        given: &RegisterOptions,
        items: &mut [Status],
    ) -> Result<()> {
        let (manager, ns, part) = (self.holds.manager.raw()?, ns.raw()?, given.part.raw());
        let mut options = options!(kvbm_register_options_init, kvbm_register_options_t);
        options.duplicates = given.duplicates as u32;
        options.part = &part;
        options.parent = raw_key(&given.parent);
        options.unchained = given.unchained.into();
        options.priority = given.priority as u32;
        options.item_status = items.as_mut_ptr().cast();
        options.positions = pointer(&given.positions).cast();
        let holds = &mut self.holds.raw;
        // SAFETY: handles are live; holds, keys and statuses have one entry for each block.
        check(unsafe {
            sys::kvbm_manager_register(manager, ns, holds.as_mut_ptr(), raw_keys(keys), holds.len(), &options)
        })
        .map(drop)
    }
}

/// Blocks that are found by key: read-only, shared. A clone is one more hold on each.
///
/// They cannot be written:
/// ```compile_fail,E0599
/// fn write(mut blocks: libkvbm::RegisteredBlocks) { let _ = blocks.views_mut(); }
/// ```
/// ```compile_fail,E0594
/// fn write(blocks: &libkvbm::RegisteredBlocks) { blocks.views().unwrap()[0][0] = 1; }
/// ```
/// Nor can a view outlive the hold:
/// ```compile_fail,E0505
/// fn outlive(blocks: libkvbm::RegisteredBlocks) -> u8 {
///     let views = blocks.views().unwrap();
///     drop(blocks);
///     views[0][0]
/// }
/// ```
pub struct RegisteredBlocks {
    holds: Arc<Holds>,
}
batch!(RegisteredBlocks);

impl Clone for RegisteredBlocks {
    /// One more hold on each block; where no hold is free, the clone shares these.
    fn clone(&self) -> Self {
        self.try_clone().unwrap_or_else(|_| RegisteredBlocks { holds: self.holds.clone() })
    }
}

impl RegisteredBlocks {
    fn new(manager: &Manager, raw: Vec<sys::kvbm_block_t>) -> Self {
        RegisteredBlocks { holds: Arc::new(Holds { manager: manager.clone(), raw }) }
    }

    /// Ends the holds, as a drop does, and says how.
    pub fn release(self) -> Result<()> {
        Arc::try_unwrap(self.holds).map_or(Ok(()), |mut holds| holds.end())
    }

    /// Gives the holds up as numbers, which the caller must release; or itself back, where a clone shares them.
    pub fn into_raw(self) -> Result<Vec<sys::kvbm_block_t>, Self> {
        Arc::try_unwrap(self.holds).map(|mut holds| holds.take()).map_err(|holds| RegisteredBlocks { holds })
    }

    /// Read-only views of the blocks.
    pub fn views(&self) -> Result<Views<'_>> {
        // SAFETY: Registered blocks are never written to while they are held, and the holds are borrowed.
        Ok(unsafe { Views::new(self.holds.views()?) })
    }

    /// One more hold on each. Errors: NO_ROOM (no hold is free).
    pub fn try_clone(&self) -> Result<RegisteredBlocks> {
        let manager = self.holds.manager.raw()?;
        let mut raw = vec![0; self.len()];
        // SAFETY: the manager is live, and there is room for a hold of each.
        check(unsafe { sys::kvbm_block_clone(manager, pointer(&self.holds.raw), raw.len(), raw.as_mut_ptr()) })?;
        Ok(RegisteredBlocks::new(&self.holds.manager, raw))
    }

    /// Weak references to the blocks.
    pub fn downgrade(&self) -> Result<WeakBlocks> {
        let manager = self.holds.manager.raw()?;
        let mut raw = vec![0; self.len()];
        // SAFETY: the manager is live, and there is room for a hold of each.
        check(unsafe { sys::kvbm_block_downgrade(manager, pointer(&self.holds.raw), raw.len(), raw.as_mut_ptr()) })?;
        Ok(WeakBlocks { holds: Holds { manager: self.holds.manager.clone(), raw } })
    }
}

/// Weak references to blocks: they do not keep what they name.
pub struct WeakBlocks {
    holds: Holds,
}
exclusive_batch!(WeakBlocks);

/// The blocks of a batch that are still there.
#[derive(Debug)]
pub struct Present {
    /// Their blocks.
    pub blocks: RegisteredBlocks,
    /// Which of the batch they are, in order.
    pub indices: Vec<usize>,
}

impl Present {
    pub(crate) fn new(manager: &Manager, holds: Vec<sys::kvbm_block_t>) -> Present {
        let indices = holds.iter().enumerate().filter(|(_, hold)| **hold != 0).map(|(i, _)| i).collect();
        let raw = holds.into_iter().filter(|hold| *hold != 0).collect();
        Present { blocks: RegisteredBlocks::new(manager, raw), indices }
    }
}

impl WeakBlocks {
    /// New holds on those blocks that are still there. Errors: NO_ROOM (no hold is free).
    pub fn upgrade(&self) -> Result<Present> {
        let manager = self.holds.manager.raw()?;
        let mut raw = vec![0; self.len()];
        // SAFETY: the manager is live, and there is room for a hold of each.
        check(unsafe { sys::kvbm_block_upgrade(manager, pointer(&self.holds.raw), raw.len(), raw.as_mut_ptr()) })?;
        Ok(Present::new(&self.holds.manager, raw))
    }
}

from_number!(DuplicateMode, "duplicates", Reuse, Keep);
