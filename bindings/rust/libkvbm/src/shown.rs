// SPDX-License-Identifier: Apache-2.0
//! What `{:?}` says of objects: what they are, and what tells one from another.

use std::fmt;

/// A field of that name, or what a function of the object gives.
macro_rules! value {
    ($of:ident, $field:ident) => {
        $of.$field
    };
    ($of:ident, $field:ident, $value:expr) => {{
        let value: fn(&Self) -> _ = $value;
        value($of)
    }};
}
macro_rules! shown {
    ($($kind:ident $(<$life:lifetime>)? { $($field:ident $(= $value:expr)?),* })*) => {
        $(impl fmt::Debug for crate::$kind $(<$life>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut shown = f.debug_struct(stringify!($kind));
                $(shown.field(stringify!($field), &value!(self, $field $(, $value)?));)*
                shown.finish_non_exhaustive()
            }
        })*
    };
}
shown! {
    Context {}
    Manager {}
    Namespace { id = |n| n.id().iter().map(|byte| format!("{byte:02x}")).collect::<String>() }
    Geometry { fingerprint = |g| format!("{:016x}", g.fingerprint()) }
    Cache { parts = |c| c.n_parts() }
    CacheMemory {}
    Match { hits = |m| m.hits(), units = |m| m.units() }
    Queue {}
    Operation {}
    Events {}
    Offer {}
    Session {}
    NextLayer<'_> {}
    PartialBlocks { n = |b| b.len() }
    CompleteBlocks { n = |b| b.len() }
    RegisteredBlocks { n = |b| b.len() }
    WeakBlocks { n = |b| b.len() }
    Views<'_> {}
    ViewsMut<'_> {}
    Guard<'_> {}
    GuardMut<'_> {}
    ContextOptions { threads, config_file, settings, log_level }
    // Without the secret.
    NamespaceOptions { tenant, model, adapter, epoch, quota_bytes, quota_mode, codec, allow_lossy, weak_hashes }
}
#[cfg(feature = "tokio")]
shown! { Driver {} }
