// SPDX-License-Identifier: Apache-2.0
//! The engine's side of the fake CUDA driver that the library's own tests use (libtest_cuda_driver.so): device memory is
//! the host's, and stays until the process ends.
#![allow(dead_code)] // each test program uses some of it

use libkvbm::Stream;
use std::ffi::{c_char, c_int, c_ulonglong, c_void, CString};
use std::path::PathBuf;

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Why there is none.
pub const NOT_BUILT: &str = "the fake CUDA driver is not built (test_cuda_driver, or KVBMTEST_CUDA_DRIVER)";

/// Where the fake is, if it was built.
pub fn driver() -> Option<String> {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../build/release/tests/libtest_cuda_driver.so");
    let path = std::env::var_os("KVBMTEST_CUDA_DRIVER").map_or_else(|| built.into(), PathBuf::from);
    path.exists().then(|| path.to_str().unwrap().into())
}

pub struct Fake(*mut c_void);

// SAFETY of the calls below: entries have the types that tests/support/modules/cuda_driver.cc gives them.
impl Fake {
    pub fn open(path: &str) -> Fake {
        let path = CString::new(path).unwrap();
        const RTLD_NOW: c_int = 2;
        // SAFETY: a library of the tests, which stays loaded.
        let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        assert!(!library.is_null());
        Fake(library)
    }
    fn entry(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is loaded.
        let found = unsafe { dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null());
        found
    }
    /// Sets it up.
    pub fn apply(&self, text: &str) {
        let apply: extern "C" fn(*const c_char) -> c_int =
            unsafe { std::mem::transmute(self.entry("kvbm_fake_apply")) };
        let text = CString::new(text).unwrap();
        assert!(apply(text.as_ptr()) != 0);
    }
    pub fn allocate(&self, device: u32, bytes: usize) -> *mut u8 {
        let allocate: extern "C" fn(c_int, usize) -> c_ulonglong =
            unsafe { std::mem::transmute(self.entry("kvbm_fake_allocate")) };
        allocate(device as c_int, bytes) as usize as *mut u8
    }
    pub fn stream(&self, device: u32) -> Stream {
        let make: extern "C" fn(c_int) -> *mut c_void =
            unsafe { std::mem::transmute(self.entry("kvbm_fake_make_stream")) };
        // The library lives as long as the process.
        unsafe { Stream::from_raw(make(device as c_int)) }
    }
    /// Enqueues a copy; false where there is no such stream.
    pub fn copy(&self, to: *mut u8, from: *const u8, bytes: usize, stream: Stream) -> bool {
        let copy: extern "C" fn(*mut u8, *const u8, usize, *mut c_void) -> c_int =
            unsafe { std::mem::transmute(self.entry("kvbm_fake_copy")) };
        copy(to, from, bytes, stream.as_raw()) != 0
    }
    /// Stops a stream until it is released.
    pub fn hold(&self, stream: Stream, on: bool) {
        self.set("kvbm_fake_hold", stream, on);
    }
    /// Begins and ends a capture into a graph.
    pub fn capture(&self, stream: Stream, on: bool) {
        self.set("kvbm_fake_capture", stream, on);
    }
    fn set(&self, name: &str, stream: Stream, on: bool) {
        let set: extern "C" fn(*mut c_void, c_int) = unsafe { std::mem::transmute(self.entry(name)) };
        set(stream.as_raw(), on.into());
    }
    pub fn synchronize(&self, stream: Stream) {
        let synchronize: extern "C" fn(*mut c_void) =
            unsafe { std::mem::transmute(self.entry("kvbm_fake_synchronize")) };
        synchronize(stream.as_raw());
    }
}
