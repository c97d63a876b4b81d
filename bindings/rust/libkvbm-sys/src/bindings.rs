// SPDX-License-Identifier: Apache-2.0
// Made from include/kvbm.h by bindings/rust/libkvbm-sys/generate; not edited by hand.

pub const KVBM_VERSION_MAJOR: u32 = 0;
pub const KVBM_VERSION_MINOR: u32 = 1;
pub const KVBM_VERSION_PATCH: u32 = 0;
pub const KVBM_VERSION: u32 = 1000;
pub const KVBM_MANAGER_SHARE: u32 = 1;
pub const KVBM_NO_TIER: u32 = 4294967295;
pub const KVBM_NO_BLOCK: u32 = 4294967295;
extern "C" {
    pub fn kvbm_version() -> u32;
}
extern "C" {
    pub fn kvbm_version_string() -> *const ::core::ffi::c_char;
}
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
#[test]
fn bindgen_test_layout_kvbm_error() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_error> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_error>(),
        512usize,
        "Size of kvbm_error"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_error>(),
        4usize,
        "Alignment of kvbm_error"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).status) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_error::status"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_error::reserved"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).message) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_error::message"
    );
}
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
#[test]
fn bindgen_test_layout_kvbm_key() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_key> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_key>(),
        16usize,
        "Size of kvbm_key"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_key>(),
        1usize,
        "Alignment of kvbm_key"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).bytes) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_key::bytes"
    );
}
pub type kvbm_key_t = kvbm_key;
pub const KVBM_LOG_OFF: _bindgen_ty_2 = 0;
pub const KVBM_LOG_ERROR: _bindgen_ty_2 = 1;
pub const KVBM_LOG_WARNING: _bindgen_ty_2 = 2;
pub const KVBM_LOG_INFO: _bindgen_ty_2 = 3;
pub const KVBM_LOG_DEBUG: _bindgen_ty_2 = 4;
pub type _bindgen_ty_2 = ::core::ffi::c_uint;
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
#[test]
fn bindgen_test_layout_kvbm_setting() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_setting> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_setting>(),
        16usize,
        "Size of kvbm_setting"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_setting>(),
        8usize,
        "Alignment of kvbm_setting"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).key) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_setting::key"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).value) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_setting::value"
    );
}
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
#[test]
fn bindgen_test_layout_kvbm_context_options() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_context_options> =
        ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_context_options>(),
        56usize,
        "Size of kvbm_context_options"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_context_options>(),
        8usize,
        "Alignment of kvbm_context_options"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_context_options::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).threads) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_context_options::threads"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).config_file) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_context_options::config_file"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).settings) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_context_options::settings"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_settings) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_context_options::n_settings"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).log) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_context_options::log"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).log_user) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_context_options::log_user"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).log_level) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_context_options::log_level"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        52usize,
        "Offset of field: kvbm_context_options::reserved"
    );
}
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
    pub fn kvbm_context_options_init(
        out_options: *mut kvbm_context_options_t,
        struct_size: u32,
    ) -> kvbm_status_t;
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
pub const KVBM_OP_STORE: _bindgen_ty_3 = 1;
pub const KVBM_OP_LOAD: _bindgen_ty_3 = 2;
pub const KVBM_OP_PREFETCH: _bindgen_ty_3 = 3;
pub const KVBM_OP_OFFLOAD: _bindgen_ty_3 = 4;
pub const KVBM_OP_OFFER: _bindgen_ty_3 = 5;
pub const KVBM_OP_RECEIVE: _bindgen_ty_3 = 6;
pub const KVBM_OP_LAYER: _bindgen_ty_3 = 7;
pub type _bindgen_ty_3 = ::core::ffi::c_uint;
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
#[test]
fn bindgen_test_layout_kvbm_completion() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_completion> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_completion>(),
        64usize,
        "Size of kvbm_completion"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_completion>(),
        8usize,
        "Alignment of kvbm_completion"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).user_data) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_completion::user_data"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).operation) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_completion::operation"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).op) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_completion::op"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).status) as usize - ptr as usize },
        20usize,
        "Offset of field: kvbm_completion::status"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).items_done) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_completion::items_done"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).items) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_completion::items"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).bytes) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_completion::bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).wait_ns) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_completion::wait_ns"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).service_ns) as usize - ptr as usize },
        56usize,
        "Offset of field: kvbm_completion::service_ns"
    );
}
pub type kvbm_completion_t = kvbm_completion;
pub const KVBM_EVENT_STORED: _bindgen_ty_4 = 1;
pub const KVBM_EVENT_REMOVED: _bindgen_ty_4 = 2;
pub const KVBM_EVENT_CLEARED: _bindgen_ty_4 = 3;
pub const KVBM_EVENT_DISABLED: _bindgen_ty_4 = 4;
pub type _bindgen_ty_4 = ::core::ffi::c_uint;
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
#[test]
fn bindgen_test_layout_kvbm_event() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_event> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_event>(),
        72usize,
        "Size of kvbm_event"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_event>(),
        8usize,
        "Alignment of kvbm_event"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).sequence) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_event::sequence"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).kind) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_event::kind"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).tier) as usize - ptr as usize },
        12usize,
        "Offset of field: kvbm_event::tier"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).namespace_id) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_event::namespace_id"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).key) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_event::key"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).parent) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_event::parent"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).component) as usize - ptr as usize },
        64usize,
        "Offset of field: kvbm_event::component"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        68usize,
        "Offset of field: kvbm_event::reserved"
    );
}
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
    pub fn kvbm_queue_poll(
        queue: *mut kvbm_queue_t,
        out_completions: *mut kvbm_completion_t,
        capacity: usize,
    ) -> usize;
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
    pub fn kvbm_queue_poll_events(
        queue: *mut kvbm_queue_t,
        out_events: *mut kvbm_event_t,
        capacity: usize,
    ) -> usize;
}
pub const KVBM_ELEMENT_BYTES: _bindgen_ty_5 = 0;
pub const KVBM_ELEMENT_BF16: _bindgen_ty_5 = 1;
pub const KVBM_ELEMENT_FP16: _bindgen_ty_5 = 2;
pub const KVBM_ELEMENT_FP32: _bindgen_ty_5 = 3;
pub const KVBM_ELEMENT_FP8_E4M3: _bindgen_ty_5 = 4;
pub const KVBM_ELEMENT_FP8_E5M2: _bindgen_ty_5 = 5;
pub const KVBM_ELEMENT_INT8: _bindgen_ty_5 = 6;
pub type _bindgen_ty_5 = ::core::ffi::c_uint;
pub const KVBM_COMPONENT_ATTENTION: _bindgen_ty_6 = 0;
pub const KVBM_COMPONENT_WINDOW: _bindgen_ty_6 = 1;
pub const KVBM_COMPONENT_LATENT: _bindgen_ty_6 = 2;
pub const KVBM_COMPONENT_STATE: _bindgen_ty_6 = 3;
pub type _bindgen_ty_6 = ::core::ffi::c_uint;
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
#[test]
fn bindgen_test_layout_kvbm_component() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_component> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_component>(),
        48usize,
        "Size of kvbm_component"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_component>(),
        8usize,
        "Alignment of kvbm_component"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).kind) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_component::kind"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).element) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_component::element"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).layers) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_component::layers"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).heads) as usize - ptr as usize },
        12usize,
        "Offset of field: kvbm_component::heads"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).head_dim) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_component::head_dim"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).window_tokens) as usize - ptr as usize },
        20usize,
        "Offset of field: kvbm_component::window_tokens"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).state_bytes) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_component::state_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_component::reserved"
    );
}
pub type kvbm_component_t = kvbm_component;
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
#[test]
fn bindgen_test_layout_kvbm_shard() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_shard> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_shard>(),
        16usize,
        "Size of kvbm_shard"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_shard>(),
        2usize,
        "Alignment of kvbm_shard"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).first_layer) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_shard::first_layer"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).layers) as usize - ptr as usize },
        2usize,
        "Offset of field: kvbm_shard::layers"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).first_head) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_shard::first_head"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).heads) as usize - ptr as usize },
        6usize,
        "Offset of field: kvbm_shard::heads"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).replicated) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_shard::replicated"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        10usize,
        "Offset of field: kvbm_shard::reserved"
    );
}
pub type kvbm_shard_t = kvbm_shard;
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
pub const KVBM_ADMIT_ALL: _bindgen_ty_7 = 0;
pub const KVBM_ADMIT_ON_EVICTION: _bindgen_ty_7 = 1;
pub const KVBM_ADMIT_AFTER_USES: _bindgen_ty_7 = 2;
pub const KVBM_ADMIT_FREQUENCY: _bindgen_ty_7 = 3;
pub const KVBM_ADMIT_ON_REQUEST: _bindgen_ty_7 = 4;
pub type _bindgen_ty_7 = ::core::ffi::c_uint;
pub const KVBM_QUOTA_EVICT: _bindgen_ty_8 = 0;
pub const KVBM_QUOTA_REJECT: _bindgen_ty_8 = 1;
pub type _bindgen_ty_8 = ::core::ffi::c_uint;
pub type kvbm_tier_table_t = kvbm_tier_table;
pub type kvbm_policy_table_t = kvbm_policy_table;
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
    pub reserved: [u64; 9usize],
}
#[test]
fn bindgen_test_layout_kvbm_tier() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_tier> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_tier>(),
        128usize,
        "Size of kvbm_tier"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_tier>(),
        8usize,
        "Alignment of kvbm_tier"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).path) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_tier::path"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).table) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_tier::table"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).table_user) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_tier::table_user"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).capacity_bytes) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_tier::capacity_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).write_bytes_per_s) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_tier::write_bytes_per_s"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).read_bytes_per_s) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_tier::read_bytes_per_s"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).admission) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_tier::admission"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).admission_uses) as usize - ptr as usize },
        52usize,
        "Offset of field: kvbm_tier::admission_uses"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        56usize,
        "Offset of field: kvbm_tier::reserved"
    );
}
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
#[test]
fn bindgen_test_layout_kvbm_manager_options() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_manager_options> =
        ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_manager_options>(),
        72usize,
        "Size of kvbm_manager_options"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_manager_options>(),
        8usize,
        "Alignment of kvbm_manager_options"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_manager_options::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).flags) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_manager_options::flags"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).block_bytes) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_manager_options::block_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).host_capacity_bytes) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_manager_options::host_capacity_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).host_file) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_manager_options::host_file"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).policy) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_manager_options::policy"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).policy_table) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_manager_options::policy_table"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).policy_user) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_manager_options::policy_user"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).tiers) as usize - ptr as usize },
        56usize,
        "Offset of field: kvbm_manager_options::tiers"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_tiers) as usize - ptr as usize },
        64usize,
        "Offset of field: kvbm_manager_options::n_tiers"
    );
}
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
    pub fn kvbm_manager_options_init(
        out_options: *mut kvbm_manager_options_t,
        struct_size: u32,
    ) -> kvbm_status_t;
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
    pub fn kvbm_manager_reset(
        manager: *mut kvbm_manager_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_manager_flush(manager: *mut kvbm_manager_t, timeout_ns: u64) -> kvbm_status_t;
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
}
#[test]
fn bindgen_test_layout_kvbm_namespace_options() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_namespace_options> =
        ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_namespace_options>(),
        64usize,
        "Size of kvbm_namespace_options"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_namespace_options>(),
        8usize,
        "Alignment of kvbm_namespace_options"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_namespace_options::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).quota_mode) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_namespace_options::quota_mode"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).tenant) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_namespace_options::tenant"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).model) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_namespace_options::model"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).adapter) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_namespace_options::adapter"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).geometry) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_namespace_options::geometry"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).secret) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_namespace_options::secret"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).epoch) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_namespace_options::epoch"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).quota_bytes) as usize - ptr as usize },
        56usize,
        "Offset of field: kvbm_namespace_options::quota_bytes"
    );
}
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
    pub fn kvbm_namespace_options_init(
        out_options: *mut kvbm_namespace_options_t,
        struct_size: u32,
    ) -> kvbm_status_t;
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
    pub fn kvbm_namespace_invalidate(
        ns: *mut kvbm_namespace_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_namespace_reset(ns: *mut kvbm_namespace_t, err: *mut kvbm_error_t)
        -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_namespace_set_quota(
        ns: *mut kvbm_namespace_t,
        quota_bytes: u64,
        quota_mode: u32,
    ) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_extra {
    pub data: *const u8,
    pub bytes: usize,
}
#[test]
fn bindgen_test_layout_kvbm_extra() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_extra> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_extra>(),
        16usize,
        "Size of kvbm_extra"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_extra>(),
        8usize,
        "Alignment of kvbm_extra"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).data) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_extra::data"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).bytes) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_extra::bytes"
    );
}
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
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_part {
    pub component: u32,
    pub reserved: u32,
    pub shard: kvbm_shard_t,
}
#[test]
fn bindgen_test_layout_kvbm_part() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_part> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_part>(),
        24usize,
        "Size of kvbm_part"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_part>(),
        4usize,
        "Alignment of kvbm_part"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).component) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_part::component"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_part::reserved"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).shard) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_part::shard"
    );
}
pub type kvbm_part_t = kvbm_part;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_view {
    pub data: *mut ::core::ffi::c_void,
    pub bytes: u64,
    pub slot: u64,
}
#[test]
fn bindgen_test_layout_kvbm_view() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_view> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_view>(),
        24usize,
        "Size of kvbm_view"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_view>(),
        8usize,
        "Alignment of kvbm_view"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).data) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_view::data"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).bytes) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_view::bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).slot) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_view::slot"
    );
}
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
pub const KVBM_DUPLICATE_REUSE: _bindgen_ty_9 = 0;
pub const KVBM_DUPLICATE_KEEP: _bindgen_ty_9 = 1;
pub type _bindgen_ty_9 = ::core::ffi::c_uint;
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
}
#[test]
fn bindgen_test_layout_kvbm_register_options() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_register_options> =
        ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_register_options>(),
        40usize,
        "Size of kvbm_register_options"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_register_options>(),
        8usize,
        "Alignment of kvbm_register_options"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_register_options::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).duplicates) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_register_options::duplicates"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).part) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_register_options::part"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).parent) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_register_options::parent"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).unchained) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_register_options::unchained"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).priority) as usize - ptr as usize },
        28usize,
        "Offset of field: kvbm_register_options::priority"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).item_status) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_register_options::item_status"
    );
}
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
pub const KVBM_PRIORITY_NORMAL: _bindgen_ty_10 = 0;
pub const KVBM_PRIORITY_ONE_SHOT: _bindgen_ty_10 = 1;
pub const KVBM_PRIORITY_CONTINUES: _bindgen_ty_10 = 2;
pub const KVBM_PRIORITY_KEEP: _bindgen_ty_10 = 3;
pub type _bindgen_ty_10 = ::core::ffi::c_uint;
extern "C" {
    pub fn kvbm_register_options_init(
        out_options: *mut kvbm_register_options_t,
        struct_size: u32,
    ) -> kvbm_status_t;
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
pub const KVBM_LOOKUP_PREFIX: _bindgen_ty_11 = 0;
pub const KVBM_LOOKUP_EACH: _bindgen_ty_11 = 1;
pub const KVBM_LOOKUP_ANY: _bindgen_ty_11 = 2;
pub type _bindgen_ty_11 = ::core::ffi::c_uint;
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
#[test]
fn bindgen_test_layout_kvbm_lookup_options() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_lookup_options> =
        ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_lookup_options>(),
        56usize,
        "Size of kvbm_lookup_options"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_lookup_options>(),
        8usize,
        "Alignment of kvbm_lookup_options"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_lookup_options::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).mode) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_lookup_options::mode"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).parts) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_lookup_options::parts"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_parts) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_lookup_options::n_parts"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).host_only) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_lookup_options::host_only"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).no_use) as usize - ptr as usize },
        28usize,
        "Offset of field: kvbm_lookup_options::no_use"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).unit_keys) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_lookup_options::unit_keys"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_unit_keys) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_lookup_options::n_unit_keys"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).ask_nodes_ns) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_lookup_options::ask_nodes_ns"
    );
}
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
    pub fn kvbm_lookup_options_init(
        out_options: *mut kvbm_lookup_options_t,
        struct_size: u32,
    ) -> kvbm_status_t;
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
#[test]
fn bindgen_test_layout_kvbm_match_item() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_match_item> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_match_item>(),
        32usize,
        "Size of kvbm_match_item"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_match_item>(),
        8usize,
        "Alignment of kvbm_match_item"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).tier) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_match_item::tier"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).parts_needed) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_match_item::parts_needed"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).bytes) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_match_item::bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).below_bytes) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_match_item::below_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_match_item::reserved"
    );
}
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
    pub fn kvbm_match_release(match_: *mut kvbm_match_t);
}
pub const KVBM_FORM_NHD: _bindgen_ty_12 = 0;
pub const KVBM_FORM_HND: _bindgen_ty_12 = 1;
pub const KVBM_FORM_BLOCKS_NHD: _bindgen_ty_12 = 2;
pub const KVBM_FORM_BLOCKS_HND: _bindgen_ty_12 = 3;
pub const KVBM_FORM_PACKED_NHD: _bindgen_ty_12 = 4;
pub const KVBM_FORM_PACKED_HND: _bindgen_ty_12 = 5;
pub const KVBM_FORM_SPLIT_NHD: _bindgen_ty_12 = 6;
pub const KVBM_FORM_SPLIT_HND: _bindgen_ty_12 = 7;
pub const KVBM_FORM_LAYERS_NHD: _bindgen_ty_12 = 8;
pub const KVBM_FORM_LAYERS_HND: _bindgen_ty_12 = 9;
pub const KVBM_FORM_CROSS_NHD: _bindgen_ty_12 = 10;
pub const KVBM_FORM_CROSS_HND: _bindgen_ty_12 = 11;
pub const KVBM_FORM_CROSS_PACKED_LNH: _bindgen_ty_12 = 12;
pub const KVBM_FORM_CROSS_PACKED_LHN: _bindgen_ty_12 = 13;
pub const KVBM_FORM_CROSS_PACKED_HLN: _bindgen_ty_12 = 14;
pub const KVBM_FORM_HEADS_PACKED: _bindgen_ty_12 = 15;
pub const KVBM_FORM_SGLANG_LAYER_FIRST: _bindgen_ty_12 = 16;
pub const KVBM_FORM_SGLANG_PAGE_FIRST: _bindgen_ty_12 = 17;
pub const KVBM_FORM_SGLANG_PAGE_FIRST_DIRECT: _bindgen_ty_12 = 18;
pub const KVBM_FORM_SGLANG_PAGE_HEAD: _bindgen_ty_12 = 19;
pub const KVBM_FORM_OPAQUE: _bindgen_ty_12 = 100;
pub type _bindgen_ty_12 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_tensor {
    pub data: *mut ::core::ffi::c_void,
    pub bytes: u64,
    pub block_stride: u64,
    pub page_bytes: u64,
}
#[test]
fn bindgen_test_layout_kvbm_tensor() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_tensor> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_tensor>(),
        32usize,
        "Size of kvbm_tensor"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_tensor>(),
        8usize,
        "Alignment of kvbm_tensor"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).data) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_tensor::data"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).bytes) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_tensor::bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).block_stride) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_tensor::block_stride"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).page_bytes) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_tensor::page_bytes"
    );
}
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
#[test]
fn bindgen_test_layout_kvbm_cache_part() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_cache_part> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_cache_part>(),
        64usize,
        "Size of kvbm_cache_part"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_cache_part>(),
        8usize,
        "Alignment of kvbm_cache_part"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).part) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_cache_part::part"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).form) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_cache_part::form"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        28usize,
        "Offset of field: kvbm_cache_part::reserved"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).tensors) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_cache_part::tensors"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_tensors) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_cache_part::n_tensors"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved2) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_cache_part::reserved2"
    );
}
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
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_cache_options {
    pub struct_size: u32,
    pub n_blocks: u32,
    pub parts: *const kvbm_cache_part_t,
    pub n_parts: usize,
}
#[test]
fn bindgen_test_layout_kvbm_cache_options() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_cache_options> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_cache_options>(),
        24usize,
        "Size of kvbm_cache_options"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_cache_options>(),
        8usize,
        "Alignment of kvbm_cache_options"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_cache_options::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_blocks) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_cache_options::n_blocks"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).parts) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_cache_options::parts"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_parts) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_cache_options::n_parts"
    );
}
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
    pub fn kvbm_cache_options_init(
        out_options: *mut kvbm_cache_options_t,
        struct_size: u32,
    ) -> kvbm_status_t;
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
#[test]
fn bindgen_test_layout_kvbm_position() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_position> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_position>(),
        24usize,
        "Size of kvbm_position"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_position>(),
        8usize,
        "Alignment of kvbm_position"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).first_token) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_position::first_token"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).rotation) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_position::rotation"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).left_context) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_position::left_context"
    );
}
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
}
#[test]
fn bindgen_test_layout_kvbm_store_options() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_store_options> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_store_options>(),
        64usize,
        "Size of kvbm_store_options"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_store_options>(),
        8usize,
        "Alignment of kvbm_store_options"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_store_options::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).priority) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_store_options::priority"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).parent) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_store_options::parent"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).unchained) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_store_options::unchained"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        20usize,
        "Offset of field: kvbm_store_options::reserved"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).positions) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_store_options::positions"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).timeout_ns) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_store_options::timeout_ns"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).item_status) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_store_options::item_status"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).out_operation) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_store_options::out_operation"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).unit_keys) as usize - ptr as usize },
        56usize,
        "Offset of field: kvbm_store_options::unit_keys"
    );
}
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
    pub fn kvbm_store_options_init(
        out_options: *mut kvbm_store_options_t,
        struct_size: u32,
    ) -> kvbm_status_t;
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
}
#[test]
fn bindgen_test_layout_kvbm_load_options() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_load_options> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_load_options>(),
        56usize,
        "Size of kvbm_load_options"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_load_options>(),
        8usize,
        "Alignment of kvbm_load_options"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_load_options::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).first_key) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_load_options::first_key"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).any_position) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_load_options::any_position"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).first_layer) as usize - ptr as usize },
        12usize,
        "Offset of field: kvbm_load_options::first_layer"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_layers) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_load_options::n_layers"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).keep_below) as usize - ptr as usize },
        20usize,
        "Offset of field: kvbm_load_options::keep_below"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).positions) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_load_options::positions"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).timeout_ns) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_load_options::timeout_ns"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).item_status) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_load_options::item_status"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).out_operation) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_load_options::out_operation"
    );
}
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
    pub fn kvbm_load_options_init(
        out_options: *mut kvbm_load_options_t,
        struct_size: u32,
    ) -> kvbm_status_t;
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
    pub fn kvbm_manager_unpin_owner(
        manager: *mut kvbm_manager_t,
        owner: u64,
        out_n: *mut usize,
    ) -> kvbm_status_t;
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
#[test]
fn bindgen_test_layout_kvbm_tier_stats() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_tier_stats> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_tier_stats>(),
        160usize,
        "Size of kvbm_tier_stats"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_tier_stats>(),
        8usize,
        "Alignment of kvbm_tier_stats"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).capacity_bytes) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_tier_stats::capacity_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).used_bytes) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_tier_stats::used_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).blocks) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_tier_stats::blocks"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).payload_bytes) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_tier_stats::payload_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).hits) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_tier_stats::hits"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).hit_bytes) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_tier_stats::hit_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).misses) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_tier_stats::misses"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).stores) as usize - ptr as usize },
        56usize,
        "Offset of field: kvbm_tier_stats::stores"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).store_bytes) as usize - ptr as usize },
        64usize,
        "Offset of field: kvbm_tier_stats::store_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).loads) as usize - ptr as usize },
        72usize,
        "Offset of field: kvbm_tier_stats::loads"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).load_bytes) as usize - ptr as usize },
        80usize,
        "Offset of field: kvbm_tier_stats::load_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).evictions) as usize - ptr as usize },
        88usize,
        "Offset of field: kvbm_tier_stats::evictions"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).damaged) as usize - ptr as usize },
        96usize,
        "Offset of field: kvbm_tier_stats::damaged"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).errors) as usize - ptr as usize },
        104usize,
        "Offset of field: kvbm_tier_stats::errors"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).metadata_bytes) as usize - ptr as usize },
        112usize,
        "Offset of field: kvbm_tier_stats::metadata_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).disabled) as usize - ptr as usize },
        120usize,
        "Offset of field: kvbm_tier_stats::disabled"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        128usize,
        "Offset of field: kvbm_tier_stats::reserved"
    );
}
pub type kvbm_tier_stats_t = kvbm_tier_stats;
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
}
#[test]
fn bindgen_test_layout_kvbm_manager_counters() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_manager_counters> =
        ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_manager_counters>(),
        1392usize,
        "Size of kvbm_manager_counters"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_manager_counters>(),
        8usize,
        "Alignment of kvbm_manager_counters"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_manager_counters::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_tiers) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_manager_counters::n_tiers"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).lookups) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_manager_counters::lookups"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).keys_looked_up) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_manager_counters::keys_looked_up"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).keys_hit) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_manager_counters::keys_hit"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).holds) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_manager_counters::holds"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).pins) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_manager_counters::pins"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).matches) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_manager_counters::matches"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).operations_in_flight) as usize - ptr as usize },
        56usize,
        "Offset of field: kvbm_manager_counters::operations_in_flight"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).stores_refused_room) as usize - ptr as usize },
        64usize,
        "Offset of field: kvbm_manager_counters::stores_refused_room"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).stores_refused_quota) as usize - ptr as usize },
        72usize,
        "Offset of field: kvbm_manager_counters::stores_refused_quota"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).deadline_missed) as usize - ptr as usize },
        80usize,
        "Offset of field: kvbm_manager_counters::deadline_missed"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).position_mismatches) as usize - ptr as usize },
        88usize,
        "Offset of field: kvbm_manager_counters::position_mismatches"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).verify_failures) as usize - ptr as usize },
        96usize,
        "Offset of field: kvbm_manager_counters::verify_failures"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).offloads_skipped) as usize - ptr as usize },
        104usize,
        "Offset of field: kvbm_manager_counters::offloads_skipped"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).tiers) as usize - ptr as usize },
        112usize,
        "Offset of field: kvbm_manager_counters::tiers"
    );
}
pub type kvbm_manager_stats_t = kvbm_manager_counters;
extern "C" {
    pub fn kvbm_manager_stats(
        manager: *mut kvbm_manager_t,
        out_stats: *mut kvbm_manager_stats_t,
    ) -> kvbm_status_t;
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
    pub fn kvbm_manager_subscribe(
        manager: *mut kvbm_manager_t,
        queue: *mut kvbm_queue_t,
    ) -> kvbm_status_t;
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
#[test]
fn bindgen_test_layout_kvbm_scan_row() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_scan_row> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_scan_row>(),
        64usize,
        "Size of kvbm_scan_row"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_scan_row>(),
        8usize,
        "Alignment of kvbm_scan_row"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).key) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_scan_row::key"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).namespace_id) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_scan_row::namespace_id"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).bytes) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_scan_row::bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).tier) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_scan_row::tier"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).component) as usize - ptr as usize },
        44usize,
        "Offset of field: kvbm_scan_row::component"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).uses) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_scan_row::uses"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).holds) as usize - ptr as usize },
        52usize,
        "Offset of field: kvbm_scan_row::holds"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).pins) as usize - ptr as usize },
        56usize,
        "Offset of field: kvbm_scan_row::pins"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).age) as usize - ptr as usize },
        60usize,
        "Offset of field: kvbm_scan_row::age"
    );
}
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
    pub reserved: [u64; 3usize],
}
#[test]
fn bindgen_test_layout_kvbm_node_row() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_node_row> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_node_row>(),
        456usize,
        "Size of kvbm_node_row"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_node_row>(),
        8usize,
        "Alignment of kvbm_node_row"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).node) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_node_row::node"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).address) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_node_row::address"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).state) as usize - ptr as usize },
        112usize,
        "Offset of field: kvbm_node_row::state"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).capacity_bytes) as usize - ptr as usize },
        240usize,
        "Offset of field: kvbm_node_row::capacity_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).used_bytes) as usize - ptr as usize },
        248usize,
        "Offset of field: kvbm_node_row::used_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).records) as usize - ptr as usize },
        256usize,
        "Offset of field: kvbm_node_row::records"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).fetched_bytes) as usize - ptr as usize },
        264usize,
        "Offset of field: kvbm_node_row::fetched_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).served_bytes) as usize - ptr as usize },
        272usize,
        "Offset of field: kvbm_node_row::served_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).path) as usize - ptr as usize },
        280usize,
        "Offset of field: kvbm_node_row::path"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).path_reason) as usize - ptr as usize },
        296usize,
        "Offset of field: kvbm_node_row::path_reason"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).local_bytes) as usize - ptr as usize },
        424usize,
        "Offset of field: kvbm_node_row::local_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        432usize,
        "Offset of field: kvbm_node_row::reserved"
    );
}
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
#[test]
fn bindgen_test_layout_kvbm_locate_options() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_locate_options> =
        ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_locate_options>(),
        48usize,
        "Size of kvbm_locate_options"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_locate_options>(),
        8usize,
        "Alignment of kvbm_locate_options"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_locate_options::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_locate_options::reserved"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).parts) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_locate_options::parts"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_parts) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_locate_options::n_parts"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).request_keys) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_locate_options::request_keys"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_requests) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_locate_options::n_requests"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).ask_nodes_ns) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_locate_options::ask_nodes_ns"
    );
}
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
#[test]
fn bindgen_test_layout_kvbm_location() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_location> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_location>(),
        48usize,
        "Size of kvbm_location"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_location>(),
        8usize,
        "Alignment of kvbm_location"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).node) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_location::node"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).request) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_location::request"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).tier) as usize - ptr as usize },
        20usize,
        "Offset of field: kvbm_location::tier"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_prefix) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_location::n_prefix"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).n_in_tier) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_location::n_in_tier"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).bytes) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_location::bytes"
    );
}
pub type kvbm_location_t = kvbm_location;
extern "C" {
    pub fn kvbm_locate_options_init(
        out_options: *mut kvbm_locate_options_t,
        struct_size: u32,
    ) -> kvbm_status_t;
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
pub const KVBM_SHARE_OFF: _bindgen_ty_13 = 0;
pub const KVBM_SHARE_OWNER: _bindgen_ty_13 = 1;
pub const KVBM_SHARE_CLIENT: _bindgen_ty_13 = 2;
pub const KVBM_SHARE_NO_OWNER: _bindgen_ty_13 = 3;
pub type _bindgen_ty_13 = ::core::ffi::c_uint;
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
#[test]
fn bindgen_test_layout_kvbm_share() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_share> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_share>(),
        48usize,
        "Size of kvbm_share"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_share>(),
        8usize,
        "Alignment of kvbm_share"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_share::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).role) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_share::role"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).owner_pid) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_share::owner_pid"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).clients) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_share::clients"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).takeovers) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_share::takeovers"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).owners_lost) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_share::owners_lost"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).silent_lookups) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_share::silent_lookups"
    );
}
pub type kvbm_share_t = kvbm_share;
extern "C" {
    pub fn kvbm_manager_share(
        manager: *mut kvbm_manager_t,
        out_share: *mut kvbm_share_t,
    ) -> kvbm_status_t;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kvbm_request_id {
    pub bytes: [u8; 16usize],
}
#[test]
fn bindgen_test_layout_kvbm_request_id() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_request_id> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_request_id>(),
        16usize,
        "Size of kvbm_request_id"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_request_id>(),
        1usize,
        "Alignment of kvbm_request_id"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).bytes) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_request_id::bytes"
    );
}
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
#[test]
fn bindgen_test_layout_kvbm_offer_options() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_offer_options> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_offer_options>(),
        40usize,
        "Size of kvbm_offer_options"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_offer_options>(),
        8usize,
        "Alignment of kvbm_offer_options"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_offer_options::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).rank) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_offer_options::rank"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).first_position) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_offer_options::first_position"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).begin) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_offer_options::begin"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).end) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_offer_options::end"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).timeout_ns) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_offer_options::timeout_ns"
    );
}
pub type kvbm_offer_options_t = kvbm_offer_options;
extern "C" {
    pub fn kvbm_offer_options_init(
        out_options: *mut kvbm_offer_options_t,
        struct_size: u32,
    ) -> kvbm_status_t;
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
    pub fn kvbm_offer_publish_all(
        offer: *mut kvbm_offer_t,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_offer_abort(
        offer: *mut kvbm_offer_t,
        reason: *const ::core::ffi::c_char,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_offer_wait(
        offer: *mut kvbm_offer_t,
        timeout_ns: u64,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
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
#[test]
fn bindgen_test_layout_kvbm_source() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_source> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_source>(),
        16usize,
        "Size of kvbm_source"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_source>(),
        8usize,
        "Alignment of kvbm_source"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).node) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_source::node"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).rank) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_source::rank"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        12usize,
        "Offset of field: kvbm_source::reserved"
    );
}
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
#[derive(Debug, Default, Copy, Clone)]
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
}
#[test]
fn bindgen_test_layout_kvbm_session_options() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_session_options> =
        ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_session_options>(),
        56usize,
        "Size of kvbm_session_options"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_session_options>(),
        8usize,
        "Alignment of kvbm_session_options"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_session_options::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).rank) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_session_options::rank"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).ranks) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_session_options::ranks"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).no_layers) as usize - ptr as usize },
        12usize,
        "Offset of field: kvbm_session_options::no_layers"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).first_position) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_session_options::first_position"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).begin) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_session_options::begin"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).end) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_session_options::end"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).timeout_ns) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_session_options::timeout_ns"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).budget_bytes) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_session_options::budget_bytes"
    );
}
pub type kvbm_session_options_t = kvbm_session_options;
extern "C" {
    pub fn kvbm_session_options_init(
        out_options: *mut kvbm_session_options_t,
        struct_size: u32,
    ) -> kvbm_status_t;
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
    pub fn kvbm_session_wait(
        session: *mut kvbm_session_t,
        timeout_ns: u64,
        err: *mut kvbm_error_t,
    ) -> kvbm_status_t;
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
    pub fn kvbm_session_abort(
        session: *mut kvbm_session_t,
        reason: *const ::core::ffi::c_char,
    ) -> kvbm_status_t;
}
extern "C" {
    pub fn kvbm_session_release(session: *mut kvbm_session_t);
}
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
#[test]
fn bindgen_test_layout_kvbm_tier_item() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_tier_item> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_tier_item>(),
        64usize,
        "Size of kvbm_tier_item"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_tier_item>(),
        8usize,
        "Alignment of kvbm_tier_item"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).identity) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_tier_item::identity"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).head) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_tier_item::head"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).payload) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_tier_item::payload"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).head_bytes) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_tier_item::head_bytes"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        52usize,
        "Offset of field: kvbm_tier_item::reserved"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).payload_bytes) as usize - ptr as usize },
        56usize,
        "Offset of field: kvbm_tier_item::payload_bytes"
    );
}
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
#[test]
fn bindgen_test_layout_kvbm_tier_table() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_tier_table> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_tier_table>(),
        56usize,
        "Size of kvbm_tier_table"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_tier_table>(),
        8usize,
        "Alignment of kvbm_tier_table"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_tier_table::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).concurrency) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_tier_table::concurrency"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).name) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_tier_table::name"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).find) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_tier_table::find"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).put) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_tier_table::put"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).get) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_tier_table::get"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).erase) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_tier_table::erase"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).stats) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_tier_table::stats"
    );
}
impl Default for kvbm_tier_table {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kvbm_policy_table {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: *const ::core::ffi::c_char,
    pub create: ::core::option::Option<
        unsafe extern "C" fn(
            user: *mut ::core::ffi::c_void,
            n_slots: u32,
        ) -> *mut ::core::ffi::c_void,
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
        unsafe extern "C" fn(
            policy: *mut ::core::ffi::c_void,
            slots: *const u32,
            n: usize,
            tick: u32,
        ),
    >,
    pub evict: ::core::option::Option<
        unsafe extern "C" fn(
            policy: *mut ::core::ffi::c_void,
            may_evict: ::core::option::Option<
                unsafe extern "C" fn(
                    asker: *const ::core::ffi::c_void,
                    slot: u32,
                ) -> ::core::ffi::c_int,
            >,
            asker: *const ::core::ffi::c_void,
            tick: u32,
        ) -> u32,
    >,
    pub erased:
        ::core::option::Option<unsafe extern "C" fn(policy: *mut ::core::ffi::c_void, slot: u32)>,
}
#[test]
fn bindgen_test_layout_kvbm_policy_table() {
    const UNINIT: ::core::mem::MaybeUninit<kvbm_policy_table> = ::core::mem::MaybeUninit::uninit();
    let ptr = UNINIT.as_ptr();
    assert_eq!(
        ::core::mem::size_of::<kvbm_policy_table>(),
        64usize,
        "Size of kvbm_policy_table"
    );
    assert_eq!(
        ::core::mem::align_of::<kvbm_policy_table>(),
        8usize,
        "Alignment of kvbm_policy_table"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).struct_size) as usize - ptr as usize },
        0usize,
        "Offset of field: kvbm_policy_table::struct_size"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize },
        4usize,
        "Offset of field: kvbm_policy_table::reserved"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).name) as usize - ptr as usize },
        8usize,
        "Offset of field: kvbm_policy_table::name"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).create) as usize - ptr as usize },
        16usize,
        "Offset of field: kvbm_policy_table::create"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).destroy) as usize - ptr as usize },
        24usize,
        "Offset of field: kvbm_policy_table::destroy"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).inserted) as usize - ptr as usize },
        32usize,
        "Offset of field: kvbm_policy_table::inserted"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).used) as usize - ptr as usize },
        40usize,
        "Offset of field: kvbm_policy_table::used"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).evict) as usize - ptr as usize },
        48usize,
        "Offset of field: kvbm_policy_table::evict"
    );
    assert_eq!(
        unsafe { ::core::ptr::addr_of!((*ptr).erased) as usize - ptr as usize },
        56usize,
        "Offset of field: kvbm_policy_table::erased"
    );
}
impl Default for kvbm_policy_table {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
