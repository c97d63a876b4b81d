// SPDX-License-Identifier: Apache-2.0
//! Sessions: the decode side, which brings a request's KV into its own blocks, layer by layer.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use libkvbm_sys as sys;

use crate::cache::Cache;
use crate::device::Stream;
use crate::error::{check, explained, Error, Result, Status};
use crate::handle::{c_string, nanoseconds, options, pointer, Handle};
use crate::ledger::{Access, Claim, Region};
use crate::offer::{ids_per_part, RequestId, LAST_WAIT};
use crate::queue::{Completion, Keep, Operation, Queue};

/// A prefill rank to read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// As this manager knows its node: an address of `node.peers`, or the name of a node.
    pub node: String,
    /// [`crate::OfferOptions::rank`].
    pub rank: u32,
}

/// How a request is opened.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// This decode rank, of
    pub rank: u32,
    /// that many which open the request; 0 = 1.
    pub ranks: u32,
    /// No completions of layers on the queue.
    pub no_layers: bool,
    /// Position of the first block.
    pub first_position: u64,
    /// Positions from this one on are wanted,
    pub begin: u64,
    /// up to this one; 0 = to the end of the blocks.
    pub end: u64,
    /// Of the whole session; `None` = 60 s.
    pub timeout: Option<Duration>,
    /// Staging that it may have under way at once; 0 = 64 MiB.
    pub budget_bytes: u64,
    /// A cache on a device: the session begins after what this stream holds now. `None` = at once.
    pub stream: Option<Stream>,
}

/// A layer that is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Component of the layer,
    pub component: u32,
    /// which layer of the model.
    pub layer: u32,
    /// Number of layers in place,
    pub items_done: u64,
    /// of so many.
    pub items: u64,
    /// Bytes of this one.
    pub bytes: u64,
}

/// Claims on blocks that are written: those of a layer, where it has tensors of its own, and the rest.
type Claims = Vec<(Option<(u32, u32)>, Claim)>;

#[derive(Default)]
struct Wanted(Mutex<Option<Claims>>);

impl Wanted {
    fn of(cache: &Cache, block_ids: &[u32], n: usize) -> Result<Wanted> {
        let mut claims: Claims = Vec::new();
        let Some(memory) = &cache.inner.memory else { return Ok(Wanted(Mutex::new(Some(claims)))) };
        for (p, part) in cache.inner.parts.iter().enumerate() {
            let ids = &block_ids[p * n..(p + 1) * n];
            let mut take = |layer, first, n| -> Result<()> {
                let region = Region { first, n, ids: ids.to_vec() };
                claims.push((layer, Claim::take(memory, Access::Write, vec![region])?));
                Ok(())
            };
            if part.tensors_of(part.first_layer).is_none() {
                take(None, part.first_tensor, part.n_tensors)?;
                continue;
            }
            for layer in part.first_layer..part.first_layer + part.layers {
                if let Some((first, n)) = part.tensors_of(layer) {
                    take(Some((part.component, layer)), first, n)?;
                }
            }
        }
        Ok(Wanted(Mutex::new(Some(claims))))
    }
    fn layer_done(&self, component: u32, layer: u32) {
        if let Some(claims) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            claims.retain(|(of, _)| *of != Some((component, layer)));
        }
    }
    fn end(&self) {
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(ended);
    }
}

