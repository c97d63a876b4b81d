// SPDX-License-Identifier: Apache-2.0
//! What `{:?}` says of objects: what they are, and what is known of them without asking the library.

use std::fmt;

macro_rules! shown {
    ($($kind:ident $(<$life:lifetime>)? { $($field:ident: $value:expr),* })*) => {
        $(impl fmt::Debug for crate::$kind $(<$life>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut shown = f.debug_struct(stringify!($kind));
                $(let value: fn(&Self) -> usize = $value;
                shown.field(stringify!($field), &value(self));)*
                shown.finish_non_exhaustive()
            }
        })*
    };
}
shown! {
    Context {}
    Manager {}
    Namespace {}
    Geometry {}
    Cache { parts: |c| c.n_parts() }
    CacheMemory {}
    Match { hits: |m| m.hits(), units: |m| m.units() }
    Queue {}
    Operation {}
    Events {}
    Offer {}
    Session {}
    NextLayer<'_> {}
    PartialBlocks { n: |b| b.len() }
    CompleteBlocks { n: |b| b.len() }
    RegisteredBlocks { n: |b| b.len() }
    WeakBlocks { n: |b| b.len() }
    Views<'_> {}
    ViewsMut<'_> {}
    Guard<'_> {}
    GuardMut<'_> {}
}
#[cfg(feature = "tokio")]
shown! { Driver {} }

impl fmt::Debug for crate::ContextOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextOptions")
            .field("threads", &self.threads)
            .field("config_file", &self.config_file)
            .field("settings", &self.settings)
            .field("log_level", &self.log_level)
            .finish_non_exhaustive()
    }
}

// Without the secret.
impl fmt::Debug for crate::NamespaceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceOptions")
            .field("tenant", &self.tenant)
            .field("model", &self.model)
            .field("adapter", &self.adapter)
            .field("epoch", &self.epoch)
            .field("quota_bytes", &self.quota_bytes)
            .field("quota_mode", &self.quota_mode)
            .field("codec", &self.codec)
            .field("allow_lossy", &self.allow_lossy)
            .field("weak_hashes", &self.weak_hashes)
            .finish_non_exhaustive()
    }
}
