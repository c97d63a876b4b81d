// SPDX-License-Identifier: Apache-2.0
//! Keys: the names of blocks' contents in a namespace.

use std::fmt;

use libkvbm_sys as sys;

use crate::error::{check, Error, Result, Status};
use crate::handle::pointer;
use crate::namespace::Namespace;

/// The name of a block's content in its namespace. A slice of keys is what the library reads, without conversion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct Key(pub [u8; 16]);

const _: () = assert!(std::mem::size_of::<Key>() == std::mem::size_of::<sys::kvbm_key_t>());
const _: () = assert!(std::mem::align_of::<Key>() == std::mem::align_of::<sys::kvbm_key_t>());

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
impl From<sys::kvbm_key_t> for Key {
    fn from(raw: sys::kvbm_key_t) -> Self {
        Key(raw.bytes)
    }
}

pub(crate) fn raw_keys(keys: &[Key]) -> *const sys::kvbm_key_t {
    pointer(keys).cast()
}
pub(crate) fn raw_key(key: &Option<Key>) -> *const sys::kvbm_key_t {
    key.as_ref().map_or(std::ptr::null(), |k| std::ptr::from_ref(k).cast())
}

fn raw_extras(extras: &[&[u8]], blocks: usize) -> Result<Vec<sys::kvbm_extra_t>> {
    if !extras.is_empty() && extras.len() != blocks {
        return Err(Error::invalid(format!("{} extras are given for {blocks} full blocks", extras.len())));
    }
    Ok(extras.iter().map(|e| sys::kvbm_extra_t { data: pointer(e), bytes: e.len() }).collect())
}

fn full_blocks(tokens: &[u32], block_tokens: u32) -> Result<usize> {
    if block_tokens == 0 {
        return Err(Error::invalid("block_tokens is zero"));
    }
    Ok(tokens.len() / block_tokens as usize)
}

impl Namespace {
    /// Keys of consecutive full blocks of `block_tokens` tokens, each depending on all before it: the names to use for
    /// prefix caching. `previous` is the key of the block before, `None` at the start of a prompt. A partial last block
    /// gets none.
    pub fn key_chain(&self, previous: Option<Key>, tokens: &[u32], block_tokens: u32) -> Result<Vec<Key>> {
        self.key_chain_with(previous, tokens, block_tokens, &[])
    }

    /// [`Namespace::key_chain`] with bytes that make a block more than its tokens: empty, or one for each full block.
    pub fn key_chain_with(
        &self,
        previous: Option<Key>,
        tokens: &[u32],
        block_tokens: u32,
        extras: &[&[u8]],
    ) -> Result<Vec<Key>> {
        let blocks = full_blocks(tokens, block_tokens)?;
        let extras = raw_extras(extras, blocks)?;
        let mut keys = vec![Key::default(); blocks];
        let mut n = 0;
        let ns = self.raw()?;
        // SAFETY: every list has the length that is given for it, extras one entry for each full block.
        check(unsafe {
            sys::kvbm_key_chain(
                ns,
                raw_key(&previous),
                pointer(tokens),
                tokens.len(),
                block_tokens,
                pointer(&extras),
                keys.as_mut_ptr().cast(),
                keys.len(),
                &mut n,
            )
        })?;
        keys.truncate(n);
        Ok(keys)
    }

    /// Keys of full blocks by their own tokens alone, wherever they stand. `extras` is empty or has one entry for each
    /// full block.
    pub fn key_content(&self, tokens: &[u32], block_tokens: u32, extras: &[&[u8]]) -> Result<Vec<Key>> {
        let blocks = full_blocks(tokens, block_tokens)?;
        let extras = raw_extras(extras, blocks)?;
        let mut keys = vec![Key::default(); blocks];
        let mut n = 0;
        let ns = self.raw()?;
        // SAFETY: as in key_chain_with.
        check(unsafe {
            sys::kvbm_key_content(
                ns,
                pointer(tokens),
                tokens.len(),
                block_tokens,
                pointer(&extras),
                keys.as_mut_ptr().cast(),
                keys.len(),
                &mut n,
            )
        })?;
        keys.truncate(n);
        Ok(keys)
    }

    /// Keys from an engine's own hashes of `hash_bytes` each, one after the other: 16 to 64, or 1 to 64 in a namespace
    /// with `weak_hashes`.
    pub fn key_from_hashes(&self, hashes: &[u8], hash_bytes: usize) -> Result<Vec<Key>> {
        if hash_bytes == 0 || hashes.len() % hash_bytes != 0 {
            return Err(Error::invalid(format!("{} bytes are no whole hashes of {hash_bytes}", hashes.len())));
        }
        let mut keys = vec![Key::default(); hashes.len() / hash_bytes];
        let ns = self.raw()?;
        // SAFETY: hashes holds keys.len() * hash_bytes bytes.
        let made = check(unsafe {
            sys::kvbm_key_from_hashes(ns, pointer(hashes), hash_bytes, keys.len(), keys.as_mut_ptr().cast())
        });
        if hash_bytes < 16 && made.as_ref().is_err_and(|error| error.status() == Status::INVALID) {
            return Err(Error::invalid(format!(
                "hashes of {hash_bytes} bytes are taken where the namespace has weak_hashes; 16 or more always"
            )));
        }
        made?;
        Ok(keys)
    }
}
