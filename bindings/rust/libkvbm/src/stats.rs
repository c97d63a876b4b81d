// SPDX-License-Identifier: Apache-2.0
//! Seeing a manager work: counters, and a walk over what is there.

use libkvbm_sys as sys;

use crate::error::{check, Result};
use crate::key::Key;
use crate::manager::Manager;
use crate::types::TierNumber;

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident from $raw:ident { $($field:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        #[non_exhaustive]
        #[allow(missing_docs)] // as the fields of kvbm.h
        pub struct $name { $(pub $field: u64,)* }
        impl From<&sys::$raw> for $name {
            fn from(raw: &sys::$raw) -> Self {
                $name { $($field: raw.$field,)* }
            }
        }
    };
}

pub(crate) use counters;

counters! {
    /// Counters of one tier. Tiers sum to the total.
    TierStats from kvbm_tier_stats_t {
        capacity_bytes, used_bytes, blocks, payload_bytes, hits, hit_bytes, misses, stores, store_bytes, loads,
        load_bytes, evictions, damaged, errors, metadata_bytes, disabled,
    }
}

/// Counters of a tier that codes or seals; bytes are of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[non_exhaustive]
#[allow(missing_docs)] // as the fields of kvbm.h
pub struct TierCodecStats {
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
    /// Sum of squared differences / sum of squared values of lossy records.
    pub lossy_error: f64,
    /// Mode of the last records: the number of a [`crate::codec::Mode`].
    pub mode: u32,
    pub automatic: bool,
    /// That the tier's codec names: the number of a [`crate::codec::Mode`], 0 also where it is auto.
    pub setting: u32,
    /// Whatever is written there is sealed.
    pub seals: bool,
}

impl From<&sys::kvbm_tier_codec_stats_t> for TierCodecStats {
    fn from(raw: &sys::kvbm_tier_codec_stats_t) -> Self {
        TierCodecStats {
            coded: raw.coded,
            plain_bytes: raw.plain_bytes,
            stored_bytes: raw.stored_bytes,
            sealed: raw.sealed,
            left_plain: raw.left_plain,
            encode_ns: raw.encode_ns,
            decode_ns: raw.decode_ns,
            decoded: raw.decoded,
            decoded_bytes: raw.decoded_bytes,
            refused_lossy: raw.refused_lossy,
            missing_keys: raw.missing_keys,
            damaged: raw.damaged,
            stepped_down: raw.stepped_down,
            probes: raw.probes,
            lossy_error: raw.lossy_error,
            mode: raw.mode,
            automatic: raw.automatic != 0,
            setting: raw.setting,
            seals: raw.seals != 0,
        }
    }
}

/// Counters of a manager.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
#[allow(missing_docs)] // as the fields of kvbm.h
pub struct Stats {
    pub lookups: u64,
    pub keys_looked_up: u64,
    pub keys_hit: u64,
    /// Live now, as are pins and matches.
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
    /// Of loads with `LoadOptions::compute_block`: those that were started.
    pub loads_weighed: u64,
    pub load_predicted_ns: u64,
    pub load_actual_ns: u64,
    pub loads_not_started: u64,
    pub blocks_left: u64,
    pub compute_saved_ns: u64,
    pub compute_lost_ns: u64,
    /// Host included, fastest first.
    pub tiers: Vec<TierStats>,
    /// By tier.
    pub codec: Vec<TierCodecStats>,
    /// Blocks that a handle without `allow_lossy` was not given.
    pub lossy_refused: u64,
}

/// One live block or stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as kvbm_scan_row_t
pub struct ScanRow {
    pub key: Key,
    pub namespace_id: [u8; 16],
    pub bytes: u64,
    pub tier: TierNumber,
    pub component: u32,
    pub uses: u32,
    pub holds: u32,
    pub pins: u32,
    /// Since its last use: requests in the host tier, seconds on a disk.
    pub age: u32,
}

impl From<&sys::kvbm_scan_row_t> for ScanRow {
    fn from(raw: &sys::kvbm_scan_row_t) -> Self {
        ScanRow {
            key: raw.key.into(),
            namespace_id: raw.namespace_id,
            bytes: raw.bytes,
            tier: TierNumber(raw.tier),
            component: raw.component,
            uses: raw.uses,
            holds: raw.holds,
            pins: raw.pins,
            age: raw.age,
        }
    }
}

impl Manager {
    /// Counters of the manager. Cheap.
    pub fn stats(&self) -> Result<Stats> {
        let handle = self.raw()?;
        let mut raw = sys::kvbm_manager_stats_t {
            struct_size: std::mem::size_of::<sys::kvbm_manager_stats_t>() as u32,
            ..Default::default()
        };
        // SAFETY: the handle is live, and struct_size is set.
        check(unsafe { sys::kvbm_manager_stats(handle, &mut raw) })?;
        let n = (raw.n_tiers as usize).min(raw.tiers.len());
        Ok(Stats {
            lookups: raw.lookups,
            keys_looked_up: raw.keys_looked_up,
            keys_hit: raw.keys_hit,
            holds: raw.holds,
            pins: raw.pins,
            matches: raw.matches,
            operations_in_flight: raw.operations_in_flight,
            stores_refused_room: raw.stores_refused_room,
            stores_refused_quota: raw.stores_refused_quota,
            deadline_missed: raw.deadline_missed,
            position_mismatches: raw.position_mismatches,
            verify_failures: raw.verify_failures,
            offloads_skipped: raw.offloads_skipped,
            loads_weighed: raw.loads_weighed,
            load_predicted_ns: raw.load_predicted_ns,
            load_actual_ns: raw.load_actual_ns,
            loads_not_started: raw.loads_not_started,
            blocks_left: raw.blocks_left,
            compute_saved_ns: raw.compute_saved_ns,
            compute_lost_ns: raw.compute_lost_ns,
            tiers: raw.tiers[..n].iter().map(TierStats::from).collect(),
            codec: raw.codec[..n].iter().map(TierCodecStats::from).collect(),
            lossy_refused: raw.lossy_refused,
        })
    }

    /// Reads a page of at most `capacity` rows of what is there, without stopping any work. `cursor` is 0 to begin and
    /// 0 again at the end; blocks that come and go during the walk may or may not be seen, others exactly once.
    pub fn scan_page(&self, cursor: &mut u64, capacity: usize) -> Result<Vec<ScanRow>> {
        let handle = self.raw()?;
        let mut rows = vec![sys::kvbm_scan_row_t::default(); capacity.min(1 << 16)];
        let mut n = 0;
        // SAFETY: the handle is live, and there is room as is said.
        check(unsafe { sys::kvbm_manager_scan(handle, cursor, rows.as_mut_ptr(), rows.len(), &mut n) })?;
        Ok(rows[..n.min(rows.len())].iter().map(ScanRow::from).collect())
    }

    /// Everything that is there, page by page.
    pub fn scan(&self) -> impl Iterator<Item = Result<ScanRow>> + '_ {
        let (mut cursor, mut begun) = (0, false);
        let mut page = Vec::new().into_iter();
        std::iter::from_fn(move || loop {
            if let Some(row) = page.next() {
                return Some(Ok(row));
            }
            if begun && cursor == 0 {
                return None;
            }
            begun = true;
            match self.scan_page(&mut cursor, 256) {
                Ok(rows) => page = rows.into_iter(),
                Err(error) => {
                    cursor = 0;
                    return Some(Err(error));
                }
            }
        })
    }
}
