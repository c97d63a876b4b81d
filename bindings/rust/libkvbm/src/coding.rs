// SPDX-License-Identifier: Apache-2.0
//! Blocks of an attached cache as a coded buffer of the caller's, and back.

use libkvbm_sys as sys;

use crate::cache::Cache;
use crate::codec::{Form, Mode};
use crate::device::Stream;
use crate::error::{explained, Error, Result};
use crate::handle::{options, pointer};
use crate::ledger::{Access, Claim, Region};

/// Which blocks of a cache are coded, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodeOptions {
    /// The index of the part in the cache.
    pub part: u32,
    /// Form of the bytes of an opaque part, or of a state. For other parts: the default, or the known form.
    pub form: Form,
    /// A cache on a device: the blocks are read or written after what this stream holds now. `None` = at once.
    pub stream: Option<Stream>,
}

impl CodeOptions {
    fn raw(&self, allow_lossy: bool) -> Result<sys::kvbm_cache_code_options_t> {
        let mut options = options!(kvbm_cache_code_options_init, kvbm_cache_code_options_t);
        options.part = self.part;
        options.element = self.form.element as u32;
        options.row_elements = self.form.row_elements;
        options.rows = self.form.rows;
        options.flags = if allow_lossy { sys::KVBM_CODEC_ALLOW_LOSSY } else { 0 };
        (options.stream, options.has_stream) = Stream::given(self.stream);
        Ok(options)
    }
}

/// Does the same as [`crate::codec`] with blocks in place, on a device by its kernels, with the same bytes. No tier
/// stores the result.
impl Cache {
    /// Bytes that [`Cache::encode_into`] needs for so many engine blocks, whatever is in them and whichever the mode.
    pub fn code_room(&self, n_blocks: usize, given: &CodeOptions) -> Result<usize> {
        let (raw, options, mut bytes) = (self.raw()?, given.raw(false)?, 0u64);
        // SAFETY: the handle is live, and the number is this function's.
        explained(|err| unsafe { sys::kvbm_cache_code_room(raw, n_blocks, &options, &mut bytes, err) })?;
        usize::try_from(bytes).map_err(|_| Error::invalid("the room is larger than the address space"))
    }

    /// Codes engine blocks of one part; `units` ids make a stored block. It returns when that is done, also when a
    /// stream has to get there first. Errors: INVALID naming what is wrong; IN_USE (a block is being written);
    /// NO_MEMORY; TIER_DISABLED (the device was lost).
    pub fn encode(&self, block_ids: &[u32], mode: Mode, given: &CodeOptions) -> Result<Vec<u8>> {
        let room = self.code_room(block_ids.len(), given)?;
        let mut coded = Vec::new();
        let reserved = coded.try_reserve_exact(room);
        reserved.map_err(|_| Error::new(crate::Status::NO_MEMORY, format!("no memory for {room} bytes")))?;
        // SAFETY: the vector has that capacity, and so many bytes of it are written.
        unsafe {
            let n = self.encode_raw(block_ids, mode, given, coded.as_mut_ptr(), coded.capacity())?;
            coded.set_len(n);
        }
        Ok(coded)
    }

    /// Codes engine blocks into `coded`, which has [`Cache::code_room`]; gives how much of it was used. After an error
    /// `coded` may have any bytes. Errors: as [`Cache::encode`], and NO_ROOM.
    pub fn encode_into(&self, block_ids: &[u32], mode: Mode, given: &CodeOptions, coded: &mut [u8]) -> Result<usize> {
        // SAFETY: the slice is so long.
        unsafe { self.encode_raw(block_ids, mode, given, coded.as_mut_ptr(), coded.len()) }
    }

    /// # Safety
    /// `out` has `capacity` writable bytes.
    unsafe fn encode_raw(
        &self,
        block_ids: &[u32],
        mode: Mode,
        given: &CodeOptions,
        out: *mut u8,
        capacity: usize,
    ) -> Result<usize> {
        let (raw, options, mut n) = (self.raw()?, given.raw(false)?, 0);
        let _claim = self.claim_part(Access::Read, given.part, block_ids)?;
        // SAFETY: as the caller says; the blocks are claimed until the call is over.
        explained(|err| unsafe {
            let (ids, n_ids) = (pointer(block_ids), block_ids.len());
            sys::kvbm_cache_encode(raw, ids, n_ids, mode as u32, &options, out.cast(), capacity, &mut n, err)
        })?;
        Ok(n)
    }

    /// Decodes the result of [`Cache::encode`] into engine blocks; no block may be named twice. Every byte is verified
    /// before it is written. Lossy blocks differ from what the model computed: do not store them under keys for which
    /// readers expect exact bytes.
    ///
    /// DAMAGED and VERSION are misses and leave the blocks undefined. Other errors: PERMISSION (it is lossy and that is
    /// not allowed); MISMATCH (other elements or rows); INVALID, with the wrong argument; IN_USE (a block is in use, or
    /// named twice); NO_MEMORY; TIER_DISABLED.
    pub fn decode(&self, coded: &[u8], block_ids: &[u32], allow_lossy: bool, given: &CodeOptions) -> Result<()> {
        let (raw, options) = (self.raw()?, given.raw(allow_lossy)?);
        let _claim = self.claim_part(Access::Write, given.part, block_ids)?;
        // SAFETY: the slices are so long, and the blocks are claimed until the call is over.
        explained(|err| unsafe {
            let (ids, n_ids) = (pointer(block_ids), block_ids.len());
            sys::kvbm_cache_decode(raw, coded.as_ptr().cast(), coded.len(), ids, n_ids, &options, err)
        })
        .map(drop)
    }

    /// The blocks of one part; none of a part that is not there, which the library refuses.
    fn claim_part(&self, access: Access, part: u32, ids: &[u32]) -> Result<Option<Claim>> {
        let (Some(memory), Some(place)) = (&self.inner.memory, self.inner.parts.get(part as usize)) else {
            return Ok(None);
        };
        let region = Region { first: place.first_tensor, n: place.n_tensors, ids: ids.to_vec() };
        Claim::take(memory, access, vec![region]).map(Some)
    }
}
