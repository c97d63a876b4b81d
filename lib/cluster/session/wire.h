// Messages of a session and the head of a slice, as bytes. Normative: README.md.
//
// Decoding checks every size and count against the message before use, and every reserved byte. It also checks that
// the parts and facts of an OPEN or ACCEPT are inside the limits of facts.h. Nothing here keeps state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "cluster/session/block_map.h"
#include "cluster/session/facts.h"
#include "cluster/wire/wire.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::cluster::session {

inline constexpr uint8_t kWireVersion = 1;
inline constexpr size_t kHeaderBytes = 24;
// Limit of a message, well below what a transport takes (64 KiB).
inline constexpr size_t kMaxMessageBytes = 8192;
inline constexpr size_t kMaxPublishedEntries = 256;
inline constexpr size_t kMaxPullEntries = 64;
inline constexpr size_t kMaxTextBytes = 512;
inline constexpr size_t kMaxPlaceBytes = 64;
inline constexpr size_t kMaxSharedBytes = 256;
inline constexpr uint32_t kMaxSharedSlots = 1U << 16;
inline constexpr size_t kMaxReleaseTags = 512;

// Ways by which a payload may be sent, besides directly behind its head. Bits of Open, Accept (each side's abilities)
// and PullEntry (ways that this pull may use). Sent only to peers that know them (Link::takes_ways); unknown bits are
// ignored.
inline constexpr uint8_t kWayShared = 1;  // the payload stays in device memory that the decode side has mapped
inline constexpr uint8_t kWayCoded = 2;   // coded or sealed behind the head, as the message has it (coded_slice.h)
inline constexpr uint8_t kWayApart = 4;   // under a tag of its own: that of the pull with kPayloadBit
inline constexpr uint64_t kPayloadBit = 0x8000;

// Odd values are for the prefill side (Sender), even ones for the decode side (Receiver).
enum class Type : uint8_t {
  open = 1,
  accept = 2,
  pull = 3,
  published = 4,
  done = 5,
  source_abort = 6,
  sink_abort = 7,
  shared = 8,
  map = 9,
  release = 11,
};
inline bool goes_to_sender(Type type) noexcept { return static_cast<uint8_t>(type) % 2 == 1; }

// Several ranks may share one connection, so each message names both.
struct Header {
  Type type = Type::done;
  uint16_t source_rank = 0;
  uint16_t sink_rank = 0;
  uint64_t session = 0;   // chosen by the decode side; never 0, never reused on a connection
  uint32_t sequence = 0;  // from 0, of this session, pair of ranks and direction
};

struct Open {
  RequestId request;
  uint64_t remaining_ns = 0;  // until the decode side gives up; clocks of two nodes do not agree
  uint16_t sink_count = 1;    // decode ranks that will open this request
  uint32_t slice_bytes = 0;   // limit of one pull
  Facts facts;
  std::vector<Part> parts;  // parts that the decode rank wants
  uint16_t ways = 0;
};

struct Accept {
  uint64_t facts_hash = 0;
  uint32_t slice_bytes = 0;  // limit of one pull
  std::vector<Part> parts;   // parts that the prefill rank has or will have
  // Parallel to parts: 0, or the grain at which its slices may be cut (block_grain). Sent only to peers that know it
  // (Link::takes_grain).
  std::vector<uint32_t> grains = {};
  // Flag in grains: the memory is a device's, for which a grain pays.
  static constexpr uint32_t kOnDevice = 0x8000'0000U;
  uint16_t ways = 0;
};

struct PublishedEntry {
  Component component = 0;
  uint16_t first_layer = 0;
  uint16_t layers = 0;
  Range range;
};
struct Published {
  std::vector<PublishedEntry> entries;
};

struct PullEntry {
  uint64_t tag = 0;
  uint32_t slice = 0;
  Extent extent;
  uint8_t ways = 0;
};
struct Pull {
  std::vector<PullEntry> entries;
  wire::Coding coding = {};  // for entries with kWayCoded; sent only if there is one
};

struct Done {};

struct Abort {
  Code code = Code::cancelled;
  std::string text;
};

// Sent by the decode side: its place, and a request for memory in which payloads may stay.
struct Map {
  std::vector<std::byte> place;  // in its mover's form, at most kMaxPlaceBytes
};

// The answer: consecutive slots of equal size in the memory, or why there are none.
struct Shared {
  Code code = Code::ok;
  uint32_t slots = 0;
  uint64_t slot_bytes = 0;
  std::vector<std::byte> memory;  // in the form of the prefill side's mover; empty if code is not ok
  std::string text;               // the reason in that case
};

// Payloads of these pulls were read, or will not be: their slots may be reused.
struct Release {
  std::vector<uint64_t> tags;
};

using Body = std::variant<Open, Accept, Published, Pull, Done, Abort, Map, Shared, Release>;

// Encodes a message. The header's type follows from the body; only for Abort the header's own is kept.
std::vector<std::byte> encode(Header header, const Body& body);
// Decodes the header of a message. damaged: not a message. newer_version.
Result<Header> peek(ConstBytes bytes);
// Decodes the body of a message, and checks all of it: as peek(); damaged also for an impossible count, size or value.
Result<Body> decode(ConstBytes bytes);

// Precedes the payload of every slice: proves the slice's identity, and carries the leaf hashes.
struct SliceHead {
  uint64_t session = 0;
  uint64_t tag = 0;
  RequestId request;
  uint32_t slice = 0;
  uint32_t payload_bytes = 0;
  uint32_t leaves = 0;
  uint32_t row_bytes = 0;
  Extent extent;
  // 0: the payload follows; kPlaceApart: it is sent kWayApart; else it is in slot place - 1 of the shared memory.
  uint32_t place = 0;
  bool operator==(const SliceHead&) const = default;
};
inline constexpr uint32_t kPlaceApart = UINT32_MAX;
inline constexpr size_t kSliceHeadBytes = 96;

// Head and hashes, padded so that the payload behind them is aligned like them.
constexpr size_t slice_front_bytes(uint32_t leaves) noexcept {
  return (kSliceHeadBytes + size_t{leaves} * 8 + 63) & ~size_t{63};
}
// Returns the place of the hashes: written first, then sealed by encode.
inline std::byte* slice_hashes(std::byte* front) noexcept { return front + kSliceHeadBytes; }
// Writes the head in front of the hashes that are already in `front`, and its own hash over both.
void encode_slice_front(const SliceHead& head, std::byte* front) noexcept;
// Returns the head's value for the payload's place; nothing of it is checked yet.
uint32_t slice_place(const std::byte* front) noexcept;
// Returns true if `front` (slice_front_bytes(want.leaves) long) exactly matches `want`, and is undamaged.
bool check_slice_front(const SliceHead& want, std::byte* front) noexcept;

}  // namespace kvbm::cluster::session
