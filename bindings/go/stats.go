// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"time"
	"unsafe"
)

// TierStats is the counters of one tier.
type TierStats struct {
	CapacityBytes, UsedBytes, Blocks, PayloadBytes uint64
	Hits, HitBytes, Misses                         uint64 // keys found, by their slowest part's tier; misses: on the last
	Stores, StoreBytes                             uint64 // blocks that came in
	Loads, LoadBytes                               uint64 // blocks that went out, verified
	Evictions, Damaged, Errors                     uint64
	MetadataBytes                                  uint64
	Disabled                                       bool // after a fault that took it out of service
}

// TierCodecStats is what a tier that codes or seals made of what it was given; bytes are of payloads.
type TierCodecStats struct {
	Coded                   uint64 // records that were coded (of sealed ones too),
	PlainBytes, StoredBytes uint64 // bytes of these and of sealed ones before, and after
	Sealed, LeftPlain       uint64 // records sealed; records stored as they were
	Encoding, Decoding      time.Duration
	Decoded, DecodedBytes   uint64    // records that came back, and their bytes
	RefusedLossy            uint64    // records that no open handle of their namespace allows
	MissingKeys             uint64    // records sealed with a key that is not there
	Damaged                 uint64    // records that did not decode or open: forgotten
	SteppedDown, Probes     uint64    // of "auto": times that encoding held writing up; records coded only to measure
	LossyError              float64   // sum of squared differences / sum of squared values of lossy records
	Mode                    CodecMode // mode of the last records
	Automatic               bool
	Setting                 CodecMode // that the tier's codec names; off also where it is "auto"
	Seals                   bool      // whatever is written there
}

// Stats is the counters of a manager.
type Stats struct {
	Lookups, KeysLookedUp, KeysHit                                                            uint64
	Holds, Pins, Matches                                                                      uint64 // live now
	OperationsInFlight                                                                        uint64
	StoresRefusedRoom, StoresRefusedQuota, DeadlineMissed, PositionMismatches, VerifyFailures uint64
	OffloadsSkipped                                                                           uint64 // a full offload queue did not take them; they may go down later
	// Of loads with LoadOptions.ComputeBlock: started, not started because computing is quicker, keys left to compute.
	LoadsWeighed, LoadsNotStarted, BlocksLeft uint64
	LoadPredicted, LoadActual                 time.Duration    // sums over the started loads
	ComputeSaved                              time.Duration    // computing that loads made unnecessary, less their own time
	ComputeLost                               time.Duration    // of loads that took longer than computing
	Tiers                                     []TierStats      // host first
	Codec                                     []TierCodecStats // by tier
	LossyRefused                              uint64           // blocks that a handle without AllowLossy was not given
}

// Stats returns the manager's counters. It is cheap.
func (m *Manager) Stats() (*Stats, error) {
	const op = "Manager.Stats"
	if err := m.handle().enter(op, "manager"); err != nil {
		return nil, err
	}
	defer m.h.exit()
	raw := C.kvbm_manager_stats_t{struct_size: C.sizeof_kvbm_manager_stats_t}
	if status := C.kvbm_manager_stats(m.c(), &raw); status < 0 {
		return nil, fail(op, status)
	}
	s := &Stats{Lookups: uint64(raw.lookups), KeysLookedUp: uint64(raw.keys_looked_up), KeysHit: uint64(raw.keys_hit),
		Holds: uint64(raw.holds), Pins: uint64(raw.pins), Matches: uint64(raw.matches),
		OperationsInFlight: uint64(raw.operations_in_flight), StoresRefusedRoom: uint64(raw.stores_refused_room),
		StoresRefusedQuota: uint64(raw.stores_refused_quota), DeadlineMissed: uint64(raw.deadline_missed),
		PositionMismatches: uint64(raw.position_mismatches), VerifyFailures: uint64(raw.verify_failures),
		OffloadsSkipped: uint64(raw.offloads_skipped), LoadsWeighed: uint64(raw.loads_weighed),
		LoadsNotStarted: uint64(raw.loads_not_started), BlocksLeft: uint64(raw.blocks_left),
		LoadPredicted: time.Duration(raw.load_predicted_ns), LoadActual: time.Duration(raw.load_actual_ns),
		ComputeSaved: time.Duration(raw.compute_saved_ns), ComputeLost: time.Duration(raw.compute_lost_ns),
		LossyRefused: uint64(raw.lossy_refused)}
	for i := range raw.tiers[:min(int(raw.n_tiers), len(raw.tiers))] {
		s.Tiers = append(s.Tiers, tierStats(&raw.tiers[i]))
		s.Codec = append(s.Codec, tierCodecStats(&raw.codec[i]))
	}
	return s, nil
}

