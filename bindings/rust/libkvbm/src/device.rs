// SPDX-License-Identifier: Apache-2.0
//! Caches in the memory of a CUDA device: where they lie, the streams of their device, and what was moved.

use std::ffi::c_void;

use libkvbm_sys as sys;

use crate::error::{check, Result};
use crate::manager::Manager;
use crate::node::{fixed_text, read_rows};
use crate::stats::counters;
use crate::types::from_number;

/// Where all the tensors of a cache lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum MemoryKind {
    /// In host memory, unless this process has libcuda loaded and that knows the tensors as device memory.
    #[default]
    Auto,
    /// In host memory.
    Host,
    /// In the memory of the CUDA device with this ordinal, as `cuDeviceGet` counts.
    Cuda(u32),
}

impl MemoryKind {
    /// The kind and the device, as `kvbm_cache_options_t` has them.
    pub(crate) fn raw(self) -> (u32, u32) {
        match self {
            MemoryKind::Auto => (sys::KVBM_MEMORY_AUTO, 0),
            MemoryKind::Host => (sys::KVBM_MEMORY_HOST, 0),
            MemoryKind::Cuda(device) => (sys::KVBM_MEMORY_CUDA, device),
        }
    }
}

/// How streams wait for the layers of a load ([`Cache::wait_layer`](crate::Cache::wait_layer)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
#[non_exhaustive]
pub enum WaitLayers {
    /// Not at all: layers land in any order.
    #[default]
    Off = sys::KVBM_WAIT_LAYERS_OFF,
    /// On the device, also for a layer that was not given to the driver yet. The caller never blocks; until the load
    /// has ended it must make no call of the driver that waits for the stream.
    OnDevice = sys::KVBM_WAIT_LAYERS_ON_DEVICE,
    /// The caller blocks until the layer was given to the driver. Any call may follow. Works on every device.
    Issued = sys::KVBM_WAIT_LAYERS_ISSUED,
}

from_number!(WaitLayers, "way to wait for layers", Off, OnDevice, Issued);

/// A `CUstream` or `cudaStream_t` of a cache's device. The library keeps none: it may be destroyed when the call that it
/// was given to has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(usize);

impl Stream {
    /// The legacy stream.
    pub const LEGACY: Stream = Stream(0);

    /// A stream of the caller's.
    ///
    /// # Safety
    /// In each call that it is given to, it is alive. (One that is being captured into a graph is refused.)
    pub unsafe fn from_raw(stream: *mut c_void) -> Stream {
        Stream(stream as usize)
    }
    /// The raw stream.
    pub fn as_raw(self) -> *mut c_void {
        self.0 as *mut c_void
    }
    /// As options have it: the stream, and whether there is one.
    pub(crate) fn given(stream: Option<Stream>) -> (*mut c_void, u32) {
        stream.map_or((std::ptr::null_mut(), 0), |s| (s.as_raw(), 1))
    }
}

counters! {
    /// Counters of one direction of copies between a device and records in host memory; leaves also by their path.
    DeviceMoves from kvbm_device_moves_t {
        batches, leaves, bytes, bad_leaves, mapped_leaves, staged_leaves, straight_leaves, bounced_leaves, device_ns,
    }
}

/// A device that caches of a manager lie on, or lay on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceRow {
    /// As in [`MemoryKind::Cuda`].
    pub ordinal: u32,
    /// The device failed and is not used any more.
    pub lost: bool,
    /// Name in its driver.
    pub name: String,
    /// PCI address: `"0000:1b:00.0"`.
    pub pci: String,
    /// `"ready"`, or in words what is wrong.
    pub state: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// Of the host tier, registered with it; 0: leaves are bounced.
    pub pinned_bytes: u64,
    /// Out of the device: stores, offers.
    pub gathers: DeviceMoves,
    /// Into it: loads, sessions.
    pub scatters: DeviceMoves,
}

impl From<&sys::kvbm_device_row_t> for DeviceRow {
    fn from(raw: &sys::kvbm_device_row_t) -> Self {
        DeviceRow {
            ordinal: raw.ordinal,
            lost: raw.lost != 0,
            name: fixed_text(&raw.name),
            pci: fixed_text(&raw.pci),
            state: fixed_text(&raw.state),
            memory_bytes: raw.memory_bytes,
            pinned_bytes: raw.pinned_bytes,
            gathers: (&raw.gathers).into(),
            scatters: (&raw.scatters).into(),
        }
    }
}

impl Manager {
    /// The devices that caches of this manager were attached on, by ordinal. Asks the driver nothing.
    pub fn devices(&self) -> Result<Vec<DeviceRow>> {
        let raw = self.raw()?;
        // SAFETY: the handle is live, and there is room as is said.
        let (rows, _) =
            read_rows(|rows, capacity, n| check(unsafe { sys::kvbm_manager_devices(raw, rows, capacity, n) }))?;
        Ok(rows.iter().map(|r: &sys::kvbm_device_row_t| r.into()).collect())
    }
}
