// SPDX-License-Identifier: Apache-2.0
//! Views: the bytes of held blocks, without a copy.

use std::marker::PhantomData;

use libkvbm_sys as sys;

use crate::error::{check, Result};

pub(crate) fn raw_views(manager: *mut sys::kvbm_manager, holds: &[u64]) -> Result<Vec<sys::kvbm_view_t>> {
    let mut views: Vec<sys::kvbm_view_t> = Vec::with_capacity(holds.len());
    // SAFETY: the manager is live, there is room for a view of each hold, and the call writes them all if it succeeds.
    unsafe {
        check(sys::kvbm_block_view(manager, crate::handle::pointer(holds), holds.len(), views.as_mut_ptr()))?;
        views.set_len(holds.len());
    }
    Ok(views)
}

/// Read-only views of blocks, as long as the holds are borrowed.
pub struct Views<'a> {
    raw: Vec<sys::kvbm_view_t>,
    holds: PhantomData<&'a [u8]>,
}

// SAFETY: it is a list of &[u8].
unsafe impl Send for Views<'_> {}
// SAFETY: as above.
unsafe impl Sync for Views<'_> {}

impl<'a> Views<'a> {
    /// # Safety
    /// The views' memory is readable and not written to for `'a`.
    pub(crate) unsafe fn new(raw: Vec<sys::kvbm_view_t>) -> Self {
        Views { raw, holds: PhantomData }
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.raw.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }
    /// The bytes of block `i`.
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        // SAFETY: as `new` was promised.
        self.raw
            .get(i)
            .map(|v| unsafe { std::slice::from_raw_parts(v.data.cast::<u8>().cast_const(), v.bytes as usize) })
    }
    /// Its position in the host tier, stable while it is held.
    pub fn slot(&self, i: usize) -> Option<u64> {
        self.raw.get(i).map(|v| v.slot)
    }
    /// All views in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}

impl std::ops::Index<usize> for Views<'_> {
    type Output = [u8];
    fn index(&self, i: usize) -> &[u8] {
        self.get(i).expect("a view for each block")
    }
}

/// Writable views of blocks, as long as the holds are borrowed exclusively.
pub struct ViewsMut<'a> {
    raw: Vec<sys::kvbm_view_t>,
    holds: PhantomData<&'a mut [u8]>,
}

// SAFETY: it is a list of &mut [u8].
unsafe impl Send for ViewsMut<'_> {}
// SAFETY: as above; through a shared reference nothing can be read.
unsafe impl Sync for ViewsMut<'_> {}

impl<'a> ViewsMut<'a> {
    /// # Safety
    /// The views' memory is not used otherwise for `'a`, and no two of them overlap.
    pub(crate) unsafe fn new(raw: Vec<sys::kvbm_view_t>) -> Self {
        ViewsMut { raw, holds: PhantomData }
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.raw.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }
    /// The bytes of block `i`.
    pub fn get_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        // SAFETY: as `new` was promised, and the borrow of self keeps the slice alone.
        self.raw.get(i).map(|v| unsafe { std::slice::from_raw_parts_mut(v.data.cast(), v.bytes as usize) })
    }
    /// All views in order; each may be passed to another thread.
    pub fn into_slices(self) -> impl Iterator<Item = &'a mut [u8]> {
        // SAFETY: as `new` was promised; self is consumed, so each slice is given once.
        self.raw.into_iter().map(|v| unsafe { std::slice::from_raw_parts_mut(v.data.cast(), v.bytes as usize) })
    }
}
