// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

// ShareRole is what a process is in a shared tier set.
type ShareRole uint32

// The roles of kvbm.h.
const (
	ShareOff     ShareRole = C.KVBM_SHARE_OFF
	ShareOwner   ShareRole = C.KVBM_SHARE_OWNER
	ShareClient  ShareRole = C.KVBM_SHARE_CLIENT
	ShareNoOwner ShareRole = C.KVBM_SHARE_NO_OWNER // a client that is looking for the next owner
)

// Share is what this process is in a shared tier set.
type Share struct {
	Role          ShareRole
	OwnerPID      uint64 // 0: none
	Clients       uint64 // of this owner
	Takeovers     uint64 // 1: this process became the owner after another one
	OwnersLost    uint64 // links to an owner that ended
	SilentLookups uint64 // lookups that went on without the owner's answer
}

// Share says what this process is in a shared tier set.
func (m *Manager) Share() (Share, error) {
	const op = "Manager.Share"
	if err := m.handle().enter(op, "manager"); err != nil {
		return Share{}, err
	}
	defer m.h.exit()
	raw := C.kvbm_share_t{struct_size: C.sizeof_kvbm_share_t}
	if status := C.kvbm_manager_share(m.c(), &raw); status < 0 {
		return Share{}, fail(op, status)
	}
	return Share{Role: ShareRole(raw.role), OwnerPID: uint64(raw.owner_pid), Clients: uint64(raw.clients),
		Takeovers: uint64(raw.takeovers), OwnersLost: uint64(raw.owners_lost), SilentLookups: uint64(raw.silent_lookups)}, nil
}
