// SPDX-License-Identifier: Apache-2.0
//! Geometry: the facts of a model that make KV comparable.

use std::sync::Arc;

use libkvbm_sys as sys;

use crate::error::{check, check_version, explained, Result};
use crate::handle::{pointer, Handle};
use crate::types::{from_number, Shard};

/// Type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Element {
    #[default]
    Bytes = 0,
    Bf16 = 1,
    Fp16 = 2,
    Fp32 = 3,
    Fp8E4m3 = 4,
    Fp8E5m2 = 5,
    Int8 = 6,
}

/// Kind of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ComponentKind {
    /// K and V of every token.
    #[default]
    Attention = 0,
    /// K and V; only the last `window_tokens` matter.
    Window = 1,
    /// One latent row per token (MLA).
    Latent = 2,
    /// A recurrent state; only the last block's matters.
    State = 3,
}

/// One component of the model, whole: all layers and heads, before sharding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Component {
    /// Kind of the component.
    pub kind: ComponentKind,
    /// Type of the elements; `Bytes` for state.
    pub element: Element,
    /// Layers that have it.
    pub layers: u32,
    /// KV heads in all; 1 for latent and state.
    pub heads: u32,
    /// Elements of a head's row; the latent's width; 0 for state.
    pub head_dim: u32,
    /// Window only.
    pub window_tokens: u32,
    /// State only: bytes per layer and block.
    pub state_bytes: u64,
}

/// Facts of a geometry for later calls.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) tokens_per_block: u32,
    pub(crate) units: usize,
    pub(crate) component_layers: Vec<u32>,
}

/// Model facts and the tokens of one engine block. Clones are the same geometry.
#[derive(Clone)]
pub struct Geometry {
    handle: Arc<Handle<sys::kvbm_geometry>>,
    pub(crate) facts: Arc<Facts>,
}

impl Geometry {
    /// Creates a geometry. `units` engine blocks make one stored block (1 = the same). Errors: INVALID naming the
    /// component and field.
    pub fn new(tokens_per_block: u32, units: u32, components: &[Component]) -> Result<Geometry> {
        check_version()?;
        let list: Vec<_> = components
            .iter()
            .map(|c| sys::kvbm_component_t {
                kind: c.kind as u32,
                element: c.element as u32,
                layers: c.layers,
                heads: c.heads,
                head_dim: c.head_dim,
                window_tokens: c.window_tokens,
                state_bytes: c.state_bytes,
                reserved: [0; 2],
            })
            .collect();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the list is as long as is said.
        explained(|err| unsafe {
            sys::kvbm_geometry_create(tokens_per_block, units, pointer(&list), list.len(), &mut raw, err)
        })?;
        let facts = Facts {
            tokens_per_block,
            units: units as usize,
            component_layers: components.iter().map(|c| c.layers).collect(),
        };
        // SAFETY: the call has given an owned reference.
        Ok(Geometry { handle: Arc::new(unsafe { Handle::new(raw) }?), facts: Arc::new(facts) })
    }

    /// The fingerprint that is part of the namespace.
    pub fn fingerprint(&self) -> u64 {
        // SAFETY: the handle is live.
        unsafe { sys::kvbm_geometry_fingerprint(self.handle.raw()) }
    }

    /// Payload bytes of one record of that component and shard (`None` = all of it).
    pub fn record_bytes(&self, component: u32, shard: Option<Shard>) -> Result<u64> {
        let shard = shard.map(Shard::raw);
        let mut bytes = 0;
        // SAFETY: the handle is live.
        check(unsafe {
            sys::kvbm_geometry_record_bytes(
                self.handle.raw(),
                component,
                shard.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
                &mut bytes,
            )
        })?;
        Ok(bytes)
    }

    /// The raw pointer, valid while this object is.
    pub fn as_raw(&self) -> *mut sys::kvbm_geometry {
        self.handle.raw()
    }
}

from_number!(Element, "element", Bytes, Bf16, Fp16, Fp32, Fp8E4m3, Fp8E5m2, Int8);
from_number!(ComponentKind, "kind", Attention, Window, Latent, State);
