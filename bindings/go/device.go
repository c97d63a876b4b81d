// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import "unsafe"

// DeviceMoves is what was moved in one direction between a device and host memory; leaves also by the way that they
// took.
type DeviceMoves struct {
	Batches, Leaves, Bytes                                    uint64
	BadLeaves                                                 uint64 // into the device: not what the record says; refused
	MappedLeaves, StagedLeaves, StraightLeaves, BouncedLeaves uint64
	DeviceNS                                                  uint64
}

// DeviceRow is a device that caches of a manager lie on, or lay on.
type DeviceRow struct {
	Ordinal     uint32
	Lost        bool // the device failed and is not used any more
	Name        string
	PCI         string
	State       string // "ready", or in words what is wrong
	MemoryBytes uint64
	PinnedBytes uint64      // of the host tier, registered with it
	Gathers     DeviceMoves // out of the device
	Scatters    DeviceMoves // into it
}

// Devices returns the devices that caches of this manager were attached on.
func (m *Manager) Devices() ([]DeviceRow, error) {
	const op = "Manager.Devices"
	if err := m.handle().enter(op, "manager"); err != nil {
		return nil, err
	}
	defer m.h.exit()
	raw := make([]C.kvbm_device_row_t, 4)
	for {
		var n C.size_t
		status := C.kvbm_manager_devices(m.c(), unsafe.SliceData(raw), C.size_t(len(raw)), &n)
		if status < 0 {
			return nil, fail(op, status)
		}
		if int(n) > len(raw) {
			raw = make([]C.kvbm_device_row_t, n)
			continue
		}
		rows := make([]DeviceRow, n)
		for i := range rows {
			r := &raw[i]
			rows[i] = DeviceRow{Ordinal: uint32(r.ordinal), Lost: r.lost != 0, Name: C.GoString(&r.name[0]),
				PCI: C.GoString(&r.pci[0]), State: C.GoString(&r.state[0]), MemoryBytes: uint64(r.memory_bytes),
				PinnedBytes: uint64(r.pinned_bytes), Gathers: deviceMoves(&r.gathers), Scatters: deviceMoves(&r.scatters)}
		}
		return rows, nil
	}
}

func deviceMoves(m *C.kvbm_device_moves_t) DeviceMoves {
	return DeviceMoves{Batches: uint64(m.batches), Leaves: uint64(m.leaves), Bytes: uint64(m.bytes),
		BadLeaves: uint64(m.bad_leaves), MappedLeaves: uint64(m.mapped_leaves), StagedLeaves: uint64(m.staged_leaves),
		StraightLeaves: uint64(m.straight_leaves), BouncedLeaves: uint64(m.bounced_leaves),
		DeviceNS: uint64(m.device_ns)}
}