func tierStats(t *C.kvbm_tier_stats_t) TierStats {
	return TierStats{CapacityBytes: uint64(t.capacity_bytes), UsedBytes: uint64(t.used_bytes), Blocks: uint64(t.blocks),
		PayloadBytes: uint64(t.payload_bytes), Hits: uint64(t.hits), HitBytes: uint64(t.hit_bytes),
		Misses: uint64(t.misses), Stores: uint64(t.stores), StoreBytes: uint64(t.store_bytes), Loads: uint64(t.loads),
		LoadBytes: uint64(t.load_bytes), Evictions: uint64(t.evictions), Damaged: uint64(t.damaged),
		Errors: uint64(t.errors), MetadataBytes: uint64(t.metadata_bytes), Disabled: t.disabled != 0}
}

func tierCodecStats(t *C.kvbm_tier_codec_stats_t) TierCodecStats {
	return TierCodecStats{Coded: uint64(t.coded), PlainBytes: uint64(t.plain_bytes),
		StoredBytes: uint64(t.stored_bytes), Sealed: uint64(t.sealed), LeftPlain: uint64(t.left_plain),
		Encoding: time.Duration(t.encode_ns), Decoding: time.Duration(t.decode_ns), Decoded: uint64(t.decoded),
		DecodedBytes: uint64(t.decoded_bytes), RefusedLossy: uint64(t.refused_lossy),
		MissingKeys: uint64(t.missing_keys), Damaged: uint64(t.damaged), SteppedDown: uint64(t.stepped_down),
		Probes: uint64(t.probes), LossyError: float64(t.lossy_error), Mode: CodecMode(t.mode), Automatic: t.automatic != 0,
		Setting: CodecMode(t.setting), Seals: t.seals != 0}
}

// ScanRow is one live block or stored record.
type ScanRow struct {
	Key         Key
	NamespaceID ID
	Bytes       uint64
	Tier        TierNumber
	Component   uint32
	Uses        uint32
	Holds       uint32
	Pins        uint32
	Age         uint32 // since its last use: requests in the host tier, seconds on a disk
}

// Scan reads a page of what is there into rows and returns how many there are, and the cursor of the next page: 0 begins
// and 0 again is the end. Blocks that come and go meanwhile may or may not be seen, others exactly once.
func (m *Manager) Scan(cursor uint64, rows []ScanRow) (n int, next uint64, err error) {
	const op = "Manager.Scan"
	if err := m.handle().enter(op, "manager"); err != nil {
		return 0, 0, err
	}
	defer m.h.exit()
	if len(rows) == 0 {
		return 0, 0, invalid(op, "there is no room for a row")
	}
	raw := make([]C.kvbm_scan_row_t, len(rows))
	at := C.uint64_t(cursor)
	var count C.size_t
	if status := C.kvbm_manager_scan(m.c(), &at, unsafe.SliceData(raw), C.size_t(len(raw)), &count); status < 0 {
		return 0, 0, fail(op, status)
	}
	for i := range raw[:count] {
		r := &raw[i]
		rows[i] = ScanRow{Key: goKey(r.key), NamespaceID: goID(r.namespace_id), Bytes: uint64(r.bytes),
			Tier: TierNumber(r.tier), Component: uint32(r.component), Uses: uint32(r.uses), Holds: uint32(r.holds),
			Pins: uint32(r.pins), Age: uint32(r.age)}
	}
	return int(count), uint64(at), nil
}
