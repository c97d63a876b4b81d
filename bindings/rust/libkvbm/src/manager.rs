// SPDX-License-Identifier: Apache-2.0
//! A manager: one owner of one set of tiers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use libkvbm_sys as sys;

use crate::context::Context;
use crate::error::{check, explained, Error, Result, Status};
use crate::handle::{c_string, nanoseconds, options, read_text, Handle};
use crate::types::from_number;

/// Which blocks of the host come into a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Admission {
    /// All blocks.
    #[default]
    All = 0,
    /// Blocks that the tier above evicts.
    OnEviction = 1,
    /// Blocks used `admission_uses` times.
    AfterUses = 2,
    /// Blocks used often lately.
    Frequency = 3,
    /// Only blocks that [`Manager::offload`] sends.
    OnRequest = 4,
}

/// Where a [`Tier`] keeps its blocks.
#[derive(Clone, Debug)]
pub enum TierPlace {
    /// A disk tier in a directory of this user's.
    Disk(PathBuf),
    /// A store, by its URL: `s3://bucket/prefix?region=...`, `file:///mnt/shared/kv`; docs/stores.md has them all.
    Store(String),
}

/// A tier below host memory.
#[derive(Clone, Debug)]
pub struct Tier {
    /// Place of the tier.
    pub place: TierPlace,
    /// Hard cap of everything in its directory or store; of a store 0 = no cap.
    pub capacity_bytes: u64,
    /// Bandwidth cap of offload into it; 0 = none.
    pub write_bytes_per_s: u64,
    /// Bandwidth cap of onboard from it; 0 = none.
    pub read_bytes_per_s: u64,
    /// Which blocks come here.
    pub admission: Admission,
    /// For AfterUses and Frequency; 0 = 2.
    pub admission_uses: u32,
    /// How records are coded: `"auto"`, `"fast"`, `"default"`, `"max"`, `"zstd"`; `None` = off.
    pub codec: Option<String>,
    /// Goal of `"auto"`; 0: blocks are onboarded sooner, 1: more blocks fit.
    pub codec_goal: u32,
}

impl Tier {
    fn at(place: TierPlace, capacity_bytes: u64) -> Tier {
        Tier {
            place,
            capacity_bytes,
            write_bytes_per_s: 0,
            read_bytes_per_s: 0,
            admission: Admission::default(),
            admission_uses: 0,
            codec: None,
            codec_goal: 0,
        }
    }

    /// A disk tier in a directory, with a hard cap of everything in it.
    pub fn disk(path: impl Into<PathBuf>, capacity_bytes: u64) -> Tier {
        Tier::at(TierPlace::Disk(path.into()), capacity_bytes)
    }

    /// A store, without a cap: set `capacity_bytes` for one.
    pub fn store(url: impl Into<String>) -> Tier {
        Tier::at(TierPlace::Store(url.into()), 0)
    }
}

/// How to create a [`Manager`]; the default is the configuration's.
#[derive(Clone, Debug, Default)]
pub struct ManagerOptions {
    /// Several processes of this host share the tier set.
    pub share: bool,
    /// Largest payload of a record; 0 = as configured.
    pub block_bytes: u64,
    /// Host tier, record heads included; 0 = as configured.
    pub host_capacity_bytes: u64,
    /// Keep host blocks in this tmpfs or hugetlbfs file over restarts.
    pub host_file: Option<PathBuf>,
    /// Eviction policy by name; `None` = as configured.
    pub policy: Option<String>,
    /// Fastest first; `None` = as configured, empty = host memory alone.
    pub tiers: Option<Vec<Tier>>,
}

/// One owner of one set of tiers. Clones are the same manager. It lives until the last of its clones, namespaces,
/// caches, matches and blocks is dropped; that drop finishes the work in flight and closes the tiers, so it may block.
#[derive(Clone)]
pub struct Manager {
    pub(crate) handle: Arc<Handle<sys::kvbm_manager>>,
}

fn path_string(what: &str, path: &std::path::Path) -> Result<std::ffi::CString> {
    c_string(what, path.to_str().ok_or_else(|| Error::invalid(format!("{what} is not UTF-8")))?)
}

