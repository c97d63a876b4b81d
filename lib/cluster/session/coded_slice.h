// Slices that are sent coded, without loss, or sealed: their wire form (README.md, Coded slice), and their coder.
//
// A coded slice is a whole record (lib/codec/README.md) with the identity of the pull. So an answer to another pull,
// data of another place in the request and, if records are sealed, data changed in transit are not accepted. Decoding
// gives the plain slice with the leaf hashes that the prefill side computed while it read engine memory. They are
// compared once more while the slice is written into the blocks.
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
#include "codec/coded/coded_record.h"

namespace kvbm::cluster::session {

inline constexpr size_t kCodedFrontBytes = 128;

// Head of the plain record that stands for a slice: one attribute has its positions.
constexpr size_t slice_record_head_bytes(uint32_t leaves) noexcept { return codec::head_bytes(leaves, 4 + 24); }

// Returns the most bytes that a coded slice takes: sealed, and not smaller than plain.
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

// Returns true if the received bytes look like a coded slice; nothing of it is checked yet.
[[nodiscard]] bool is_coded_slice(const std::byte* slot, uint64_t bytes) noexcept;

// Returns the size of the memory that one call needs beside the slot, aligned to 64.
[[nodiscard]] uint64_t slice_scratch_bytes(uint32_t leaves, uint64_t payload_bytes) noexcept;

// Functions like codec::encode_record() and decode_record(), with the caller's modes and keys.
using RecordEncoder = std::function<Result<codec::CodedSizes>(const codec::HeadView& head, ConstBytes payload,
                                                              const codec::RecordForm& form, MutableBytes out_head,
                                                              MutableBytes out_payload)>;
using RecordDecoder = std::function<Status(const codec::HeadView& coded, ConstBytes stored, MutableBytes out_head,
                                           MutableBytes out_payload)>;

// Codes the payload and the hashes in the slot in place; returns the bytes. again: it would be no smaller, and the
// slot is unchanged.
Result<uint64_t> encode_slice(const SliceInSlot& slice, MutableBytes scratch, const RecordEncoder& encode);
// Decodes received bytes to front and payload, and compares every byte with its hash. A failure leaves the slot
// unchanged. damaged: it is not the slice that `slice` describes. Bounded by slot and scratch, whatever was received.
Status decode_slice(const SliceInSlot& slice, uint64_t bytes, MutableBytes scratch, const RecordDecoder& decode);

// Codes slices on other threads, and decides when that is worth it. `done` runs exactly once, on the session's thread
// and never inside the call; until then the coder owns the slot. `done` may be dropped if that thread has ended.
class SliceCoder {
 public:
  struct Asked {
    wire::Coding coding;
    uint64_t asked_ns = 0;
    uint64_t bytes = 0;  // of the payload
    void* of = nullptr;  // owned by the coder
  };
  enum class Plan : uint8_t { plain, coded, refused };
  using Done = UniqueFunction<void(const Status&, uint64_t bytes)>;

  virtual ~SliceCoder() = default;
  // Returns true if unsealed slices must be neither accepted nor sent.
  [[nodiscard]] virtual bool seals() const = 0;

  // ---- The decode side ----
  //
  // Decides how to request a slice. `again`: it arrived damaged before, so it is requested plain if that is allowed.
  virtual Asked ask(PeerId peer, uint64_t bytes, bool again) = 0;
  // Returns true if a plain slice that has arrived may be used.
  virtual bool take_plain(PeerId peer) = 0;
  virtual void decode(PeerId peer, const SliceInSlot& slice, uint64_t bytes, Done done) = 0;
  // Reports the outcome of each slice that ask() allowed to be coded. no: the slice did not arrive, or arrived neither
  // plain nor coded.
  enum class Came : uint8_t { no, plain, coded };
  virtual void ended(const Asked& asked, Came how) = 0;

  // ---- The prefill side ----
  //
  // Decides how to answer. refused: the decode side could not open a slice that must be sealed.
  [[nodiscard]] virtual Plan plan(const wire::Coding& coding) const = 0;
  // Counts a pull that is answered plain.
  virtual void gave_plain() = 0;
  // Codes a slice. again: the slot is unchanged, to be sent plain.
  virtual void encode(const SliceInSlot& slice, const wire::Coding& coding, Done done) = 0;
};

}  // namespace kvbm::cluster::session
