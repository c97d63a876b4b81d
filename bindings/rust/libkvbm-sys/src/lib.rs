// SPDX-License-Identifier: Apache-2.0
//! Raw declarations of libkvbm's C API, one to one as `kvbm.h` has them; its comments say what each call does.
//! The crate `libkvbm` is the safe layer over them.
#![no_std]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, missing_docs)]
#![allow(clippy::all, rustdoc::all)]

include!("bindings.rs");

/// No deadline.
pub const KVBM_FOREVER: u64 = u64::MAX;
