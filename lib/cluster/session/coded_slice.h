// Slices that travel coded, without loss, or sealed: their wire form (README.md, Coded slice), and who makes it.
//
// A coded slice is a whole record (lib/codec/README.md) whose identity is that of the pull: what another pull was
// answered with, what belongs elsewhere in the request and, where records are sealed, what anybody has changed on the
// way does not pass for it. Decoding gives the plain slice with the leaf hashes that the prefill side computed while it
// read engine memory, and they are compared once more while it is written into the blocks.
#pragma once

#include <cstdint>
#include <functional>

#include "base/bytes.h"
#include "base/function.h"
#include "base/status.h"
#include "cluster/session/facts.h"
#include "cluster/session/link.h"
#include "cluster/session/slice.h"
#include "cluster/session/wire.h"
#include "codec/coded_record.h"

namespace kvbm::cluster::session {

inline constexpr size_t kCodedFrontBytes = 128;

// Head of the record that stands for a slice, plain: one attribute says its positions.
constexpr size_t slice_record_head_bytes(uint32_t leaves) noexcept { return codec::head_bytes(leaves, 4 + 24); }

// Most bytes that a coded slice takes: sealed, and nothing of it could be made smaller.
constexpr uint64_t coded_slice_room(uint32_t leaves, uint64_t payload_bytes) noexcept {
  constexpr uint64_t kEach = codec::kSealTagBytes + codec::kSealedHashBytes;
  const uint64_t head = codec::coded_head_room(slice_record_head_bytes(leaves));
  return round_up(kCodedFrontBytes + head, 64) + payload_bytes + leaves * kEach;
}

// One slice in its slot of staging: front and payload, or the coded form of both.
struct SliceInSlot {
  SliceHead head;
  ModelId model{};
  layout::ComponentGeometry component;
  std::byte* slot = nullptr;
};

// What came looks like a coded slice; nothing of it is checked yet.
[[nodiscard]] bool is_coded_slice(const std::byte* slot, uint64_t bytes) noexcept;

// Memory beside the slot that one call needs, aligned to 64.
[[nodiscard]] uint64_t slice_scratch_bytes(uint32_t leaves, uint64_t payload_bytes) noexcept;

// As codec::encode_record() and decode_record(), by whoever knows modes and keys.
using RecordEncoder = std::function<Result<codec::CodedSizes>(const codec::HeadView& head, ConstBytes payload,
                                                              const codec::RecordForm& form, MutableBytes out_head,
                                                              MutableBytes out_payload)>;
using RecordDecoder = std::function<Status(const codec::HeadView& coded, ConstBytes stored, MutableBytes out_head,
                                           MutableBytes out_payload)>;

// From the payload and the hashes in the slot to the coded form there; returns its bytes. again: it would be no smaller,
// and the slot is as it was.
Result<uint64_t> encode_slice(const SliceInSlot& slice, MutableBytes scratch, const RecordEncoder& encode);
// From what came to front and payload; every byte was compared with its hash. What fails has not changed the slot.
// damaged: it is not the slice that `slice` says. Bounded by slot and scratch, whatever came.
Status decode_slice(const SliceInSlot& slice, uint64_t bytes, MutableBytes scratch, const RecordDecoder& decode);

// Codes slices aside, and knows when that is worth it. `done` runs exactly once, on the session's thread and never inside
// the call; until then the slot is the coder's. It may be dropped where that thread has ended.
class SliceCoder {
 public:
  struct Asked {
    SliceCoding coding;
    uint64_t asked_ns = 0;
    uint64_t bytes = 0;  // of the payload
    void* of = nullptr;  // the coder's own
  };
  enum class Plan : uint8_t { plain, coded, refused };
  using Done = UniqueFunction<void(const Status&, uint64_t bytes)>;

  virtual ~SliceCoder() = default;
  // Nothing may come or go that is not sealed.
  [[nodiscard]] virtual bool seals() const = 0;

  // ---- The decode side ----
  // How a slice is to be asked for. `again`: it came damaged before, so it is asked for plain where that is allowed.
  virtual Asked ask(PeerId peer, uint64_t bytes, bool again) = 0;
  // A plain slice has come: whether it may be used.
  virtual bool take_plain(PeerId peer) = 0;
  virtual void decode(PeerId peer, const SliceInSlot& slice, uint64_t bytes, Done done) = 0;
  // What came of it, of every one that was asked so. no: it is not here, or came in neither of these ways.
  enum class Came : uint8_t { no, plain, coded };
  virtual void ended(const Asked& asked, Came how) = 0;

  // ---- The prefill side ----
  // refused: the decode side could not open what must be sealed.
  [[nodiscard]] virtual Plan plan(const SliceCoding& coding) const = 0;
  // A pull that is answered plain.
  virtual void gave_plain() = 0;
  // again: the slot is as it was, to be sent plain.
  virtual void encode(const SliceInSlot& slice, const SliceCoding& coding, Done done) = 0;
};

}  // namespace kvbm::cluster::session