struct KeepSession(Arc<Wanted>, #[allow(dead_code)] Cache); // the cache is kept, not used
impl Keep for KeepSession {
    fn layer(&self, component: u32, layer: u32) {
        self.0.layer_done(component, layer);
    }
    fn ended(&self) {
        self.0.end();
    }
}

/// A request on its way into blocks of a cache. Guards of these are refused until the session has ended, or, where a
/// layer has tensors of its own, until the layer is in place.
///
/// A drop aborts it, and waits a while for its end.
pub struct Session {
    handle: Handle<sys::kvbm_session>,
    wanted: Arc<Wanted>,
    _cache: Cache,
    operation: Option<Operation>,
}

impl Session {
    /// Brings a request into these blocks (one list for each part of the cache) from all the prefill ranks that have
    /// it. With a queue, [`Session::next_layer`] and [`Session::ended`] are futures. Errors: INVALID, STATE (the
    /// manager is no node), UNSUPPORTED (an opaque cache), NO_ROOM, AGAIN, IN_USE (blocks that are used otherwise).
    pub fn open(
        cache: &Cache,
        request: RequestId,
        block_ids: &[u32],
        sources: &[Source],
        given: &SessionOptions,
        queue: Option<&Queue>,
    ) -> Result<Session> {
        let n = ids_per_part(cache, block_ids)?;
        let nodes = sources.iter().map(|s| c_string("a source's node", &s.node)).collect::<Result<Vec<_>>>()?;
        let raw_sources: Vec<_> = sources
            .iter()
            .zip(&nodes)
            .map(|(source, node)| sys::kvbm_source_t { node: node.as_ptr(), rank: source.rank, reserved: 0 })
            .collect();
        let options = Session::options(given)?;
        let raw_cache = cache.raw()?;
        let wanted = Arc::new(Wanted::of(cache, block_ids, n)?);
        let id = request.raw();
        let open = |queue, user_data| {
            let (ids, sources, mut raw) = (pointer(block_ids), pointer(&raw_sources), std::ptr::null_mut());
            // SAFETY: the cache is live, each part has n ids, which are claimed, and sources are as many as is said.
            explained(|err| unsafe {
                let n_sources = raw_sources.len();
                sys::kvbm_session_open(
                    raw_cache, &id, ids, n, sources, n_sources, &options, queue, user_data, &mut raw, err,
                )
            })?;
            // SAFETY: the call has given an owned reference.
            unsafe { Handle::new(raw) }
        };
        let (operation, handle) = match queue {
            None => (None, open(std::ptr::null_mut(), 0)?),
            Some(queue) => {
                let keep = Box::new(KeepSession(wanted.clone(), cache.clone()));
                let (operation, handle) = queue.submit_explained(0, keep, |_, queue, ticket| open(queue, ticket))?;
                (Some(operation), handle)
            }
        };
        Ok(Session { handle, wanted, _cache: cache.clone(), operation })
    }

    /// Takes over a session that was opened through the raw layer, for these blocks of this cache.
    ///
    /// # Safety
    /// `raw` is an owned reference to an open session of `cache`. If it has a queue, that is not a [`Queue`]. No other
    /// code uses its blocks until it has ended.
    pub unsafe fn from_raw(raw: *mut sys::kvbm_session, cache: &Cache) -> Result<Session> {
        // SAFETY: as the caller promises.
        let handle = unsafe { Handle::new(raw) }?;
        Ok(Session { handle, wanted: Arc::default(), _cache: cache.clone(), operation: None })
    }

    fn options(given: &SessionOptions) -> Result<sys::kvbm_session_options_t> {
        let mut options = options!(kvbm_session_options_init, kvbm_session_options_t);
        options.rank = given.rank;
        options.ranks = given.ranks;
        options.no_layers = given.no_layers.into();
        options.first_position = given.first_position;
        options.begin = given.begin;
        options.end = given.end;
        options.budget_bytes = given.budget_bytes;
        (options.stream, options.has_stream) = Stream::given(given.stream);
        if given.timeout.is_some() {
            options.timeout_ns = nanoseconds(given.timeout);
        }
        Ok(options)
    }

    /// Waits until the session has ended, and says how; AGAIN if it goes on after `timeout` (`None` = no timeout).
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        let raw = self.handle.get()?;
        // SAFETY: the handle is live.
        let ended = explained(|err| unsafe { sys::kvbm_session_wait(raw, nanoseconds(timeout), err) });
        if ended.as_ref().err().map(Error::status) != Some(Status::AGAIN) {
            self.wanted.end();
        }
        ended.map(drop)
    }

    /// Waits until a layer is in place: also well when the session has failed after it. Otherwise as
    /// [`Session::wait`]. Errors besides: INVALID for a layer that is not wanted.
    pub fn wait_layer(&self, component: u32, layer: u32, timeout: Option<Duration>) -> Result<()> {
        let raw = self.handle.get()?;
        let timeout = nanoseconds(timeout);
        // SAFETY: the handle is live.
        explained(|err| unsafe { sys::kvbm_session_wait_layer(raw, component, layer, timeout, err) })?;
        self.wanted.layer_done(component, layer);
        Ok(())
    }

    /// Ends the session. Prefill ranks receive the reason. Errors: STALE if it has ended.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let raw = self.handle.get()?;
        let reason = c_string("reason", reason)?;
        // SAFETY: the handle is live.
        check(unsafe { sys::kvbm_session_abort(raw, reason.as_ptr()) }).map(drop)
    }

    /// The next layer that is in place, or `None` once the session has ended, where it has a queue.
    pub fn next_layer(&mut self) -> NextLayer<'_> {
        NextLayer { session: self }
    }

    /// Waits for the end without blocking, where the session has a queue.
    pub async fn ended(&mut self) -> Result<Completion> {
        match &mut self.operation {
            Some(operation) => operation.await,
            None => Err(without_queue()),
        }
    }
}

fn without_queue() -> Error {
    Error::new(Status::STATE, "the session was opened without a queue")
}

/// A future of the next layer; see [`Session::next_layer`].
pub struct NextLayer<'a> {
    session: &'a mut Session,
}

impl Future for NextLayer<'_> {
    type Output = Result<Option<Layer>>;
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let Some(operation) = &self.session.operation else { return Poll::Ready(Err(without_queue())) };
        operation.poll_with(task, |state| match state.layers.pop_front() {
            Some(raw) => Some(Some(Layer {
                component: (raw.operation >> 32) as u32,
                layer: raw.operation as u32,
                items_done: raw.items_done,
                items: raw.items,
                bytes: raw.bytes,
            })),
            None => state.done.map(|_| None),
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.handle.process().is_here() {
            return;
        }
        let _ = self.abort("its handle was dropped");
        let _ = self.wait(Some(LAST_WAIT));
        // A session that goes on keeps its claims, and so its memory.
        if let Some(claims) = self.wanted.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            std::mem::forget(claims);
        }
    }
}
