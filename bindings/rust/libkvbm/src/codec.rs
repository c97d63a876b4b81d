// SPDX-License-Identifier: Apache-2.0
//! Encodes and decodes KV in the caller's own buffers, without a context or manager.
//!
//! A coded buffer describes itself and has a hash of each part. So decoding gives the right bytes or DAMAGED, never
//! wrong KV, whatever happened to the buffer. Hashes detect faults, not forgery. A call uses a core and its thread
//! until it is done.
//!
//! ```
//! use libkvbm::codec::{self, Form, Mode};
//! use libkvbm::{Element, Status};
//!
//! # fn main() -> libkvbm::Result<()> {
//! let page: Vec<u8> = (0..256 * 8 * 128u32).flat_map(|i| [(i * 7 % 128) as u8, 59 + (i % 3) as u8]).collect();
//! let form = Form { element: Element::Bf16, row_elements: 8 * 128, rows: 0 }; // [token][head][dim]
//! let mut coded = codec::encode(&page, Mode::Default, form)?;
//! assert!(coded.len() < page.len());
//! assert_eq!(codec::decode(&coded, false)?, page);
//! let middle = coded.len() / 2;
//! coded[middle] ^= 1;
//! assert_eq!(codec::decode(&coded, false).unwrap_err().status(), Status::DAMAGED);
//! # Ok(())
//! # }
//! ```

use std::ffi::CStr;
use std::fmt;
use std::str::FromStr;

use libkvbm_sys as sys;

use crate::error::{check_version, explained, Error, Result};
use crate::geometry::Element;
use crate::handle::{c_string, pointer};
use crate::types::from_number;

/// Coding modes. Below 16 lossless; 16 and above lossy, which a reader must allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
#[repr(u32)]
pub enum Mode {
    /// Hashed and not coded.
    Off = 0,
    /// Decodes at about the speed of memory.
    Fast = 1,
    /// A little denser, a little slower.
    #[default]
    Default = 2,
    /// Where space counts.
    Max = 3,
    /// Any bytes; the reference.
    Zstd = 4,
    /// Lossy, as are all that follow: 8-bit floats.
    Fp8E4m3 = 16,
    /// 8-bit floats of more range.
    Fp8E5m2 = 17,
    /// 8-bit integers with a scale for each channel.
    Int8 = 18,
    /// 6 bits.
    Int6 = 19,
    /// 4 bits.
    Int4 = 20,
    /// With an entropy stage: denser, slower.
    Int8Coded = 21,
    /// With an entropy stage.
    Int6Coded = 22,
    /// With an entropy stage.
    Int4Coded = 23,
    /// Anchors and coded differences of tokens.
    Delta = 24,
}

from_number!(
    Mode, "mode", Off, Fast, Default, Max, Zstd, Fp8E4m3, Fp8E5m2, Int8, Int6, Int4, Int8Coded, Int6Coded, Int4Coded,
    Delta
);

impl Mode {
    /// As configuration and the kvbm command have it: `"default"`, `"int8_coded"`.
    pub fn name(self) -> &'static str {
        // SAFETY: any number is allowed.
        let name = unsafe { sys::kvbm_codec_mode_name(self as u32) };
        if name.is_null() {
            return "";
        }
        // SAFETY: a static, zero-terminated string.
        unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("")
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;
    /// The mode of a name. Errors: INVALID; the message lists the names.
    fn from_str(name: &str) -> Result<Mode> {
        let name = c_string("the name of a mode", name)?;
        let mut number = 0;
        // SAFETY: the name is zero-terminated, and the number is this function's.
        explained(|err| unsafe { sys::kvbm_codec_mode_by_name(name.as_ptr(), &mut number, err) })?;
        Mode::try_from(number)
    }
}

/// Form of the bytes: rows of `row_elements` elements, in which one index is one channel. `[token][head][dim]` is
/// heads * dim; `[head][token][dim]` is dim with `rows` tokens. The default is opaque bytes, which only zstd can
/// shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Form {
    /// Type of the elements.
    pub element: Element,
    /// Elements of a row; 0 = not known.
    pub row_elements: u32,
    /// Rows after which other channels begin (the next head); 0 = never.
    pub rows: u32,
}

impl Form {
    fn raw(self) -> sys::kvbm_codec_options_t {
        sys::kvbm_codec_options_t {
            struct_size: std::mem::size_of::<sys::kvbm_codec_options_t>() as u32,
            element: self.element as u32,
            row_elements: self.row_elements,
            rows: self.rows,
        }
    }
}

/// Description of a coded buffer, read from its own table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Requested mode.
    pub mode: Mode,
    /// Of the bytes that were coded.
    pub form: Form,
    /// Decoding has to allow it.
    pub lossy: bool,
    /// Parts that are coded and hashed on their own,
    pub leaves: u32,
    /// and those of them that were kept as they were.
    pub raw_leaves: u32,
    /// Size of the decoded bytes.
    pub raw_bytes: u64,
    /// The whole coded buffer.
    pub coded_bytes: u64,
    /// Lossy: sum of squared differences / sum of squared values, in 1e-9.
    pub error_ppb: u64,
}

