// SPDX-License-Identifier: Apache-2.0
//! Care of what is cached: bring up, send down, forget, hint, pin.

use std::time::Duration;

use libkvbm_sys as sys;

use crate::error::{check, Result, Status};
use crate::handle::nanoseconds;
use crate::key::{raw_keys, Key};
use crate::manager::Manager;
use crate::namespace::Namespace;
use crate::queue::{Operation, Queue};
use crate::types::{Part, Priority};

/// Keeps blocks resident for an owner until its deadline or until it is unpinned. It is a number of the manager's: no
/// drop ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pin(pub u64);

impl Manager {
    /// Brings blocks up into the host tier so that a later load is quick, and waits for it. Keys that are nowhere are
    /// ignored.
    pub fn prefetch(&self, ns: &Namespace, part: Part, keys: &[Key]) -> Result<Status> {
        let (raw, ns, part) = (self.raw()?, ns.raw()?, part.raw());
        let none = std::ptr::null_mut();
        // SAFETY: handles are live, and the list is as long as is said.
        check(unsafe { sys::kvbm_manager_prefetch(raw, ns, &part, raw_keys(keys), keys.len(), none, 0) })
    }

    /// [`Manager::prefetch`] without waiting.
    pub fn prefetch_async(&self, ns: &Namespace, part: Part, keys: &[Key], queue: &Queue) -> Result<Operation> {
        let (raw, ns, part) = (self.raw()?, ns.raw()?, part.raw());
        // SAFETY: handles are live, and the list, which is copied at submit, is as long as is said.
        queue.submit(0, Box::new(()), |_, queue, user_data| unsafe {
            sys::kvbm_manager_prefetch(raw, ns, &part, raw_keys(keys), keys.len(), queue, user_data)
        })
    }

    /// Copies host blocks to tier `tier` (1 = the first below) now, and waits until they are there.
    pub fn offload(&self, ns: &Namespace, part: Part, keys: &[Key], tier: u32) -> Result<Status> {
        let (raw, ns, part) = (self.raw()?, ns.raw()?, part.raw());
        let none = std::ptr::null_mut();
        // SAFETY: handles are live, and the list is as long as is said.
        check(unsafe { sys::kvbm_manager_offload(raw, ns, &part, raw_keys(keys), keys.len(), tier, none, 0) })
    }

    /// [`Manager::offload`] without waiting.
    pub fn offload_async(
        &self,
        ns: &Namespace,
        part: Part,
        keys: &[Key],
        tier: u32,
        queue: &Queue,
    ) -> Result<Operation> {
        let (raw, ns, part) = (self.raw()?, ns.raw()?, part.raw());
        // SAFETY: handles are live, and the list, which is copied at submit, is as long as is said.
        queue.submit(0, Box::new(()), |_, queue, user_data| unsafe {
            sys::kvbm_manager_offload(raw, ns, &part, raw_keys(keys), keys.len(), tier, queue, user_data)
        })
    }

    /// Forgets blocks in every tier; how many were in the host tier. Not written down: what is on a disk may be found
    /// again after a restart.
    pub fn drop_keys(&self, ns: &Namespace, part: Part, keys: &[Key]) -> Result<usize> {
        let (raw, ns, part) = (self.raw()?, ns.raw()?, part.raw());
        let mut n = 0;
        // SAFETY: handles are live, and the list is as long as is said.
        check(unsafe { sys::kvbm_manager_drop(raw, ns, &part, raw_keys(keys), keys.len(), &mut n) })?;
        Ok(n)
    }

    /// Tells the policies what is known of blocks. Absent keys are ignored.
    pub fn hint(&self, ns: &Namespace, part: Part, keys: &[Key], priority: Priority) -> Result<()> {
        let (raw, ns, part) = (self.raw()?, ns.raw()?, part.raw());
        // SAFETY: handles are live, and the list is as long as is said.
        check(unsafe { sys::kvbm_manager_hint(raw, ns, &part, raw_keys(keys), keys.len(), priority as u32) }).map(drop)
    }

    /// Keeps host blocks resident for `owner`, a number chosen by the caller. Pins the leading keys that are there, and
    /// returns their number; `None` if there are none.
    pub fn pin(
        &self,
        ns: &Namespace,
        part: Part,
        keys: &[Key],
        owner: u64,
        timeout: Option<Duration>,
    ) -> Result<Option<(Pin, usize)>> {
        let (raw, ns, part) = (self.raw()?, ns.raw()?, part.raw());
        let (mut pin, mut n) = (0, 0);
        let timeout = nanoseconds(timeout);
        // SAFETY: handles are live, and the list is as long as is said.
        check(unsafe {
            sys::kvbm_manager_pin(raw, ns, &part, raw_keys(keys), keys.len(), owner, timeout, &mut pin, &mut n)
        })?;
        Ok(Some((Pin(pin), n)).filter(|_| n != 0))
    }

    /// Ends a pin early. Errors: STALE if it has ended.
    pub fn unpin(&self, pin: Pin) -> Result<()> {
        let raw = self.raw()?;
        // SAFETY: the handle is live, and any number is allowed.
        check(unsafe { sys::kvbm_manager_unpin(raw, pin.0) }).map(drop)
    }

    /// Ends every pin of an owner, as when it has died; how many there were.
    pub fn unpin_owner(&self, owner: u64) -> Result<usize> {
        let raw = self.raw()?;
        let mut n = 0;
        // SAFETY: the handle is live, and any number is allowed.
        check(unsafe { sys::kvbm_manager_unpin_owner(raw, owner, &mut n) })?;
        Ok(n)
    }
}
