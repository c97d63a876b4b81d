// SPDX-License-Identifier: Apache-2.0
// Made from include/kvbm.h by bindings/rust/libkvbm-sys/generate; do not edit.

pub const KVBM_NO_BLOCK: u32 = 4294967295;
pub const KVBM_NO_TIER: u32 = 4294967295;
pub const KVBM_CODEC_ALLOW_LOSSY: u32 = 1;
pub const KVBM_STORE_ABI: u32 = 1;
pub const KVBM_STORE_LISTED: u32 = 1;
pub const KVBM_STORE_NAME_BYTES: u32 = 160;
pub const KVBM_STORE_LIST_BYTES: u32 = 16384;
pub const KVBM_STORE_BLOCKS: u32 = 1;
pub const KVBM_STORE_EXPIRES: u32 = 2;
pub const KVBM_STORE_EVICTS: u32 = 4;
pub const KVBM_VERSION_MAJOR: u32 = 0;
pub const KVBM_VERSION_MINOR: u32 = 1;
pub const KVBM_VERSION_PATCH: u32 = 0;
pub const KVBM_VERSION: u32 = 1000;
pub const KVBM_MANAGER_SHARE: u32 = 1;
pub type kvbm_status_t = i32;
pub const KVBM_OK: _bindgen_ty_1 = 0;
pub const KVBM_PARTIAL: _bindgen_ty_1 = 1;
pub const KVBM_ERR_INVALID: _bindgen_ty_1 = -100;
pub const KVBM_ERR_STALE: _bindgen_ty_1 = -101;
pub const KVBM_ERR_FOREIGN: _bindgen_ty_1 = -102;
pub const KVBM_ERR_STATE: _bindgen_ty_1 = -103;
pub const KVBM_ERR_FORKED: _bindgen_ty_1 = -104;
pub const KVBM_ERR_CONFIG: _bindgen_ty_1 = -105;
pub const KVBM_ERR_IN_USE: _bindgen_ty_1 = -106;
pub const KVBM_ERR_EXISTS: _bindgen_ty_1 = -107;
pub const KVBM_ERR_NO_ROOM: _bindgen_ty_1 = -200;
pub const KVBM_ERR_QUOTA: _bindgen_ty_1 = -201;
pub const KVBM_ERR_AGAIN: _bindgen_ty_1 = -202;
pub const KVBM_ERR_NO_MEMORY: _bindgen_ty_1 = -203;
pub const KVBM_ERR_DISK_FULL: _bindgen_ty_1 = -204;
pub const KVBM_ERR_LIMIT: _bindgen_ty_1 = -205;
pub const KVBM_ERR_DEADLINE: _bindgen_ty_1 = -300;
pub const KVBM_ERR_CANCELLED: _bindgen_ty_1 = -301;
pub const KVBM_ERR_OWNER_GONE: _bindgen_ty_1 = -302;
pub const KVBM_ERR_CLOSED: _bindgen_ty_1 = -303;
pub const KVBM_ERR_MISS: _bindgen_ty_1 = -400;
pub const KVBM_ERR_DAMAGED: _bindgen_ty_1 = -401;
pub const KVBM_ERR_MISMATCH: _bindgen_ty_1 = -402;
pub const KVBM_ERR_UNSUPPORTED: _bindgen_ty_1 = -500;
pub const KVBM_ERR_VERSION: _bindgen_ty_1 = -501;
pub const KVBM_ERR_PERMISSION: _bindgen_ty_1 = -502;
pub const KVBM_ERR_INTERNAL: _bindgen_ty_1 = -600;
pub const KVBM_ERR_IO: _bindgen_ty_1 = -601;
pub const KVBM_ERR_TIER_DISABLED: _bindgen_ty_1 = -602;
pub type _bindgen_ty_1 = ::core::ffi::c_int;
extern "C" {
    pub fn kvbm_status_name(status: kvbm_status_t) -> *const ::core::ffi::c_char;
}
extern "C" {
    pub fn kvbm_status_text(status: kvbm_status_t) -> *const ::core::ffi::c_char;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_error {
    pub status: kvbm_status_t,
    pub reserved: u32,
    pub message: [::core::ffi::c_char; 504usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_error"][::core::mem::size_of::<kvbm_error>() - 512usize];
    ["Alignment of kvbm_error"][::core::mem::align_of::<kvbm_error>() - 4usize];
    ["Offset of field: kvbm_error::status"][::core::mem::offset_of!(kvbm_error, status) - 0usize];
    ["Offset of field: kvbm_error::reserved"][::core::mem::offset_of!(kvbm_error, reserved) - 4usize];
    ["Offset of field: kvbm_error::message"][::core::mem::offset_of!(kvbm_error, message) - 8usize];
};
impl Default for kvbm_error {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_error_t = kvbm_error;
extern "C" {
    pub fn kvbm_error_last(out_error: *mut kvbm_error_t) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_context {
    _unused: [u8; 0],
}
pub type kvbm_context_t = kvbm_context;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_queue {
    _unused: [u8; 0],
}
pub type kvbm_queue_t = kvbm_queue;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_geometry {
    _unused: [u8; 0],
}
pub type kvbm_geometry_t = kvbm_geometry;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_manager {
    _unused: [u8; 0],
}
pub type kvbm_manager_t = kvbm_manager;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_namespace {
    _unused: [u8; 0],
}
pub type kvbm_namespace_t = kvbm_namespace;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_cache {
    _unused: [u8; 0],
}
pub type kvbm_cache_t = kvbm_cache;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_match {
    _unused: [u8; 0],
}
pub type kvbm_match_t = kvbm_match;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_offer {
    _unused: [u8; 0],
}
pub type kvbm_offer_t = kvbm_offer;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_session {
    _unused: [u8; 0],
}
pub type kvbm_session_t = kvbm_session;
pub type kvbm_block_t = u64;
pub type kvbm_pin_t = u64;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_key {
    pub bytes: [u8; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_key"][::core::mem::size_of::<kvbm_key>() - 16usize];
    ["Alignment of kvbm_key"][::core::mem::align_of::<kvbm_key>() - 1usize];
    ["Offset of field: kvbm_key::bytes"][::core::mem::offset_of!(kvbm_key, bytes) - 0usize];
};
pub type kvbm_key_t = kvbm_key;
pub const KVBM_PRIORITY_NORMAL: _bindgen_ty_2 = 0;
pub const KVBM_PRIORITY_ONE_SHOT: _bindgen_ty_2 = 1;
pub const KVBM_PRIORITY_CONTINUES: _bindgen_ty_2 = 2;
pub const KVBM_PRIORITY_KEEP: _bindgen_ty_2 = 3;
pub type _bindgen_ty_2 = ::core::ffi::c_uint;
pub const KVBM_ELEMENT_BYTES: _bindgen_ty_3 = 0;
pub const KVBM_ELEMENT_BF16: _bindgen_ty_3 = 1;
pub const KVBM_ELEMENT_FP16: _bindgen_ty_3 = 2;
pub const KVBM_ELEMENT_FP32: _bindgen_ty_3 = 3;
pub const KVBM_ELEMENT_FP8_E4M3: _bindgen_ty_3 = 4;
pub const KVBM_ELEMENT_FP8_E5M2: _bindgen_ty_3 = 5;
pub const KVBM_ELEMENT_INT8: _bindgen_ty_3 = 6;
pub type _bindgen_ty_3 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_shard {
    pub first_layer: u16,
    pub layers: u16,
    pub first_head: u16,
    pub heads: u16,
    pub replicated: u16,
    pub reserved: [u16; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_shard"][::core::mem::size_of::<kvbm_shard>() - 16usize];
    ["Alignment of kvbm_shard"][::core::mem::align_of::<kvbm_shard>() - 2usize];
    ["Offset of field: kvbm_shard::first_layer"][::core::mem::offset_of!(kvbm_shard, first_layer) - 0usize];
    ["Offset of field: kvbm_shard::layers"][::core::mem::offset_of!(kvbm_shard, layers) - 2usize];
    ["Offset of field: kvbm_shard::first_head"][::core::mem::offset_of!(kvbm_shard, first_head) - 4usize];
    ["Offset of field: kvbm_shard::heads"][::core::mem::offset_of!(kvbm_shard, heads) - 6usize];
    ["Offset of field: kvbm_shard::replicated"][::core::mem::offset_of!(kvbm_shard, replicated) - 8usize];
    ["Offset of field: kvbm_shard::reserved"][::core::mem::offset_of!(kvbm_shard, reserved) - 10usize];
};
pub type kvbm_shard_t = kvbm_shard;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_part {
    pub component: u32,
    pub reserved: u32,
    pub shard: kvbm_shard_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_part"][::core::mem::size_of::<kvbm_part>() - 24usize];
    ["Alignment of kvbm_part"][::core::mem::align_of::<kvbm_part>() - 4usize];
    ["Offset of field: kvbm_part::component"][::core::mem::offset_of!(kvbm_part, component) - 0usize];
    ["Offset of field: kvbm_part::reserved"][::core::mem::offset_of!(kvbm_part, reserved) - 4usize];
    ["Offset of field: kvbm_part::shard"][::core::mem::offset_of!(kvbm_part, shard) - 8usize];
};
pub type kvbm_part_t = kvbm_part;
pub const KVBM_LOOKUP_PREFIX: _bindgen_ty_4 = 0;
pub const KVBM_LOOKUP_EACH: _bindgen_ty_4 = 1;
pub const KVBM_LOOKUP_ANY: _bindgen_ty_4 = 2;
pub type _bindgen_ty_4 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_lookup_options {
    pub struct_size: u32,
    pub mode: u32,
    pub parts: *const kvbm_part_t,
    pub n_parts: usize,
    pub host_only: u32,
    pub no_use: u32,
    pub unit_keys: *const kvbm_key_t,
    pub n_unit_keys: usize,
    pub ask_nodes_ns: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_lookup_options"][::core::mem::size_of::<kvbm_lookup_options>() - 56usize];
    ["Alignment of kvbm_lookup_options"][::core::mem::align_of::<kvbm_lookup_options>() - 8usize];
    ["Offset of field: kvbm_lookup_options::struct_size"]
        [::core::mem::offset_of!(kvbm_lookup_options, struct_size) - 0usize];
    ["Offset of field: kvbm_lookup_options::mode"][::core::mem::offset_of!(kvbm_lookup_options, mode) - 4usize];
    ["Offset of field: kvbm_lookup_options::parts"][::core::mem::offset_of!(kvbm_lookup_options, parts) - 8usize];
    ["Offset of field: kvbm_lookup_options::n_parts"][::core::mem::offset_of!(kvbm_lookup_options, n_parts) - 16usize];
    ["Offset of field: kvbm_lookup_options::host_only"]
        [::core::mem::offset_of!(kvbm_lookup_options, host_only) - 24usize];
    ["Offset of field: kvbm_lookup_options::no_use"][::core::mem::offset_of!(kvbm_lookup_options, no_use) - 28usize];
    ["Offset of field: kvbm_lookup_options::unit_keys"]
        [::core::mem::offset_of!(kvbm_lookup_options, unit_keys) - 32usize];
    ["Offset of field: kvbm_lookup_options::n_unit_keys"]
        [::core::mem::offset_of!(kvbm_lookup_options, n_unit_keys) - 40usize];
    ["Offset of field: kvbm_lookup_options::ask_nodes_ns"]
        [::core::mem::offset_of!(kvbm_lookup_options, ask_nodes_ns) - 48usize];
};
impl Default for kvbm_lookup_options {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_lookup_options_t = kvbm_lookup_options;
extern "C" {
    pub fn kvbm_lookup_options_init(out_options: *mut kvbm_lookup_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_lookup(
        manager: *mut kvbm_manager_t,
        ns: *mut kvbm_namespace_t,
        keys: *const kvbm_key_t,
        n_keys: usize,
        options: *const kvbm_lookup_options_t,
        out_match: *mut *mut kvbm_match_t,
        out_n: *mut usize,
    ) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_match_item {
    pub tier: u32,
    pub parts_needed: u32,
    pub bytes: u64,
    pub below_bytes: u64,
    pub reserved: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_match_item"][::core::mem::size_of::<kvbm_match_item>() - 32usize];
    ["Alignment of kvbm_match_item"][::core::mem::align_of::<kvbm_match_item>() - 8usize];
    ["Offset of field: kvbm_match_item::tier"][::core::mem::offset_of!(kvbm_match_item, tier) - 0usize];
    ["Offset of field: kvbm_match_item::parts_needed"][::core::mem::offset_of!(kvbm_match_item, parts_needed) - 4usize];
    ["Offset of field: kvbm_match_item::bytes"][::core::mem::offset_of!(kvbm_match_item, bytes) - 8usize];
    ["Offset of field: kvbm_match_item::below_bytes"][::core::mem::offset_of!(kvbm_match_item, below_bytes) - 16usize];
    ["Offset of field: kvbm_match_item::reserved"][::core::mem::offset_of!(kvbm_match_item, reserved) - 24usize];
};
pub type kvbm_match_item_t = kvbm_match_item;
extern "C" {
    pub fn kvbm_match_count(match_: *const kvbm_match_t) -> usize;
}
extern "C" {
    pub fn kvbm_match_units(match_: *const kvbm_match_t) -> usize;
}
extern "C" {
    pub fn kvbm_match_items(
        match_: *const kvbm_match_t,
        first: usize,
        n: usize,
        out_items: *mut kvbm_match_item_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_match_blocks(
        match_: *mut kvbm_match_t,
        part: u32,
        first: usize,
        n: usize,
        out_blocks: *mut kvbm_block_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_match_cost(match_: *const kvbm_match_t, first: usize, n: usize, out_load_ns: *mut u64)
        -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_match_release(match_: *mut kvbm_match_t);
}
pub const KVBM_FORM_NHD: _bindgen_ty_5 = 0;
pub const KVBM_FORM_HND: _bindgen_ty_5 = 1;
pub const KVBM_FORM_BLOCKS_NHD: _bindgen_ty_5 = 2;
pub const KVBM_FORM_BLOCKS_HND: _bindgen_ty_5 = 3;
pub const KVBM_FORM_PACKED_NHD: _bindgen_ty_5 = 4;
pub const KVBM_FORM_PACKED_HND: _bindgen_ty_5 = 5;
pub const KVBM_FORM_SPLIT_NHD: _bindgen_ty_5 = 6;
pub const KVBM_FORM_SPLIT_HND: _bindgen_ty_5 = 7;
pub const KVBM_FORM_LAYERS_NHD: _bindgen_ty_5 = 8;
pub const KVBM_FORM_LAYERS_HND: _bindgen_ty_5 = 9;
pub const KVBM_FORM_CROSS_NHD: _bindgen_ty_5 = 10;
pub const KVBM_FORM_CROSS_HND: _bindgen_ty_5 = 11;
pub const KVBM_FORM_CROSS_PACKED_LNH: _bindgen_ty_5 = 12;
pub const KVBM_FORM_CROSS_PACKED_LHN: _bindgen_ty_5 = 13;
pub const KVBM_FORM_CROSS_PACKED_HLN: _bindgen_ty_5 = 14;
pub const KVBM_FORM_HEADS_PACKED: _bindgen_ty_5 = 15;
pub const KVBM_FORM_SGLANG_LAYER_FIRST: _bindgen_ty_5 = 16;
pub const KVBM_FORM_SGLANG_PAGE_FIRST: _bindgen_ty_5 = 17;
pub const KVBM_FORM_SGLANG_PAGE_FIRST_DIRECT: _bindgen_ty_5 = 18;
pub const KVBM_FORM_SGLANG_PAGE_HEAD: _bindgen_ty_5 = 19;
pub const KVBM_FORM_OPAQUE: _bindgen_ty_5 = 100;
pub type _bindgen_ty_5 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_tensor {
    pub data: *mut ::core::ffi::c_void,
    pub bytes: u64,
    pub block_stride: u64,
    pub page_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_tensor"][::core::mem::size_of::<kvbm_tensor>() - 32usize];
    ["Alignment of kvbm_tensor"][::core::mem::align_of::<kvbm_tensor>() - 8usize];
    ["Offset of field: kvbm_tensor::data"][::core::mem::offset_of!(kvbm_tensor, data) - 0usize];
    ["Offset of field: kvbm_tensor::bytes"][::core::mem::offset_of!(kvbm_tensor, bytes) - 8usize];
    ["Offset of field: kvbm_tensor::block_stride"][::core::mem::offset_of!(kvbm_tensor, block_stride) - 16usize];
    ["Offset of field: kvbm_tensor::page_bytes"][::core::mem::offset_of!(kvbm_tensor, page_bytes) - 24usize];
};
impl Default for kvbm_tensor {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_tensor_t = kvbm_tensor;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_cache_part {
    pub part: kvbm_part_t,
    pub form: u32,
    pub reserved: u32,
    pub tensors: *const kvbm_tensor_t,
    pub n_tensors: usize,
    pub reserved2: [u64; 2usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_cache_part"][::core::mem::size_of::<kvbm_cache_part>() - 64usize];
    ["Alignment of kvbm_cache_part"][::core::mem::align_of::<kvbm_cache_part>() - 8usize];
    ["Offset of field: kvbm_cache_part::part"][::core::mem::offset_of!(kvbm_cache_part, part) - 0usize];
    ["Offset of field: kvbm_cache_part::form"][::core::mem::offset_of!(kvbm_cache_part, form) - 24usize];
    ["Offset of field: kvbm_cache_part::reserved"][::core::mem::offset_of!(kvbm_cache_part, reserved) - 28usize];
    ["Offset of field: kvbm_cache_part::tensors"][::core::mem::offset_of!(kvbm_cache_part, tensors) - 32usize];
    ["Offset of field: kvbm_cache_part::n_tensors"][::core::mem::offset_of!(kvbm_cache_part, n_tensors) - 40usize];
    ["Offset of field: kvbm_cache_part::reserved2"][::core::mem::offset_of!(kvbm_cache_part, reserved2) - 48usize];
};
impl Default for kvbm_cache_part {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_cache_part_t = kvbm_cache_part;
pub const KVBM_MEMORY_AUTO: _bindgen_ty_6 = 0;
pub const KVBM_MEMORY_HOST: _bindgen_ty_6 = 1;
pub const KVBM_MEMORY_CUDA: _bindgen_ty_6 = 2;
pub type _bindgen_ty_6 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_cache_options {
    pub struct_size: u32,
    pub n_blocks: u32,
    pub parts: *const kvbm_cache_part_t,
    pub n_parts: usize,
    pub memory: u32,
    pub device: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_cache_options"][::core::mem::size_of::<kvbm_cache_options>() - 32usize];
    ["Alignment of kvbm_cache_options"][::core::mem::align_of::<kvbm_cache_options>() - 8usize];
    ["Offset of field: kvbm_cache_options::struct_size"]
        [::core::mem::offset_of!(kvbm_cache_options, struct_size) - 0usize];
    ["Offset of field: kvbm_cache_options::n_blocks"][::core::mem::offset_of!(kvbm_cache_options, n_blocks) - 4usize];
    ["Offset of field: kvbm_cache_options::parts"][::core::mem::offset_of!(kvbm_cache_options, parts) - 8usize];
    ["Offset of field: kvbm_cache_options::n_parts"][::core::mem::offset_of!(kvbm_cache_options, n_parts) - 16usize];
    ["Offset of field: kvbm_cache_options::memory"][::core::mem::offset_of!(kvbm_cache_options, memory) - 24usize];
    ["Offset of field: kvbm_cache_options::device"][::core::mem::offset_of!(kvbm_cache_options, device) - 28usize];
};
impl Default for kvbm_cache_options {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_cache_options_t = kvbm_cache_options;
extern "C" {
    pub fn kvbm_cache_options_init(out_options: *mut kvbm_cache_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_cache_attach(
        manager: *mut kvbm_manager_t,
        ns: *mut kvbm_namespace_t,
        options: *const kvbm_cache_options_t,
        out_cache: *mut *mut kvbm_cache_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_cache_release(cache: *mut kvbm_cache_t);
}
extern "C" {
    pub fn kvbm_cache_lookup(
        cache: *mut kvbm_cache_t,
        keys: *const kvbm_key_t,
        n_keys: usize,
        options: *const kvbm_lookup_options_t,
        out_match: *mut *mut kvbm_match_t,
        out_n: *mut usize,
    ) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_position {
    pub first_token: u64,
    pub rotation: u64,
    pub left_context: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_position"][::core::mem::size_of::<kvbm_position>() - 24usize];
    ["Alignment of kvbm_position"][::core::mem::align_of::<kvbm_position>() - 8usize];
    ["Offset of field: kvbm_position::first_token"][::core::mem::offset_of!(kvbm_position, first_token) - 0usize];
    ["Offset of field: kvbm_position::rotation"][::core::mem::offset_of!(kvbm_position, rotation) - 8usize];
    ["Offset of field: kvbm_position::left_context"][::core::mem::offset_of!(kvbm_position, left_context) - 16usize];
};
pub type kvbm_position_t = kvbm_position;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_store_options {
    pub struct_size: u32,
    pub priority: u32,
    pub parent: *const kvbm_key_t,
    pub unchained: u32,
    pub reserved: u32,
    pub positions: *const kvbm_position_t,
    pub timeout_ns: u64,
    pub item_status: *mut kvbm_status_t,
    pub out_operation: *mut u64,
    pub unit_keys: *const kvbm_key_t,
    pub stream: *mut ::core::ffi::c_void,
    pub has_stream: u32,
    pub reserved2: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_store_options"][::core::mem::size_of::<kvbm_store_options>() - 80usize];
    ["Alignment of kvbm_store_options"][::core::mem::align_of::<kvbm_store_options>() - 8usize];
    ["Offset of field: kvbm_store_options::struct_size"]
        [::core::mem::offset_of!(kvbm_store_options, struct_size) - 0usize];
    ["Offset of field: kvbm_store_options::priority"][::core::mem::offset_of!(kvbm_store_options, priority) - 4usize];
    ["Offset of field: kvbm_store_options::parent"][::core::mem::offset_of!(kvbm_store_options, parent) - 8usize];
    ["Offset of field: kvbm_store_options::unchained"]
        [::core::mem::offset_of!(kvbm_store_options, unchained) - 16usize];
    ["Offset of field: kvbm_store_options::reserved"][::core::mem::offset_of!(kvbm_store_options, reserved) - 20usize];
    ["Offset of field: kvbm_store_options::positions"]
        [::core::mem::offset_of!(kvbm_store_options, positions) - 24usize];
    ["Offset of field: kvbm_store_options::timeout_ns"]
        [::core::mem::offset_of!(kvbm_store_options, timeout_ns) - 32usize];
    ["Offset of field: kvbm_store_options::item_status"]
        [::core::mem::offset_of!(kvbm_store_options, item_status) - 40usize];
    ["Offset of field: kvbm_store_options::out_operation"]
        [::core::mem::offset_of!(kvbm_store_options, out_operation) - 48usize];
    ["Offset of field: kvbm_store_options::unit_keys"]
        [::core::mem::offset_of!(kvbm_store_options, unit_keys) - 56usize];
    ["Offset of field: kvbm_store_options::stream"][::core::mem::offset_of!(kvbm_store_options, stream) - 64usize];
    ["Offset of field: kvbm_store_options::has_stream"]
        [::core::mem::offset_of!(kvbm_store_options, has_stream) - 72usize];
    ["Offset of field: kvbm_store_options::reserved2"]
        [::core::mem::offset_of!(kvbm_store_options, reserved2) - 76usize];
};
impl Default for kvbm_store_options {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_store_options_t = kvbm_store_options;
extern "C" {
    pub fn kvbm_store_options_init(out_options: *mut kvbm_store_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_cache_store(
        cache: *mut kvbm_cache_t,
        keys: *const kvbm_key_t,
        block_ids: *const u32,
        n_keys: usize,
        options: *const kvbm_store_options_t,
        queue: *mut kvbm_queue_t,
        user_data: u64,
    ) -> kvbm_status_t;
}
pub const KVBM_WAIT_LAYERS_OFF: _bindgen_ty_7 = 0;
pub const KVBM_WAIT_LAYERS_ON_DEVICE: _bindgen_ty_7 = 1;
pub const KVBM_WAIT_LAYERS_ISSUED: _bindgen_ty_7 = 2;
pub type _bindgen_ty_7 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_load_options {
    pub struct_size: u32,
    pub first_key: u32,
    pub any_position: u32,
    pub first_layer: u32,
    pub n_layers: u32,
    pub keep_below: u32,
    pub positions: *const kvbm_position_t,
    pub timeout_ns: u64,
    pub item_status: *mut kvbm_status_t,
    pub out_operation: *mut u64,
    pub compute_block_ns: u64,
    pub stream: *mut ::core::ffi::c_void,
    pub has_stream: u32,
    pub wait_layers: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_load_options"][::core::mem::size_of::<kvbm_load_options>() - 80usize];
    ["Alignment of kvbm_load_options"][::core::mem::align_of::<kvbm_load_options>() - 8usize];
    ["Offset of field: kvbm_load_options::struct_size"]
        [::core::mem::offset_of!(kvbm_load_options, struct_size) - 0usize];
    ["Offset of field: kvbm_load_options::first_key"][::core::mem::offset_of!(kvbm_load_options, first_key) - 4usize];
    ["Offset of field: kvbm_load_options::any_position"]
        [::core::mem::offset_of!(kvbm_load_options, any_position) - 8usize];
    ["Offset of field: kvbm_load_options::first_layer"]
        [::core::mem::offset_of!(kvbm_load_options, first_layer) - 12usize];
    ["Offset of field: kvbm_load_options::n_layers"][::core::mem::offset_of!(kvbm_load_options, n_layers) - 16usize];
    ["Offset of field: kvbm_load_options::keep_below"]
        [::core::mem::offset_of!(kvbm_load_options, keep_below) - 20usize];
    ["Offset of field: kvbm_load_options::positions"][::core::mem::offset_of!(kvbm_load_options, positions) - 24usize];
    ["Offset of field: kvbm_load_options::timeout_ns"]
        [::core::mem::offset_of!(kvbm_load_options, timeout_ns) - 32usize];
    ["Offset of field: kvbm_load_options::item_status"]
        [::core::mem::offset_of!(kvbm_load_options, item_status) - 40usize];
    ["Offset of field: kvbm_load_options::out_operation"]
        [::core::mem::offset_of!(kvbm_load_options, out_operation) - 48usize];
    ["Offset of field: kvbm_load_options::compute_block_ns"]
        [::core::mem::offset_of!(kvbm_load_options, compute_block_ns) - 56usize];
    ["Offset of field: kvbm_load_options::stream"][::core::mem::offset_of!(kvbm_load_options, stream) - 64usize];
    ["Offset of field: kvbm_load_options::has_stream"]
        [::core::mem::offset_of!(kvbm_load_options, has_stream) - 72usize];
    ["Offset of field: kvbm_load_options::wait_layers"]
        [::core::mem::offset_of!(kvbm_load_options, wait_layers) - 76usize];
};
impl Default for kvbm_load_options {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_load_options_t = kvbm_load_options;
extern "C" {
    pub fn kvbm_load_options_init(out_options: *mut kvbm_load_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_cache_load(
        cache: *mut kvbm_cache_t,
        match_: *mut kvbm_match_t,
        block_ids: *const u32,
        n_block_ids: usize,
        options: *const kvbm_load_options_t,
        queue: *mut kvbm_queue_t,
        user_data: u64,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_cache_wait_layer(
        cache: *mut kvbm_cache_t,
        operation: u64,
        layer: u32,
        stream: *mut ::core::ffi::c_void,
    ) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_cache_code_options {
    pub struct_size: u32,
    pub part: u32,
    pub element: u32,
    pub row_elements: u32,
    pub rows: u32,
    pub flags: u32,
    pub stream: *mut ::core::ffi::c_void,
    pub has_stream: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_cache_code_options"][::core::mem::size_of::<kvbm_cache_code_options>() - 40usize];
    ["Alignment of kvbm_cache_code_options"][::core::mem::align_of::<kvbm_cache_code_options>() - 8usize];
    ["Offset of field: kvbm_cache_code_options::struct_size"]
        [::core::mem::offset_of!(kvbm_cache_code_options, struct_size) - 0usize];
    ["Offset of field: kvbm_cache_code_options::part"][::core::mem::offset_of!(kvbm_cache_code_options, part) - 4usize];
    ["Offset of field: kvbm_cache_code_options::element"]
        [::core::mem::offset_of!(kvbm_cache_code_options, element) - 8usize];
    ["Offset of field: kvbm_cache_code_options::row_elements"]
        [::core::mem::offset_of!(kvbm_cache_code_options, row_elements) - 12usize];
    ["Offset of field: kvbm_cache_code_options::rows"]
        [::core::mem::offset_of!(kvbm_cache_code_options, rows) - 16usize];
    ["Offset of field: kvbm_cache_code_options::flags"]
        [::core::mem::offset_of!(kvbm_cache_code_options, flags) - 20usize];
    ["Offset of field: kvbm_cache_code_options::stream"]
        [::core::mem::offset_of!(kvbm_cache_code_options, stream) - 24usize];
    ["Offset of field: kvbm_cache_code_options::has_stream"]
        [::core::mem::offset_of!(kvbm_cache_code_options, has_stream) - 32usize];
    ["Offset of field: kvbm_cache_code_options::reserved"]
        [::core::mem::offset_of!(kvbm_cache_code_options, reserved) - 36usize];
};
impl Default for kvbm_cache_code_options {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_cache_code_options_t = kvbm_cache_code_options;
extern "C" {
    pub fn kvbm_cache_code_options_init(out_options: *mut kvbm_cache_code_options_t, struct_size: u32)
        -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_cache_code_room(
        cache: *mut kvbm_cache_t,
        n_blocks: usize,
        options: *const kvbm_cache_code_options_t,
        out_bytes: *mut u64,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_cache_encode(
        cache: *mut kvbm_cache_t,
        block_ids: *const u32,
        n_blocks: usize,
        mode: u32,
        options: *const kvbm_cache_code_options_t,
        out: *mut ::core::ffi::c_void,
        capacity: usize,
        out_bytes: *mut usize,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_cache_decode(
        cache: *mut kvbm_cache_t,
        coded: *const ::core::ffi::c_void,
        coded_bytes: usize,
        block_ids: *const u32,
        n_blocks: usize,
        options: *const kvbm_cache_code_options_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
pub const KVBM_CODEC_OFF: _bindgen_ty_8 = 0;
pub const KVBM_CODEC_FAST: _bindgen_ty_8 = 1;
pub const KVBM_CODEC_DEFAULT: _bindgen_ty_8 = 2;
pub const KVBM_CODEC_MAX: _bindgen_ty_8 = 3;
pub const KVBM_CODEC_ZSTD: _bindgen_ty_8 = 4;
pub const KVBM_CODEC_FP8_E4M3: _bindgen_ty_8 = 16;
pub const KVBM_CODEC_FP8_E5M2: _bindgen_ty_8 = 17;
pub const KVBM_CODEC_INT8: _bindgen_ty_8 = 18;
pub const KVBM_CODEC_INT6: _bindgen_ty_8 = 19;
pub const KVBM_CODEC_INT4: _bindgen_ty_8 = 20;
pub const KVBM_CODEC_INT8_CODED: _bindgen_ty_8 = 21;
pub const KVBM_CODEC_INT6_CODED: _bindgen_ty_8 = 22;
pub const KVBM_CODEC_INT4_CODED: _bindgen_ty_8 = 23;
pub const KVBM_CODEC_DELTA: _bindgen_ty_8 = 24;
pub type _bindgen_ty_8 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_codec_options {
    pub struct_size: u32,
    pub element: u32,
    pub row_elements: u32,
    pub rows: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_codec_options"][::core::mem::size_of::<kvbm_codec_options>() - 16usize];
    ["Alignment of kvbm_codec_options"][::core::mem::align_of::<kvbm_codec_options>() - 4usize];
    ["Offset of field: kvbm_codec_options::struct_size"]
        [::core::mem::offset_of!(kvbm_codec_options, struct_size) - 0usize];
    ["Offset of field: kvbm_codec_options::element"][::core::mem::offset_of!(kvbm_codec_options, element) - 4usize];
    ["Offset of field: kvbm_codec_options::row_elements"]
        [::core::mem::offset_of!(kvbm_codec_options, row_elements) - 8usize];
    ["Offset of field: kvbm_codec_options::rows"][::core::mem::offset_of!(kvbm_codec_options, rows) - 12usize];
};
pub type kvbm_codec_options_t = kvbm_codec_options;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_codec_info {
    pub struct_size: u32,
    pub mode: u32,
    pub element: u32,
    pub row_elements: u32,
    pub rows: u32,
    pub lossy: u32,
    pub leaves: u32,
    pub raw_leaves: u32,
    pub raw_bytes: u64,
    pub coded_bytes: u64,
    pub error_ppb: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_codec_info"][::core::mem::size_of::<kvbm_codec_info>() - 56usize];
    ["Alignment of kvbm_codec_info"][::core::mem::align_of::<kvbm_codec_info>() - 8usize];
    ["Offset of field: kvbm_codec_info::struct_size"][::core::mem::offset_of!(kvbm_codec_info, struct_size) - 0usize];
    ["Offset of field: kvbm_codec_info::mode"][::core::mem::offset_of!(kvbm_codec_info, mode) - 4usize];
    ["Offset of field: kvbm_codec_info::element"][::core::mem::offset_of!(kvbm_codec_info, element) - 8usize];
    ["Offset of field: kvbm_codec_info::row_elements"]
        [::core::mem::offset_of!(kvbm_codec_info, row_elements) - 12usize];
    ["Offset of field: kvbm_codec_info::rows"][::core::mem::offset_of!(kvbm_codec_info, rows) - 16usize];
    ["Offset of field: kvbm_codec_info::lossy"][::core::mem::offset_of!(kvbm_codec_info, lossy) - 20usize];
    ["Offset of field: kvbm_codec_info::leaves"][::core::mem::offset_of!(kvbm_codec_info, leaves) - 24usize];
    ["Offset of field: kvbm_codec_info::raw_leaves"][::core::mem::offset_of!(kvbm_codec_info, raw_leaves) - 28usize];
    ["Offset of field: kvbm_codec_info::raw_bytes"][::core::mem::offset_of!(kvbm_codec_info, raw_bytes) - 32usize];
    ["Offset of field: kvbm_codec_info::coded_bytes"][::core::mem::offset_of!(kvbm_codec_info, coded_bytes) - 40usize];
    ["Offset of field: kvbm_codec_info::error_ppb"][::core::mem::offset_of!(kvbm_codec_info, error_ppb) - 48usize];
};
pub type kvbm_codec_info_t = kvbm_codec_info;
extern "C" {
    pub fn kvbm_codec_mode_name(mode: u32) -> *const ::core::ffi::c_char;
}
extern "C" {
    pub fn kvbm_codec_mode_by_name(
        name: *const ::core::ffi::c_char,
        out_mode: *mut u32,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_codec_kernel() -> *const ::core::ffi::c_char;
}
extern "C" {
    pub fn kvbm_codec_options_init(out_options: *mut kvbm_codec_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_codec_room(
        raw_bytes: u64,
        options: *const kvbm_codec_options_t,
        out_bytes: *mut u64,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_codec_encode(
        raw: *const ::core::ffi::c_void,
        raw_bytes: usize,
        mode: u32,
        options: *const kvbm_codec_options_t,
        out: *mut ::core::ffi::c_void,
        capacity: usize,
        out_bytes: *mut usize,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_codec_inspect(
        coded: *const ::core::ffi::c_void,
        coded_bytes: usize,
        out_info: *mut kvbm_codec_info_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_codec_decode(
        coded: *const ::core::ffi::c_void,
        coded_bytes: usize,
        flags: u32,
        out_raw: *mut ::core::ffi::c_void,
        capacity: usize,
        out_bytes: *mut usize,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_device_moves {
    pub batches: u64,
    pub leaves: u64,
    pub bytes: u64,
    pub bad_leaves: u64,
    pub mapped_leaves: u64,
    pub staged_leaves: u64,
    pub straight_leaves: u64,
    pub bounced_leaves: u64,
    pub device_ns: u64,
    pub reserved: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_device_moves"][::core::mem::size_of::<kvbm_device_moves>() - 80usize];
    ["Alignment of kvbm_device_moves"][::core::mem::align_of::<kvbm_device_moves>() - 8usize];
    ["Offset of field: kvbm_device_moves::batches"][::core::mem::offset_of!(kvbm_device_moves, batches) - 0usize];
    ["Offset of field: kvbm_device_moves::leaves"][::core::mem::offset_of!(kvbm_device_moves, leaves) - 8usize];
    ["Offset of field: kvbm_device_moves::bytes"][::core::mem::offset_of!(kvbm_device_moves, bytes) - 16usize];
    ["Offset of field: kvbm_device_moves::bad_leaves"]
        [::core::mem::offset_of!(kvbm_device_moves, bad_leaves) - 24usize];
    ["Offset of field: kvbm_device_moves::mapped_leaves"]
        [::core::mem::offset_of!(kvbm_device_moves, mapped_leaves) - 32usize];
    ["Offset of field: kvbm_device_moves::staged_leaves"]
        [::core::mem::offset_of!(kvbm_device_moves, staged_leaves) - 40usize];
    ["Offset of field: kvbm_device_moves::straight_leaves"]
        [::core::mem::offset_of!(kvbm_device_moves, straight_leaves) - 48usize];
    ["Offset of field: kvbm_device_moves::bounced_leaves"]
        [::core::mem::offset_of!(kvbm_device_moves, bounced_leaves) - 56usize];
    ["Offset of field: kvbm_device_moves::device_ns"][::core::mem::offset_of!(kvbm_device_moves, device_ns) - 64usize];
    ["Offset of field: kvbm_device_moves::reserved"][::core::mem::offset_of!(kvbm_device_moves, reserved) - 72usize];
};
pub type kvbm_device_moves_t = kvbm_device_moves;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_device_row {
    pub ordinal: u32,
    pub lost: u32,
    pub name: [::core::ffi::c_char; 96usize],
    pub pci: [::core::ffi::c_char; 32usize],
    pub state: [::core::ffi::c_char; 128usize],
    pub memory_bytes: u64,
    pub pinned_bytes: u64,
    pub gathers: kvbm_device_moves_t,
    pub scatters: kvbm_device_moves_t,
    pub reserved: [u64; 5usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_device_row"][::core::mem::size_of::<kvbm_device_row>() - 480usize];
    ["Alignment of kvbm_device_row"][::core::mem::align_of::<kvbm_device_row>() - 8usize];
    ["Offset of field: kvbm_device_row::ordinal"][::core::mem::offset_of!(kvbm_device_row, ordinal) - 0usize];
    ["Offset of field: kvbm_device_row::lost"][::core::mem::offset_of!(kvbm_device_row, lost) - 4usize];
    ["Offset of field: kvbm_device_row::name"][::core::mem::offset_of!(kvbm_device_row, name) - 8usize];
    ["Offset of field: kvbm_device_row::pci"][::core::mem::offset_of!(kvbm_device_row, pci) - 104usize];
    ["Offset of field: kvbm_device_row::state"][::core::mem::offset_of!(kvbm_device_row, state) - 136usize];
    ["Offset of field: kvbm_device_row::memory_bytes"]
        [::core::mem::offset_of!(kvbm_device_row, memory_bytes) - 264usize];
    ["Offset of field: kvbm_device_row::pinned_bytes"]
        [::core::mem::offset_of!(kvbm_device_row, pinned_bytes) - 272usize];
    ["Offset of field: kvbm_device_row::gathers"][::core::mem::offset_of!(kvbm_device_row, gathers) - 280usize];
    ["Offset of field: kvbm_device_row::scatters"][::core::mem::offset_of!(kvbm_device_row, scatters) - 360usize];
    ["Offset of field: kvbm_device_row::reserved"][::core::mem::offset_of!(kvbm_device_row, reserved) - 440usize];
};
impl Default for kvbm_device_row {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_device_row_t = kvbm_device_row;
extern "C" {
    pub fn kvbm_manager_devices(
        manager: *mut kvbm_manager_t,
        out_rows: *mut kvbm_device_row_t,
        capacity: usize,
        out_n: *mut usize,
    ) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_node_row {
    pub node: [u8; 16usize],
    pub address: [::core::ffi::c_char; 96usize],
    pub state: [::core::ffi::c_char; 128usize],
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub records: u64,
    pub fetched_bytes: u64,
    pub served_bytes: u64,
    pub path: [::core::ffi::c_char; 16usize],
    pub path_reason: [::core::ffi::c_char; 128usize],
    pub local_bytes: u64,
    pub codec: u8,
    pub codec_automatic: u8,
    pub codec_sealed: u8,
    pub codec_reserved: u8,
    pub codec_refused: u32,
    pub codec_plain_bytes: u64,
    pub codec_stored_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_node_row"][::core::mem::size_of::<kvbm_node_row>() - 456usize];
    ["Alignment of kvbm_node_row"][::core::mem::align_of::<kvbm_node_row>() - 8usize];
    ["Offset of field: kvbm_node_row::node"][::core::mem::offset_of!(kvbm_node_row, node) - 0usize];
    ["Offset of field: kvbm_node_row::address"][::core::mem::offset_of!(kvbm_node_row, address) - 16usize];
    ["Offset of field: kvbm_node_row::state"][::core::mem::offset_of!(kvbm_node_row, state) - 112usize];
    ["Offset of field: kvbm_node_row::capacity_bytes"]
        [::core::mem::offset_of!(kvbm_node_row, capacity_bytes) - 240usize];
    ["Offset of field: kvbm_node_row::used_bytes"][::core::mem::offset_of!(kvbm_node_row, used_bytes) - 248usize];
    ["Offset of field: kvbm_node_row::records"][::core::mem::offset_of!(kvbm_node_row, records) - 256usize];
    ["Offset of field: kvbm_node_row::fetched_bytes"][::core::mem::offset_of!(kvbm_node_row, fetched_bytes) - 264usize];
    ["Offset of field: kvbm_node_row::served_bytes"][::core::mem::offset_of!(kvbm_node_row, served_bytes) - 272usize];
    ["Offset of field: kvbm_node_row::path"][::core::mem::offset_of!(kvbm_node_row, path) - 280usize];
    ["Offset of field: kvbm_node_row::path_reason"][::core::mem::offset_of!(kvbm_node_row, path_reason) - 296usize];
    ["Offset of field: kvbm_node_row::local_bytes"][::core::mem::offset_of!(kvbm_node_row, local_bytes) - 424usize];
    ["Offset of field: kvbm_node_row::codec"][::core::mem::offset_of!(kvbm_node_row, codec) - 432usize];
    ["Offset of field: kvbm_node_row::codec_automatic"]
        [::core::mem::offset_of!(kvbm_node_row, codec_automatic) - 433usize];
    ["Offset of field: kvbm_node_row::codec_sealed"][::core::mem::offset_of!(kvbm_node_row, codec_sealed) - 434usize];
    ["Offset of field: kvbm_node_row::codec_reserved"]
        [::core::mem::offset_of!(kvbm_node_row, codec_reserved) - 435usize];
    ["Offset of field: kvbm_node_row::codec_refused"][::core::mem::offset_of!(kvbm_node_row, codec_refused) - 436usize];
    ["Offset of field: kvbm_node_row::codec_plain_bytes"]
        [::core::mem::offset_of!(kvbm_node_row, codec_plain_bytes) - 440usize];
    ["Offset of field: kvbm_node_row::codec_stored_bytes"]
        [::core::mem::offset_of!(kvbm_node_row, codec_stored_bytes) - 448usize];
};
impl Default for kvbm_node_row {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_node_row_t = kvbm_node_row;
extern "C" {
    pub fn kvbm_manager_nodes(
        manager: *mut kvbm_manager_t,
        out_rows: *mut kvbm_node_row_t,
        capacity: usize,
        out_n: *mut usize,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_node_address(
        manager: *mut kvbm_manager_t,
        out: *mut ::core::ffi::c_char,
        capacity: usize,
        out_needed: *mut usize,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_wait_for_peers(
        manager: *mut kvbm_manager_t,
        timeout_ns: u64,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_locate_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub parts: *const kvbm_part_t,
    pub n_parts: usize,
    pub request_keys: *const usize,
    pub n_requests: usize,
    pub ask_nodes_ns: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_locate_options"][::core::mem::size_of::<kvbm_locate_options>() - 48usize];
    ["Alignment of kvbm_locate_options"][::core::mem::align_of::<kvbm_locate_options>() - 8usize];
    ["Offset of field: kvbm_locate_options::struct_size"]
        [::core::mem::offset_of!(kvbm_locate_options, struct_size) - 0usize];
    ["Offset of field: kvbm_locate_options::reserved"][::core::mem::offset_of!(kvbm_locate_options, reserved) - 4usize];
    ["Offset of field: kvbm_locate_options::parts"][::core::mem::offset_of!(kvbm_locate_options, parts) - 8usize];
    ["Offset of field: kvbm_locate_options::n_parts"][::core::mem::offset_of!(kvbm_locate_options, n_parts) - 16usize];
    ["Offset of field: kvbm_locate_options::request_keys"]
        [::core::mem::offset_of!(kvbm_locate_options, request_keys) - 24usize];
    ["Offset of field: kvbm_locate_options::n_requests"]
        [::core::mem::offset_of!(kvbm_locate_options, n_requests) - 32usize];
    ["Offset of field: kvbm_locate_options::ask_nodes_ns"]
        [::core::mem::offset_of!(kvbm_locate_options, ask_nodes_ns) - 40usize];
};
impl Default for kvbm_locate_options {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_locate_options_t = kvbm_locate_options;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_location {
    pub node: [u8; 16usize],
    pub request: u32,
    pub tier: u32,
    pub n_prefix: u64,
    pub n_in_tier: u64,
    pub bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_location"][::core::mem::size_of::<kvbm_location>() - 48usize];
    ["Alignment of kvbm_location"][::core::mem::align_of::<kvbm_location>() - 8usize];
    ["Offset of field: kvbm_location::node"][::core::mem::offset_of!(kvbm_location, node) - 0usize];
    ["Offset of field: kvbm_location::request"][::core::mem::offset_of!(kvbm_location, request) - 16usize];
    ["Offset of field: kvbm_location::tier"][::core::mem::offset_of!(kvbm_location, tier) - 20usize];
    ["Offset of field: kvbm_location::n_prefix"][::core::mem::offset_of!(kvbm_location, n_prefix) - 24usize];
    ["Offset of field: kvbm_location::n_in_tier"][::core::mem::offset_of!(kvbm_location, n_in_tier) - 32usize];
    ["Offset of field: kvbm_location::bytes"][::core::mem::offset_of!(kvbm_location, bytes) - 40usize];
};
pub type kvbm_location_t = kvbm_location;
extern "C" {
    pub fn kvbm_locate_options_init(out_options: *mut kvbm_locate_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_locate(
        manager: *mut kvbm_manager_t,
        ns: *mut kvbm_namespace_t,
        keys: *const kvbm_key_t,
        n_keys: usize,
        options: *const kvbm_locate_options_t,
        out_rows: *mut kvbm_location_t,
        capacity: usize,
        out_n: *mut usize,
    ) -> kvbm_status_t;
}
pub const KVBM_SHARE_OFF: _bindgen_ty_9 = 0;
pub const KVBM_SHARE_OWNER: _bindgen_ty_9 = 1;
pub const KVBM_SHARE_CLIENT: _bindgen_ty_9 = 2;
pub const KVBM_SHARE_NO_OWNER: _bindgen_ty_9 = 3;
pub type _bindgen_ty_9 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_share {
    pub struct_size: u32,
    pub role: u32,
    pub owner_pid: u64,
    pub clients: u64,
    pub takeovers: u64,
    pub owners_lost: u64,
    pub silent_lookups: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_share"][::core::mem::size_of::<kvbm_share>() - 48usize];
    ["Alignment of kvbm_share"][::core::mem::align_of::<kvbm_share>() - 8usize];
    ["Offset of field: kvbm_share::struct_size"][::core::mem::offset_of!(kvbm_share, struct_size) - 0usize];
    ["Offset of field: kvbm_share::role"][::core::mem::offset_of!(kvbm_share, role) - 4usize];
    ["Offset of field: kvbm_share::owner_pid"][::core::mem::offset_of!(kvbm_share, owner_pid) - 8usize];
    ["Offset of field: kvbm_share::clients"][::core::mem::offset_of!(kvbm_share, clients) - 16usize];
    ["Offset of field: kvbm_share::takeovers"][::core::mem::offset_of!(kvbm_share, takeovers) - 24usize];
    ["Offset of field: kvbm_share::owners_lost"][::core::mem::offset_of!(kvbm_share, owners_lost) - 32usize];
    ["Offset of field: kvbm_share::silent_lookups"][::core::mem::offset_of!(kvbm_share, silent_lookups) - 40usize];
};
pub type kvbm_share_t = kvbm_share;
extern "C" {
    pub fn kvbm_manager_share(manager: *mut kvbm_manager_t, out_share: *mut kvbm_share_t) -> kvbm_status_t;
}
pub type kvbm_tier_table_t = kvbm_tier_table;
pub type kvbm_policy_table_t = kvbm_policy_table;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_tier_item {
    pub identity: [u8; 32usize],
    pub head: *mut ::core::ffi::c_void,
    pub payload: *mut ::core::ffi::c_void,
    pub head_bytes: u32,
    pub reserved: u32,
    pub payload_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_tier_item"][::core::mem::size_of::<kvbm_tier_item>() - 64usize];
    ["Alignment of kvbm_tier_item"][::core::mem::align_of::<kvbm_tier_item>() - 8usize];
    ["Offset of field: kvbm_tier_item::identity"][::core::mem::offset_of!(kvbm_tier_item, identity) - 0usize];
    ["Offset of field: kvbm_tier_item::head"][::core::mem::offset_of!(kvbm_tier_item, head) - 32usize];
    ["Offset of field: kvbm_tier_item::payload"][::core::mem::offset_of!(kvbm_tier_item, payload) - 40usize];
    ["Offset of field: kvbm_tier_item::head_bytes"][::core::mem::offset_of!(kvbm_tier_item, head_bytes) - 48usize];
    ["Offset of field: kvbm_tier_item::reserved"][::core::mem::offset_of!(kvbm_tier_item, reserved) - 52usize];
    ["Offset of field: kvbm_tier_item::payload_bytes"]
        [::core::mem::offset_of!(kvbm_tier_item, payload_bytes) - 56usize];
};
impl Default for kvbm_tier_item {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_tier_item_t = kvbm_tier_item;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_tier_table {
    pub struct_size: u32,
    pub concurrency: u32,
    pub name: *const ::core::ffi::c_char,
    pub find: ::core::option::Option<
        unsafe extern "C" fn(
            user: *mut ::core::ffi::c_void,
            identities: *const [::core::ffi::c_uchar; 32usize],
            n: usize,
            out_present: *mut u8,
            out_head_bytes: *mut u32,
            out_payload_bytes: *mut u64,
        ),
    >,
    pub put: ::core::option::Option<
        unsafe extern "C" fn(
            user: *mut ::core::ffi::c_void,
            items: *const kvbm_tier_item_t,
            n: usize,
            timeout_ns: u64,
            out_status: *mut kvbm_status_t,
        ),
    >,
    pub get: ::core::option::Option<
        unsafe extern "C" fn(
            user: *mut ::core::ffi::c_void,
            inout_items: *mut kvbm_tier_item_t,
            n: usize,
            timeout_ns: u64,
            out_status: *mut kvbm_status_t,
        ),
    >,
    pub erase: ::core::option::Option<
        unsafe extern "C" fn(
            user: *mut ::core::ffi::c_void,
            identities: *const [::core::ffi::c_uchar; 32usize],
            n: usize,
        ),
    >,
    pub stats: ::core::option::Option<
        unsafe extern "C" fn(
            user: *mut ::core::ffi::c_void,
            out_capacity_bytes: *mut u64,
            out_used_bytes: *mut u64,
            out_records: *mut u64,
        ),
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_tier_table"][::core::mem::size_of::<kvbm_tier_table>() - 56usize];
    ["Alignment of kvbm_tier_table"][::core::mem::align_of::<kvbm_tier_table>() - 8usize];
    ["Offset of field: kvbm_tier_table::struct_size"][::core::mem::offset_of!(kvbm_tier_table, struct_size) - 0usize];
    ["Offset of field: kvbm_tier_table::concurrency"][::core::mem::offset_of!(kvbm_tier_table, concurrency) - 4usize];
    ["Offset of field: kvbm_tier_table::name"][::core::mem::offset_of!(kvbm_tier_table, name) - 8usize];
    ["Offset of field: kvbm_tier_table::find"][::core::mem::offset_of!(kvbm_tier_table, find) - 16usize];
    ["Offset of field: kvbm_tier_table::put"][::core::mem::offset_of!(kvbm_tier_table, put) - 24usize];
    ["Offset of field: kvbm_tier_table::get"][::core::mem::offset_of!(kvbm_tier_table, get) - 32usize];
    ["Offset of field: kvbm_tier_table::erase"][::core::mem::offset_of!(kvbm_tier_table, erase) - 40usize];
    ["Offset of field: kvbm_tier_table::stats"][::core::mem::offset_of!(kvbm_tier_table, stats) - 48usize];
};
impl Default for kvbm_tier_table {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const KVBM_STORE_PUT: _bindgen_ty_10 = 1;
pub const KVBM_STORE_GET: _bindgen_ty_10 = 2;
pub const KVBM_STORE_REMOVE: _bindgen_ty_10 = 3;
pub const KVBM_STORE_LIST: _bindgen_ty_10 = 4;
pub type _bindgen_ty_10 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_store_op {
    pub kind: u32,
    pub flags: u32,
    pub name: *const ::core::ffi::c_char,
    pub after: *const ::core::ffi::c_char,
    pub data: *mut ::core::ffi::c_void,
    pub bytes: u64,
    pub offset: u64,
    pub timeout_ns: u64,
    pub expire_s: u64,
    pub done: u64,
    pub more: u32,
    pub reserved: u32,
    pub message: [::core::ffi::c_char; 128usize],
    pub store_private: *mut ::core::ffi::c_void,
    pub library_private: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_store_op"][::core::mem::size_of::<kvbm_store_op>() - 224usize];
    ["Alignment of kvbm_store_op"][::core::mem::align_of::<kvbm_store_op>() - 8usize];
    ["Offset of field: kvbm_store_op::kind"][::core::mem::offset_of!(kvbm_store_op, kind) - 0usize];
    ["Offset of field: kvbm_store_op::flags"][::core::mem::offset_of!(kvbm_store_op, flags) - 4usize];
    ["Offset of field: kvbm_store_op::name"][::core::mem::offset_of!(kvbm_store_op, name) - 8usize];
    ["Offset of field: kvbm_store_op::after"][::core::mem::offset_of!(kvbm_store_op, after) - 16usize];
    ["Offset of field: kvbm_store_op::data"][::core::mem::offset_of!(kvbm_store_op, data) - 24usize];
    ["Offset of field: kvbm_store_op::bytes"][::core::mem::offset_of!(kvbm_store_op, bytes) - 32usize];
    ["Offset of field: kvbm_store_op::offset"][::core::mem::offset_of!(kvbm_store_op, offset) - 40usize];
    ["Offset of field: kvbm_store_op::timeout_ns"][::core::mem::offset_of!(kvbm_store_op, timeout_ns) - 48usize];
    ["Offset of field: kvbm_store_op::expire_s"][::core::mem::offset_of!(kvbm_store_op, expire_s) - 56usize];
    ["Offset of field: kvbm_store_op::done"][::core::mem::offset_of!(kvbm_store_op, done) - 64usize];
    ["Offset of field: kvbm_store_op::more"][::core::mem::offset_of!(kvbm_store_op, more) - 72usize];
    ["Offset of field: kvbm_store_op::reserved"][::core::mem::offset_of!(kvbm_store_op, reserved) - 76usize];
    ["Offset of field: kvbm_store_op::message"][::core::mem::offset_of!(kvbm_store_op, message) - 80usize];
    ["Offset of field: kvbm_store_op::store_private"][::core::mem::offset_of!(kvbm_store_op, store_private) - 208usize];
    ["Offset of field: kvbm_store_op::library_private"]
        [::core::mem::offset_of!(kvbm_store_op, library_private) - 216usize];
};
impl Default for kvbm_store_op {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_store_op_t = kvbm_store_op;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_store_facts {
    pub struct_size: u32,
    pub features: u32,
    pub concurrency: u32,
    pub reserved: u32,
    pub object_bytes: u64,
    pub max_object_bytes: u64,
    pub description: [::core::ffi::c_char; 160usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_store_facts"][::core::mem::size_of::<kvbm_store_facts>() - 192usize];
    ["Alignment of kvbm_store_facts"][::core::mem::align_of::<kvbm_store_facts>() - 8usize];
    ["Offset of field: kvbm_store_facts::struct_size"][::core::mem::offset_of!(kvbm_store_facts, struct_size) - 0usize];
    ["Offset of field: kvbm_store_facts::features"][::core::mem::offset_of!(kvbm_store_facts, features) - 4usize];
    ["Offset of field: kvbm_store_facts::concurrency"][::core::mem::offset_of!(kvbm_store_facts, concurrency) - 8usize];
    ["Offset of field: kvbm_store_facts::reserved"][::core::mem::offset_of!(kvbm_store_facts, reserved) - 12usize];
    ["Offset of field: kvbm_store_facts::object_bytes"]
        [::core::mem::offset_of!(kvbm_store_facts, object_bytes) - 16usize];
    ["Offset of field: kvbm_store_facts::max_object_bytes"]
        [::core::mem::offset_of!(kvbm_store_facts, max_object_bytes) - 24usize];
    ["Offset of field: kvbm_store_facts::description"]
        [::core::mem::offset_of!(kvbm_store_facts, description) - 32usize];
};
impl Default for kvbm_store_facts {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_store_facts_t = kvbm_store_facts;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_store_option {
    pub name: *const ::core::ffi::c_char,
    pub value: *const ::core::ffi::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_store_option"][::core::mem::size_of::<kvbm_store_option>() - 16usize];
    ["Alignment of kvbm_store_option"][::core::mem::align_of::<kvbm_store_option>() - 8usize];
    ["Offset of field: kvbm_store_option::name"][::core::mem::offset_of!(kvbm_store_option, name) - 0usize];
    ["Offset of field: kvbm_store_option::value"][::core::mem::offset_of!(kvbm_store_option, value) - 8usize];
};
impl Default for kvbm_store_option {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_store_option_t = kvbm_store_option;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_store_config {
    pub struct_size: u32,
    pub reserved: u32,
    pub scheme: *const ::core::ffi::c_char,
    pub authority: *const ::core::ffi::c_char,
    pub user: *const ::core::ffi::c_char,
    pub password: *const ::core::ffi::c_char,
    pub path: *const ::core::ffi::c_char,
    pub options: *const kvbm_store_option_t,
    pub n_options: usize,
    pub context: *mut ::core::ffi::c_void,
    pub finished: ::core::option::Option<
        unsafe extern "C" fn(context: *mut ::core::ffi::c_void, op: *mut kvbm_store_op_t, status: kvbm_status_t),
    >,
    pub log: ::core::option::Option<
        unsafe extern "C" fn(context: *mut ::core::ffi::c_void, level: i32, text: *const ::core::ffi::c_char),
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_store_config"][::core::mem::size_of::<kvbm_store_config>() - 88usize];
    ["Alignment of kvbm_store_config"][::core::mem::align_of::<kvbm_store_config>() - 8usize];
    ["Offset of field: kvbm_store_config::struct_size"]
        [::core::mem::offset_of!(kvbm_store_config, struct_size) - 0usize];
    ["Offset of field: kvbm_store_config::reserved"][::core::mem::offset_of!(kvbm_store_config, reserved) - 4usize];
    ["Offset of field: kvbm_store_config::scheme"][::core::mem::offset_of!(kvbm_store_config, scheme) - 8usize];
    ["Offset of field: kvbm_store_config::authority"][::core::mem::offset_of!(kvbm_store_config, authority) - 16usize];
    ["Offset of field: kvbm_store_config::user"][::core::mem::offset_of!(kvbm_store_config, user) - 24usize];
    ["Offset of field: kvbm_store_config::password"][::core::mem::offset_of!(kvbm_store_config, password) - 32usize];
    ["Offset of field: kvbm_store_config::path"][::core::mem::offset_of!(kvbm_store_config, path) - 40usize];
    ["Offset of field: kvbm_store_config::options"][::core::mem::offset_of!(kvbm_store_config, options) - 48usize];
    ["Offset of field: kvbm_store_config::n_options"][::core::mem::offset_of!(kvbm_store_config, n_options) - 56usize];
    ["Offset of field: kvbm_store_config::context"][::core::mem::offset_of!(kvbm_store_config, context) - 64usize];
    ["Offset of field: kvbm_store_config::finished"][::core::mem::offset_of!(kvbm_store_config, finished) - 72usize];
    ["Offset of field: kvbm_store_config::log"][::core::mem::offset_of!(kvbm_store_config, log) - 80usize];
};
impl Default for kvbm_store_config {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_store_config_t = kvbm_store_config;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_store_option_help {
    pub name: *const ::core::ffi::c_char,
    pub help: *const ::core::ffi::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_store_option_help"][::core::mem::size_of::<kvbm_store_option_help>() - 16usize];
    ["Alignment of kvbm_store_option_help"][::core::mem::align_of::<kvbm_store_option_help>() - 8usize];
    ["Offset of field: kvbm_store_option_help::name"][::core::mem::offset_of!(kvbm_store_option_help, name) - 0usize];
    ["Offset of field: kvbm_store_option_help::help"][::core::mem::offset_of!(kvbm_store_option_help, help) - 8usize];
};
impl Default for kvbm_store_option_help {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_store_option_help_t = kvbm_store_option_help;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_store_table {
    pub struct_size: u32,
    pub abi: u32,
    pub name: *const ::core::ffi::c_char,
    pub options: *const kvbm_store_option_help_t,
    pub n_options: usize,
    pub open: ::core::option::Option<
        unsafe extern "C" fn(
            config: *const kvbm_store_config_t,
            timeout_ns: u64,
            out_facts: *mut kvbm_store_facts_t,
            out_store: *mut *mut ::core::ffi::c_void,
            message: *mut ::core::ffi::c_char,
        ) -> kvbm_status_t,
    >,
    pub start: ::core::option::Option<
        unsafe extern "C" fn(store: *mut ::core::ffi::c_void, ops: *const *mut kvbm_store_op_t, n: usize),
    >,
    pub cancel: ::core::option::Option<unsafe extern "C" fn(store: *mut ::core::ffi::c_void, op: *mut kvbm_store_op_t)>,
    pub close: ::core::option::Option<unsafe extern "C" fn(store: *mut ::core::ffi::c_void)>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_store_table"][::core::mem::size_of::<kvbm_store_table>() - 64usize];
    ["Alignment of kvbm_store_table"][::core::mem::align_of::<kvbm_store_table>() - 8usize];
    ["Offset of field: kvbm_store_table::struct_size"][::core::mem::offset_of!(kvbm_store_table, struct_size) - 0usize];
    ["Offset of field: kvbm_store_table::abi"][::core::mem::offset_of!(kvbm_store_table, abi) - 4usize];
    ["Offset of field: kvbm_store_table::name"][::core::mem::offset_of!(kvbm_store_table, name) - 8usize];
    ["Offset of field: kvbm_store_table::options"][::core::mem::offset_of!(kvbm_store_table, options) - 16usize];
    ["Offset of field: kvbm_store_table::n_options"][::core::mem::offset_of!(kvbm_store_table, n_options) - 24usize];
    ["Offset of field: kvbm_store_table::open"][::core::mem::offset_of!(kvbm_store_table, open) - 32usize];
    ["Offset of field: kvbm_store_table::start"][::core::mem::offset_of!(kvbm_store_table, start) - 40usize];
    ["Offset of field: kvbm_store_table::cancel"][::core::mem::offset_of!(kvbm_store_table, cancel) - 48usize];
    ["Offset of field: kvbm_store_table::close"][::core::mem::offset_of!(kvbm_store_table, close) - 56usize];
};
impl Default for kvbm_store_table {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_store_table_t = kvbm_store_table;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_policy_table {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: *const ::core::ffi::c_char,
    pub create: ::core::option::Option<
        unsafe extern "C" fn(user: *mut ::core::ffi::c_void, n_slots: u32) -> *mut ::core::ffi::c_void,
    >,
    pub destroy: ::core::option::Option<unsafe extern "C" fn(policy: *mut ::core::ffi::c_void)>,
    pub inserted: ::core::option::Option<
        unsafe extern "C" fn(
            policy: *mut ::core::ffi::c_void,
            slots: *const u32,
            names: *const u64,
            n: usize,
            tick: u32,
        ),
    >,
    pub used: ::core::option::Option<
        unsafe extern "C" fn(policy: *mut ::core::ffi::c_void, slots: *const u32, n: usize, tick: u32),
    >,
    pub evict: ::core::option::Option<
        unsafe extern "C" fn(
            policy: *mut ::core::ffi::c_void,
            may_evict: ::core::option::Option<
                unsafe extern "C" fn(asker: *const ::core::ffi::c_void, slot: u32) -> ::core::ffi::c_int,
            >,
            asker: *const ::core::ffi::c_void,
            tick: u32,
        ) -> u32,
    >,
    pub erased: ::core::option::Option<unsafe extern "C" fn(policy: *mut ::core::ffi::c_void, slot: u32)>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_policy_table"][::core::mem::size_of::<kvbm_policy_table>() - 64usize];
    ["Alignment of kvbm_policy_table"][::core::mem::align_of::<kvbm_policy_table>() - 8usize];
    ["Offset of field: kvbm_policy_table::struct_size"]
        [::core::mem::offset_of!(kvbm_policy_table, struct_size) - 0usize];
    ["Offset of field: kvbm_policy_table::reserved"][::core::mem::offset_of!(kvbm_policy_table, reserved) - 4usize];
    ["Offset of field: kvbm_policy_table::name"][::core::mem::offset_of!(kvbm_policy_table, name) - 8usize];
    ["Offset of field: kvbm_policy_table::create"][::core::mem::offset_of!(kvbm_policy_table, create) - 16usize];
    ["Offset of field: kvbm_policy_table::destroy"][::core::mem::offset_of!(kvbm_policy_table, destroy) - 24usize];
    ["Offset of field: kvbm_policy_table::inserted"][::core::mem::offset_of!(kvbm_policy_table, inserted) - 32usize];
    ["Offset of field: kvbm_policy_table::used"][::core::mem::offset_of!(kvbm_policy_table, used) - 40usize];
    ["Offset of field: kvbm_policy_table::evict"][::core::mem::offset_of!(kvbm_policy_table, evict) - 48usize];
    ["Offset of field: kvbm_policy_table::erased"][::core::mem::offset_of!(kvbm_policy_table, erased) - 56usize];
};
impl Default for kvbm_policy_table {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_request_id {
    pub bytes: [u8; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_request_id"][::core::mem::size_of::<kvbm_request_id>() - 16usize];
    ["Alignment of kvbm_request_id"][::core::mem::align_of::<kvbm_request_id>() - 1usize];
    ["Offset of field: kvbm_request_id::bytes"][::core::mem::offset_of!(kvbm_request_id, bytes) - 0usize];
};
pub type kvbm_request_id_t = kvbm_request_id;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_offer_options {
    pub struct_size: u32,
    pub rank: u32,
    pub first_position: u64,
    pub begin: u64,
    pub end: u64,
    pub timeout_ns: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_offer_options"][::core::mem::size_of::<kvbm_offer_options>() - 40usize];
    ["Alignment of kvbm_offer_options"][::core::mem::align_of::<kvbm_offer_options>() - 8usize];
    ["Offset of field: kvbm_offer_options::struct_size"]
        [::core::mem::offset_of!(kvbm_offer_options, struct_size) - 0usize];
    ["Offset of field: kvbm_offer_options::rank"][::core::mem::offset_of!(kvbm_offer_options, rank) - 4usize];
    ["Offset of field: kvbm_offer_options::first_position"]
        [::core::mem::offset_of!(kvbm_offer_options, first_position) - 8usize];
    ["Offset of field: kvbm_offer_options::begin"][::core::mem::offset_of!(kvbm_offer_options, begin) - 16usize];
    ["Offset of field: kvbm_offer_options::end"][::core::mem::offset_of!(kvbm_offer_options, end) - 24usize];
    ["Offset of field: kvbm_offer_options::timeout_ns"]
        [::core::mem::offset_of!(kvbm_offer_options, timeout_ns) - 32usize];
};
pub type kvbm_offer_options_t = kvbm_offer_options;
extern "C" {
    pub fn kvbm_offer_options_init(out_options: *mut kvbm_offer_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_offer_open(
        cache: *mut kvbm_cache_t,
        request: *const kvbm_request_id_t,
        block_ids: *const u32,
        n_block_ids: usize,
        options: *const kvbm_offer_options_t,
        queue: *mut kvbm_queue_t,
        user_data: u64,
        out_offer: *mut *mut kvbm_offer_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_offer_publish(
        offer: *mut kvbm_offer_t,
        component: u32,
        first_layer: u32,
        n_layers: u32,
        begin: u64,
        end: u64,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_offer_publish_on_stream(
        offer: *mut kvbm_offer_t,
        component: u32,
        first_layer: u32,
        n_layers: u32,
        begin: u64,
        end: u64,
        stream: *mut ::core::ffi::c_void,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_offer_publish_all(offer: *mut kvbm_offer_t, err: *mut kvbm_error_t) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_offer_abort(offer: *mut kvbm_offer_t, reason: *const ::core::ffi::c_char) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_offer_wait(offer: *mut kvbm_offer_t, timeout_ns: u64, err: *mut kvbm_error_t) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_offer_release(offer: *mut kvbm_offer_t);
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_source {
    pub node: *const ::core::ffi::c_char,
    pub rank: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_source"][::core::mem::size_of::<kvbm_source>() - 16usize];
    ["Alignment of kvbm_source"][::core::mem::align_of::<kvbm_source>() - 8usize];
    ["Offset of field: kvbm_source::node"][::core::mem::offset_of!(kvbm_source, node) - 0usize];
    ["Offset of field: kvbm_source::rank"][::core::mem::offset_of!(kvbm_source, rank) - 8usize];
    ["Offset of field: kvbm_source::reserved"][::core::mem::offset_of!(kvbm_source, reserved) - 12usize];
};
impl Default for kvbm_source {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_source_t = kvbm_source;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_session_options {
    pub struct_size: u32,
    pub rank: u32,
    pub ranks: u32,
    pub no_layers: u32,
    pub first_position: u64,
    pub begin: u64,
    pub end: u64,
    pub timeout_ns: u64,
    pub budget_bytes: u64,
    pub stream: *mut ::core::ffi::c_void,
    pub has_stream: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_session_options"][::core::mem::size_of::<kvbm_session_options>() - 72usize];
    ["Alignment of kvbm_session_options"][::core::mem::align_of::<kvbm_session_options>() - 8usize];
    ["Offset of field: kvbm_session_options::struct_size"]
        [::core::mem::offset_of!(kvbm_session_options, struct_size) - 0usize];
    ["Offset of field: kvbm_session_options::rank"][::core::mem::offset_of!(kvbm_session_options, rank) - 4usize];
    ["Offset of field: kvbm_session_options::ranks"][::core::mem::offset_of!(kvbm_session_options, ranks) - 8usize];
    ["Offset of field: kvbm_session_options::no_layers"]
        [::core::mem::offset_of!(kvbm_session_options, no_layers) - 12usize];
    ["Offset of field: kvbm_session_options::first_position"]
        [::core::mem::offset_of!(kvbm_session_options, first_position) - 16usize];
    ["Offset of field: kvbm_session_options::begin"][::core::mem::offset_of!(kvbm_session_options, begin) - 24usize];
    ["Offset of field: kvbm_session_options::end"][::core::mem::offset_of!(kvbm_session_options, end) - 32usize];
    ["Offset of field: kvbm_session_options::timeout_ns"]
        [::core::mem::offset_of!(kvbm_session_options, timeout_ns) - 40usize];
    ["Offset of field: kvbm_session_options::budget_bytes"]
        [::core::mem::offset_of!(kvbm_session_options, budget_bytes) - 48usize];
    ["Offset of field: kvbm_session_options::stream"][::core::mem::offset_of!(kvbm_session_options, stream) - 56usize];
    ["Offset of field: kvbm_session_options::has_stream"]
        [::core::mem::offset_of!(kvbm_session_options, has_stream) - 64usize];
    ["Offset of field: kvbm_session_options::reserved"]
        [::core::mem::offset_of!(kvbm_session_options, reserved) - 68usize];
};
impl Default for kvbm_session_options {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_session_options_t = kvbm_session_options;
extern "C" {
    pub fn kvbm_session_options_init(out_options: *mut kvbm_session_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_session_open(
        cache: *mut kvbm_cache_t,
        request: *const kvbm_request_id_t,
        block_ids: *const u32,
        n_block_ids: usize,
        sources: *const kvbm_source_t,
        n_sources: usize,
        options: *const kvbm_session_options_t,
        queue: *mut kvbm_queue_t,
        user_data: u64,
        out_session: *mut *mut kvbm_session_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_session_wait(session: *mut kvbm_session_t, timeout_ns: u64, err: *mut kvbm_error_t) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_session_wait_layer(
        session: *mut kvbm_session_t,
        component: u32,
        layer: u32,
        timeout_ns: u64,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_session_abort(session: *mut kvbm_session_t, reason: *const ::core::ffi::c_char) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_session_release(session: *mut kvbm_session_t);
}
extern "C" {
    pub fn kvbm_version() -> u32;
}
extern "C" {
    pub fn kvbm_version_string() -> *const ::core::ffi::c_char;
}
pub const KVBM_LOG_OFF: _bindgen_ty_11 = 0;
pub const KVBM_LOG_ERROR: _bindgen_ty_11 = 1;
pub const KVBM_LOG_WARNING: _bindgen_ty_11 = 2;
pub const KVBM_LOG_INFO: _bindgen_ty_11 = 3;
pub const KVBM_LOG_DEBUG: _bindgen_ty_11 = 4;
pub type _bindgen_ty_11 = ::core::ffi::c_uint;
pub type kvbm_log_fn = ::core::option::Option<
    unsafe extern "C" fn(
        user: *mut ::core::ffi::c_void,
        level: i32,
        component: *const ::core::ffi::c_char,
        text: *const ::core::ffi::c_char,
    ),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_setting {
    pub key: *const ::core::ffi::c_char,
    pub value: *const ::core::ffi::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_setting"][::core::mem::size_of::<kvbm_setting>() - 16usize];
    ["Alignment of kvbm_setting"][::core::mem::align_of::<kvbm_setting>() - 8usize];
    ["Offset of field: kvbm_setting::key"][::core::mem::offset_of!(kvbm_setting, key) - 0usize];
    ["Offset of field: kvbm_setting::value"][::core::mem::offset_of!(kvbm_setting, value) - 8usize];
};
impl Default for kvbm_setting {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_setting_t = kvbm_setting;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_context_options {
    pub struct_size: u32,
    pub threads: u32,
    pub config_file: *const ::core::ffi::c_char,
    pub settings: *const kvbm_setting_t,
    pub n_settings: usize,
    pub log: kvbm_log_fn,
    pub log_user: *mut ::core::ffi::c_void,
    pub log_level: i32,
    pub reserved: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_context_options"][::core::mem::size_of::<kvbm_context_options>() - 56usize];
    ["Alignment of kvbm_context_options"][::core::mem::align_of::<kvbm_context_options>() - 8usize];
    ["Offset of field: kvbm_context_options::struct_size"]
        [::core::mem::offset_of!(kvbm_context_options, struct_size) - 0usize];
    ["Offset of field: kvbm_context_options::threads"][::core::mem::offset_of!(kvbm_context_options, threads) - 4usize];
    ["Offset of field: kvbm_context_options::config_file"]
        [::core::mem::offset_of!(kvbm_context_options, config_file) - 8usize];
    ["Offset of field: kvbm_context_options::settings"]
        [::core::mem::offset_of!(kvbm_context_options, settings) - 16usize];
    ["Offset of field: kvbm_context_options::n_settings"]
        [::core::mem::offset_of!(kvbm_context_options, n_settings) - 24usize];
    ["Offset of field: kvbm_context_options::log"][::core::mem::offset_of!(kvbm_context_options, log) - 32usize];
    ["Offset of field: kvbm_context_options::log_user"]
        [::core::mem::offset_of!(kvbm_context_options, log_user) - 40usize];
    ["Offset of field: kvbm_context_options::log_level"]
        [::core::mem::offset_of!(kvbm_context_options, log_level) - 48usize];
    ["Offset of field: kvbm_context_options::reserved"]
        [::core::mem::offset_of!(kvbm_context_options, reserved) - 52usize];
};
impl Default for kvbm_context_options {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_context_options_t = kvbm_context_options;
extern "C" {
    pub fn kvbm_context_options_init(out_options: *mut kvbm_context_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_context_create(
        options: *const kvbm_context_options_t,
        out_context: *mut *mut kvbm_context_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_context_release(context: *mut kvbm_context_t);
}
extern "C" {
    pub fn kvbm_context_config(
        context: *const kvbm_context_t,
        out: *mut ::core::ffi::c_char,
        capacity: usize,
        out_needed: *mut usize,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_config_reference(
        out: *mut ::core::ffi::c_char,
        capacity: usize,
        out_needed: *mut usize,
    ) -> kvbm_status_t;
}
pub const KVBM_OP_STORE: _bindgen_ty_12 = 1;
pub const KVBM_OP_LOAD: _bindgen_ty_12 = 2;
pub const KVBM_OP_PREFETCH: _bindgen_ty_12 = 3;
pub const KVBM_OP_OFFLOAD: _bindgen_ty_12 = 4;
pub const KVBM_OP_OFFER: _bindgen_ty_12 = 5;
pub const KVBM_OP_RECEIVE: _bindgen_ty_12 = 6;
pub const KVBM_OP_LAYER: _bindgen_ty_12 = 7;
pub type _bindgen_ty_12 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_completion {
    pub user_data: u64,
    pub operation: u64,
    pub op: i32,
    pub status: kvbm_status_t,
    pub items_done: u64,
    pub items: u64,
    pub bytes: u64,
    pub wait_ns: u64,
    pub service_ns: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_completion"][::core::mem::size_of::<kvbm_completion>() - 64usize];
    ["Alignment of kvbm_completion"][::core::mem::align_of::<kvbm_completion>() - 8usize];
    ["Offset of field: kvbm_completion::user_data"][::core::mem::offset_of!(kvbm_completion, user_data) - 0usize];
    ["Offset of field: kvbm_completion::operation"][::core::mem::offset_of!(kvbm_completion, operation) - 8usize];
    ["Offset of field: kvbm_completion::op"][::core::mem::offset_of!(kvbm_completion, op) - 16usize];
    ["Offset of field: kvbm_completion::status"][::core::mem::offset_of!(kvbm_completion, status) - 20usize];
    ["Offset of field: kvbm_completion::items_done"][::core::mem::offset_of!(kvbm_completion, items_done) - 24usize];
    ["Offset of field: kvbm_completion::items"][::core::mem::offset_of!(kvbm_completion, items) - 32usize];
    ["Offset of field: kvbm_completion::bytes"][::core::mem::offset_of!(kvbm_completion, bytes) - 40usize];
    ["Offset of field: kvbm_completion::wait_ns"][::core::mem::offset_of!(kvbm_completion, wait_ns) - 48usize];
    ["Offset of field: kvbm_completion::service_ns"][::core::mem::offset_of!(kvbm_completion, service_ns) - 56usize];
};
pub type kvbm_completion_t = kvbm_completion;
pub const KVBM_EVENT_STORED: _bindgen_ty_13 = 1;
pub const KVBM_EVENT_REMOVED: _bindgen_ty_13 = 2;
pub const KVBM_EVENT_CLEARED: _bindgen_ty_13 = 3;
pub const KVBM_EVENT_DISABLED: _bindgen_ty_13 = 4;
pub type _bindgen_ty_13 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_event {
    pub sequence: u64,
    pub kind: i32,
    pub tier: u32,
    pub namespace_id: [u8; 16usize],
    pub key: kvbm_key_t,
    pub parent: kvbm_key_t,
    pub component: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_event"][::core::mem::size_of::<kvbm_event>() - 72usize];
    ["Alignment of kvbm_event"][::core::mem::align_of::<kvbm_event>() - 8usize];
    ["Offset of field: kvbm_event::sequence"][::core::mem::offset_of!(kvbm_event, sequence) - 0usize];
    ["Offset of field: kvbm_event::kind"][::core::mem::offset_of!(kvbm_event, kind) - 8usize];
    ["Offset of field: kvbm_event::tier"][::core::mem::offset_of!(kvbm_event, tier) - 12usize];
    ["Offset of field: kvbm_event::namespace_id"][::core::mem::offset_of!(kvbm_event, namespace_id) - 16usize];
    ["Offset of field: kvbm_event::key"][::core::mem::offset_of!(kvbm_event, key) - 32usize];
    ["Offset of field: kvbm_event::parent"][::core::mem::offset_of!(kvbm_event, parent) - 48usize];
    ["Offset of field: kvbm_event::component"][::core::mem::offset_of!(kvbm_event, component) - 64usize];
    ["Offset of field: kvbm_event::reserved"][::core::mem::offset_of!(kvbm_event, reserved) - 68usize];
};
pub type kvbm_event_t = kvbm_event;
extern "C" {
    pub fn kvbm_queue_create(
        context: *mut kvbm_context_t,
        depth: u32,
        out_queue: *mut *mut kvbm_queue_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_queue_release(queue: *mut kvbm_queue_t);
}
extern "C" {
    pub fn kvbm_queue_fd(queue: *const kvbm_queue_t) -> ::core::ffi::c_int;
}
extern "C" {
    pub fn kvbm_queue_poll(queue: *mut kvbm_queue_t, out_completions: *mut kvbm_completion_t, capacity: usize)
        -> usize;
}
extern "C" {
    pub fn kvbm_queue_wait(
        queue: *mut kvbm_queue_t,
        out_completions: *mut kvbm_completion_t,
        capacity: usize,
        timeout_ns: u64,
    ) -> usize;
}
extern "C" {
    pub fn kvbm_queue_cancel(queue: *mut kvbm_queue_t, operation: u64) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_queue_poll_events(queue: *mut kvbm_queue_t, out_events: *mut kvbm_event_t, capacity: usize) -> usize;
}
pub const KVBM_COMPONENT_ATTENTION: _bindgen_ty_14 = 0;
pub const KVBM_COMPONENT_WINDOW: _bindgen_ty_14 = 1;
pub const KVBM_COMPONENT_LATENT: _bindgen_ty_14 = 2;
pub const KVBM_COMPONENT_STATE: _bindgen_ty_14 = 3;
pub type _bindgen_ty_14 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_component {
    pub kind: u32,
    pub element: u32,
    pub layers: u32,
    pub heads: u32,
    pub head_dim: u32,
    pub window_tokens: u32,
    pub state_bytes: u64,
    pub reserved: [u64; 2usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_component"][::core::mem::size_of::<kvbm_component>() - 48usize];
    ["Alignment of kvbm_component"][::core::mem::align_of::<kvbm_component>() - 8usize];
    ["Offset of field: kvbm_component::kind"][::core::mem::offset_of!(kvbm_component, kind) - 0usize];
    ["Offset of field: kvbm_component::element"][::core::mem::offset_of!(kvbm_component, element) - 4usize];
    ["Offset of field: kvbm_component::layers"][::core::mem::offset_of!(kvbm_component, layers) - 8usize];
    ["Offset of field: kvbm_component::heads"][::core::mem::offset_of!(kvbm_component, heads) - 12usize];
    ["Offset of field: kvbm_component::head_dim"][::core::mem::offset_of!(kvbm_component, head_dim) - 16usize];
    ["Offset of field: kvbm_component::window_tokens"]
        [::core::mem::offset_of!(kvbm_component, window_tokens) - 20usize];
    ["Offset of field: kvbm_component::state_bytes"][::core::mem::offset_of!(kvbm_component, state_bytes) - 24usize];
    ["Offset of field: kvbm_component::reserved"][::core::mem::offset_of!(kvbm_component, reserved) - 32usize];
};
pub type kvbm_component_t = kvbm_component;
extern "C" {
    pub fn kvbm_geometry_create(
        tokens_per_block: u32,
        units: u32,
        components: *const kvbm_component_t,
        n_components: usize,
        out_geometry: *mut *mut kvbm_geometry_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_geometry_release(geometry: *mut kvbm_geometry_t);
}
extern "C" {
    pub fn kvbm_geometry_fingerprint(geometry: *const kvbm_geometry_t) -> u64;
}
extern "C" {
    pub fn kvbm_geometry_record_bytes(
        geometry: *const kvbm_geometry_t,
        component: u32,
        shard: *const kvbm_shard_t,
        out_bytes: *mut u64,
    ) -> kvbm_status_t;
}
pub const KVBM_ADMIT_ALL: _bindgen_ty_15 = 0;
pub const KVBM_ADMIT_ON_EVICTION: _bindgen_ty_15 = 1;
pub const KVBM_ADMIT_AFTER_USES: _bindgen_ty_15 = 2;
pub const KVBM_ADMIT_FREQUENCY: _bindgen_ty_15 = 3;
pub const KVBM_ADMIT_ON_REQUEST: _bindgen_ty_15 = 4;
pub type _bindgen_ty_15 = ::core::ffi::c_uint;
pub const KVBM_QUOTA_EVICT: _bindgen_ty_16 = 0;
pub const KVBM_QUOTA_REJECT: _bindgen_ty_16 = 1;
pub type _bindgen_ty_16 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_tier {
    pub path: *const ::core::ffi::c_char,
    pub table: *const kvbm_tier_table_t,
    pub table_user: *mut ::core::ffi::c_void,
    pub capacity_bytes: u64,
    pub write_bytes_per_s: u64,
    pub read_bytes_per_s: u64,
    pub admission: u32,
    pub admission_uses: u32,
    pub codec: *const ::core::ffi::c_char,
    pub codec_goal: u32,
    pub reserved0: u32,
    pub url: *const ::core::ffi::c_char,
    pub store: *const kvbm_store_table_t,
    pub reserved: [u64; 5usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_tier"][::core::mem::size_of::<kvbm_tier>() - 128usize];
    ["Alignment of kvbm_tier"][::core::mem::align_of::<kvbm_tier>() - 8usize];
    ["Offset of field: kvbm_tier::path"][::core::mem::offset_of!(kvbm_tier, path) - 0usize];
    ["Offset of field: kvbm_tier::table"][::core::mem::offset_of!(kvbm_tier, table) - 8usize];
    ["Offset of field: kvbm_tier::table_user"][::core::mem::offset_of!(kvbm_tier, table_user) - 16usize];
    ["Offset of field: kvbm_tier::capacity_bytes"][::core::mem::offset_of!(kvbm_tier, capacity_bytes) - 24usize];
    ["Offset of field: kvbm_tier::write_bytes_per_s"][::core::mem::offset_of!(kvbm_tier, write_bytes_per_s) - 32usize];
    ["Offset of field: kvbm_tier::read_bytes_per_s"][::core::mem::offset_of!(kvbm_tier, read_bytes_per_s) - 40usize];
    ["Offset of field: kvbm_tier::admission"][::core::mem::offset_of!(kvbm_tier, admission) - 48usize];
    ["Offset of field: kvbm_tier::admission_uses"][::core::mem::offset_of!(kvbm_tier, admission_uses) - 52usize];
    ["Offset of field: kvbm_tier::codec"][::core::mem::offset_of!(kvbm_tier, codec) - 56usize];
    ["Offset of field: kvbm_tier::codec_goal"][::core::mem::offset_of!(kvbm_tier, codec_goal) - 64usize];
    ["Offset of field: kvbm_tier::reserved0"][::core::mem::offset_of!(kvbm_tier, reserved0) - 68usize];
    ["Offset of field: kvbm_tier::url"][::core::mem::offset_of!(kvbm_tier, url) - 72usize];
    ["Offset of field: kvbm_tier::store"][::core::mem::offset_of!(kvbm_tier, store) - 80usize];
    ["Offset of field: kvbm_tier::reserved"][::core::mem::offset_of!(kvbm_tier, reserved) - 88usize];
};
impl Default for kvbm_tier {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_tier_t = kvbm_tier;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_manager_options {
    pub struct_size: u32,
    pub flags: u32,
    pub block_bytes: u64,
    pub host_capacity_bytes: u64,
    pub host_file: *const ::core::ffi::c_char,
    pub policy: *const ::core::ffi::c_char,
    pub policy_table: *const kvbm_policy_table_t,
    pub policy_user: *mut ::core::ffi::c_void,
    pub tiers: *const kvbm_tier_t,
    pub n_tiers: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_manager_options"][::core::mem::size_of::<kvbm_manager_options>() - 72usize];
    ["Alignment of kvbm_manager_options"][::core::mem::align_of::<kvbm_manager_options>() - 8usize];
    ["Offset of field: kvbm_manager_options::struct_size"]
        [::core::mem::offset_of!(kvbm_manager_options, struct_size) - 0usize];
    ["Offset of field: kvbm_manager_options::flags"][::core::mem::offset_of!(kvbm_manager_options, flags) - 4usize];
    ["Offset of field: kvbm_manager_options::block_bytes"]
        [::core::mem::offset_of!(kvbm_manager_options, block_bytes) - 8usize];
    ["Offset of field: kvbm_manager_options::host_capacity_bytes"]
        [::core::mem::offset_of!(kvbm_manager_options, host_capacity_bytes) - 16usize];
    ["Offset of field: kvbm_manager_options::host_file"]
        [::core::mem::offset_of!(kvbm_manager_options, host_file) - 24usize];
    ["Offset of field: kvbm_manager_options::policy"][::core::mem::offset_of!(kvbm_manager_options, policy) - 32usize];
    ["Offset of field: kvbm_manager_options::policy_table"]
        [::core::mem::offset_of!(kvbm_manager_options, policy_table) - 40usize];
    ["Offset of field: kvbm_manager_options::policy_user"]
        [::core::mem::offset_of!(kvbm_manager_options, policy_user) - 48usize];
    ["Offset of field: kvbm_manager_options::tiers"][::core::mem::offset_of!(kvbm_manager_options, tiers) - 56usize];
    ["Offset of field: kvbm_manager_options::n_tiers"]
        [::core::mem::offset_of!(kvbm_manager_options, n_tiers) - 64usize];
};
impl Default for kvbm_manager_options {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_manager_options_t = kvbm_manager_options;
extern "C" {
    pub fn kvbm_manager_options_init(out_options: *mut kvbm_manager_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_create(
        context: *mut kvbm_context_t,
        options: *const kvbm_manager_options_t,
        out_manager: *mut *mut kvbm_manager_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_release(manager: *mut kvbm_manager_t);
}
extern "C" {
    pub fn kvbm_manager_reset(manager: *mut kvbm_manager_t, err: *mut kvbm_error_t) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_flush(manager: *mut kvbm_manager_t, timeout_ns: u64) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_flush_durable(manager: *mut kvbm_manager_t, timeout_ns: u64) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_namespace_options {
    pub struct_size: u32,
    pub quota_mode: u32,
    pub tenant: *const ::core::ffi::c_char,
    pub model: *const ::core::ffi::c_char,
    pub adapter: *const ::core::ffi::c_char,
    pub geometry: *const kvbm_geometry_t,
    pub secret: *const u8,
    pub epoch: u64,
    pub quota_bytes: u64,
    pub codec: *const ::core::ffi::c_char,
    pub allow_lossy: u32,
    pub weak_hashes: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_namespace_options"][::core::mem::size_of::<kvbm_namespace_options>() - 80usize];
    ["Alignment of kvbm_namespace_options"][::core::mem::align_of::<kvbm_namespace_options>() - 8usize];
    ["Offset of field: kvbm_namespace_options::struct_size"]
        [::core::mem::offset_of!(kvbm_namespace_options, struct_size) - 0usize];
    ["Offset of field: kvbm_namespace_options::quota_mode"]
        [::core::mem::offset_of!(kvbm_namespace_options, quota_mode) - 4usize];
    ["Offset of field: kvbm_namespace_options::tenant"]
        [::core::mem::offset_of!(kvbm_namespace_options, tenant) - 8usize];
    ["Offset of field: kvbm_namespace_options::model"]
        [::core::mem::offset_of!(kvbm_namespace_options, model) - 16usize];
    ["Offset of field: kvbm_namespace_options::adapter"]
        [::core::mem::offset_of!(kvbm_namespace_options, adapter) - 24usize];
    ["Offset of field: kvbm_namespace_options::geometry"]
        [::core::mem::offset_of!(kvbm_namespace_options, geometry) - 32usize];
    ["Offset of field: kvbm_namespace_options::secret"]
        [::core::mem::offset_of!(kvbm_namespace_options, secret) - 40usize];
    ["Offset of field: kvbm_namespace_options::epoch"]
        [::core::mem::offset_of!(kvbm_namespace_options, epoch) - 48usize];
    ["Offset of field: kvbm_namespace_options::quota_bytes"]
        [::core::mem::offset_of!(kvbm_namespace_options, quota_bytes) - 56usize];
    ["Offset of field: kvbm_namespace_options::codec"]
        [::core::mem::offset_of!(kvbm_namespace_options, codec) - 64usize];
    ["Offset of field: kvbm_namespace_options::allow_lossy"]
        [::core::mem::offset_of!(kvbm_namespace_options, allow_lossy) - 72usize];
    ["Offset of field: kvbm_namespace_options::weak_hashes"]
        [::core::mem::offset_of!(kvbm_namespace_options, weak_hashes) - 76usize];
};
impl Default for kvbm_namespace_options {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_namespace_options_t = kvbm_namespace_options;
extern "C" {
    pub fn kvbm_namespace_options_init(out_options: *mut kvbm_namespace_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_namespace_open(
        manager: *mut kvbm_manager_t,
        options: *const kvbm_namespace_options_t,
        out_namespace: *mut *mut kvbm_namespace_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_namespace_release(ns: *mut kvbm_namespace_t);
}
extern "C" {
    pub fn kvbm_namespace_id(ns: *const kvbm_namespace_t, out_id: *mut u8);
}
extern "C" {
    pub fn kvbm_namespace_invalidate(ns: *mut kvbm_namespace_t, err: *mut kvbm_error_t) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_namespace_reset(ns: *mut kvbm_namespace_t, err: *mut kvbm_error_t) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_namespace_set_quota(ns: *mut kvbm_namespace_t, quota_bytes: u64, quota_mode: u32) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_extra {
    pub data: *const u8,
    pub bytes: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_extra"][::core::mem::size_of::<kvbm_extra>() - 16usize];
    ["Alignment of kvbm_extra"][::core::mem::align_of::<kvbm_extra>() - 8usize];
    ["Offset of field: kvbm_extra::data"][::core::mem::offset_of!(kvbm_extra, data) - 0usize];
    ["Offset of field: kvbm_extra::bytes"][::core::mem::offset_of!(kvbm_extra, bytes) - 8usize];
};
impl Default for kvbm_extra {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_extra_t = kvbm_extra;
extern "C" {
    pub fn kvbm_key_chain(
        ns: *const kvbm_namespace_t,
        previous: *const kvbm_key_t,
        tokens: *const u32,
        n_tokens: usize,
        block_tokens: u32,
        extras: *const kvbm_extra_t,
        out_keys: *mut kvbm_key_t,
        capacity: usize,
        out_n: *mut usize,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_key_content(
        ns: *const kvbm_namespace_t,
        tokens: *const u32,
        n_tokens: usize,
        block_tokens: u32,
        extras: *const kvbm_extra_t,
        out_keys: *mut kvbm_key_t,
        capacity: usize,
        out_n: *mut usize,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_key_from_hashes(
        ns: *const kvbm_namespace_t,
        hashes: *const u8,
        hash_bytes: usize,
        n: usize,
        out_keys: *mut kvbm_key_t,
    ) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_view {
    pub data: *mut ::core::ffi::c_void,
    pub bytes: u64,
    pub slot: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_view"][::core::mem::size_of::<kvbm_view>() - 24usize];
    ["Alignment of kvbm_view"][::core::mem::align_of::<kvbm_view>() - 8usize];
    ["Offset of field: kvbm_view::data"][::core::mem::offset_of!(kvbm_view, data) - 0usize];
    ["Offset of field: kvbm_view::bytes"][::core::mem::offset_of!(kvbm_view, bytes) - 8usize];
    ["Offset of field: kvbm_view::slot"][::core::mem::offset_of!(kvbm_view, slot) - 16usize];
};
impl Default for kvbm_view {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_view_t = kvbm_view;
extern "C" {
    pub fn kvbm_manager_allocate(
        manager: *mut kvbm_manager_t,
        ns: *mut kvbm_namespace_t,
        n_blocks: usize,
        out_blocks: *mut kvbm_block_t,
        out_evicted: *mut kvbm_key_t,
        evicted_capacity: usize,
        out_n_evicted: *mut usize,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_complete(
        manager: *mut kvbm_manager_t,
        blocks: *const kvbm_block_t,
        n_blocks: usize,
        bytes: *const u64,
    ) -> kvbm_status_t;
}
pub const KVBM_DUPLICATE_REUSE: _bindgen_ty_17 = 0;
pub const KVBM_DUPLICATE_KEEP: _bindgen_ty_17 = 1;
pub type _bindgen_ty_17 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_register_options {
    pub struct_size: u32,
    pub duplicates: u32,
    pub part: *const kvbm_part_t,
    pub parent: *const kvbm_key_t,
    pub unchained: u32,
    pub priority: u32,
    pub item_status: *mut kvbm_status_t,
    pub positions: *const kvbm_position_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_register_options"][::core::mem::size_of::<kvbm_register_options>() - 48usize];
    ["Alignment of kvbm_register_options"][::core::mem::align_of::<kvbm_register_options>() - 8usize];
    ["Offset of field: kvbm_register_options::struct_size"]
        [::core::mem::offset_of!(kvbm_register_options, struct_size) - 0usize];
    ["Offset of field: kvbm_register_options::duplicates"]
        [::core::mem::offset_of!(kvbm_register_options, duplicates) - 4usize];
    ["Offset of field: kvbm_register_options::part"][::core::mem::offset_of!(kvbm_register_options, part) - 8usize];
    ["Offset of field: kvbm_register_options::parent"]
        [::core::mem::offset_of!(kvbm_register_options, parent) - 16usize];
    ["Offset of field: kvbm_register_options::unchained"]
        [::core::mem::offset_of!(kvbm_register_options, unchained) - 24usize];
    ["Offset of field: kvbm_register_options::priority"]
        [::core::mem::offset_of!(kvbm_register_options, priority) - 28usize];
    ["Offset of field: kvbm_register_options::item_status"]
        [::core::mem::offset_of!(kvbm_register_options, item_status) - 32usize];
    ["Offset of field: kvbm_register_options::positions"]
        [::core::mem::offset_of!(kvbm_register_options, positions) - 40usize];
};
impl Default for kvbm_register_options {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type kvbm_register_options_t = kvbm_register_options;
extern "C" {
    pub fn kvbm_register_options_init(out_options: *mut kvbm_register_options_t, struct_size: u32) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_register(
        manager: *mut kvbm_manager_t,
        ns: *mut kvbm_namespace_t,
        inout_blocks: *mut kvbm_block_t,
        keys: *const kvbm_key_t,
        n_blocks: usize,
        options: *const kvbm_register_options_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_block_view(
        manager: *mut kvbm_manager_t,
        blocks: *const kvbm_block_t,
        n_blocks: usize,
        out_views: *mut kvbm_view_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_block_clone(
        manager: *mut kvbm_manager_t,
        blocks: *const kvbm_block_t,
        n_blocks: usize,
        out_blocks: *mut kvbm_block_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_block_release(
        manager: *mut kvbm_manager_t,
        blocks: *const kvbm_block_t,
        n_blocks: usize,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_block_downgrade(
        manager: *mut kvbm_manager_t,
        blocks: *const kvbm_block_t,
        n_blocks: usize,
        out_weak: *mut kvbm_block_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_block_upgrade(
        manager: *mut kvbm_manager_t,
        weak: *const kvbm_block_t,
        n_blocks: usize,
        out_blocks: *mut kvbm_block_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_prefetch(
        manager: *mut kvbm_manager_t,
        ns: *mut kvbm_namespace_t,
        part: *const kvbm_part_t,
        keys: *const kvbm_key_t,
        n_keys: usize,
        queue: *mut kvbm_queue_t,
        user_data: u64,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_offload(
        manager: *mut kvbm_manager_t,
        ns: *mut kvbm_namespace_t,
        part: *const kvbm_part_t,
        keys: *const kvbm_key_t,
        n_keys: usize,
        tier: u32,
        queue: *mut kvbm_queue_t,
        user_data: u64,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_drop(
        manager: *mut kvbm_manager_t,
        ns: *mut kvbm_namespace_t,
        part: *const kvbm_part_t,
        keys: *const kvbm_key_t,
        n_keys: usize,
        out_n: *mut usize,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_hint(
        manager: *mut kvbm_manager_t,
        ns: *mut kvbm_namespace_t,
        part: *const kvbm_part_t,
        keys: *const kvbm_key_t,
        n_keys: usize,
        priority: u32,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_pin(
        manager: *mut kvbm_manager_t,
        ns: *mut kvbm_namespace_t,
        part: *const kvbm_part_t,
        keys: *const kvbm_key_t,
        n_keys: usize,
        owner: u64,
        timeout_ns: u64,
        out_pin: *mut kvbm_pin_t,
        out_n: *mut usize,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_unpin(manager: *mut kvbm_manager_t, pin: kvbm_pin_t) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_unpin_owner(manager: *mut kvbm_manager_t, owner: u64, out_n: *mut usize) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_tier_stats {
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub blocks: u64,
    pub payload_bytes: u64,
    pub hits: u64,
    pub hit_bytes: u64,
    pub misses: u64,
    pub stores: u64,
    pub store_bytes: u64,
    pub loads: u64,
    pub load_bytes: u64,
    pub evictions: u64,
    pub damaged: u64,
    pub errors: u64,
    pub metadata_bytes: u64,
    pub disabled: u64,
    pub reserved: [u64; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_tier_stats"][::core::mem::size_of::<kvbm_tier_stats>() - 160usize];
    ["Alignment of kvbm_tier_stats"][::core::mem::align_of::<kvbm_tier_stats>() - 8usize];
    ["Offset of field: kvbm_tier_stats::capacity_bytes"]
        [::core::mem::offset_of!(kvbm_tier_stats, capacity_bytes) - 0usize];
    ["Offset of field: kvbm_tier_stats::used_bytes"][::core::mem::offset_of!(kvbm_tier_stats, used_bytes) - 8usize];
    ["Offset of field: kvbm_tier_stats::blocks"][::core::mem::offset_of!(kvbm_tier_stats, blocks) - 16usize];
    ["Offset of field: kvbm_tier_stats::payload_bytes"]
        [::core::mem::offset_of!(kvbm_tier_stats, payload_bytes) - 24usize];
    ["Offset of field: kvbm_tier_stats::hits"][::core::mem::offset_of!(kvbm_tier_stats, hits) - 32usize];
    ["Offset of field: kvbm_tier_stats::hit_bytes"][::core::mem::offset_of!(kvbm_tier_stats, hit_bytes) - 40usize];
    ["Offset of field: kvbm_tier_stats::misses"][::core::mem::offset_of!(kvbm_tier_stats, misses) - 48usize];
    ["Offset of field: kvbm_tier_stats::stores"][::core::mem::offset_of!(kvbm_tier_stats, stores) - 56usize];
    ["Offset of field: kvbm_tier_stats::store_bytes"][::core::mem::offset_of!(kvbm_tier_stats, store_bytes) - 64usize];
    ["Offset of field: kvbm_tier_stats::loads"][::core::mem::offset_of!(kvbm_tier_stats, loads) - 72usize];
    ["Offset of field: kvbm_tier_stats::load_bytes"][::core::mem::offset_of!(kvbm_tier_stats, load_bytes) - 80usize];
    ["Offset of field: kvbm_tier_stats::evictions"][::core::mem::offset_of!(kvbm_tier_stats, evictions) - 88usize];
    ["Offset of field: kvbm_tier_stats::damaged"][::core::mem::offset_of!(kvbm_tier_stats, damaged) - 96usize];
    ["Offset of field: kvbm_tier_stats::errors"][::core::mem::offset_of!(kvbm_tier_stats, errors) - 104usize];
    ["Offset of field: kvbm_tier_stats::metadata_bytes"]
        [::core::mem::offset_of!(kvbm_tier_stats, metadata_bytes) - 112usize];
    ["Offset of field: kvbm_tier_stats::disabled"][::core::mem::offset_of!(kvbm_tier_stats, disabled) - 120usize];
    ["Offset of field: kvbm_tier_stats::reserved"][::core::mem::offset_of!(kvbm_tier_stats, reserved) - 128usize];
};
pub type kvbm_tier_stats_t = kvbm_tier_stats;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_tier_codec_stats {
    pub coded: u64,
    pub plain_bytes: u64,
    pub stored_bytes: u64,
    pub sealed: u64,
    pub left_plain: u64,
    pub encode_ns: u64,
    pub decode_ns: u64,
    pub decoded: u64,
    pub decoded_bytes: u64,
    pub refused_lossy: u64,
    pub missing_keys: u64,
    pub damaged: u64,
    pub stepped_down: u64,
    pub probes: u64,
    pub mode: u32,
    pub automatic: u32,
    pub setting: u32,
    pub seals: u32,
    pub lossy_error: f64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_tier_codec_stats"][::core::mem::size_of::<kvbm_tier_codec_stats>() - 136usize];
    ["Alignment of kvbm_tier_codec_stats"][::core::mem::align_of::<kvbm_tier_codec_stats>() - 8usize];
    ["Offset of field: kvbm_tier_codec_stats::coded"][::core::mem::offset_of!(kvbm_tier_codec_stats, coded) - 0usize];
    ["Offset of field: kvbm_tier_codec_stats::plain_bytes"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, plain_bytes) - 8usize];
    ["Offset of field: kvbm_tier_codec_stats::stored_bytes"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, stored_bytes) - 16usize];
    ["Offset of field: kvbm_tier_codec_stats::sealed"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, sealed) - 24usize];
    ["Offset of field: kvbm_tier_codec_stats::left_plain"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, left_plain) - 32usize];
    ["Offset of field: kvbm_tier_codec_stats::encode_ns"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, encode_ns) - 40usize];
    ["Offset of field: kvbm_tier_codec_stats::decode_ns"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, decode_ns) - 48usize];
    ["Offset of field: kvbm_tier_codec_stats::decoded"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, decoded) - 56usize];
    ["Offset of field: kvbm_tier_codec_stats::decoded_bytes"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, decoded_bytes) - 64usize];
    ["Offset of field: kvbm_tier_codec_stats::refused_lossy"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, refused_lossy) - 72usize];
    ["Offset of field: kvbm_tier_codec_stats::missing_keys"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, missing_keys) - 80usize];
    ["Offset of field: kvbm_tier_codec_stats::damaged"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, damaged) - 88usize];
    ["Offset of field: kvbm_tier_codec_stats::stepped_down"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, stepped_down) - 96usize];
    ["Offset of field: kvbm_tier_codec_stats::probes"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, probes) - 104usize];
    ["Offset of field: kvbm_tier_codec_stats::mode"][::core::mem::offset_of!(kvbm_tier_codec_stats, mode) - 112usize];
    ["Offset of field: kvbm_tier_codec_stats::automatic"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, automatic) - 116usize];
    ["Offset of field: kvbm_tier_codec_stats::setting"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, setting) - 120usize];
    ["Offset of field: kvbm_tier_codec_stats::seals"][::core::mem::offset_of!(kvbm_tier_codec_stats, seals) - 124usize];
    ["Offset of field: kvbm_tier_codec_stats::lossy_error"]
        [::core::mem::offset_of!(kvbm_tier_codec_stats, lossy_error) - 128usize];
};
pub type kvbm_tier_codec_stats_t = kvbm_tier_codec_stats;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_manager_counters {
    pub struct_size: u32,
    pub n_tiers: u32,
    pub lookups: u64,
    pub keys_looked_up: u64,
    pub keys_hit: u64,
    pub holds: u64,
    pub pins: u64,
    pub matches: u64,
    pub operations_in_flight: u64,
    pub stores_refused_room: u64,
    pub stores_refused_quota: u64,
    pub deadline_missed: u64,
    pub position_mismatches: u64,
    pub verify_failures: u64,
    pub offloads_skipped: u64,
    pub tiers: [kvbm_tier_stats_t; 8usize],
    pub loads_weighed: u64,
    pub load_predicted_ns: u64,
    pub load_actual_ns: u64,
    pub loads_not_started: u64,
    pub blocks_left: u64,
    pub compute_saved_ns: u64,
    pub compute_lost_ns: u64,
    pub codec: [kvbm_tier_codec_stats_t; 8usize],
    pub lossy_refused: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_manager_counters"][::core::mem::size_of::<kvbm_manager_counters>() - 2544usize];
    ["Alignment of kvbm_manager_counters"][::core::mem::align_of::<kvbm_manager_counters>() - 8usize];
    ["Offset of field: kvbm_manager_counters::struct_size"]
        [::core::mem::offset_of!(kvbm_manager_counters, struct_size) - 0usize];
    ["Offset of field: kvbm_manager_counters::n_tiers"]
        [::core::mem::offset_of!(kvbm_manager_counters, n_tiers) - 4usize];
    ["Offset of field: kvbm_manager_counters::lookups"]
        [::core::mem::offset_of!(kvbm_manager_counters, lookups) - 8usize];
    ["Offset of field: kvbm_manager_counters::keys_looked_up"]
        [::core::mem::offset_of!(kvbm_manager_counters, keys_looked_up) - 16usize];
    ["Offset of field: kvbm_manager_counters::keys_hit"]
        [::core::mem::offset_of!(kvbm_manager_counters, keys_hit) - 24usize];
    ["Offset of field: kvbm_manager_counters::holds"][::core::mem::offset_of!(kvbm_manager_counters, holds) - 32usize];
    ["Offset of field: kvbm_manager_counters::pins"][::core::mem::offset_of!(kvbm_manager_counters, pins) - 40usize];
    ["Offset of field: kvbm_manager_counters::matches"]
        [::core::mem::offset_of!(kvbm_manager_counters, matches) - 48usize];
    ["Offset of field: kvbm_manager_counters::operations_in_flight"]
        [::core::mem::offset_of!(kvbm_manager_counters, operations_in_flight) - 56usize];
    ["Offset of field: kvbm_manager_counters::stores_refused_room"]
        [::core::mem::offset_of!(kvbm_manager_counters, stores_refused_room) - 64usize];
    ["Offset of field: kvbm_manager_counters::stores_refused_quota"]
        [::core::mem::offset_of!(kvbm_manager_counters, stores_refused_quota) - 72usize];
    ["Offset of field: kvbm_manager_counters::deadline_missed"]
        [::core::mem::offset_of!(kvbm_manager_counters, deadline_missed) - 80usize];
    ["Offset of field: kvbm_manager_counters::position_mismatches"]
        [::core::mem::offset_of!(kvbm_manager_counters, position_mismatches) - 88usize];
    ["Offset of field: kvbm_manager_counters::verify_failures"]
        [::core::mem::offset_of!(kvbm_manager_counters, verify_failures) - 96usize];
    ["Offset of field: kvbm_manager_counters::offloads_skipped"]
        [::core::mem::offset_of!(kvbm_manager_counters, offloads_skipped) - 104usize];
    ["Offset of field: kvbm_manager_counters::tiers"][::core::mem::offset_of!(kvbm_manager_counters, tiers) - 112usize];
    ["Offset of field: kvbm_manager_counters::loads_weighed"]
        [::core::mem::offset_of!(kvbm_manager_counters, loads_weighed) - 1392usize];
    ["Offset of field: kvbm_manager_counters::load_predicted_ns"]
        [::core::mem::offset_of!(kvbm_manager_counters, load_predicted_ns) - 1400usize];
    ["Offset of field: kvbm_manager_counters::load_actual_ns"]
        [::core::mem::offset_of!(kvbm_manager_counters, load_actual_ns) - 1408usize];
    ["Offset of field: kvbm_manager_counters::loads_not_started"]
        [::core::mem::offset_of!(kvbm_manager_counters, loads_not_started) - 1416usize];
    ["Offset of field: kvbm_manager_counters::blocks_left"]
        [::core::mem::offset_of!(kvbm_manager_counters, blocks_left) - 1424usize];
    ["Offset of field: kvbm_manager_counters::compute_saved_ns"]
        [::core::mem::offset_of!(kvbm_manager_counters, compute_saved_ns) - 1432usize];
    ["Offset of field: kvbm_manager_counters::compute_lost_ns"]
        [::core::mem::offset_of!(kvbm_manager_counters, compute_lost_ns) - 1440usize];
    ["Offset of field: kvbm_manager_counters::codec"]
        [::core::mem::offset_of!(kvbm_manager_counters, codec) - 1448usize];
    ["Offset of field: kvbm_manager_counters::lossy_refused"]
        [::core::mem::offset_of!(kvbm_manager_counters, lossy_refused) - 2536usize];
};
pub type kvbm_manager_stats_t = kvbm_manager_counters;
extern "C" {
    pub fn kvbm_manager_stats(manager: *mut kvbm_manager_t, out_stats: *mut kvbm_manager_stats_t) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_metrics(
        manager: *mut kvbm_manager_t,
        out: *mut ::core::ffi::c_char,
        capacity: usize,
        out_needed: *mut usize,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_subscribe(manager: *mut kvbm_manager_t, queue: *mut kvbm_queue_t) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_scan_row {
    pub key: kvbm_key_t,
    pub namespace_id: [u8; 16usize],
    pub bytes: u64,
    pub tier: u32,
    pub component: u32,
    pub uses: u32,
    pub holds: u32,
    pub pins: u32,
    pub age: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kvbm_scan_row"][::core::mem::size_of::<kvbm_scan_row>() - 64usize];
    ["Alignment of kvbm_scan_row"][::core::mem::align_of::<kvbm_scan_row>() - 8usize];
    ["Offset of field: kvbm_scan_row::key"][::core::mem::offset_of!(kvbm_scan_row, key) - 0usize];
    ["Offset of field: kvbm_scan_row::namespace_id"][::core::mem::offset_of!(kvbm_scan_row, namespace_id) - 16usize];
    ["Offset of field: kvbm_scan_row::bytes"][::core::mem::offset_of!(kvbm_scan_row, bytes) - 32usize];
    ["Offset of field: kvbm_scan_row::tier"][::core::mem::offset_of!(kvbm_scan_row, tier) - 40usize];
    ["Offset of field: kvbm_scan_row::component"][::core::mem::offset_of!(kvbm_scan_row, component) - 44usize];
    ["Offset of field: kvbm_scan_row::uses"][::core::mem::offset_of!(kvbm_scan_row, uses) - 48usize];
    ["Offset of field: kvbm_scan_row::holds"][::core::mem::offset_of!(kvbm_scan_row, holds) - 52usize];
    ["Offset of field: kvbm_scan_row::pins"][::core::mem::offset_of!(kvbm_scan_row, pins) - 56usize];
    ["Offset of field: kvbm_scan_row::age"][::core::mem::offset_of!(kvbm_scan_row, age) - 60usize];
};
pub type kvbm_scan_row_t = kvbm_scan_row;
extern "C" {
    pub fn kvbm_manager_scan(
        manager: *mut kvbm_manager_t,
        inout_cursor: *mut u64,
        out_rows: *mut kvbm_scan_row_t,
        capacity: usize,
        out_n: *mut usize,
    ) -> kvbm_status_t;
}
