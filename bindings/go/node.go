// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// NodeRow is a node that is connected, or an address of node.peers.
type NodeRow struct {
	Node          ID     // zero until a node has answered at the address
	Address       string // address that was dialled, or that the node connected from; cut to fit
	State         string // "ready", or in words why it is not
	CapacityBytes uint64
	UsedBytes     uint64
	Records       uint64
	FetchedBytes  uint64 // by this connection, of records read from it
	ServedBytes   uint64 // of records that it read here
	Path          string // how its host memory is read: "local" or "tcp"; "" until known
	PathReason    string // in words why it is not "local"
	LocalBytes    uint64 // of records read in place, that no connection carried

	Codec            CodecMode // that large reads are asked with now
	CodecAutomatic   bool      // node.codec = auto has chosen it
	CodecSealed      bool      // nothing is taken from it that is not sealed
	CodecRefused     uint32    // records refused on arrival: lossy, not sealed, or with an unknown key
	CodecPlainBytes  uint64    // payload of records that came coded or sealed, after decoding
	CodecStoredBytes uint64    // and as it came
}

// Nodes returns the nodes that are connected and the addresses that are not; none for a manager that is no node.
func (m *Manager) Nodes() ([]NodeRow, error) {
	const op = "Manager.Nodes"
	if err := m.handle().enter(op, "manager"); err != nil {
		return nil, err
	}
	defer m.h.exit()
	raw := make([]C.kvbm_node_row_t, 16)
	for {
		var n C.size_t
		status := C.kvbm_manager_nodes(m.c(), unsafe.SliceData(raw), C.size_t(len(raw)), &n)
		if status < 0 {
			return nil, fail(op, status)
		}
		if int(n) > len(raw) {
			raw = make([]C.kvbm_node_row_t, n+n/4)
			continue
		}
		rows := make([]NodeRow, n)
		for i := range rows {
			rows[i] = nodeRow(&raw[i])
		}
		return rows, nil
	}
}

func nodeRow(r *C.kvbm_node_row_t) NodeRow {
	return NodeRow{Node: goID(r.node), Address: C.GoString(&r.address[0]), State: C.GoString(&r.state[0]),
		CapacityBytes: uint64(r.capacity_bytes), UsedBytes: uint64(r.used_bytes), Records: uint64(r.records),
		FetchedBytes: uint64(r.fetched_bytes), ServedBytes: uint64(r.served_bytes), Path: C.GoString(&r.path[0]),
		PathReason: C.GoString(&r.path_reason[0]), LocalBytes: uint64(r.local_bytes),
		Codec: CodecMode(r.codec), CodecAutomatic: r.codec_automatic != 0, CodecSealed: r.codec_sealed != 0,
		CodecRefused: uint32(r.codec_refused), CodecPlainBytes: uint64(r.codec_plain_bytes),
		CodecStoredBytes: uint64(r.codec_stored_bytes)}
}

// How long a wait stays in the library at a time, so that the end of a context is seen between.
const waitSlice = 100 * time.Millisecond

// WaitForPeers waits until every address of node.peers is a connected node that has reported its contents. The first
// lookup that asks nodes then asks all of them. Returns at once for a manager without node.peers. The error names the
// addresses that are not connected, and the reasons: [ErrDeadline] or [ErrCancelled] when ctx ends, [ErrPermission] if
// they refuse this node.
func (m *Manager) WaitForPeers(ctx context.Context) error {
	const op = "Manager.WaitForPeers"
	if ctx == nil {
		return invalid(op, "the context.Context is nil")
	}
	if err := m.handle().enter(op, "manager"); err != nil {
		return err
	}
	defer m.h.exit()
	for {
		var detail C.kvbm_error_t
		status := C.kvbm_manager_wait_for_peers(m.c(), timeoutOf(ctx, waitSlice), &detail)
		err := failWith(op, status, &detail)
		if status != C.KVBM_ERR_DEADLINE {
			return err
		}
		if ctx.Err() != nil {
			late := ended(op, ctx).(*Error)
			late.Message = err.(*Error).Message
			return late
		}
	}
}

// NodeAddress returns the address on which this manager listens, with the port that it got; "" if it does not.
func (m *Manager) NodeAddress() (string, error) {
	const op = "Manager.NodeAddress"
	if err := m.handle().enter(op, "manager"); err != nil {
		return "", err
	}
	defer m.h.exit()
	return twoPhase(op, func(out *C.char, capacity C.size_t, needed *C.size_t) C.kvbm_status_t {
		return C.kvbm_manager_node_address(m.c(), out, capacity, needed)
	})
}

// LocateOptions selects the parts, requests and nodes of a locate; nil and the zero value are the defaults.
type LocateOptions struct {
	Parts       []Part        // nil = component 0, whole model
	RequestKeys []int         // how many of the keys each request has, in turn; nil = all are one request's
	AskNodes    time.Duration // ask the nodes that are connected, and wait so long; 0 = own tiers alone
}

// Location is how far one node has the keys of one request.
type Location struct {
	Node    ID         // zero: this manager
	Request uint32     // index of the request
	Tier    TierNumber // the node's own number of it, 0 = its host memory
	Prefix  uint64     // leading keys that lie in this tier or faster ones
	InTier  uint64     // keys of the prefix of which something lies in this tier itself
	Bytes   uint64     // payload bytes of the prefix
}

// Locate says which node has the longest prefix of each request, and in which tiers: what a router compares before it
// sends a request somewhere. A *PartialError comes with locations: some node has not answered in time.
func (m *Manager) Locate(ns *Namespace, keys []Key, o *LocateOptions) ([]Location, error) {
	const op = "Manager.Locate"
	if err := enterBoth(op, m.handle(), "manager", ns.handle(), "namespace"); err != nil {
		return nil, err
	}
	defer m.h.exit()
	defer ns.h.exit()
	if o == nil {
		o = &LocateOptions{}
	}
	if o.AskNodes < 0 {
		return nil, invalid(op, "AskNodes is negative")
	}
	requests := make([]C.size_t, len(o.RequestKeys))
	for i, n := range o.RequestKeys {
		if n < 0 {
			return nil, invalid(op, "request %d has %d keys", i, n)
		}
		requests[i] = C.size_t(n)
	}
	var requestKeys *C.size_t
	if o.RequestKeys != nil {
		requestKeys = unsafe.SliceData(requests)
	}
	in, nKeys := keysOf(keys)
	raw := make([]C.kvbm_location_t, 64)
	for {
		var n C.size_t
		status := C.kvbmgo_locate(m.c(), ns.c(), in, nKeys, partsOf(o.Parts), C.size_t(len(o.Parts)), requestKeys,
			C.size_t(len(requests)), C.uint64_t(o.AskNodes), unsafe.SliceData(raw), C.size_t(len(raw)), &n)
		if status < 0 {
			return nil, fail(op, status)
		}
		if int(n) > len(raw) {
			raw = make([]C.kvbm_location_t, n+n/4)
			continue
		}
		return locations(op, raw[:n], status)
	}
}

func locations(op string, raw []C.kvbm_location_t, status C.kvbm_status_t) ([]Location, error) {
	rows := make([]Location, len(raw))
	for i := range raw {
		r := &raw[i]
		rows[i] = Location{Node: goID(r.node), Request: uint32(r.request), Tier: TierNumber(r.tier),
			Prefix: uint64(r.n_prefix), InTier: uint64(r.n_in_tier), Bytes: uint64(r.bytes)}
	}
	if status == C.KVBM_PARTIAL {
		return rows, &PartialError{Op: op}
	}
	return rows, nil
}