impl Manager {
    /// Creates a manager: maps the host tier, opens and recovers the tiers below, and blocks for it. Errors: CONFIG,
    /// IN_USE (a directory has another owner), VERSION, EXISTS, DAMAGED, DISK_FULL, NO_MEMORY, IO, PERMISSION.
    pub fn new(context: &Context, given: &ManagerOptions) -> Result<Manager> {
        let mut options = options!(kvbm_manager_options_init, kvbm_manager_options_t);
        let file = given.host_file.as_deref().map(|f| path_string("host_file", f)).transpose()?;
        let policy = given.policy.as_deref().map(|p| c_string("policy", p)).transpose()?;
        let wanted = given.tiers.as_deref().unwrap_or_default();
        let place = |t: &Tier| match &t.place {
            TierPlace::Disk(path) => path_string("a tier's path", path),
            TierPlace::Store(url) => c_string("a tier's URL", url),
        };
        let places = wanted.iter().map(place).collect::<Result<Vec<_>>>()?;
        let codec = |t: &Tier| t.codec.as_deref().map(|c| c_string("a tier's codec", c)).transpose();
        let codecs = wanted.iter().map(codec).collect::<Result<Vec<_>>>()?;
        let tiers: Vec<_> = wanted
            .iter()
            .zip(&places)
            .zip(&codecs)
            .map(|((tier, place), codec)| sys::kvbm_tier_t {
                path: if matches!(tier.place, TierPlace::Disk(_)) { place.as_ptr() } else { std::ptr::null() },
                url: if matches!(tier.place, TierPlace::Store(_)) { place.as_ptr() } else { std::ptr::null() },
                capacity_bytes: tier.capacity_bytes,
                write_bytes_per_s: tier.write_bytes_per_s,
                read_bytes_per_s: tier.read_bytes_per_s,
                admission: tier.admission as u32,
                admission_uses: tier.admission_uses,
                codec: codec.as_ref().map_or(std::ptr::null(), |c| c.as_ptr()),
                codec_goal: tier.codec_goal,
                ..Default::default()
            })
            .collect();
        options.flags = if given.share { sys::KVBM_MANAGER_SHARE } else { 0 };
        options.block_bytes = given.block_bytes;
        options.host_capacity_bytes = given.host_capacity_bytes;
        options.host_file = file.as_ref().map_or(std::ptr::null(), |f| f.as_ptr());
        options.policy = policy.as_ref().map_or(std::ptr::null(), |p| p.as_ptr());
        // An empty list is not NULL: that would be the configuration's tiers.
        options.tiers = given.tiers.as_ref().map_or(std::ptr::null(), |_| tiers.as_ptr());
        options.n_tiers = tiers.len();
        let mut raw = std::ptr::null_mut();
        let context = context.handle.get()?;
        // SAFETY: everything that options point to lives until the call is over.
        explained(|err| unsafe { sys::kvbm_manager_create(context, &options, &mut raw, err) })?;
        // SAFETY: the call has given an owned reference.
        Ok(Manager { handle: Arc::new(unsafe { Handle::new(raw) }?) })
    }

    pub(crate) fn raw(&self) -> Result<*mut sys::kvbm_manager> {
        self.handle.get()
    }

    /// Forgets every block of every tier that nothing holds.
    pub fn reset(&self) -> Result<()> {
        let raw = self.raw()?;
        // SAFETY: the handle is live.
        explained(|err| unsafe { sys::kvbm_manager_reset(raw, err) }).map(drop)
    }

    /// Waits until no offload is queued or in flight: what was taken is in its tier then. `None` = no deadline.
    /// [`Status::PARTIAL`]: but for blocks that a tier did not take when they were sent; in a shared tier set, but for
    /// blocks that are not where they are to be. Errors: DEADLINE, OWNER_GONE, TIER_DISABLED.
    pub fn flush(&self, timeout: Option<Duration>) -> Result<Status> {
        let raw = self.raw()?;
        // SAFETY: the handle is live.
        check(unsafe { sys::kvbm_manager_flush(raw, nanoseconds(timeout)) })
    }

    /// As [`Manager::flush`], and what the disks then have survives the loss of power. [`Status::PARTIAL`] also where a
    /// disk could not make something durable, which has left it: the next flush sends it again. Errors: UNSUPPORTED
    /// where nothing was promised: no tier below host memory, or a plug-in tier; and those of `flush`.
    pub fn flush_durable(&self, timeout: Option<Duration>) -> Result<Status> {
        let raw = self.raw()?;
        // SAFETY: the handle is live.
        check(unsafe { sys::kvbm_manager_flush_durable(raw, nanoseconds(timeout)) })
    }

    /// All metrics as Prometheus text.
    pub fn metrics(&self) -> Result<String> {
        let raw = self.raw()?;
        // SAFETY: the handle is live, and read_text gives room as it says.
        read_text(|out, capacity, needed| unsafe { sys::kvbm_manager_metrics(raw, out, capacity, needed) })
    }

    /// The raw pointer, valid while this object is.
    pub fn as_raw(&self) -> *mut sys::kvbm_manager {
        self.handle.raw()
    }
}

from_number!(Admission, "admission", All, OnEviction, AfterUses, Frequency, OnRequest);
