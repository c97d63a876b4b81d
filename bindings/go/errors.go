// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"strings"
)

// Status is a kvbm_status_t: 0 done, above 0 accepted or partly done, below 0 failed.
type Status int32

// The statuses of kvbm.h.
const (
	StatusOK           Status = C.KVBM_OK
	StatusPartial      Status = C.KVBM_PARTIAL
	StatusInvalid      Status = C.KVBM_ERR_INVALID
	StatusStale        Status = C.KVBM_ERR_STALE
	StatusForeign      Status = C.KVBM_ERR_FOREIGN
	StatusState        Status = C.KVBM_ERR_STATE
	StatusForked       Status = C.KVBM_ERR_FORKED
	StatusConfig       Status = C.KVBM_ERR_CONFIG
	StatusInUse        Status = C.KVBM_ERR_IN_USE
	StatusExists       Status = C.KVBM_ERR_EXISTS
	StatusNoRoom       Status = C.KVBM_ERR_NO_ROOM
	StatusQuota        Status = C.KVBM_ERR_QUOTA
	StatusAgain        Status = C.KVBM_ERR_AGAIN
	StatusNoMemory     Status = C.KVBM_ERR_NO_MEMORY
	StatusDiskFull     Status = C.KVBM_ERR_DISK_FULL
	StatusLimit        Status = C.KVBM_ERR_LIMIT
	StatusDeadline     Status = C.KVBM_ERR_DEADLINE
	StatusCancelled    Status = C.KVBM_ERR_CANCELLED
	StatusOwnerGone    Status = C.KVBM_ERR_OWNER_GONE
	StatusClosed       Status = C.KVBM_ERR_CLOSED
	StatusMiss         Status = C.KVBM_ERR_MISS
	StatusDamaged      Status = C.KVBM_ERR_DAMAGED
	StatusMismatch     Status = C.KVBM_ERR_MISMATCH
	StatusUnsupported  Status = C.KVBM_ERR_UNSUPPORTED
	StatusVersion      Status = C.KVBM_ERR_VERSION
	StatusPermission   Status = C.KVBM_ERR_PERMISSION
	StatusInternal     Status = C.KVBM_ERR_INTERNAL
	StatusIO           Status = C.KVBM_ERR_IO
	StatusTierDisabled Status = C.KVBM_ERR_TIER_DISABLED
)

// String returns the symbolic name, "KVBM_ERR_NO_ROOM".
func (s Status) String() string { return C.GoString(C.kvbm_status_name(C.kvbm_status_t(s))) }

// Text returns a sentence that says what the status means and what to do.
func (s Status) Text() string { return C.GoString(C.kvbm_status_text(C.kvbm_status_t(s))) }

// Band returns the band of a failure, or 0.
func (s Status) Band() Band {
	if b := Band(s / 100); b <= BandCaller && b >= BandInternal {
		return b
	}
	return 0
}

// Band is a range of statuses with the same remedy.
type Band int32

// The bands of kvbm.h.
const (
	BandCaller      Band = -1 // the call is wrong: fix the caller
	BandRoom        Band = -2 // no room: release, evict, wait or raise a limit
	BandPeer        Band = -3 // time, peers and owners: try again, or elsewhere
	BandMiss        Band = -4 // not here or not trustworthy: compute
	BandUnavailable Band = -5 // not available here
	BandInternal    Band = -6 // the library's or the system's fault
)

type bandError struct {
	band Band
	text string
}

func (e *bandError) Error() string { return "kvbm: " + e.text }

// Band values for errors.Is: every error of the band is one.
var (
	ErrCaller      error = &bandError{BandCaller, "the call is wrong"}
	ErrRoom        error = &bandError{BandRoom, "no room"}
	ErrPeer        error = &bandError{BandPeer, "too late, or a peer or owner is gone"}
	ErrMiss        error = &bandError{BandMiss, "not here, or not trustworthy"}
	ErrUnavailable error = &bandError{BandUnavailable, "not available here"}
	ErrInternal    error = &bandError{BandInternal, "an internal or system failure"}
)

type statusError struct{ status Status }

func (e *statusError) Error() string { return "kvbm: " + e.status.String() }

// Status values for errors.Is. ErrMiss and ErrInternal are the bands; their first members end in Status.
var (
	ErrInvalid        error = &statusError{StatusInvalid}
	ErrStale          error = &statusError{StatusStale}
	ErrForeign        error = &statusError{StatusForeign}
	ErrState          error = &statusError{StatusState}
	ErrForked         error = &statusError{StatusForked}
	ErrConfig         error = &statusError{StatusConfig}
	ErrInUse          error = &statusError{StatusInUse}
	ErrExists         error = &statusError{StatusExists}
	ErrNoRoom         error = &statusError{StatusNoRoom}
	ErrQuota          error = &statusError{StatusQuota}
	ErrAgain          error = &statusError{StatusAgain}
	ErrNoMemory       error = &statusError{StatusNoMemory}
	ErrDiskFull       error = &statusError{StatusDiskFull}
	ErrLimit          error = &statusError{StatusLimit}
	ErrDeadline       error = &statusError{StatusDeadline}
	ErrCancelled      error = &statusError{StatusCancelled}
	ErrOwnerGone      error = &statusError{StatusOwnerGone}
	ErrClosed         error = &statusError{StatusClosed}
	ErrMissStatus     error = &statusError{StatusMiss}
	ErrDamaged        error = &statusError{StatusDamaged}
	ErrMismatch       error = &statusError{StatusMismatch}
	ErrUnsupported    error = &statusError{StatusUnsupported}
	ErrVersion        error = &statusError{StatusVersion}
	ErrPermission     error = &statusError{StatusPermission}
	ErrInternalStatus error = &statusError{StatusInternal}
	ErrIO             error = &statusError{StatusIO}
	ErrTierDisabled   error = &statusError{StatusTierDisabled}
)

