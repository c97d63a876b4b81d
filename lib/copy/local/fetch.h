// Reads a record out of another process's pool: one verified copy, without a message to its owner.
//
// The owner may reuse the slot at any moment. The head is copied out first and the copy is checked (header checksum,
// root hash, identity). Then each leaf is copied and hashed in one pass, and its hash must be the one in that head. So
// the copied bytes are what the head promises, or the result is not ok and the target's bytes must not be used.
// README.md explains why no lease is needed for that.
// Budget: no system call, no allocation, no lock. Thread: any, also several on one slot.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"
#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"
#include "copy/local/remote_pool.h"

namespace kvbm::copy::local {

// Place of a record in memory that another process may be writing: one slot of a pool. Empty: no record.
struct RecordPlace {
  ConstBytes head;     // all space of the slot for a head
  ConstBytes payload;  // at most the pool's block_bytes
};
[[nodiscard]] RecordPlace place_of(const RemotePool& pool, SlotId slot) noexcept;

// Copies the head of the record at `place` into `room` and checks it: `out` views `room`. miss: the slot is empty, has
// another record, or its owner is changing it: the location is stale. no_room: `room` is smaller than both
// shape().head_stride and this head. `key` of that `family` is expected.
Code read_head(const RecordPlace& place, const Family& family, const Key& key, MutableBytes room,
               std::optional<codec::HeadView>& out) noexcept;
// Returns true if some record has its head there: the expected one was replaced, and is not merely unfinished.
[[nodiscard]] bool has_head(const RecordPlace& place) noexcept;

// Copies the whole payload, leaf by leaf, into `to` of header().stored_bytes. Stops at the first leaf that is not ok.
// miss: the slot was reused meanwhile; damaged: the head did not change, so the bytes are not what it promises, and the
// owner should check the slot; invalid_argument: `to` has another size; unsupported: a leaf is not stored raw.
Code fetch_record(const RecordPlace& place, const codec::HeadView& head, MutableBytes to,
                  codec::CopyHint hint) noexcept;

}  // namespace kvbm::copy::local
