// SPDX-License-Identifier: Apache-2.0
//! Small values that several calls take.

use std::fmt;

use libkvbm_sys as sys;

/// Hints about blocks, for the eviction policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Priority {
    /// Nothing in particular.
    #[default]
    Normal = 0,
    /// Used once: evict soon.
    OneShot = 1,
    /// The request goes on.
    Continues = 2,
    /// Keep as long as there is room.
    Keep = 3,
}

/// A tier by its number, which is all that it is to the library. It prints as what it is: `host`, `tier 1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TierNumber(pub u32);

impl TierNumber {
    /// The memory of the host.
    pub const HOST: TierNumber = TierNumber(0);
}
impl fmt::Display for TierNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TierNumber::HOST => f.write_str("host"),
            TierNumber(number) => write!(f, "tier {number}"),
        }
    }
}
impl fmt::Debug for TierNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which layers and heads of a component a record holds; all zero = all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)] // as kvbm_shard_t
pub struct Shard {
    pub first_layer: u16,
    pub layers: u16,
    pub first_head: u16,
    pub heads: u16,
    /// Every rank of the group holds the same (MLA latents).
    pub replicated: bool,
}

impl Shard {
    pub(crate) fn raw(self) -> sys::kvbm_shard_t {
        sys::kvbm_shard_t {
            first_layer: self.first_layer,
            layers: self.layers,
            first_head: self.first_head,
            heads: self.heads,
            replicated: self.replicated.into(),
            reserved: [0; 3],
        }
    }
}

/// The records of a namespace that a call means; the default is component 0 of the whole model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Part {
    /// Index into the geometry's components.
    pub component: u32,
    /// Which layers and heads.
    pub shard: Shard,
}

impl Part {
    pub(crate) fn raw(self) -> sys::kvbm_part_t {
        sys::kvbm_part_t { component: self.component, reserved: 0, shard: self.shard.raw() }
    }
    pub(crate) fn raw_list(parts: &[Part]) -> Vec<sys::kvbm_part_t> {
        parts.iter().map(|p| p.raw()).collect()
    }
}

/// Enums from the numbers of `kvbm.h`.
macro_rules! from_number {
    ($kind:ident, $name:literal, $($variant:ident),+ $(,)?) => {
        impl TryFrom<u32> for $kind {
            type Error = crate::Error;
            /// From the number of `kvbm.h`. Errors: INVALID for one that this version does not know.
            fn try_from(number: u32) -> Result<Self, crate::Error> {
                $(if number == $kind::$variant as u32 {
                    return Ok($kind::$variant);
                })+
                Err(crate::Error::invalid(format!(concat!($name, " {} is not known"), number)))
            }
        }
    };
}
pub(crate) use from_number;

from_number!(Priority, "priority", Normal, OneShot, Continues, Keep);
