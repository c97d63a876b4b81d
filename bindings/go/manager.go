// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"unsafe"
)

// Admission is which blocks of the host come into a tier.
type Admission uint32

// The admissions of kvbm.h.
const (
	AdmitAll        Admission = C.KVBM_ADMIT_ALL
	AdmitOnEviction Admission = C.KVBM_ADMIT_ON_EVICTION
	AdmitAfterUses  Admission = C.KVBM_ADMIT_AFTER_USES
	AdmitFrequency  Admission = C.KVBM_ADMIT_FREQUENCY
	AdmitOnRequest  Admission = C.KVBM_ADMIT_ON_REQUEST
)

// Tier is a tier below host memory: a disk, which has a Path, or a store, which has a URL.
type Tier struct {
	Path                string // a disk's directory
	URL                 string // a store: s3://bucket/prefix?region=..., file:///mnt/shared/kv; see docs/stores.md
	CapacityBytes       uint64 // hard cap of everything in the directory or store; of a store 0 = no cap
	WriteBytesPerSecond uint64 // cap of offload into it; 0 = none
	ReadBytesPerSecond  uint64 // cap of onboard from it; 0 = none
	Admission           Admission
	AdmissionUses       uint32 // AdmitAfterUses: n; AdmitFrequency: threshold; 1 to 15, 0 = 2
	Codec               string // how records are coded: "off" (as ""), "auto", "fast", "default", "max", "zstd"
	CodecGoal           uint32 // goal of "auto"; 0: blocks are onboarded sooner, 1: more blocks fit
}

// ManagerOptions is how a manager is made; the zero value takes everything from the configuration.
type ManagerOptions struct {
	Share             bool   // several processes of this host share the tier set, as with the option share=on
	BlockBytes        uint64 // largest payload of a record; 0 = configuration
	HostCapacityBytes uint64 // host tier, record heads included; 0 = configuration
	HostFile          string // keep host blocks in this tmpfs or hugetlbfs file over restarts; "" = anonymous
	Policy            string // eviction policy; "" = configuration
	Tiers             []Tier // fastest first; nil = configuration
}

// A Manager is the owner of one set of tiers.
type Manager struct {
	h    *handle
	core *contextCore
}

// NewManager makes a manager: maps the host tier, opens and recovers the tiers below.
func (c *Context) NewManager(o *ManagerOptions) (*Manager, error) {
	var flags uint32
	if o == nil {
		o = &ManagerOptions{}
	}
	if o.Share {
		flags = C.KVBM_MANAGER_SHARE
	}
	return c.newManager(o, flags)
}

func (c *Context) newManager(o *ManagerOptions, flags uint32) (*Manager, error) {
	const op = "Context.NewManager"
	if err := c.handle().enter(op, "context"); err != nil {
		return nil, err
	}
	defer c.h.exit()
	hostFile, err := text(op, "HostFile", o.HostFile)
	if err != nil {
		return nil, err
	}
	policy, err := text(op, "Policy", o.Policy)
	if err != nil {
		return nil, err
	}
	tiers, paths, err := packTiers(op, o.Tiers)
	if err != nil {
		return nil, err
	}
	var out *C.kvbm_manager_t
	var detail C.kvbm_error_t
	status := C.kvbmgo_manager_create((*C.kvbm_context_t)(c.h.ptr), C.uint32_t(flags), C.uint64_t(o.BlockBytes),
		C.uint64_t(o.HostCapacityBytes), chars(hostFile), chars(policy), chars(paths), unsafe.SliceData(tiers),
		C.size_t(len(tiers)), &out, &detail)
	if status < 0 {
		return nil, failWith(op, status, &detail)
	}
	owner := c.h
	owner.keep()
	return &Manager{core: c.core, h: newHandle("manager", unsafe.Pointer(out), func(p unsafe.Pointer) {
		C.kvbm_manager_release((*C.kvbm_manager_t)(p))
		owner.unkeep()
	})}, nil
}

