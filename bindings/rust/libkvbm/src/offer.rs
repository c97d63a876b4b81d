// SPDX-License-Identifier: Apache-2.0
//! Offers: the prefill side of a session.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libkvbm_sys as sys;

use crate::cache::Cache;
use crate::device::Stream;
use crate::error::{check, explained, Error, Result, Status};
use crate::handle::{c_string, nanoseconds, options, pointer, Handle};
use crate::ledger::{Access, Claim, Region};
use crate::queue::{Completion, Keep, Operation, Queue};

/// How long a drop waits for an offer or session that it has aborted; its blocks stay claimed if it takes longer.
pub(crate) const LAST_WAIT: Duration = Duration::from_secs(5);

/// Names a request on every rank of both sides: a UUID, say; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub [u8; 16]);

impl RequestId {
    pub(crate) fn raw(&self) -> sys::kvbm_request_id_t {
        sys::kvbm_request_id_t { bytes: self.0 }
    }
}

/// How blocks are offered.
#[derive(Clone, Debug, Default)]
pub struct OfferOptions {
    /// This prefill rank, as decode sides name it.
    pub rank: u32,
    /// Position of the first block.
    pub first_position: u64,
    /// Positions from this one on are offered,
    pub begin: u64,
    /// up to this one; 0 = to the end of the blocks.
    pub end: u64,
    /// Of the whole offer; `None` = 60 s.
    pub timeout: Option<Duration>,
}

/// Published blocks, which are read until the offer has ended.
#[derive(Default)]
struct Published(Mutex<Option<Vec<Claim>>>);

impl Published {
    fn add(&self, claim: Option<Claim>) {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(claims), Some(claim)) = (claims.as_mut(), claim) {
            claims.push(claim);
        }
    }
    fn end(&self) {
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(ended);
    }
}

