// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"math"
	"time"
)

func init() {
	for name, do := range map[string]func(r *runner, a *arguments) (results, error){
		"manager.create": stepManagerCreate,
		"manager.reset": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Manager](a, "manager").Reset()
		},
		"manager.flush": func(r *runner, a *arguments) (results, error) {
			ctx, cancel := timeoutContext(a.uint64("timeout_ns"))
			defer cancel()
			status, err := partly(object[*Manager](a, "manager").Flush(ctx))
			return results{"status": status}, err
		},
		"manager.flush_durable": func(r *runner, a *arguments) (results, error) {
			ctx, cancel := timeoutContext(a.uint64("timeout_ns"))
			defer cancel()
			status, err := partly(object[*Manager](a, "manager").FlushDurable(ctx))
			return results{"status": status}, err
		},
		"manager.stats": stepManagerStats,
		"manager.metrics": func(r *runner, a *arguments) (results, error) {
			text, err := object[*Manager](a, "manager").Metrics()
			return results{"text": text}, err
		},
		"manager.subscribe": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Manager](a, "manager").Subscribe(object[*Queue](a, "queue"))
		},
		"manager.scan":  stepManagerScan,
		"manager.nodes": stepManagerNodes,
		"manager.node_address": func(r *runner, a *arguments) (results, error) {
			address, err := object[*Manager](a, "manager").NodeAddress()
			return results{"address": address}, err
		},
		"manager.wait_for_peers": func(r *runner, a *arguments) (results, error) {
			ctx, cancel := timeoutContext(a.uint64("timeout_ns"))
			defer cancel()
			return nil, object[*Manager](a, "manager").WaitForPeers(ctx)
		},
		"manager.locate": stepManagerLocate,
		"manager.share": func(r *runner, a *arguments) (results, error) {
			s, err := object[*Manager](a, "manager").Share()
			return results{"role": number(s.Role), "owner_pid": number(s.OwnerPID), "clients": number(s.Clients),
				"takeovers": number(s.Takeovers), "owners_lost": number(s.OwnersLost),
				"silent_lookups": number(s.SilentLookups)}, err
		},

		"manager.prefetch": func(r *runner, a *arguments) (results, error) {
			m, ns, part, keys := object[*Manager](a, "manager"), object[*Namespace](a, "namespace"), a.part("part"), a.keys("keys")
			if q := object[*Queue](a, "queue"); q != nil {
				return results{"status": number(StatusOK)}, m.SubmitPrefetch(q, ns, part, keys, a.uint64("user_data"))
			}
			status, err := partly(m.Prefetch(background, ns, part, keys))
			return results{"status": status}, err
		},
		"manager.offload": func(r *runner, a *arguments) (results, error) {
			m, ns, part, keys := object[*Manager](a, "manager"), object[*Namespace](a, "namespace"), a.part("part"), a.keys("keys")
			tier := a.uint32("tier")
			if q := object[*Queue](a, "queue"); q != nil {
				return results{"status": number(StatusOK)}, m.SubmitOffload(q, ns, part, keys, tier, a.uint64("user_data"))
			}
			status, err := partly(m.Offload(background, ns, part, keys, tier))
			return results{"status": status}, err
		},
		"manager.drop": func(r *runner, a *arguments) (results, error) {
			n, err := object[*Manager](a, "manager").Drop(object[*Namespace](a, "namespace"), a.part("part"), a.keys("keys"))
			return results{"n": number(n)}, err
		},
		"manager.hint": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Manager](a, "manager").Hint(object[*Namespace](a, "namespace"), a.part("part"),
				a.keys("keys"), Priority(a.uint32("priority")))
		},
		"manager.pin": func(r *runner, a *arguments) (results, error) {
			pin, n, err := object[*Manager](a, "manager").pin(object[*Namespace](a, "namespace"), a.part("part"),
				a.keys("keys"), a.uint64("owner"), a.uint64("timeout_ns"))
			return results{"pin": decimal(pin), "n": number(n)}, err
		},
		"manager.unpin": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Manager](a, "manager").Unpin(Pin(a.uint64("pin")))
		},
		"manager.unpin_owner": func(r *runner, a *arguments) (results, error) {
			n, err := object[*Manager](a, "manager").UnpinOwner(a.uint64("owner"))
			return results{"n": number(n)}, err
		},
	} {
		steps[name] = do
	}
}

func stepManagerCreate(r *runner, a *arguments) (results, error) {
	o := &ManagerOptions{BlockBytes: a.uint64("block_bytes"), HostCapacityBytes: a.uint64("host_capacity_bytes"),
		HostFile: a.text("host_file"), Policy: a.text("policy")}
	o.Tiers = each(a, "tiers", func(value any) Tier {
		t := sub(value)
		defer t.checkUsed()
		return Tier{t.text("path"), t.text("url"), t.uint64("capacity_bytes"), t.uint64("write_bytes_per_s"),
			t.uint64("read_bytes_per_s"), Admission(t.uint32("admission")), t.uint32("admission_uses"), t.text("codec"),
			t.uint32("codec_goal")}
	})
	m, err := object[*Context](a, "context").newManager(o, a.uint32("flags"))
	return made(r, "manager", m, err)
}

