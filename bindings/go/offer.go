// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"encoding/hex"
	"time"
	"unsafe"
)

// RequestID names a request on every rank of both sides: a UUID, say; never used again.
type RequestID [16]byte

// String returns the bytes in hexadecimal.
func (r RequestID) String() string { return hex.EncodeToString(r[:]) }

func (r *RequestID) c() *C.kvbm_request_id_t { return (*C.kvbm_request_id_t)(unsafe.Pointer(r)) }

// OfferOptions is how blocks are offered; nil and the zero value are the defaults.
type OfferOptions struct {
	Rank          uint32        // this prefill rank, as decode sides name it; below 65,536
	FirstPosition uint64        // of the first block
	Begin         uint64        // positions [Begin, End) are offered; before the first block = from there on
	End           uint64        // 0 = to the end of the blocks
	Timeout       time.Duration // of the whole offer; 0 = 60 s, negative = at once
	Queue         *Queue        // gets the OpOffer completion; nil = none
	UserData      uint64
}

// An Offer is the blocks of a request that decode nodes may read.
type Offer struct{ h *handle }

// OpenOffer offers the blocks of a request to decode nodes. Nothing is read before it is published. The blocks are the
// library's to read, and must keep what was published, until the offer has ended.
func (c *Cache) OpenOffer(request RequestID, blockIDs []uint32, o *OfferOptions) (*Offer, error) {
	const op = "Cache.OpenOffer"
	if err := c.handle().enter(op, "cache"); err != nil {
		return nil, err
	}
	defer c.h.exit()
	if o == nil {
		o = &OfferOptions{}
	}
	n, err := c.idsOfAPart(op, blockIDs)
	if err != nil {
		return nil, err
	}
	var options C.kvbm_offer_options_t
	C.kvbm_offer_options_init(&options, C.sizeof_kvbm_offer_options_t)
	options.rank = C.uint32_t(o.Rank)
	options.first_position = C.uint64_t(o.FirstPosition)
	options.begin = C.uint64_t(o.Begin)
	options.end = C.uint64_t(o.End)
	if o.Timeout != 0 {
		options.timeout_ns = C.uint64_t(max(o.Timeout, 0))
	}
	var out *C.kvbm_offer_t
	var detail C.kvbm_error_t
	status, err := onQueue(op, o.Queue, o.UserData, func(queue *C.kvbm_queue_t, id C.uint64_t) C.kvbm_status_t {
		return C.kvbm_offer_open(c.c(), request.c(), (*C.uint32_t)(unsafe.SliceData(blockIDs)), n, &options, queue, id,
			&out, &detail)
	})
	if err != nil {
		return nil, err
	}
	if status < 0 {
		return nil, failWith(op, status, &detail)
	}
	owner := c.manager // not the cache: closing that waits for this
	owner.keep()
	return &Offer{newHandle("offer", unsafe.Pointer(out), func(p unsafe.Pointer) {
		C.kvbm_offer_release((*C.kvbm_offer_t)(p))
		owner.unkeep()
	})}, nil
}

// idsOfAPart returns how many block ids each part has.
func (c *Cache) idsOfAPart(op string, blockIDs []uint32) (C.size_t, error) {
	if len(blockIDs)%c.parts != 0 {
		return 0, invalid(op, "%d block ids cannot be shared by %d parts", len(blockIDs), c.parts)
	}
	return C.size_t(len(blockIDs) / c.parts), nil
}

// onQueue makes a call with its completion on q, which may be nil.
func onQueue(op string, q *Queue, userData uint64, call func(*C.kvbm_queue_t, C.uint64_t) C.kvbm_status_t) (
	C.kvbm_status_t, error) {
	if q == nil {
		return call(nil, 0), nil
	}
	if err := q.h.enter(op, "queue"); err != nil {
		return 0, err
	}
	defer q.h.exit()
	_, status := q.core.submit(0, false, userData, func(_ *C.kvbmgo_pending_t, id C.uint64_t) C.kvbm_status_t {
		return call(q.core.queue, id)
	})
	return status, nil
}

func (o *Offer) handle() *handle {
	if o == nil {
		return nil
	}
	return o.h
}

func (o *Offer) c() *C.kvbm_offer_t { return (*C.kvbm_offer_t)(o.h.ptr) }

// Close ends the offer; one that goes on is aborted, and its completion still comes.
func (o *Offer) Close() error {
	if o != nil && o.h != nil {
		if !o.h.closed() {
			o.Abort("") // wakes its waiters
		}
		o.h.close()
	}
	return nil
}

// Publish says that positions [begin, end) of layers [firstLayer, firstLayer+layers) of a component are computed and in
// memory. layers 0 = all from firstLayer on, end 0 = to the last position. ErrStale: the offer has ended.
func (o *Offer) Publish(component, firstLayer, layers uint32, begin, end uint64) error {
	const op = "Offer.Publish"
	if err := o.handle().enter(op, "offer"); err != nil {
		return err
	}
	defer o.h.exit()
	var detail C.kvbm_error_t
	return failWith(op, C.kvbm_offer_publish(o.c(), C.uint32_t(component), C.uint32_t(firstLayer), C.uint32_t(layers),
		C.uint64_t(begin), C.uint64_t(end), &detail), &detail)
}

// PublishOnStream is Publish for a cache on a device, once the stream has done what it holds now: called behind the
// kernels that compute the layer, it waits for nothing, and nothing on the stream waits for it.
func (o *Offer) PublishOnStream(component, firstLayer, layers uint32, begin, end uint64, stream Stream) error {
	const op = "Offer.PublishOnStream"
	if err := o.handle().enter(op, "offer"); err != nil {
		return err
	}
	defer o.h.exit()
	var detail C.kvbm_error_t
	return failWith(op, C.kvbmgo_publish_on_stream(o.c(), C.uint32_t(component), C.uint32_t(firstLayer),
		C.uint32_t(layers), C.uint64_t(begin), C.uint64_t(end), C.uint64_t(stream), &detail), &detail)
}

// PublishAll publishes everything that is offered.
func (o *Offer) PublishAll() error {
	const op = "Offer.PublishAll"
	if err := o.handle().enter(op, "offer"); err != nil {
		return err
	}
	defer o.h.exit()
	var detail C.kvbm_error_t
	return failWith(op, C.kvbm_offer_publish_all(o.c(), &detail), &detail)
}

// Abort ends the offer. Decode ranks that wait for it receive the reason. The blocks are in use until it has ended
// (Wait). ErrStale if it has ended.
func (o *Offer) Abort(reason string) error {
	const op = "Offer.Abort"
	why, err := text(op, "the reason", reason)
	if err != nil {
		return err
	}
	if err := o.handle().enter(op, "offer"); err != nil {
		return err
	}
	defer o.h.exit()
	return fail(op, C.kvbm_offer_abort(o.c(), chars(why)))
}

// Wait waits until the offer has ended and says how: nil if every decode rank was served. When ctx ends first the offer
// goes on.
func (o *Offer) Wait(ctx context.Context) error {
	const op = "Offer.Wait"
	return callUntil(ctx, op, o.handle(), "offer", func() error {
		return o.waitNS(op, uint64(timeoutOf(ctx, 0)))
	})
}

func (o *Offer) waitNS(op string, timeoutNS uint64) error {
	var detail C.kvbm_error_t
	return failWith(op, C.kvbm_offer_wait(o.c(), C.uint64_t(timeoutNS), &detail), &detail)
}