struct KeepOffer(Arc<Published>, #[allow(dead_code)] Cache); // the cache is kept, not used
impl Keep for KeepOffer {
    fn ended(&self) {
        self.0.end();
    }
}

/// Blocks of a request that are offered to decode nodes. Nothing is read before it is published; what was published
/// must stay as it is until the offer ends, so guards that write it are refused.
///
/// A drop aborts it, and waits a while for its end.
pub struct Offer {
    handle: Handle<sys::kvbm_offer>,
    published: Arc<Published>,
    cache: Cache,
    block_ids: Vec<u32>,
    first_position: u64,
    operation: Option<Operation>,
}

impl Offer {
    /// Offers the blocks: `block_ids` is one list for each part of the cache. With a queue, [`Offer::ended`] is a
    /// future of its end. Errors: INVALID, EXISTS, STATE (the manager is no node), UNSUPPORTED (an opaque cache),
    /// NO_ROOM, AGAIN.
    pub fn open(
        cache: &Cache,
        request: RequestId,
        block_ids: &[u32],
        given: &OfferOptions,
        queue: Option<&Queue>,
    ) -> Result<Offer> {
        let n = ids_per_part(cache, block_ids)?;
        let mut options = options!(kvbm_offer_options_init, kvbm_offer_options_t);
        options.rank = given.rank;
        options.first_position = given.first_position;
        options.begin = given.begin;
        options.end = given.end;
        if given.timeout.is_some() {
            options.timeout_ns = nanoseconds(given.timeout);
        }
        let raw_cache = cache.raw()?;
        let id = request.raw();
        let open = |queue, user_data| {
            let mut raw = std::ptr::null_mut();
            // SAFETY: the cache is live and each part has n ids; published blocks are claimed.
            explained(|err| unsafe {
                sys::kvbm_offer_open(raw_cache, &id, pointer(block_ids), n, &options, queue, user_data, &mut raw, err)
            })?;
            // SAFETY: the call has given an owned reference.
            unsafe { Handle::new(raw) }
        };
        let published = Arc::new(Published(Mutex::new(Some(Vec::new()))));
        let (operation, handle) = match queue {
            None => (None, open(std::ptr::null_mut(), 0)?),
            Some(queue) => {
                let keep = Box::new(KeepOffer(published.clone(), cache.clone()));
                let (operation, handle) = queue.submit_explained(0, keep, |_, queue, ticket| open(queue, ticket))?;
                (Some(operation), handle)
            }
        };
        let (cache, block_ids, first_position) = (cache.clone(), block_ids.to_vec(), given.first_position);
        Ok(Offer { handle, published, cache, block_ids, first_position, operation })
    }

    /// Takes over an offer that was opened through the raw layer, with these blocks of this cache.
    ///
    /// # Safety
    /// `raw` is an owned reference to an open offer of `cache`; if it has a queue, that is not a [`Queue`].
    pub unsafe fn from_raw(
        raw: *mut sys::kvbm_offer,
        cache: &Cache,
        block_ids: &[u32],
        first_position: u64,
    ) -> Result<Offer> {
        ids_per_part(cache, block_ids)?;
        // SAFETY: as the caller promises.
        let handle = unsafe { Handle::new(raw) }?;
        let published = Arc::new(Published(Mutex::new(Some(Vec::new()))));
        let (cache, block_ids) = (cache.clone(), block_ids.to_vec());
        Ok(Offer { handle, published, cache, block_ids, first_position, operation: None })
    }

    /// The blocks that publishing these would have read from now on.
    fn claim(&self, component: Option<u32>, layers: (u32, u32), begin: u64, end: u64) -> Result<Option<Claim>> {
        let Some(memory) = &self.cache.inner.memory else { return Ok(None) };
        let parts = &self.cache.inner.parts;
        let (n, tokens) = (self.block_ids.len() / parts.len(), self.cache.inner.tokens_per_block.max(1));
        let mut regions = Vec::new();
        for (p, part) in parts.iter().enumerate().filter(|(_, part)| component.map_or(true, |c| c == part.component)) {
            let ids: Vec<u32> = (0..n)
                .filter(|i| {
                    let first = self.first_position.saturating_add(*i as u64 * tokens);
                    first.saturating_add(tokens) > begin && (end == 0 || first < end)
                })
                .map(|i| self.block_ids[p * n + i])
                .collect();
            let last = if layers.1 == 0 { u32::MAX } else { layers.0.saturating_add(layers.1) };
            let own = part.first_layer..part.first_layer.saturating_add(part.layers);
            let places: Option<Vec<_>> =
                own.filter(|l| (layers.0..last).contains(l)).map(|l| part.tensors_of(l)).collect();
            match places {
                Some(places) => {
                    regions.extend(places.into_iter().map(|(first, n)| Region { first, n, ids: ids.clone() }))
                }
                None => regions.push(Region { first: part.first_tensor, n: part.n_tensors, ids }),
            }
        }
        Claim::take(memory, Access::Read, regions).map(Some)
    }

    fn publish_claimed(&self, claim: Option<Claim>, call: impl FnOnce(*mut sys::kvbm_error_t) -> i32) -> Result<()> {
        // Claimed first: the library may read it before the call returns.
        self.published.add(claim);
        explained(call).map(drop)
    }

    /// Says that positions [begin, end) of `n_layers` layers of a component are computed and in memory; 0 layers = all
    /// from the first on, end 0 = to the last position. Safe memory is claimed by whole blocks, and by layers where
    /// these have tensors of their own. Errors: INVALID, IN_USE (a guard writes there), STALE (the offer has ended: the
    /// prefill may stop).
    pub fn publish(&self, component: u32, first_layer: u32, n_layers: u32, begin: u64, end: u64) -> Result<()> {
        let raw = self.handle.get()?;
        let claim = self.claim(Some(component), (first_layer, n_layers), begin, end)?;
        // SAFETY: the handle is live.
        self.publish_claimed(claim, |err| unsafe {
            sys::kvbm_offer_publish(raw, component, first_layer, n_layers, begin, end, err)
        })
    }

    /// [`Offer::publish`] for a cache on a device, once `stream` has done what it holds now: called behind the kernels
    /// that compute the layer, it waits for nothing, and nothing on the stream waits for it. Where the device is lost
    /// before, the offer ends with TIER_DISABLED. Errors: as [`Offer::publish`]; INVALID also for a cache in host memory
    /// and a stream of another device; TIER_DISABLED.
    pub fn publish_on_stream(
        &self,
        component: u32,
        first_layer: u32,
        n_layers: u32,
        begin: u64,
        end: u64,
        stream: Stream,
    ) -> Result<()> {
        let raw = self.handle.get()?;
        let claim = self.claim(Some(component), (first_layer, n_layers), begin, end)?;
        // SAFETY: the handle is live, and so is the stream, as its maker has promised.
        self.publish_claimed(claim, |err| unsafe {
            let stream = stream.as_raw();
            sys::kvbm_offer_publish_on_stream(raw, component, first_layer, n_layers, begin, end, stream, err)
        })
    }

    /// Publishes everything that is offered. Errors: IN_USE, STALE.
    pub fn publish_all(&self) -> Result<()> {
        let raw = self.handle.get()?;
        let claim = self.claim(None, (0, 0), 0, 0)?;
        // SAFETY: the handle is live.
        self.publish_claimed(claim, |err| unsafe { sys::kvbm_offer_publish_all(raw, err) })
    }

    /// Ends the offer. Decode ranks that wait for it receive the reason. Errors: STALE if it has ended.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let raw = self.handle.get()?;
        let reason = c_string("reason", reason)?;
        // SAFETY: the handle is live.
        check(unsafe { sys::kvbm_offer_abort(raw, reason.as_ptr()) }).map(drop)
    }

    /// Waits until the offer has ended, and says how; AGAIN if it goes on after `timeout` (`None` = no timeout). After
    /// its end the engine may use the blocks again.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        let raw = self.handle.get()?;
        // SAFETY: the handle is live.
        let ended = explained(|err| unsafe { sys::kvbm_offer_wait(raw, nanoseconds(timeout), err) });
        if ended.as_ref().err().map(Error::status) != Some(Status::AGAIN) {
            self.published.end();
        }
        ended.map(drop)
    }

    /// Waits for the end without blocking, where the offer has a queue: items_done of `items` decode ranks, bytes sent.
    pub async fn ended(&mut self) -> Result<Completion> {
        match &mut self.operation {
            Some(operation) => operation.await,
            None => Err(Error::new(Status::STATE, "the offer was opened without a queue")),
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if !self.handle.process().is_here() {
            return;
        }
        let _ = self.abort("its handle was dropped");
        let _ = self.wait(Some(LAST_WAIT));
        // An offer that goes on keeps its claims, and so its memory.
        if let Some(claims) = self.published.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            std::mem::forget(claims);
        }
    }
}

pub(crate) fn ids_per_part(cache: &Cache, block_ids: &[u32]) -> Result<usize> {
    let parts = cache.inner.parts.len();
    if block_ids.is_empty() || block_ids.len() % parts != 0 {
        return Err(Error::invalid(format!("{} block ids are no lists for {parts} parts", block_ids.len())));
    }
    Ok(block_ids.len() / parts)
}