func packTiers(op string, tiers []Tier) ([]C.kvbm_tier_t, []byte, error) {
	list := make([]C.kvbm_tier_t, len(tiers))
	var paths []byte
	var err error
	for i, t := range tiers {
		if (t.Path == "") == (t.URL == "") {
			if t.Path == "" {
				return nil, nil, invalid(op, "tier %d has no Path and no URL: a disk has one, a store the other", i)
			}
			return nil, nil, invalid(op, "tier %d has a Path and a URL: a disk has one, a store the other", i)
		}
		if paths, err = appendText(op, "a tier's path", paths, t.Path); err != nil {
			return nil, nil, err
		}
		if paths, err = appendText(op, "a tier's URL", paths, t.URL); err != nil {
			return nil, nil, err
		}
		if paths, err = appendText(op, "a tier's codec", paths, t.Codec); err != nil {
			return nil, nil, err
		}
		list[i] = C.kvbm_tier_t{capacity_bytes: C.uint64_t(t.CapacityBytes),
			write_bytes_per_s: C.uint64_t(t.WriteBytesPerSecond), read_bytes_per_s: C.uint64_t(t.ReadBytesPerSecond),
			admission: C.uint32_t(t.Admission), admission_uses: C.uint32_t(t.AdmissionUses),
			codec_goal: C.uint32_t(t.CodecGoal)}
	}
	return list, paths, nil
}

func (m *Manager) handle() *handle {
	if m == nil {
		return nil
	}
	return m.h
}

func (m *Manager) c() *C.kvbm_manager_t { return (*C.kvbm_manager_t)(m.h.ptr) }

// Close ends the manager. When the last of its namespaces, caches, matches and blocks is closed too, work in flight is
// finished and the tiers are closed; what was acknowledged is found again.
func (m *Manager) Close() error {
	if m != nil && m.h != nil {
		m.h.close()
	}
	return nil
}

// Reset forgets every block of every tier that nothing holds.
func (m *Manager) Reset() error {
	const op = "Manager.Reset"
	if err := m.handle().enter(op, "manager"); err != nil {
		return err
	}
	defer m.h.exit()
	var detail C.kvbm_error_t
	return failWith(op, C.kvbm_manager_reset(m.c(), &detail), &detail)
}

// Flush waits until no offload is queued or in flight: all blocks stored before are then in their tiers. The deadline
// of ctx is passed to the library. If ctx is cancelled, the flush continues in the library. A *PartialError without
// items means that a tier, or a shared tier set, did not accept some blocks.
func (m *Manager) Flush(ctx context.Context) error { return m.flush(ctx, "Manager.Flush", false) }

// FlushDurable does what Flush does, and returns nil only when what the disks have then survives the loss of power. A
// *PartialError also where a disk could not make something durable, which has left it: the next flush sends it again.
// [ErrUnsupported] where nothing was promised: no tier below host memory, or a plug-in tier.
func (m *Manager) FlushDurable(ctx context.Context) error {
	return m.flush(ctx, "Manager.FlushDurable", true)
}

func (m *Manager) flush(ctx context.Context, op string, durable bool) error {
	return callUntil(ctx, op, m.handle(), "manager", func() error {
		var status C.kvbm_status_t
		if durable {
			status = C.kvbm_manager_flush_durable(m.c(), timeoutOf(ctx, 0))
		} else {
			status = C.kvbm_manager_flush(m.c(), timeoutOf(ctx, 0))
		}
		if status == C.KVBM_PARTIAL {
			return &PartialError{Op: op}
		}
		return fail(op, status)
	})
}

// Subscribe sends block events to a queue (nil = stop). One queue per manager.
func (m *Manager) Subscribe(q *Queue) error {
	const op = "Manager.Subscribe"
	if err := m.handle().enter(op, "manager"); err != nil {
		return err
	}
	defer m.h.exit()
	if q == nil {
		return told(op, func() C.kvbm_status_t {
			return C.kvbm_manager_subscribe(m.c(), nil)
		})
	}
	if err := q.h.enter(op, "queue"); err != nil {
		return err
	}
	defer q.h.exit()
	return told(op, func() C.kvbm_status_t {
		return C.kvbm_manager_subscribe(m.c(), q.core.queue)
	})
}

// Metrics returns all metrics as Prometheus text exposition.
func (m *Manager) Metrics() (string, error) {
	const op = "Manager.Metrics"
	if err := m.handle().enter(op, "manager"); err != nil {
		return "", err
	}
	defer m.h.exit()
	return twoPhase(op, func(out *C.char, capacity C.size_t, needed *C.size_t) C.kvbm_status_t {
		return C.kvbm_manager_metrics(m.c(), out, capacity, needed)
	})
}
