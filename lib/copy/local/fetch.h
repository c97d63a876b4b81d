// Reading a record out of another process's pool: one verified copy, and no word to its owner.
//
// The owner may reuse the slot at any moment of it. The head is copied out first and checked there (header checksum,
// root hash, identity); then each leaf is copied and hashed in one pass, and its hash must be the one of that head. So
// what was written is what the head promises, or the answer is not ok and the target's bytes mean nothing. README.md
// says why no lease is needed for that.
// Budget: no system call, no allocation, no lock. Thread: any, also several on one slot.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"
#include "codec/leaf_hash.h"
#include "codec/record.h"
#include "copy/local/remote_pool.h"

namespace kvbm::copy::local {

// Where a record lies in memory that somebody else may be writing: one slot of a pool. Empty: nowhere.
struct RecordPlace {
  ConstBytes head;     // the slot's whole room for one
  ConstBytes payload;  // at most the pool's block_bytes
};
[[nodiscard]] RecordPlace place_of(const RemotePool& pool, SlotId slot) noexcept;

// The head of the record in that slot, copied into `room` and checked: `out` views `room`. miss: nothing is there, or
// another record, or its owner is at it: the location is stale. no_room: `room` is smaller than shape().head_stride and
// than this head. `key` of that `family` is what is expected.
Code read_head(const RecordPlace& place, const Family& family, const Key& key, MutableBytes room,
               std::optional<codec::HeadView>& out) noexcept;
Code read_head(const RemotePool& pool, SlotId slot, const Family& family, const Key& key, MutableBytes room,
               std::optional<codec::HeadView>& out) noexcept;
// Some record, whichever, has its head there: what was expected has been replaced, it is not only unfinished.
[[nodiscard]] bool has_head(const RecordPlace& place) noexcept;

// Where one leaf goes: runs that take exactly its bytes.
struct LeafTarget {
  uint32_t leaf = 0;
  std::span<const StridedRun> to;
};

// Copies the leaves wanted. status, if not empty, gets one code per target: ok; miss: the slot was reused meanwhile;
// damaged: the head did not change, so the bytes are not what it promises, and the owner should look at the slot;
// invalid_argument: no such leaf, or runs of another size; unsupported: the leaf is not stored raw.
// ok | partial: some are ok | the first code that is not ok.
Code fetch(const RemotePool& pool, SlotId slot, const codec::HeadView& head, std::span<const LeafTarget> targets,
           std::span<Code> status, codec::CopyHint hint) noexcept;

// The whole payload, one leaf after the other, into `to` of header().stored_bytes. Ends at the first wrong leaf.
Code fetch_record(const RecordPlace& place, const codec::HeadView& head, MutableBytes to,
                  codec::CopyHint hint) noexcept;
Code fetch_record(const RemotePool& pool, SlotId slot, const codec::HeadView& head, MutableBytes to,
                  codec::CopyHint hint) noexcept;

}  // namespace kvbm::copy::local
