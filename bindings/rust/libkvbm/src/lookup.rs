// SPDX-License-Identifier: Apache-2.0
//! Lookups, and the matches that they give.

use std::ops::Range;
use std::time::Duration;

use libkvbm_sys as sys;

use crate::block::{Present, RegisteredBlocks};
use crate::cache::Cache;
use crate::error::{check, Error, Result, Status};
use crate::handle::{nanoseconds, options, pointer, Handle};
use crate::key::{raw_keys, Key};
use crate::manager::Manager;
use crate::namespace::Namespace;
use crate::types::{from_number, Part, TierNumber};

/// Modes of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LookupMode {
    /// The longest prefix.
    #[default]
    Prefix = 0,
    /// Each key by itself.
    Each = 1,
    /// The first that is there.
    Any = 2,
}

/// How to look up; the default is the longest prefix of component 0 of the whole model in all tiers.
#[derive(Clone, Debug, Default)]
pub struct LookupOptions {
    /// Mode of the lookup.
    pub mode: LookupMode,
    /// Parts that a hit needs, all of them; empty = component 0 of the whole model. Not for caches, which have their
    /// own parts.
    pub parts: Vec<Part>,
    /// Look in the host tier alone.
    pub host_only: bool,
    /// Do not count as a use.
    pub no_use: bool,
    /// Prefix only: keys of the prompt's engine blocks, by which leading ones of a stored block are found.
    pub unit_keys: Vec<Key>,
    /// Ask other nodes for keys that are nowhere here, and wait so long for their answers (the call then blocks).
    pub ask_nodes: Duration,
}

/// One key of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchItem {
    /// The slowest tier that a part of it must come from; `None` = missed.
    pub tier: Option<TierNumber>,
    /// Bit i: part i is needed and there.
    pub parts_needed: u32,
    /// Payload bytes to move for it.
    pub bytes: u64,
    /// Bytes that are not in the host tier yet.
    pub below_bytes: u64,
}

/// Result of a lookup. Holds the blocks found until it is dropped. Loads that were submitted with it go on.
pub struct Match {
    handle: Option<Handle<sys::kvbm_match>>,
    manager: Manager,
    hits: usize,
}

fn raw_options(given: &LookupOptions, parts: &[sys::kvbm_part_t]) -> Result<sys::kvbm_lookup_options_t> {
    let mut options = options!(kvbm_lookup_options_init, kvbm_lookup_options_t);
    options.mode = given.mode as u32;
    options.parts = pointer(parts);
    options.n_parts = parts.len();
    options.host_only = given.host_only.into();
    options.no_use = given.no_use.into();
    options.unit_keys = raw_keys(&given.unit_keys);
    options.n_unit_keys = given.unit_keys.len();
    options.ask_nodes_ns = nanoseconds(Some(given.ask_nodes));
    Ok(options)
}

impl Manager {
    /// Finds blocks in every tier, from memory alone unless nodes are asked.
    pub fn lookup(&self, ns: &Namespace, keys: &[Key], given: &LookupOptions) -> Result<Match> {
        let parts = Part::raw_list(&given.parts);
        let options = raw_options(given, &parts)?;
        let (manager, ns) = (self.raw()?, ns.raw()?);
        let (mut raw, mut n) = (std::ptr::null_mut(), 0);
        // SAFETY: handles are live, and every list is as long as is said.
        check(unsafe {
            sys::kvbm_manager_lookup(manager, ns, raw_keys(keys), keys.len(), &options, &mut raw, &mut n)
        })?;
        Match::new(raw, n, self.clone())
    }
}

impl Cache {
    /// [`Manager::lookup`] with the cache's own parts.
    pub fn lookup(&self, keys: &[Key], given: &LookupOptions) -> Result<Match> {
        let parts = Part::raw_list(&given.parts);
        let options = raw_options(given, &parts)?;
        let cache = self.raw()?;
        let (mut raw, mut n) = (std::ptr::null_mut(), 0);
        // SAFETY: the handle is live, and every list is as long as is said.
        check(unsafe { sys::kvbm_cache_lookup(cache, raw_keys(keys), keys.len(), &options, &mut raw, &mut n) })?;
        Match::new(raw, n, self.inner.manager.clone())
    }
}

impl Match {
    fn new(raw: *mut sys::kvbm_match, hits: usize, manager: Manager) -> Result<Match> {
        // SAFETY: the lookup has given an owned reference, or NULL where nothing hit.
        let handle = if raw.is_null() { None } else { Some(unsafe { Handle::new(raw) }?) };
        Ok(Match { handle, manager, hits })
    }

