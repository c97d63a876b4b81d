// SPDX-License-Identifier: Apache-2.0
//! Statuses and errors: what went wrong, in bands that name the remedy.

use std::ffi::{c_char, CStr};
use std::fmt;

use libkvbm_sys as sys;

/// Status of a call: 0 done, above 0 partly done, below 0 failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Status(pub i32);

macro_rules! statuses {
    ($($name:ident = $value:ident),* $(,)?) => {
        #[allow(missing_docs)] // each is what its name in kvbm.h says
        impl Status { $(pub const $name: Status = Status(sys::$value);)* }
    };
}
statuses! {
    OK = KVBM_OK, PARTIAL = KVBM_PARTIAL,
    INVALID = KVBM_ERR_INVALID, STALE = KVBM_ERR_STALE, FOREIGN = KVBM_ERR_FOREIGN, STATE = KVBM_ERR_STATE,
    FORKED = KVBM_ERR_FORKED, CONFIG = KVBM_ERR_CONFIG, IN_USE = KVBM_ERR_IN_USE, EXISTS = KVBM_ERR_EXISTS,
    NO_ROOM = KVBM_ERR_NO_ROOM, QUOTA = KVBM_ERR_QUOTA, AGAIN = KVBM_ERR_AGAIN, NO_MEMORY = KVBM_ERR_NO_MEMORY,
    DISK_FULL = KVBM_ERR_DISK_FULL, LIMIT = KVBM_ERR_LIMIT,
    DEADLINE = KVBM_ERR_DEADLINE, CANCELLED = KVBM_ERR_CANCELLED, OWNER_GONE = KVBM_ERR_OWNER_GONE,
    CLOSED = KVBM_ERR_CLOSED,
    MISS = KVBM_ERR_MISS, DAMAGED = KVBM_ERR_DAMAGED, MISMATCH = KVBM_ERR_MISMATCH,
    UNSUPPORTED = KVBM_ERR_UNSUPPORTED, VERSION = KVBM_ERR_VERSION, PERMISSION = KVBM_ERR_PERMISSION,
    INTERNAL = KVBM_ERR_INTERNAL, IO = KVBM_ERR_IO, TIER_DISABLED = KVBM_ERR_TIER_DISABLED,
}

/// The remedy that a failure calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Band {
    /// The call is wrong: fix the caller.
    Caller,
    /// No room: release, evict, wait or raise a limit.
    NoRoom,
    /// Time, peers and owners: retry, or go elsewhere.
    TimeOrPeer,
    /// Not here or not trustworthy: treat as a miss and compute.
    Miss,
    /// Not available here.
    Unavailable,
    /// The library's or the system's fault.
    Internal,
}

fn static_text(text: *const c_char) -> &'static str {
    // SAFETY: kvbm_status_name, _text and kvbm_version_string give static, zero-terminated strings and never NULL.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
}

impl Status {
    /// Its symbolic name, as `"KVBM_ERR_NO_ROOM"`.
    pub fn name(self) -> &'static str {
        // SAFETY: any number is allowed.
        static_text(unsafe { sys::kvbm_status_name(self.0) })
    }
    /// One sentence that says what it means and what to do.
    pub fn text(self) -> &'static str {
        // SAFETY: any number is allowed.
        static_text(unsafe { sys::kvbm_status_text(self.0) })
    }
    /// The band of a failure; `None` if it is none.
    pub fn band(self) -> Option<Band> {
        match self.0 {
            0.. => None,
            -199..=-100 => Some(Band::Caller),
            -299..=-200 => Some(Band::NoRoom),
            -399..=-300 => Some(Band::TimeOrPeer),
            -499..=-400 => Some(Band::Miss),
            -599..=-500 => Some(Band::Unavailable),
            _ => Some(Band::Internal),
        }
    }
    /// Whether everything was done.
    pub fn is_ok(self) -> bool {
        self == Status::OK
    }
    /// An error unless it is 0 or above.
    pub fn check(self) -> Result<Status> {
        if self.0 < 0 {
            Err(Error::from(self))
        } else {
            Ok(self)
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())
    }
}
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A failed call: its status, and in words what was refused, why, and what to do.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: Box<str>,
}

