// SPDX-License-Identifier: Apache-2.0
//! Takes a queue's completions in on tokio's reactor.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::task::JoinHandle;

use crate::error::{Error, Result, Status};
use crate::event::{Event, Events};
use crate::queue::Queue;
use crate::reactor::Reactor;

/// A task that takes a queue's completions in on tokio's reactor, instead of a thread of the queue's own. It ends when
/// this is dropped; futures go on with the thread then.
#[must_use = "the driver ends when it is dropped"]
pub struct Driver {
    task: JoinHandle<()>,
}

/// A duplicate: tokio may still know the descriptor when the queue has closed its own.
struct Descriptor(OwnedFd);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn registered(fd: impl AsFd) -> Result<AsyncFd<Descriptor>> {
    let refused = |what: &str, error: std::io::Error| Error::new(Status::IO, format!("{what}: {error}"));
    let copy = fd.as_fd().try_clone_to_owned().map_err(|e| refused("no copy of the queue's descriptor", e))?;
    // Its successor is not in every tokio 1; the descriptor is owned, so this one is sound too.
    #[allow(deprecated)]
    AsyncFd::with_interest(Descriptor(copy), Interest::READABLE)
        .map_err(|e| refused("tokio does not take the queue's descriptor", e))
}

/// Tells the queue that this driver has gone, also when its task is aborted or its runtime ends.
struct Attached(Weak<Reactor>);

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(reactor) = self.0.upgrade() {
            Reactor::detach_external(&reactor);
        }
    }
}

impl Driver {
    /// Drives `queue` on the current runtime. Errors: STATE outside of a runtime.
    ///
    /// # Panics
    /// In a runtime without I/O, as tokio's own constructors do.
    pub fn spawn(queue: &Queue) -> Result<Driver> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|e| Error::new(Status::STATE, e.to_string()))?;
        let fd = registered(queue)?;
        queue.reactor().attach_external();
        let attached = Attached(Arc::downgrade(queue.reactor()));
        let task = runtime.spawn(async move {
            loop {
                match attached.0.upgrade() {
                    Some(reactor) => reactor.poll(),
                    None => return,
                };
                match fd.readable().await {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return,
                }
            }
        });
        Ok(Driver { task })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Events {
    /// Waits on tokio's reactor until there are events, and takes up to `capacity` of them.
    pub async fn next(&self, capacity: usize) -> Result<Vec<Event>> {
        let fd = registered(self)?;
        loop {
            let events = self.poll(capacity)?;
            if !events.is_empty() {
                return Ok(events);
            }
            let mut ready = fd.readable().await.map_err(|e| Error::new(Status::IO, e.to_string()))?;
            ready.clear_ready();
        }
    }
}
