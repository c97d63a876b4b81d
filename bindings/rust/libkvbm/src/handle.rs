// SPDX-License-Identifier: Apache-2.0
//! Owned pointers to the library's objects, and whether they are used in a forked child.

use std::ffi::{c_char, c_int, CString};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Once;
use std::time::Duration;

use libkvbm_sys as sys;

use crate::error::{Error, Result, Status};

static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

extern "C" {
    // Of libc, which std links; a dependency for one declaration would be more than it is worth.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// The process that made an object; distinguishes it from forked children without a system call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u64);

impl Process {
    pub(crate) fn current() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the function only counts. If it cannot be registered, the library's own checks remain.
            unsafe { pthread_atfork(None, None, Some(count_fork)) };
        });
        Process(FORKS.load(Ordering::Relaxed))
    }
    pub(crate) fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
    pub(crate) fn check(self) -> Result<()> {
        if self.is_here() {
            return Ok(());
        }
        Err(Error::new(Status::FORKED, "used in a forked child; create a context of its own after fork"))
    }
}

/// An object that is ended with one call.
pub(crate) trait Object {
    /// # Safety
    /// `raw` is an owned reference, and is not used afterwards.
    unsafe fn release(raw: *mut Self);
}

macro_rules! objects {
    ($($kind:ident => $release:ident),* $(,)?) => {
        $(impl Object for sys::$kind {
            unsafe fn release(raw: *mut Self) {
                // SAFETY: as the trait asks for.
                unsafe { sys::$release(raw) }
            }
        })*
    };
}
objects! {
    kvbm_context => kvbm_context_release, kvbm_queue => kvbm_queue_release, kvbm_geometry => kvbm_geometry_release,
    kvbm_manager => kvbm_manager_release, kvbm_namespace => kvbm_namespace_release,
    kvbm_cache => kvbm_cache_release, kvbm_match => kvbm_match_release, kvbm_offer => kvbm_offer_release,
    kvbm_session => kvbm_session_release,
}

/// An owned reference to an object of the library, released when dropped.
pub(crate) struct Handle<T: Object> {
    raw: NonNull<T>,
    process: Process,
}

// SAFETY: every function on these objects has the line "Thread: any" in kvbm.h.
unsafe impl<T: Object> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T: Object> Sync for Handle<T> {}

impl<T: Object> Handle<T> {
    /// # Safety
    /// `raw` is an owned reference or NULL.
    pub(crate) unsafe fn new(raw: *mut T) -> Result<Self> {
        match NonNull::new(raw) {
            Some(raw) => Ok(Handle { raw, process: Process::current() }),
            None => Err(Error::new(Status::INTERNAL, "the library gave no object")),
        }
    }
    /// The pointer, unless this is a forked child.
    pub(crate) fn get(&self) -> Result<*mut T> {
        self.process.check()?;
        Ok(self.raw.as_ptr())
    }
    pub(crate) fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }
    pub(crate) fn process(&self) -> Process {
        self.process
    }
}

impl<T: Object> Drop for Handle<T> {
    fn drop(&mut self) {
        // In a forked child the object's threads are the parent's, and so may its locks be: leave it.
        if self.process.is_here() {
            // SAFETY: the handle owns the reference, and this is its only release.
            unsafe { T::release(self.raw.as_ptr()) };
        }
    }
}

/// A string for C; `what` names it in the error.
pub(crate) fn c_string(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid(format!("{what} has a zero byte in it")))
}

/// Reads a two-phase text output.
pub(crate) fn read_text(call: impl Fn(*mut c_char, usize, *mut usize) -> sys::kvbm_status_t) -> Result<String> {
    let mut bytes: Vec<u8> = vec![0; 256];
    loop {
        let mut needed = 0usize;
        crate::error::check(call(bytes.as_mut_ptr().cast(), bytes.len(), &mut needed))?;
        if needed < bytes.len() {
            bytes.truncate(needed);
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        bytes.resize(needed + 256, 0);
    }
}

/// Nanoseconds of a timeout; `None` and what does not fit are forever.
pub(crate) fn nanoseconds(timeout: Option<Duration>) -> u64 {
    timeout.and_then(|t| u64::try_from(t.as_nanos()).ok()).unwrap_or(sys::KVBM_FOREVER)
}

/// A pointer for C: NULL for an empty slice.
pub(crate) fn pointer<T>(slice: &[T]) -> *const T {
    if slice.is_empty() {
        std::ptr::null()
    } else {
        slice.as_ptr()
    }
}

/// Options with the library's defaults.
macro_rules! options {
    ($init:ident, $kind:ident) => {{
        let mut options = std::mem::MaybeUninit::<sys::$kind>::zeroed();
        // SAFETY: the call writes struct_size bytes of defaults, and all zero is a valid value before it.
        let status = unsafe { sys::$init(options.as_mut_ptr(), std::mem::size_of::<sys::$kind>() as u32) };
        crate::error::check(status)?;
        // SAFETY: written just now.
        unsafe { options.assume_init() }
    }};
}
pub(crate) use options;