/// Result of calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(status: Status, message: impl Into<Box<str>>) -> Self {
        Error { status, message: message.into() }
    }
    pub(crate) fn invalid(message: impl Into<Box<str>>) -> Self {
        Error::new(Status::INVALID, message)
    }
    /// For callers of the raw layer: the error of a failed call without a `kvbm_error_t`, the last one that this thread has
    /// made, with what `kvbm_error_last` says of it.
    pub fn of_last_call(status: Status) -> Self {
        let mut said = 0;
        let error = explained(|slot| {
            // SAFETY: the slot is explained's.
            unsafe {
                sys::kvbm_error_last(slot);
                said = (*slot).status;
            }
            status.0
        });
        match error {
            Err(error) if said == status.0 => error,
            _ => status.into(),
        }
    }
    /// The status.
    pub fn status(&self) -> Status {
        self.status
    }
    /// The band of the status: what kind of remedy it calls for.
    pub fn band(&self) -> Band {
        self.status.band().unwrap_or(Band::Internal)
    }
    /// The particulars, or the status's sentence where there are none.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Error::new(status, status.text())
    }
}
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.name(), self.message)
    }
}
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl std::error::Error for Error {}

/// A refused transition: the blocks as they were, and why.
pub struct Refused<B> {
    /// The arguments, unchanged.
    pub blocks: B,
    /// Why it was refused.
    pub error: Error,
}

impl<B> fmt::Debug for Refused<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}
impl<B> fmt::Display for Refused<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}
impl<B> std::error::Error for Refused<B> {}
impl<B> From<Refused<B>> for Error {
    fn from(refused: Refused<B>) -> Self {
        refused.error
    }
}

/// An error unless `status` is 0 or above: of a call without a `kvbm_error_t` that this thread has just made.
pub(crate) fn check(status: sys::kvbm_status_t) -> Result<Status> {
    if status >= 0 {
        return Ok(Status(status));
    }
    Err(Error::of_last_call(Status(status)))
}

/// Runs a call that takes a `kvbm_error_t`.
pub(crate) fn explained(call: impl FnOnce(*mut sys::kvbm_error_t) -> sys::kvbm_status_t) -> Result<Status> {
    let mut slot = std::mem::MaybeUninit::<sys::kvbm_error_t>::uninit();
    // SAFETY: the slot is this function's; an empty text stands there if the call writes none.
    unsafe { std::ptr::addr_of_mut!((*slot.as_mut_ptr()).message).cast::<u8>().write(0) };
    let status = Status(call(slot.as_mut_ptr()));
    if status.0 >= 0 {
        return Ok(status);
    }
    // SAFETY: the message is zero-terminated, as it was before the call or as the call has written it.
    let message = unsafe { CStr::from_ptr(std::ptr::addr_of!((*slot.as_ptr()).message).cast()) };
    let message = message.to_string_lossy();
    if message.is_empty() {
        return Err(status.into());
    }
    Err(Error::new(status, message.into_owned()))
}

/// The version of the library that runs, as text.
pub fn version() -> &'static str {
    // SAFETY: no arguments.
    static_text(unsafe { sys::kvbm_version_string() })
}

/// Refuses a library that does not belong to these declarations. Before 1.0 a minor version may break the ABI.
pub(crate) fn check_version() -> Result<()> {
    // SAFETY: no arguments.
    let found = unsafe { sys::kvbm_version() };
    if version_fits(found) {
        return Ok(());
    }
    Err(Error::new(
        Status::VERSION,
        format!(
            "the crate libkvbm {} was made for libkvbm {}.{}, and the library that is loaded is {}; install that one, \
             or the crate of its version",
            env!("CARGO_PKG_VERSION"),
            sys::KVBM_VERSION_MAJOR,
            sys::KVBM_VERSION_MINOR,
            version()
        ),
    ))
}

fn version_fits(found: u32) -> bool {
    let (major, minor) = (found / 1_000_000, found / 1000 % 1000);
    major == sys::KVBM_VERSION_MAJOR
        && if major == 0 { minor == sys::KVBM_VERSION_MINOR } else { minor >= sys::KVBM_VERSION_MINOR }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_follow_the_hundreds() {
        assert_eq!(Status::STALE.band(), Some(Band::Caller));
        assert_eq!(Status::QUOTA.band(), Some(Band::NoRoom));
        assert_eq!(Status::DEADLINE.band(), Some(Band::TimeOrPeer));
        assert_eq!(Status::DAMAGED.band(), Some(Band::Miss));
        assert_eq!(Status::VERSION.band(), Some(Band::Unavailable));
        assert_eq!(Status::IO.band(), Some(Band::Internal));
        assert_eq!(Status::PARTIAL.band(), None);
        assert_eq!(Error::from(Status::NO_ROOM).to_string(), format!("KVBM_ERR_NO_ROOM: {}", Status::NO_ROOM.text()));
    }

    #[test]
    fn a_library_of_another_minor_version_is_refused() {
        assert!(version_fits(sys::KVBM_VERSION));
        assert!(version_fits(sys::KVBM_VERSION + 1));
        assert!(!version_fits(sys::KVBM_VERSION + 1000));
        assert!(!version_fits(1_000_000));
        assert!(check_version().is_ok());
    }
}