/// Which implementation runs on this processor: `"avx512"`, `"bmi2"`, `"portable"`. All give the same bytes.
pub fn kernel() -> &'static str {
    // SAFETY: a static, zero-terminated string, never NULL.
    unsafe { CStr::from_ptr(sys::kvbm_codec_kernel()) }.to_str().unwrap_or("")
}

/// Bytes that [`encode_into`] needs, whatever is coded and whichever the mode.
pub fn room(raw_bytes: usize, form: Form) -> Result<usize> {
    check_version()?;
    let (options, mut bytes) = (form.raw(), 0u64);
    // SAFETY: struct_size is set, and the number is this function's.
    explained(|err| unsafe { sys::kvbm_codec_room(raw_bytes as u64, &options, &mut bytes, err) })?;
    usize::try_from(bytes).map_err(|_| Error::invalid("the room is larger than the address space"))
}

/// Codes `raw`. Errors: INVALID, NO_MEMORY.
pub fn encode(raw: &[u8], mode: Mode, form: Form) -> Result<Vec<u8>> {
    let mut coded = Vec::with_capacity(room(raw.len(), form)?);
    // SAFETY: the vector has that capacity, and so many bytes of it are written.
    unsafe {
        let n = encode_raw(raw, mode, form, coded.as_mut_ptr(), coded.capacity())?;
        coded.set_len(n);
    }
    Ok(coded)
}

/// Codes `raw` into `coded`, which has [`room`]; gives how much of it was used. After an error `coded` may have any
/// bytes. Errors: INVALID, NO_ROOM, NO_MEMORY.
pub fn encode_into(raw: &[u8], mode: Mode, form: Form, coded: &mut [u8]) -> Result<usize> {
    check_version()?;
    // SAFETY: the slice is so long.
    unsafe { encode_raw(raw, mode, form, coded.as_mut_ptr(), coded.len()) }
}

/// # Safety
/// `out` has `capacity` writable bytes.
unsafe fn encode_raw(raw: &[u8], mode: Mode, form: Form, out: *mut u8, capacity: usize) -> Result<usize> {
    let (options, mut n) = (form.raw(), 0);
    // SAFETY: as the caller says; struct_size is set.
    explained(|err| unsafe {
        let from = pointer(raw).cast();
        sys::kvbm_codec_encode(from, raw.len(), mode as u32, &options, out.cast(), capacity, &mut n, err)
    })?;
    Ok(n)
}

/// Reads what a coded buffer says of itself, without decoding: look before room is taken for what comes from elsewhere.
/// Errors: DAMAGED (not a coded buffer, cut short or changed), VERSION (of a newer library).
pub fn inspect(coded: &[u8]) -> Result<Info> {
    check_version()?;
    let mut info = sys::kvbm_codec_info_t {
        struct_size: std::mem::size_of::<sys::kvbm_codec_info_t>() as u32,
        ..Default::default()
    };
    // SAFETY: the slice is so long, and struct_size is set.
    explained(|err| unsafe { sys::kvbm_codec_inspect(coded.as_ptr().cast(), coded.len(), &mut info, err) })?;
    Ok(Info {
        mode: info.mode.try_into()?,
        form: Form { element: info.element.try_into()?, row_elements: info.row_elements, rows: info.rows },
        lossy: info.lossy != 0,
        leaves: info.leaves,
        raw_leaves: info.raw_leaves,
        raw_bytes: info.raw_bytes,
        coded_bytes: info.coded_bytes,
        error_ppb: info.error_ppb,
    })
}

/// Decodes a coded buffer. Errors: DAMAGED and VERSION, which are misses; PERMISSION (it is lossy and that is not
/// allowed); NO_MEMORY.
pub fn decode(coded: &[u8], allow_lossy: bool) -> Result<Vec<u8>> {
    let bytes = inspect(coded)?.raw_bytes;
    let mut raw = Vec::new();
    let reserved = usize::try_from(bytes).ok().and_then(|n| raw.try_reserve_exact(n).ok());
    reserved.ok_or_else(|| Error::new(crate::Status::NO_MEMORY, format!("no memory for {bytes} bytes")))?;
    // SAFETY: the vector has that capacity, and so many bytes of it are written.
    unsafe {
        let n = decode_raw(coded, allow_lossy, raw.as_mut_ptr(), raw.capacity())?;
        raw.set_len(n);
    }
    Ok(raw)
}

/// Decodes a coded buffer into `raw`, and returns the number of bytes written. After an error the contents of `raw` are
/// undefined. Errors: as [`decode`], and NO_ROOM.
pub fn decode_into(coded: &[u8], allow_lossy: bool, raw: &mut [u8]) -> Result<usize> {
    check_version()?;
    // SAFETY: the slice is so long.
    unsafe { decode_raw(coded, allow_lossy, raw.as_mut_ptr(), raw.len()) }
}

/// # Safety
/// `out` has `capacity` writable bytes.
unsafe fn decode_raw(coded: &[u8], allow_lossy: bool, out: *mut u8, capacity: usize) -> Result<usize> {
    let (flags, mut n) = (if allow_lossy { sys::KVBM_CODEC_ALLOW_LOSSY } else { 0 }, 0);
    // SAFETY: as the caller says.
    explained(|err| unsafe {
        sys::kvbm_codec_decode(coded.as_ptr().cast(), coded.len(), flags, out.cast(), capacity, &mut n, err)
    })?;
    Ok(n)
}