func stepManagerStats(r *runner, a *arguments) (results, error) {
	s, err := object[*Manager](a, "manager").Stats()
	if err != nil {
		return nil, err
	}
	tiers := listOf(s.Tiers, func(t TierStats) any {
		return results{"capacity_bytes": number(t.CapacityBytes), "used_bytes": number(t.UsedBytes),
			"blocks": number(t.Blocks), "payload_bytes": number(t.PayloadBytes), "hits": number(t.Hits),
			"hit_bytes": number(t.HitBytes), "misses": number(t.Misses), "stores": number(t.Stores),
			"store_bytes": number(t.StoreBytes), "loads": number(t.Loads), "load_bytes": number(t.LoadBytes),
			"evictions": number(t.Evictions), "damaged": number(t.Damaged), "errors": number(t.Errors),
			"metadata_bytes": number(t.MetadataBytes), "disabled": flagOf(t.Disabled)}
	})
	codec := listOf(s.Codec, func(t TierCodecStats) any {
		return results{"coded": number(t.Coded), "plain_bytes": number(t.PlainBytes),
			"stored_bytes": number(t.StoredBytes), "sealed": number(t.Sealed), "left_plain": number(t.LeftPlain),
			"encode_ns": number(uint64(t.Encoding)), "decode_ns": number(uint64(t.Decoding)),
			"decoded": number(t.Decoded), "decoded_bytes": number(t.DecodedBytes),
			"refused_lossy": number(t.RefusedLossy), "missing_keys": number(t.MissingKeys),
			"damaged": number(t.Damaged), "stepped_down": number(t.SteppedDown), "probes": number(t.Probes),
			"mode": number(t.Mode), "automatic": flagOf(t.Automatic)}
	})
	return results{"codec": codec, "lossy_refused": number(s.LossyRefused), "n_tiers": number(len(s.Tiers)), "lookups": number(s.Lookups),
		"keys_looked_up": number(s.KeysLookedUp), "keys_hit": number(s.KeysHit), "holds": number(s.Holds),
		"pins": number(s.Pins), "matches": number(s.Matches), "operations_in_flight": number(s.OperationsInFlight),
		"stores_refused_room": number(s.StoresRefusedRoom), "stores_refused_quota": number(s.StoresRefusedQuota),
		"deadline_missed": number(s.DeadlineMissed), "position_mismatches": number(s.PositionMismatches),
		"verify_failures": number(s.VerifyFailures), "offloads_skipped": number(s.OffloadsSkipped),
		"loads_weighed": number(s.LoadsWeighed), "load_predicted_ns": number(uint64(s.LoadPredicted)),
		"load_actual_ns": number(uint64(s.LoadActual)), "loads_not_started": number(s.LoadsNotStarted),
		"blocks_left": number(s.BlocksLeft), "compute_saved_ns": number(uint64(s.ComputeSaved)),
		"compute_lost_ns": number(uint64(s.ComputeLost)), "tiers": tiers}, nil
}

func stepManagerScan(r *runner, a *arguments) (results, error) {
	m := object[*Manager](a, "manager")
	page := make([]ScanRow, a.int("page"))
	all := []any{}
	for cursor := uint64(0); ; {
		n, next, err := m.Scan(cursor, page)
		if err != nil {
			return nil, err
		}
		for _, row := range page[:n] {
			all = append(all, results{"key": row.Key.String(), "namespace_id": row.NamespaceID.String(),
				"bytes": number(row.Bytes), "tier": number(row.Tier), "component": number(row.Component),
				"uses": number(row.Uses), "holds": number(row.Holds), "pins": number(row.Pins), "text": shown(row)})
		}
		if cursor = next; cursor == 0 {
			return results{"rows": all}, nil
		}
	}
}

func stepManagerNodes(r *runner, a *arguments) (results, error) {
	rows, err := object[*Manager](a, "manager").Nodes()
	return results{"n": number(len(rows)), "rows": listOf(rows, func(n NodeRow) any {
		return results{"node": n.Node.String(), "address": n.Address, "state": n.State,
			"capacity_bytes": number(n.CapacityBytes), "used_bytes": number(n.UsedBytes), "records": number(n.Records),
			"fetched_bytes": number(n.FetchedBytes), "served_bytes": number(n.ServedBytes), "path": n.Path,
			"path_reason": n.PathReason, "local_bytes": number(n.LocalBytes)}
	})}, err
}

func stepManagerLocate(r *runner, a *arguments) (results, error) {
	o := &LocateOptions{Parts: each(a, "parts", toPart), RequestKeys: each(a, "request_keys", toInt),
		AskNodes: timeForNodes(a)}
	rows, err := object[*Manager](a, "manager").Locate(object[*Namespace](a, "namespace"), a.keys("keys"), o)
	status, err := partly(err)
	return results{"status": status, "n": number(len(rows)), "rows": listOf(rows, func(l Location) any {
		return results{"node": l.Node.String(), "request": number(l.Request), "tier": number(l.Tier),
			"n_prefix": number(l.Prefix), "n_in_tier": number(l.InTier), "bytes": number(l.Bytes),
			"text": shown(l)}
	})}, err
}

func timeForNodes(a *arguments) time.Duration {
	return time.Duration(min(a.uint64("ask_nodes_ns"), math.MaxInt64))
}
