// SPDX-License-Identifier: Apache-2.0
//! Takes completions from a queue.
//!
//! One thread at a time drives the queue: it takes completions from the library and distributes them. Other waiting
//! threads sleep until theirs has come. A waiting thread drives while it waits. From the first future on a thread of
//! the queue drives, unless a driver on another reactor is attached. Invariant: while an operation is in flight and its
//! future was polled or dropped, some driver exists.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libkvbm_sys as sys;

use crate::error::{Error, Result, Status};
use crate::handle::{Handle, Process};
use crate::queue::{is_last, Pending};

/// Completions that are taken at once.
const BATCH: usize = 64;
/// The longest sleep inside the library; bounds how long a queue outlives a submit that was refused.
const SLICE: Duration = Duration::from_millis(200);

#[derive(Default)]
struct State {
    pending: HashMap<u64, Arc<Pending>>,
    next: u64,
    /// A thread takes completions now.
    driving: bool,
    /// Another thread was notified of completions meanwhile, and left them to the driver.
    missed: bool,
    /// The queue's own thread runs.
    thread: bool,
    /// Drivers on other reactors.
    external: usize,
    /// The user's last clone of the queue is gone.
    closed: bool,
}

pub(crate) struct Reactor {
    handle: Handle<sys::kvbm_queue>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Reactor {
    pub(crate) fn new(handle: Handle<sys::kvbm_queue>) -> Arc<Self> {
        Arc::new(Reactor { handle, state: Mutex::default(), changed: Condvar::new() })
    }
    pub(crate) fn raw(&self) -> Result<*mut sys::kvbm_queue> {
        self.handle.get()
    }
    pub(crate) fn raw_unchecked(&self) -> *mut sys::kvbm_queue {
        self.handle.raw()
    }
    pub(crate) fn process(&self) -> Process {
        self.handle.process()
    }
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn in_flight(&self) -> usize {
        if !self.process().is_here() {
            return 0;
        }
        self.lock().pending.len()
    }

    pub(crate) fn add(&self, pending: Arc<Pending>) -> u64 {
        let mut state = self.lock();
        state.next += 1;
        let ticket = state.next;
        state.pending.insert(ticket, pending);
        self.changed.notify_all();
        ticket
    }
    pub(crate) fn remove(&self, ticket: u64) {
        // Dropped outside the lock: what it keeps may have work to do.
        let _removed = self.lock().pending.remove(&ticket);
    }

    fn hand_out(&self, completions: &[sys::kvbm_completion_t]) {
        for completion in completions {
            let pending = self.lock().pending.get(&completion.user_data).cloned();
            let Some(pending) = pending else { continue };
            if is_last(completion) {
                pending.end();
                // Before its waiter continues: after the end of the last operation no operation is in flight.
                self.remove(completion.user_data);
            }
            pending.complete(completion);
        }
    }

    /// Takes the available completions, and waits up to the given time for the first. Only for the driver.
    fn take(&self, timeout: Duration) -> usize {
        let mut batch = [sys::kvbm_completion_t::default(); BATCH];
        let wait = u64::try_from(timeout.as_nanos()).unwrap_or(sys::KVBM_FOREVER);
        // SAFETY: the queue is live, and the batch has room as is said.
        let n = unsafe {
            match wait {
                0 => sys::kvbm_queue_poll(self.handle.raw(), batch.as_mut_ptr(), BATCH),
                _ => sys::kvbm_queue_wait(self.handle.raw(), batch.as_mut_ptr(), BATCH, wait),
            }
        };
        self.hand_out(&batch[..n]);
        n
    }

    /// Drives once, with `driving` set by the caller, and gives the role up with nothing left behind.
    fn drive(&self, timeout: Duration) -> usize {
        let mut taken = self.take(timeout);
        loop {
            loop {
                match self.take(Duration::ZERO) {
                    0 => break,
                    n => taken += n,
                }
            }
            let mut state = self.lock();
            if std::mem::take(&mut state.missed) {
                continue;
            }
            state.driving = false;
            self.changed.notify_all();
            return taken;
        }
    }

    pub(crate) fn poll(&self) -> usize {
        {
            let mut state = self.lock();
            if state.driving {
                state.missed = true;
                return 0;
            }
            state.driving = true;
        }
        self.drive(Duration::ZERO)
    }

    /// Drives, or sleeps while another does, until `ready` or this time.
    pub(crate) fn wait_until(&self, until: Instant, ready: impl Fn() -> bool) -> Result<()> {
        self.process().check()?;
        let mut state = self.lock();
        loop {
            if ready() {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && state.driving {
                return Ok(());
            }
            if state.driving {
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.driving = true;
            drop(state);
            self.drive(left.min(SLICE));
            if left.is_zero() {
                return Ok(());
            }
            state = self.lock();
        }
    }

    /// Starts the queue's own thread unless something drives already.
    pub(crate) fn ensure_driven(this: &Arc<Self>) -> Result<()> {
        let mut state = this.lock();
        if state.external != 0 && !state.closed {
            return Ok(());
        }
        this.start_thread(&mut state, this)
    }

    fn start_thread(&self, state: &mut State, this: &Arc<Self>) -> Result<()> {
        if state.thread {
            return Ok(());
        }
        let reactor = this.clone();
        match std::thread::Builder::new().name("kvbm-rust-queue".into()).spawn(move || reactor.run()) {
            Ok(_) => {
                state.thread = true;
                Ok(())
            }
            Err(error) => Err(Error::new(Status::NO_MEMORY, format!("no thread for the queue: {error}"))),
        }
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            if state.pending.is_empty() && (state.closed || state.external != 0) {
                state.thread = false;
                return;
            }
            if state.pending.is_empty() || state.driving {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.driving = true;
            drop(state);
            self.drive(SLICE);
            state = self.lock();
        }
    }

    /// The user's last clone of the queue is gone: what is in flight is finished all the same.
    pub(crate) fn close(this: &Arc<Self>) {
        if !this.process().is_here() {
            return;
        }
        let mut state = this.lock();
        state.closed = true;
        this.changed.notify_all();
        if !state.pending.is_empty() {
            // Without a thread the last operation's drop finishes it.
            let _ = this.start_thread(&mut state, this);
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn attach_external(&self) {
        self.lock().external += 1;
        self.changed.notify_all();
    }
    #[cfg(feature = "tokio")]
    pub(crate) fn detach_external(this: &Arc<Self>) {
        let mut state = this.lock();
        state.external -= 1;
        if state.external == 0 && !state.pending.is_empty() {
            let _ = this.start_thread(&mut state, this);
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        let here = self.process().is_here();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !here {
            // The parent's library still writes to what these keep, as far as this process can know.
            std::mem::forget(std::mem::take(&mut state.pending));
            return;
        }
        // Only where no thread could be started: the library still uses what these keep.
        while !self.lock().pending.is_empty() {
            self.take(SLICE);
        }
    }
}
