// SPDX-License-Identifier: Apache-2.0
//! Queues and the operations submitted to them.
//!
//! A queue keeps every operation in flight with its resources: claims on cache memory, and statuses that the library
//! writes. It releases them when the completion was taken from the library, not when the [`Operation`] is dropped or
//! forgotten. Completions are taken by callers that wait or poll, by a thread of the queue once a future needs it, or
//! by a driver on tokio's reactor. Only one of them takes completions at a time (see `reactor.rs`).

use std::any::Any;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use libkvbm_sys as sys;

use crate::context::Context;
use crate::error::{check, explained, Error, Result, Status};
use crate::handle::Handle;
use crate::reactor::Reactor;

/// Kind of the operation of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum OpKind {
    Store,
    Load,
    Prefetch,
    Offload,
    Offer,
    Receive,
    Layer,
    /// One that this version does not know.
    Other(i32),
}

impl From<i32> for OpKind {
    fn from(op: i32) -> Self {
        match op as u32 {
            sys::KVBM_OP_STORE => OpKind::Store,
            sys::KVBM_OP_LOAD => OpKind::Load,
            sys::KVBM_OP_PREFETCH => OpKind::Prefetch,
            sys::KVBM_OP_OFFLOAD => OpKind::Offload,
            sys::KVBM_OP_OFFER => OpKind::Offer,
            sys::KVBM_OP_RECEIVE => OpKind::Receive,
            sys::KVBM_OP_LAYER => OpKind::Layer,
            _ => OpKind::Other(op),
        }
    }
}

/// Result of an accepted operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Completion {
    /// Kind of the operation.
    pub op: OpKind,
    /// OK, PARTIAL (see `item_status`), or why nothing was done.
    pub status: Status,
    /// Blocks done.
    pub items_done: u64,
    /// Blocks asked for.
    pub items: u64,
    /// Payload bytes moved.
    pub bytes: u64,
    /// From submit until work began.
    pub wait: Duration,
    /// From then until done.
    pub service: Duration,
    /// Of each key of a store or load.
    pub item_status: Vec<Status>,
}

impl Completion {
    pub(crate) fn new(raw: &sys::kvbm_completion_t, item_status: Vec<Status>) -> Self {
        Completion {
            op: raw.op.into(),
            status: Status(raw.status),
            items_done: raw.items_done,
            items: raw.items,
            bytes: raw.bytes,
            wait: Duration::from_nanos(raw.wait_ns),
            service: Duration::from_nanos(raw.service_ns),
            item_status,
        }
    }
    /// The first failure, unless everything was done.
    pub fn all(self) -> Result<()> {
        let failed = self.item_status.iter().copied().find(|s| s.0 < 0).unwrap_or(self.status);
        failed.check()?;
        if self.status.is_ok() {
            Ok(())
        } else {
            Err(self.status.into())
        }
    }
}

/// Resources of an operation in flight.
pub(crate) trait Keep: Send + Sync {
    /// A layer of a session is in place.
    fn layer(&self, _component: u32, _layer: u32) {}
    /// Ended: no resource is used any more.
    fn ended(&self) {}
}
impl<T: Any + Send + Sync> Keep for (Option<T>, crate::cache::Cache) {}
impl Keep for () {}

/// One operation in flight, shared by its queue and its [`Operation`].
pub(crate) struct Pending {
    // Written by the library until the completion was taken; read after that alone.
    item_status: Box<[UnsafeCell<i32>]>,
    operation: UnsafeCell<u64>,
    state: Mutex<PendingState>,
}

// SAFETY: the cells are the library's until `done` is set, under the mutex, and are only read after it.
unsafe impl Send for Pending {}
// SAFETY: as above.
unsafe impl Sync for Pending {}

pub(crate) struct PendingState {
    keep: Option<Box<dyn Keep>>,
    pub(crate) done: Option<sys::kvbm_completion_t>,
    pub(crate) layers: VecDeque<sys::kvbm_completion_t>,
    waker: Option<Waker>,
}

