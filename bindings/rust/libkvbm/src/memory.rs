// SPDX-License-Identifier: Apache-2.0
//! Memory of an attached cache: the library reads and writes it while operations are in flight, so safe code reaches
//! its bytes through guards that are refused meanwhile.

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::error::{Error, Result, Status};
use crate::ledger::{Access, Ledger, Region};
use crate::types::{from_number, Part};

/// Good for direct I/O and for the GPU's page size.
const ALIGNMENT: usize = 4096;

/// How an engine orders its cache, as `KVBM_FORM_*`. Axes are given outermost first; the row of one head of one token is
/// always innermost. Where an axis is missing, tensors are given for each of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)] // the comments give the axes
#[rustfmt::skip]
pub enum Form {
    /// A tensor per layer: K,V; block; token; head.
    Nhd = 0,
    /// K,V; block; head; token.
    Hnd = 1,
    /// block; K,V; token; head.
    BlocksNhd = 2,
    /// block; K,V; head; token.
    BlocksHnd = 3,
    /// block; token; head; K and V rows.
    PackedNhd = 4,
    /// block; head; token; K and V rows.
    PackedHnd = 5,
    /// A tensor for each layer and plane: block; token; head. Also latents.
    SplitNhd = 6,
    /// block; head; token.
    SplitHnd = 7,
    /// One tensor for all layers: layer; K,V; block; token; head.
    LayersNhd = 8,
    /// layer; K,V; block; head; token.
    LayersHnd = 9,
    /// block; layer; K,V; token; head.
    CrossNhd = 10,
    /// block; layer; K,V; head; token.
    CrossHnd = 11,
    /// block; layer; token; head; K and V rows.
    CrossPackedLnh = 12,
    /// block; layer; head; token; K and V rows.
    CrossPackedLhn = 13,
    /// block; head; layer; token; K and V rows.
    CrossPackedHln = 14,
    /// layer; head; block; token; K and V rows.
    HeadsPacked = 15,
    SglangLayerFirst = 16,
    SglangPageFirst = 17,
    SglangPageFirstDirect = 18,
    SglangPageHead = 19,
    /// n tensors of pages; a record is the block's pages one after the other; never re-sliced.
    Opaque = 100,
}

impl Form {
    /// Whether the bytes of a block in a tensor are one piece.
    pub(crate) fn has_whole_blocks(self) -> bool {
        matches!(self as u32, 2..=7 | 10..=14 | 100)
    }
}

/// One part of a cache's memory: its tensors, dense as the form says.
#[derive(Clone, Debug)]
pub struct PartLayout {
    /// Which component and shard.
    pub part: Part,
    /// The order of its axes.
    pub form: Form,
    /// Bytes of each tensor, in the order that the form wants.
    pub tensor_bytes: Vec<usize>,
}

struct Buffer {
    data: NonNull<u8>,
    layout: Layout,
    whole_blocks: bool,
}

impl Buffer {
    fn new(bytes: usize, whole_blocks: bool) -> Result<Buffer> {
        let layout = Layout::from_size_align(bytes, ALIGNMENT)
            .map_err(|_| Error::invalid(format!("a tensor of {bytes} bytes is too large")))?;
        // SAFETY: the size is not zero (CacheMemory::new refuses that).
        let data = NonNull::new(unsafe { alloc_zeroed(layout) })
            .ok_or_else(|| Error::new(Status::NO_MEMORY, format!("no memory for a tensor of {bytes} bytes")))?;
        Ok(Buffer { data, layout, whole_blocks })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.data.as_ptr(), self.layout) };
    }
}

pub(crate) struct Memory {
    buffers: Vec<Buffer>,
    pub(crate) n_blocks: u32,
    pub(crate) ledger: Ledger,
}

// SAFETY: bytes are reached through the ledger's claims alone, which are exclusive or read-only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn tensor_pointer(&self, tensor: usize) -> (*mut u8, usize) {
        let buffer = &self.buffers[tensor];
        (buffer.data.as_ptr(), buffer.layout.size())
    }

    /// The bytes of one block in a tensor, or of all of them.
    fn extent(&self, tensor: usize, block: Option<u32>) -> Result<(*mut u8, usize, Region)> {
        let Some(buffer) = self.buffers.get(tensor) else {
            return Err(Error::invalid(format!("tensor {tensor}: the cache has {}", self.buffers.len())));
        };
        let Some(id) = block else {
            let ids = (0..self.n_blocks).collect();
            return Ok((buffer.data.as_ptr(), buffer.layout.size(), Region { first: tensor, n: 1, ids }));
        };
        if id >= self.n_blocks {
            return Err(Error::invalid(format!("block {id}: the cache has {}", self.n_blocks)));
        }
        if !buffer.whole_blocks {
            let message = "a block of this form is not one piece of the tensor; borrow the whole tensor";
            return Err(Error::new(Status::UNSUPPORTED, message));
        }
        let bytes = buffer.layout.size() / self.n_blocks as usize;
        // SAFETY: id is below n_blocks, so the block lies in the buffer.
        let data = unsafe { buffer.data.as_ptr().add(id as usize * bytes) };
        Ok((data, bytes, Region { first: tensor, n: 1, ids: vec![id] }))
    }

    pub(crate) fn read(&self, tensor: usize, block: Option<u32>) -> Result<Guard<'_>> {
        let (data, bytes, region) = self.extent(tensor, block)?;
        let claim = Borrowed::take(self, Access::Read, region)?;
        // SAFETY: initialised memory of this object; no code writes to it while the claim lives.
        Ok(Guard { bytes: unsafe { NonNull::from(std::slice::from_raw_parts(data, bytes)) }, _claim: claim })
    }

    pub(crate) fn write(&self, tensor: usize, block: Option<u32>) -> Result<GuardMut<'_>> {
        let (data, bytes, region) = self.extent(tensor, block)?;
        let claim = Borrowed::take(self, Access::Write, region)?;
        // SAFETY: initialised memory of this object; no other code uses it while the claim lives.
        Ok(GuardMut { bytes: unsafe { NonNull::from(std::slice::from_raw_parts_mut(data, bytes)) }, _claim: claim })
    }
}

