// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations, missing_docs, unsafe_op_in_unsafe_fn)]
#![deny(rustdoc::broken_intra_doc_links)]

mod block;
mod cache;
mod care;
pub mod codec;
mod coding;
mod context;
mod device;
mod error;
mod event;
mod geometry;
mod handle;
mod key;
mod ledger;
mod lookup;
mod manager;
mod memory;
mod namespace;
mod node;
mod offer;
mod queue;
mod reactor;
mod session;
mod shown;
mod stats;
#[cfg(feature = "tokio")]
mod tokio_driver;
mod types;
mod view;

pub use block::{
    Allocation, CompleteBlocks, DuplicateMode, PartialBlocks, Present, RegisterOptions, RegisteredBlocks, Registration,
    WeakBlocks,
};
pub use cache::{Cache, LoadOptions, Outcome, Position, RawPart, RawTensor, StoreOptions};
pub use care::Pin;
pub use coding::CodeOptions;
pub use context::{config_reference, Context, ContextOptions, LogFn, LogLevel};
pub use device::{DeviceMoves, DeviceRow, MemoryKind, Stream, WaitLayers};
pub use error::{version, Band, Error, Refused, Result, Status};
pub use event::{Event, EventKind, Events};
pub use geometry::{Component, ComponentKind, Element, Geometry};
pub use key::Key;
pub use lookup::{LookupMode, LookupOptions, Match, MatchItem};
pub use manager::{Admission, Manager, ManagerOptions, Tier, TierPlace};
pub use memory::{BlockMut, BlockRef, CacheMemory, Form, Guard, GuardMut, PartLayout, TensorMut, TensorRef};
pub use namespace::{Namespace, NamespaceOptions, QuotaMode};
pub use node::{LocateOptions, Located, Location, NodeRow, Share, ShareRole};
pub use offer::{Offer, OfferOptions, RequestId};
pub use queue::{Completion, OpKind, Operation, Queue};
pub use session::{Layer, NextLayer, Session, SessionOptions, Source};
pub use stats::{ScanRow, Stats, TierCodecStats, TierStats};
#[cfg(feature = "tokio")]
pub use tokio_driver::Driver;
pub use types::{Part, Priority, Shard, TierNumber};
pub use view::{Views, ViewsMut};

/// The raw declarations, for what is not wrapped.
pub use libkvbm_sys as sys;

/// In a list of block ids: none.
pub const NO_BLOCK: u32 = libkvbm_sys::KVBM_NO_BLOCK;