/// Where the library writes.
pub(crate) struct Slots {
    pub(crate) item_status: *mut i32,
    pub(crate) operation: *mut u64,
}

/// Of the operation, not of one of its layers.
pub(crate) fn is_last(completion: &sys::kvbm_completion_t) -> bool {
    OpKind::from(completion.op) != OpKind::Layer
}

impl Pending {
    fn new(items: usize, keep: Box<dyn Keep>) -> Self {
        Pending {
            item_status: (0..items).map(|_| UnsafeCell::new(0)).collect(),
            operation: UnsafeCell::new(0),
            state: Mutex::new(PendingState { keep: Some(keep), done: None, layers: VecDeque::new(), waker: None }),
        }
    }
    pub(crate) fn lock(&self) -> MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Releases the resources of an operation. Called before its end is visible, because code that sees the end may use
    /// the memory.
    pub(crate) fn end(&self) {
        let keep = self.lock().keep.take();
        keep.iter().for_each(|k| k.ended());
    }

    /// Accepts a completion, and wakes its waiter.
    pub(crate) fn complete(&self, completion: &sys::kvbm_completion_t) {
        let mut state = self.lock();
        if is_last(completion) {
            state.done = Some(*completion);
        } else {
            let (component, layer) = ((completion.operation >> 32) as u32, completion.operation as u32);
            state.keep.iter().for_each(|k| k.layer(component, layer));
            state.layers.push_back(*completion);
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    fn completion(&self, raw: &sys::kvbm_completion_t) -> Completion {
        // SAFETY: `raw` came from `done`, after which the library does not write.
        let items = self.item_status.iter().map(|cell| Status(unsafe { *cell.get() })).collect();
        Completion::new(raw, items)
    }
}

/// A queue of operations in flight, and their completions. Clones are the same queue.
#[derive(Clone)]
pub struct Queue {
    owner: Arc<Owner>,
}

/// Shared state of the user's clones; its end stops the reactor's thread.
struct Owner {
    reactor: Arc<Reactor>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        Reactor::close(&self.reactor);
    }
}

impl Queue {
    /// Creates a queue for at most `depth` operations in flight (1 to 65,536).
    pub fn new(context: &Context, depth: u32) -> Result<Queue> {
        let context = context.handle.get()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is live.
        explained(|err| unsafe { sys::kvbm_queue_create(context, depth, &mut raw, err) })?;
        // SAFETY: the call has given an owned reference.
        let handle = unsafe { Handle::new(raw) }?;
        Ok(Queue { owner: Arc::new(Owner { reactor: Reactor::new(handle) }) })
    }

    pub(crate) fn reactor(&self) -> &Arc<Reactor> {
        &self.owner.reactor
    }

    /// Takes completions in without waiting, wakes the futures they are of, and says how many there were. For loops
    /// of one's own over the file descriptor ([`AsFd`]), which is readable while there are any.
    pub fn poll(&self) -> Result<usize> {
        self.reactor().process().check()?;
        Ok(self.reactor().poll())
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.reactor().in_flight()
    }

    /// Registers what an operation keeps, and submits it; `call` gets where the library may write, the queue and
    /// user_data.
    pub(crate) fn submit(
        &self,
        items: usize,
        keep: Box<dyn Keep>,
        call: impl FnOnce(Slots, *mut sys::kvbm_queue, u64) -> sys::kvbm_status_t,
    ) -> Result<Operation> {
        self.submit_explained(items, keep, |slots, queue, ticket| check(call(slots, queue, ticket)).map(drop))
            .map(|(operation, ())| operation)
    }