/// A claim of a guard.
struct Borrowed<'a> {
    memory: &'a Memory,
    access: Access,
    region: [Region; 1],
}

impl<'a> Borrowed<'a> {
    fn take(memory: &'a Memory, access: Access, region: Region) -> Result<Self> {
        let region = [region];
        memory.ledger.claim(access, &region)?;
        Ok(Borrowed { memory, access, region })
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.memory.ledger.release(self.access, &self.region);
    }
}

/// Bytes of a cache that are read; see [`BlockRef`] and [`TensorRef`].
pub struct Guard<'a> {
    // Not a reference: it would have to be alone until the end of a call that the guard is moved into, and dropped in.
    bytes: NonNull<[u8]>,
    _claim: Borrowed<'a>,
}
/// Bytes of a cache that are written; see [`BlockMut`] and [`TensorMut`].
pub struct GuardMut<'a> {
    bytes: NonNull<[u8]>,
    _claim: Borrowed<'a>,
}

// SAFETY: it is a &[u8] with a claim.
unsafe impl Send for Guard<'_> {}
// SAFETY: as above.
unsafe impl Sync for Guard<'_> {}
// SAFETY: it is a &mut [u8] with a claim.
unsafe impl Send for GuardMut<'_> {}
// SAFETY: as above.
unsafe impl Sync for GuardMut<'_> {}

/// One block of a cache, read; loads into it are refused meanwhile.
pub type BlockRef<'a> = Guard<'a>;
/// One block of a cache, written; operations on it are refused meanwhile.
pub type BlockMut<'a> = GuardMut<'a>;
/// A whole tensor of a cache, read; loads into any of its blocks are refused meanwhile.
pub type TensorRef<'a> = Guard<'a>;
/// A whole tensor of a cache, written; operations on any of its blocks are refused meanwhile.
pub type TensorMut<'a> = GuardMut<'a>;

impl Deref for Guard<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the claim keeps writers away, and the borrow of the cache keeps the memory.
        unsafe { self.bytes.as_ref() }
    }
}
impl Deref for GuardMut<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the claim keeps writers away, and the borrow of the cache keeps the memory.
        unsafe { self.bytes.as_ref() }
    }
}
impl DerefMut for GuardMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the claim is exclusive, and the borrow of the cache keeps the memory.
        unsafe { self.bytes.as_mut() }
    }
}

/// Memory for an attached cache, zeroed, owned by it once it is attached.
pub struct CacheMemory {
    pub(crate) memory: Memory,
    pub(crate) parts: Vec<PartLayout>,
}

impl CacheMemory {
    /// Memory for `n_blocks` engine blocks in these parts. Errors: INVALID, NO_MEMORY.
    pub fn new(n_blocks: u32, parts: &[PartLayout]) -> Result<CacheMemory> {
        let mut buffers = Vec::new();
        if n_blocks == 0 {
            return Err(Error::invalid("a cache has at least one block"));
        }
        for part in parts {
            let whole_blocks = part.form.has_whole_blocks();
            for bytes in &part.tensor_bytes {
                if *bytes == 0 || (whole_blocks && bytes % n_blocks as usize != 0) {
                    return Err(Error::invalid(format!("a tensor of {bytes} bytes does not have {n_blocks} blocks")));
                }
                buffers.push(Buffer::new(*bytes, whole_blocks)?);
            }
        }
        let ledger = Ledger::new(buffers.len(), n_blocks as usize);
        Ok(CacheMemory { memory: Memory { buffers, n_blocks, ledger }, parts: parts.to_vec() })
    }

    /// One opaque tensor of `n_blocks` pages of `page_bytes`.
    pub fn opaque(n_blocks: u32, page_bytes: usize) -> Result<CacheMemory> {
        let bytes = page_bytes
            .checked_mul(n_blocks as usize)
            .ok_or_else(|| Error::invalid("n_blocks * page_bytes is too large"))?;
        let part = PartLayout { part: Part::default(), form: Form::Opaque, tensor_bytes: vec![bytes] };
        CacheMemory::new(n_blocks, &[part])
    }

    /// The bytes of a tensor, before the memory is attached.
    pub fn tensor_mut(&mut self, tensor: usize) -> Option<&mut [u8]> {
        if tensor >= self.memory.buffers.len() {
            return None;
        }
        let (data, bytes) = self.memory.tensor_pointer(tensor);
        // SAFETY: initialised memory of this object, which is borrowed exclusively.
        Some(unsafe { std::slice::from_raw_parts_mut(data, bytes) })
    }
}

#[rustfmt::skip]
from_number!(
    Form, "form", Nhd, Hnd, BlocksNhd, BlocksHnd, PackedNhd, PackedHnd, SplitNhd, SplitHnd, LayersNhd, LayersHnd, CrossNhd,
    CrossHnd, CrossPackedLnh, CrossPackedLhn, CrossPackedHln, HeadsPacked, SglangLayerFirst, SglangPageFirst,
    SglangPageFirstDirect, SglangPageHead, Opaque,
);
