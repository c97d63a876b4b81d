// SPDX-License-Identifier: Apache-2.0
//! Events: blocks that changed their place.

use std::os::fd::{AsFd, BorrowedFd};

use libkvbm_sys as sys;

use crate::context::Context;
use crate::error::{check, explained, Result};
use crate::handle::Handle;
use crate::key::Key;
use crate::manager::Manager;
use crate::types::TierNumber;

/// Kinds of block events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// Stored in the tier.
    Stored,
    /// Removed from the tier.
    Removed,
    /// The tier was cleared.
    Cleared,
    /// The tier was taken out of service.
    Disabled,
    /// One that this version does not know.
    Other(i32),
}

/// A block changed its place. A move between tiers is a Stored in one and a Removed in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// From 1, without gaps; a gap means events were lost.
    pub sequence: u64,
    /// Kind of the event.
    pub kind: EventKind,
    /// Where.
    pub tier: TierNumber,
    /// Id of the namespace.
    pub namespace_id: [u8; 16],
    /// Which block.
    pub key: Key,
    /// The block before it; `None` = none or unknown.
    pub parent: Option<Key>,
    /// Which component.
    pub component: u32,
}

impl From<&sys::kvbm_event_t> for Event {
    fn from(raw: &sys::kvbm_event_t) -> Self {
        Event {
            sequence: raw.sequence,
            kind: match raw.kind as u32 {
                sys::KVBM_EVENT_STORED => EventKind::Stored,
                sys::KVBM_EVENT_REMOVED => EventKind::Removed,
                sys::KVBM_EVENT_CLEARED => EventKind::Cleared,
                sys::KVBM_EVENT_DISABLED => EventKind::Disabled,
                _ => EventKind::Other(raw.kind),
            },
            tier: TierNumber(raw.tier),
            namespace_id: raw.namespace_id,
            key: raw.key.into(),
            parent: Some(Key::from(raw.parent)).filter(|k| *k != Key::default()),
            component: raw.component,
        }
    }
}

/// A queue of events, apart from those of operations. Its file descriptor is readable while there are any.
pub struct Events {
    handle: Handle<sys::kvbm_queue>,
}

impl Events {
    /// Creates a queue for [`Manager::subscribe`].
    pub fn new(context: &Context) -> Result<Events> {
        let context = context.handle.get()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is live.
        explained(|err| unsafe { sys::kvbm_queue_create(context, 1, &mut raw, err) })?;
        // SAFETY: the call has given an owned reference.
        Ok(Events { handle: unsafe { Handle::new(raw) }? })
    }

    /// Takes up to `capacity` events, without waiting. When the reader is slower than the writer the oldest are lost
    /// and the sequence shows it.
    pub fn poll(&self, capacity: usize) -> Result<Vec<Event>> {
        let queue = self.handle.get()?;
        // More than that do not wait at once; no list is made for a number out of nowhere.
        let mut raw = vec![sys::kvbm_event_t::default(); capacity.min(1 << 16)];
        // SAFETY: the queue is live, and there is room as is said.
        let n = unsafe { sys::kvbm_queue_poll_events(queue, raw.as_mut_ptr(), raw.len()) };
        Ok(raw[..n].iter().map(Event::from).collect())
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the queue's, which the borrow keeps.
        unsafe { BorrowedFd::borrow_raw(sys::kvbm_queue_fd(self.handle.raw())) }
    }
}

impl Manager {
    /// Sends block events to a queue; `None` = no more. One queue per manager.
    pub fn subscribe(&self, events: Option<&Events>) -> Result<()> {
        let raw = self.raw()?;
        let queue = events.map(|e| e.handle.get()).transpose()?.unwrap_or(std::ptr::null_mut());
        // SAFETY: both are live, and the manager keeps the queue.
        check(unsafe { sys::kvbm_manager_subscribe(raw, queue) }).map(drop)
    }
}
