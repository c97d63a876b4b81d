// Messages of a session and the head of a slice, as bytes. Normative: README.md.
//
// Decoding checks every size and count against the message before use, every reserved byte, and that the
// parts and facts of an OPEN or ACCEPT are inside the limits of facts.h. Nothing here keeps state.
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
#include "codec/leaf_hash.h"

namespace kvbm::cluster::session {

inline constexpr uint8_t kWireVersion = 1;
inline constexpr size_t kHeaderBytes = 24;
// A message never exceeds this, well below what a transport takes (64 KiB).
inline constexpr size_t kMaxMessageBytes = 8192;
inline constexpr size_t kMaxPublishedEntries = 256;
inline constexpr size_t kMaxPullEntries = 64;
inline constexpr size_t kMaxTextBytes = 512;
inline constexpr size_t kMaxPlaceBytes = 64;
inline constexpr size_t kMaxSharedBytes = 256;
inline constexpr uint32_t kMaxSharedSlots = 1U << 16;
inline constexpr size_t kMaxReleaseTags = 512;

// By which ways a payload may come, beside behind its head: bits of Open, Accept (what each side can) and PullEntry (what
// this pull may use). Said only to who understands them (Link::takes_ways); unknown ones are ignored.
inline constexpr uint8_t kWayShared = 1;  // it stays in memory of a device that the decode side has mapped
inline constexpr uint8_t kWayCoded = 2;   // coded or sealed behind the head, as the message says (coded_slice.h)
inline constexpr uint8_t kWayApart = 4;   // under a tag of its own, the pull's with kPayloadBit; the front alone under the pull's
inline constexpr uint64_t kPayloadBit = 0x8000;

// Odd ones go to the prefill side (Sender), even ones to the decode side (Receiver).
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

// Several ranks may live behind one connection, so each message names both.
struct Header {
  Type type = Type::done;
  uint16_t source_rank = 0;
  uint16_t sink_rank = 0;
  uint64_t session = 0;   // chosen by the decode side; never 0, never used again on a connection
  uint32_t sequence = 0;  // from 0, of this session, pair of ranks and direction
};

struct Open {
  RequestId request;
  uint64_t remaining_ns = 0;  // until the decode side gives up; clocks of two nodes do not agree
  uint16_t sink_count = 1;    // decode ranks that will open this request
  uint32_t slice_bytes = 0;   // the most that one pull asks for
  Facts facts;
  std::vector<Part> parts;  // what the decode rank wants
  uint16_t ways = 0;
};

struct Accept {
  uint64_t facts_hash = 0;
  uint32_t slice_bytes = 0;  // the most that one pull may ask for
  std::vector<Part> parts;   // what the prefill rank has or will have
  // Like parts: 0, or how its slices may be cut (block_grain). Said only to who understands it (Link::takes_grain).
  std::vector<uint32_t> grains = {};
  // Like grains: its memory is a device's, to which a grain is worth it.
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
// How pulls may be answered, as a fetch says it (cluster/wire.h, Coding); zero: plain.
struct SliceCoding {
  uint8_t mode = 0;     // codec::Mode
  uint8_t flags = 0;    // 1: the decode side opens what is sealed
  uint16_t codecs = 0;  // bit n: it decodes codec::LeafCodec n
  [[nodiscard]] bool any() const noexcept { return mode != 0 || flags != 0; }
  bool operator==(const SliceCoding&) const = default;
};
struct Pull {
  std::vector<PullEntry> entries;
  SliceCoding coding = {};  // of those that may come kWayCoded; said only where one is
};

struct Done {};

struct Abort {
  Code code = Code::cancelled;
  std::string text;
};

// The decode side says where it is, and asks for memory that payloads may stay in.
struct Map {
  std::vector<std::byte> place;  // as its mover says it, kMaxPlaceBytes at most
};

// The answer: slots of equal size that follow each other in the memory, or why there are none.
struct Shared {
  Code code = Code::ok;
  uint32_t slots = 0;
  uint64_t slot_bytes = 0;
  std::vector<std::byte> memory;  // as the mover of the prefill side says it; empty where code is not ok
  std::string text;               // then
};

// Payloads of these pulls were read, or will not be: their slots may be used again.
struct Release {
  std::vector<uint64_t> tags;
};

using Body = std::variant<Open, Accept, Published, Pull, Done, Abort, Map, Shared, Release>;
struct Message {
  Header header;
  Body body;
};

// The type in the header follows from the body, but for Abort, where the header's is kept.
std::vector<std::byte> encode(Header header, const Body& body);
// damaged: not a message, or a count, size or value that none has. newer_version.
Result<Message> decode(ConstBytes bytes);
// The addressing alone, for whoever hands a message to the right rank. damaged when it is too short.
Result<Header> peek(ConstBytes bytes);

// In front of the payload of every slice: proves whose and which it is, and carries the leaf hashes.
struct SliceHead {
  uint64_t session = 0;
  uint64_t tag = 0;
  RequestId request;
  uint32_t slice = 0;
  uint32_t payload_bytes = 0;
  uint32_t leaves = 0;
  uint32_t row_bytes = 0;
  Extent extent;
  // 0: the payload follows; kPlaceApart: it comes kWayApart; else it is in slot place - 1 of what was shared.
  uint32_t place = 0;
  bool operator==(const SliceHead&) const = default;
};
inline constexpr uint32_t kPlaceApart = UINT32_MAX;
inline constexpr size_t kSliceHeadBytes = 96;

// Head and hashes, padded so that the payload behind them is as aligned as they are.
constexpr size_t slice_front_bytes(uint32_t leaves) noexcept {
  return (kSliceHeadBytes + size_t{leaves} * 8 + 63) & ~size_t{63};
}
// Where the hashes are: written first, then sealed by encode.
inline std::byte* slice_hashes(std::byte* front) noexcept { return front + kSliceHeadBytes; }
// Writes the head before the hashes that are already in `front`, and its own hash over both.
void encode_slice_front(const SliceHead& head, std::byte* front) noexcept;
// What a head says of where its payload is; nothing of it is checked yet.
uint32_t slice_place(const std::byte* front) noexcept;
// Whether `front` (slice_front_bytes(want.leaves) long) is exactly what `want` says, and undamaged.
bool check_slice_front(const SliceHead& want, std::byte* front) noexcept;

}  // namespace kvbm::cluster::session
