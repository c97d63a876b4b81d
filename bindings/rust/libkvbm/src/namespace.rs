// SPDX-License-Identifier: Apache-2.0
//! Namespaces: the scope of keys.

use std::sync::Arc;

use libkvbm_sys as sys;

use crate::error::{check, explained, Result};
use crate::geometry::{Facts, Geometry};
use crate::handle::{c_string, options, Handle};
use crate::manager::Manager;
use crate::types::from_number;

/// Behaviour of a store when the quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum QuotaMode {
    /// Evict what the namespace has.
    #[default]
    Evict = 0,
    /// Refuse the store.
    Reject = 1,
}

/// How to open a [`Namespace`]. `model` must be set.
#[derive(Clone, Default)]
pub struct NamespaceOptions {
    /// Name of the tenant.
    pub tenant: String,
    /// Weights, revision, element type: what makes KV comparable.
    pub model: String,
    /// LoRA and the like.
    pub adapter: Option<String>,
    /// `None` = opaque blocks.
    pub geometry: Option<Geometry>,
    /// From the operator, never from a request; `None` = zeroes.
    pub secret: Option<[u8; 32]>,
    /// At least this epoch.
    pub epoch: u64,
    /// Host bytes this namespace may use; 0 = as it is set, or none.
    pub quota_bytes: u64,
    /// Behaviour at the quota.
    pub quota_mode: QuotaMode,
    /// How its records are coded where anything is: `"default"`, `"k:0-3=int8,default"`; `None` = as the tier codes.
    pub codec: Option<String>,
    /// Blocks that were coded with loss are misses without it.
    pub allow_lossy: bool,
    /// [`Namespace::key_from_hashes`] takes hashes of fewer than 16 bytes, for which others with equal hashes are
    /// easily found.
    pub weak_hashes: bool,
}

/// A namespace of a manager. Clones are the same one; it keeps its manager alive.
#[derive(Clone)]
pub struct Namespace {
    handle: Arc<Handle<sys::kvbm_namespace>>,
    pub(crate) facts: Option<Arc<Facts>>,
}

impl Namespace {
    /// Opens a namespace. The same options give the same id on every machine.
    pub fn open(manager: &Manager, given: &NamespaceOptions) -> Result<Namespace> {
        let mut options = options!(kvbm_namespace_options_init, kvbm_namespace_options_t);
        let (tenant, model) = (c_string("tenant", &given.tenant)?, c_string("model", &given.model)?);
        let adapter = given.adapter.as_deref().map(|a| c_string("adapter", a)).transpose()?;
        let codec = given.codec.as_deref().map(|c| c_string("codec", c)).transpose()?;
        options.tenant = tenant.as_ptr();
        if !given.model.is_empty() {
            options.model = model.as_ptr();
        }
        options.adapter = adapter.as_ref().map_or(std::ptr::null(), |a| a.as_ptr());
        options.geometry = given.geometry.as_ref().map_or(std::ptr::null_mut(), |g| g.as_raw());
        options.secret = given.secret.as_ref().map_or(std::ptr::null(), |s| s.as_ptr());
        options.epoch = given.epoch;
        options.quota_bytes = given.quota_bytes;
        options.quota_mode = given.quota_mode as u32;
        options.codec = codec.as_ref().map_or(std::ptr::null(), |c| c.as_ptr());
        options.allow_lossy = given.allow_lossy.into();
        options.weak_hashes = given.weak_hashes.into();
        let mut raw = std::ptr::null_mut();
        let manager = manager.raw()?;
        // SAFETY: everything that options point to lives until the call is over.
        explained(|err| unsafe { sys::kvbm_namespace_open(manager, &options, &mut raw, err) })?;
        // SAFETY: the call has given an owned reference.
        let handle = Arc::new(unsafe { Handle::new(raw) }?);
        Ok(Namespace { handle, facts: given.geometry.as_ref().map(|g| g.facts.clone()) })
    }

    pub(crate) fn raw(&self) -> Result<*mut sys::kvbm_namespace> {
        self.handle.get()
    }

    /// Engine blocks in a stored block.
    pub(crate) fn units(&self) -> usize {
        self.facts.as_ref().map_or(1, |f| f.units)
    }

    /// The 16-byte id; it changes with the epoch.
    pub fn id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        // SAFETY: the handle is live, and the call writes 16 bytes.
        unsafe { sys::kvbm_namespace_id(self.handle.raw(), id.as_mut_ptr()) };
        id
    }

    /// Makes every block stored so far unfindable, for good, in every tier. Keys made before do not match any more.
    /// Blocks for one write per tier.
    pub fn invalidate(&self) -> Result<()> {
        let raw = self.raw()?;
        // SAFETY: the handle is live.
        explained(|err| unsafe { sys::kvbm_namespace_invalidate(raw, err) }).map(drop)
    }

    /// Forgets this namespace's blocks in every tier; keys stay valid.
    pub fn reset(&self) -> Result<()> {
        let raw = self.raw()?;
        // SAFETY: the handle is live.
        explained(|err| unsafe { sys::kvbm_namespace_reset(raw, err) }).map(drop)
    }

    /// Changes the quota, for every handle of the namespace; 0 = none.
    pub fn set_quota(&self, quota_bytes: u64, mode: QuotaMode) -> Result<()> {
        let raw = self.raw()?;
        // SAFETY: the handle is live.
        check(unsafe { sys::kvbm_namespace_set_quota(raw, quota_bytes, mode as u32) }).map(drop)
    }

    /// The raw pointer, valid while this object is.
    pub fn as_raw(&self) -> *mut sys::kvbm_namespace {
        self.handle.raw()
    }
}

from_number!(QuotaMode, "quota_mode", Evict, Reject);