    pub(crate) fn submit_explained<T>(
        &self,
        items: usize,
        keep: Box<dyn Keep>,
        call: impl FnOnce(Slots, *mut sys::kvbm_queue, u64) -> Result<T>,
    ) -> Result<(Operation, T)> {
        let reactor = self.reactor();
        let raw = reactor.raw()?;
        let pending = Arc::new(Pending::new(items, keep));
        let slots = Slots {
            item_status: if items == 0 { std::ptr::null_mut() } else { pending.item_status[0].get() },
            operation: pending.operation.get(),
        };
        // Before the call: the completion may be taken before it returns.
        let ticket = reactor.add(pending.clone());
        match call(slots, raw, ticket) {
            Ok(made) => {
                let operation = Operation { reactor: reactor.clone(), pending, taken: false };
                Ok((operation, made))
            }
            Err(error) => {
                reactor.remove(ticket);
                Err(error)
            }
        }
    }

    /// The raw pointer, valid while this object is. Completions that are taken with it are lost to their operations.
    pub fn as_raw(&self) -> *mut sys::kvbm_queue {
        self.reactor().raw_unchecked()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the queue's, which the borrow keeps.
        unsafe { BorrowedFd::borrow_raw(sys::kvbm_queue_fd(self.reactor().raw_unchecked())) }
    }
}

/// An operation in flight: a future of its [`Completion`], or to be waited for.
///
/// The memory that it uses is kept and claimed until the library has ended it, whatever becomes of this value: a drop
/// asks that it ends early ([`Operation::cancel`]), `mem::forget` lets it go on.
#[must_use = "dropping an operation cancels it"]
pub struct Operation {
    reactor: Arc<Reactor>,
    pending: Arc<Pending>,
    taken: bool,
}

impl Operation {
    /// Asks that it ends early. Its completion still comes, CANCELLED or what it had become. Errors: STALE if it has
    /// completed or cannot be cancelled (prefetch, offload).
    pub fn cancel(&self) -> Result<()> {
        let raw = self.reactor.raw()?;
        // SAFETY: the queue is live.
        check(unsafe { sys::kvbm_queue_cancel(raw, self.number()) }).map(drop)
    }

    /// As the library counts them.
    pub(crate) fn number(&self) -> u64 {
        // SAFETY: written before submit returned.
        unsafe { *self.pending.operation.get() }
    }

    /// Whether it has ended and its completion was taken in.
    pub fn is_done(&self) -> bool {
        self.pending.lock().done.is_some()
    }

    /// Waits for it.
    pub fn wait(mut self) -> Result<Completion> {
        loop {
            // A timeout of an hour stands for none.
            if let Some(done) = self.wait_for(Duration::from_secs(3600))? {
                return Ok(done);
            }
        }
    }

    /// Waits for it so long; `None` after that.
    pub fn wait_for(&mut self, timeout: Duration) -> Result<Option<Completion>> {
        let until = Instant::now() + timeout;
        self.reactor.wait_until(until, || self.pending.lock().done.is_some())?;
        Ok(self.take())
    }

    fn take(&mut self) -> Option<Completion> {
        let done = self.pending.lock().done?;
        self.taken = true;
        Some(self.pending.completion(&done))
    }

    /// Calls `ready` until it gives something, and is woken meanwhile.
    pub(crate) fn poll_with<T>(
        &self,
        task: &mut TaskContext<'_>,
        mut ready: impl FnMut(&mut PendingState) -> Option<T>,
    ) -> Poll<Result<T>> {
        if let Err(error) = self.reactor.process().check() {
            return Poll::Ready(Err(error));
        }
        let mut state = self.pending.lock();
        if let Some(found) = ready(&mut state) {
            return Poll::Ready(Ok(found));
        }
        match &mut state.waker {
            Some(waker) if waker.will_wake(task.waker()) => {}
            waker => *waker = Some(task.waker().clone()),
        }
        drop(state);
        match Reactor::ensure_driven(&self.reactor) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Future for Operation {
    type Output = Result<Completion>;
    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        match self.poll_with(task, |state| state.done) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(_)) => Poll::Ready(self.take().ok_or_else(|| Error::from(Status::INTERNAL))),
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.taken || !self.reactor.process().is_here() || self.is_done() {
            return;
        }
        let _ = self.cancel();
        // Its completion must be taken, or its claims would stay.
        let _ = Reactor::ensure_driven(&self.reactor);
    }
}