// Error is a call that failed.
type Error struct {
	Op      string // the called method, "Cache.Store"
	Status  Status
	Message string // the refused argument, the reason and the remedy
	cause   error
}

func (e *Error) Error() string {
	return fmt.Sprintf("kvbm: %s: %s: %s", e.Op, e.Status, e.Message)
}

// Band returns the band of the status.
func (e *Error) Band() Band { return e.Status.Band() }

// Unwrap returns what lies behind the error: io/fs.ErrClosed for a closed object, the end of a context.Context.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is the status or the band of the error, or what package context has for it.
func (e *Error) Is(target error) bool { return e.Status.is(target) }

func (s Status) is(target error) bool {
	switch t := target.(type) {
	case *statusError:
		return t.status == s
	case *bandError:
		return t.band == s.Band()
	}
	return s == StatusDeadline && target == context.DeadlineExceeded ||
		s == StatusCancelled && target == context.Canceled
}

// PartialError is a batch of which some items were not done. It is errors.Is of the status and the band of each item
// that failed.
type PartialError struct {
	Op    string
	Items []Status // one for each item of the batch, StatusOK where it was done; nil where the call gives none
	cause error
}

// Unwrap returns the end of the context.Context, where that is what ended the batch.
func (e *PartialError) Unwrap() error { return e.cause }

// Status returns StatusPartial.
func (e *PartialError) Status() Status { return StatusPartial }

func (e *PartialError) Error() string {
	failed := 0
	first := StatusPartial
	for _, s := range e.Items {
		if s < 0 {
			if failed == 0 {
				first = s
			}
			failed++
		}
	}
	if failed == 0 {
		return "kvbm: " + e.Op + ": " + StatusPartial.String() + ": " + StatusPartial.Text()
	}
	return fmt.Sprintf("kvbm: %s: %d of %d items failed, the first with %s: %s", e.Op, failed, len(e.Items), first,
		first.Text())
}

// Is reports whether an item failed with the status or the band of target.
func (e *PartialError) Is(target error) bool {
	for _, s := range e.Items {
		if s < 0 && s.is(target) {
			return true
		}
	}
	return false
}

// fail makes the error of a call that gives a status alone.
func fail(op string, status C.kvbm_status_t) error {
	if status >= 0 {
		return nil
	}
	s := Status(status)
	return &Error{Op: op, Status: s, Message: s.Text()}
}

// Makes the call and, if it fails, returns an error with the library's details. The details belong to the calling
// thread, so the goroutine stays on it.
func told(op string, call func() C.kvbm_status_t) error {
	_, err := toldStatus(op, call)
	return err
}

// toldStatus also returns the status, for a call that may be done in part.
func toldStatus(op string, call func() C.kvbm_status_t) (C.kvbm_status_t, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status := call()
	return status, failHere(op, status)
}

// failHere makes the error of a call that this thread has just made; the goroutine has stayed on it.
func failHere(op string, status C.kvbm_status_t) error {
	if status >= 0 {
		return nil
	}
	var detail C.kvbm_error_t
	C.kvbm_error_last(&detail)
	return failWith(op, status, &detail)
}

// failWith makes the error of a call that also gives particulars.
func failWith(op string, status C.kvbm_status_t, detail *C.kvbm_error_t) error {
	if status >= 0 {
		return nil
	}
	s := Status(status)
	message := s.Text()
	if detail.status == status && detail.message[0] != 0 {
		message = C.GoString(&detail.message[0])
	}
	return &Error{Op: op, Status: s, Message: message}
}

func invalid(op, format string, args ...any) error {
	return &Error{Op: op, Status: StatusInvalid, Message: fmt.Sprintf(format, args...)}
}

// ended makes the error of a call that its context.Context ended.
func ended(op string, ctx context.Context) error {
	status := StatusCancelled
	if ctx.Err() == context.DeadlineExceeded {
		status = StatusDeadline
	}
	return &Error{Op: op, Status: status, Message: "the context ended: " + context.Cause(ctx).Error(),
		cause: context.Cause(ctx)}
}

// text makes the bytes of a C string, nil for "". Bytes after a zero would be lost in C, so a zero is refused.
func text(op, what, s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	return appendText(op, what, nil, s)
}

func appendText(op, what string, to []byte, s string) ([]byte, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return nil, invalid(op, "%s has a zero byte in it", what)
	}
	return append(append(to, s...), 0), nil
}