    pub(crate) fn raw(&self) -> Result<*mut sys::kvbm_match> {
        match &self.handle {
            Some(handle) => handle.get(),
            None => Err(Error::new(Status::MISS, "nothing was found, so there is nothing to load or hold")),
        }
    }

    /// The native match for a load of `n` block ids. NULL, which the library accepts, if nothing was found and nothing
    /// is wanted.
    pub(crate) fn raw_for_load(&self, n: usize) -> Result<*mut sys::kvbm_match> {
        if self.handle.is_none() && n == 0 {
            return Ok(std::ptr::null_mut());
        }
        self.raw()
    }

    /// How many hit: leading keys (Prefix), all of them (Each), 0 or 1 (Any).
    pub fn hits(&self) -> usize {
        self.hits
    }

    /// Keys that the match was made from, hits or not; one more if a block that matches in part lies behind them. 0 if
    /// nothing was found.
    pub fn count(&self) -> usize {
        // SAFETY: the handle is live.
        self.handle.as_ref().map_or(0, |h| unsafe { sys::kvbm_match_count(h.raw()) })
    }

    /// Leading engine blocks that hit: give a load this many block ids.
    pub fn units(&self) -> usize {
        // SAFETY: the handle is live.
        self.handle.as_ref().map_or(0, |h| unsafe { sys::kvbm_match_units(h.raw()) })
    }

    /// Describes these keys of the match.
    pub fn items(&self, keys: Range<usize>) -> Result<Vec<MatchItem>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let raw = self.raw()?;
        self.check_range(&keys)?;
        let mut items = vec![sys::kvbm_match_item_t::default(); keys.len()];
        // SAFETY: the handle is live, and there is room for an item of each key.
        check(unsafe { sys::kvbm_match_items(raw, keys.start, keys.len(), items.as_mut_ptr()) })?;
        let item = |i: &sys::kvbm_match_item_t| MatchItem {
            tier: Some(i.tier).filter(|t| *t != sys::KVBM_NO_TIER).map(TierNumber),
            parts_needed: i.parts_needed,
            bytes: i.bytes,
            below_bytes: i.below_bytes,
        };
        Ok(items.iter().map(item).collect())
    }

    /// Predicted times of loading the first of these keys, the first two, and so on.
    pub fn cost(&self, keys: Range<usize>) -> Result<Vec<Duration>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let raw = self.raw()?;
        self.check_range(&keys)?;
        let mut ns = vec![0u64; keys.len()];
        // SAFETY: the handle is live, and there is room for a time of each key.
        check(unsafe { sys::kvbm_match_cost(raw, keys.start, keys.len(), ns.as_mut_ptr()) })?;
        Ok(ns.into_iter().map(Duration::from_nanos).collect())
    }

    fn check_range(&self, keys: &Range<usize>) -> Result<()> {
        if keys.end <= self.count() {
            return Ok(());
        }
        Err(Error::invalid(format!("keys {keys:?} of a match of {}", self.count())))
    }

    /// New holds on part `part` of these keys, of those that are in the host tier.
    pub fn present(&self, part: u32, keys: Range<usize>) -> Result<Present> {
        let manager = &self.manager;
        if keys.is_empty() {
            return Ok(Present::new(manager, Vec::new()));
        }
        let raw = self.raw()?;
        self.check_range(&keys)?;
        let mut holds = vec![0; keys.len()];
        // SAFETY: the handle is live, and there is room for a hold of each key.
        check(unsafe { sys::kvbm_match_blocks(raw, part, keys.start, keys.len(), holds.as_mut_ptr()) })?;
        Ok(Present::new(manager, holds))
    }

    /// New holds on component `part` of all these keys. Errors: MISS if one is not in the host tier (prefetch it).
    pub fn blocks(&self, part: u32, keys: Range<usize>) -> Result<RegisteredBlocks> {
        let n = keys.len();
        let present = self.present(part, keys)?;
        if present.blocks.len() == n {
            return Ok(present.blocks);
        }
        let here = present.blocks.len();
        Err(Error::new(Status::MISS, format!("{here} of {n} blocks are in the host tier; prefetch the others")))
    }

    /// The raw pointer, valid while this object is; NULL if nothing was found.
    pub fn as_raw(&self) -> *mut sys::kvbm_match {
        self.handle.as_ref().map_or(std::ptr::null_mut(), Handle::raw)
    }
}

from_number!(LookupMode, "mode", Prefix, Each, Any);
