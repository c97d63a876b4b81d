// Bodies of the control messages: plain structs, and their bytes. cluster/README.md (Messages) is normative.
//
// All little endian, every reserved byte zero, every count checked against the message's length before anything is
// read; trailing bytes are damage. A body fits one message (kMaxBody); batches are cut into parts that name their
// place in the batch. Decoding fills vectors of at most kMaxItems elements, which keep their capacity from message to
// message. Independent of connections, time and tiers. Thread: any, no state.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"
#include "cluster/wire/channel.h"

namespace kvbm::cluster::wire {

inline constexpr size_t kMaxMessage = 65536;  // KVBM_TRANSPORT_MESSAGE_BYTES, asserted in the source
inline constexpr size_t kMaxBody = kMaxMessage - Channel::kOverhead;
inline constexpr size_t kHeadBytes = 16;
inline constexpr uint32_t kMaxFamiliesPerMessage = 64;
inline constexpr size_t kFamilyBytes = 40;

enum class Type : uint8_t {
  find = 1,          // asks which of these records the peer has
  found = 2,         //   answer, item by item
  fetch = 3,         // asks to push these records into posted staging
  fetched = 4,       // items that will not arrive, and why; others need no message
  offer = 5,         // records about to be dropped, offered to the peer
  want = 6,          // answer: the wanted ones; they are fetched under the offer's lease
  renew = 7,         // extends a lease
  granted = 8,       //   answer
  release = 9,       // ends leases
  cancel = 10,       // cancels a fetch
  ping = 11,         //
  pong = 12,         //   answer
  ask_status = 13,   //
  status = 14,       //   answer
  invalidate = 15,   // a namespace has a new epoch
  invalidated = 16,  // answer: done and persisted
  failed = 17,       // answer to a request that was not served at all
  bye = 18,          // the connection is about to end, for this reason
  host = 32,         // the sender's place on its machine (host_facts.h)
  session = 64       // for cluster/session: the body is its own
};

// The head of a message; the whole body of ping, pong, ask_status, cancel, invalidated and bye.
struct Head {
  Type type = Type::ping;
  uint64_t request = 0;  // names a request and its answers, per connection and requesting side; 0 if there is no answer
  uint32_t count = 0;    // items; of invalidated, a Code, negated
};

// A record's identity: its family is an index into the families of the same message.
struct Name {
  Key key;
  uint16_t family = 0;
  bool operator==(const Name&) const = default;
};

struct Find {
  uint64_t request = 0;
  uint32_t first = 0;     // place of the first item in the batch
  uint64_t lease_ns = 0;  // lease of found records; 0 = none
  std::vector<Family> families;
  std::vector<Name> items;
};

struct FoundItem {
  uint8_t present = 0;
  uint8_t tier = 0;  // the owner's tier number, 0 = fastest
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;
  uint64_t location = 0;  // the owner's own; a hint
  bool operator==(const FoundItem&) const = default;
};
struct Found {
  uint64_t request = 0;
  uint32_t first = 0;
  uint64_t lease = 0;     // 0 = no lease
  uint64_t lease_ns = 0;  // from now on; may be less than requested
  std::vector<FoundItem> items;
};

struct FetchItem {
  Name name;
  uint32_t first_leaf = 0;
  uint32_t leaves = 0;    // 0 = all from first_leaf on
  uint64_t location = 0;  // hint; 0 = none
  uint64_t tag = 0;       // tag of the staging that the requesting side has posted
  uint64_t room = 0;      // bytes of that staging
  bool operator==(const FetchItem&) const = default;
};
// Coding that the requesting side accepts for what it fetches, or pulls in a session; all zero: plain.
enum CodingFlag : uint8_t { kOpensSealed = 1, kTakesLossy = 2 };
struct Coding {
  uint8_t mode = 0;     // codec::Mode; 0: not coded
  uint8_t flags = 0;    // CodingFlag
  uint16_t codecs = 0;  // bit n: decodes codec::LeafCodec n
  [[nodiscard]] bool any() const noexcept { return mode != 0 || flags != 0; }
  bool operator==(const Coding&) const = default;
};
struct Fetch {
  uint64_t request = 0;
  uint64_t budget_ns = 0;  // time that is left; a push that cannot begin by then is not sent
  Coding coding;
  std::vector<Family> families;
  std::vector<FetchItem> items;
};

struct FetchedItem {
  uint32_t index = 0;       // in the fetch
  int32_t code = 0;         // kvbm.h's values
  uint32_t head_bytes = 0;  // if the staging was too small: the record's present size
  uint64_t payload_bytes = 0;
  bool operator==(const FetchedItem&) const = default;
};
struct Fetched {
  uint64_t request = 0;
  std::vector<FetchedItem> items;
};

struct OfferItem {
  Name name;
  uint16_t uses = 0;
  uint8_t priority = 0;
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;
  uint64_t location = 0;
  bool operator==(const OfferItem&) const = default;
};
struct Offer {
  uint64_t request = 0;
  uint64_t lease = 0;  // holds all of them
  uint64_t lease_ns = 0;
  std::vector<Family> families;
  std::vector<OfferItem> items;
};
struct Want {
  uint64_t request = 0;
  std::vector<uint32_t> items;  // indexes in the offer, ascending
};

struct Lease {
  Type type = Type::renew;  // or granted
  uint64_t request = 0;
  uint64_t lease = 0;
  uint64_t lease_ns = 0;  // granted: 0 = it has ended
};
struct Release {
  std::vector<uint64_t> leases;
};

struct NodeStatus {
  uint64_t request = 0;
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t weight = 0;  // bytes offered, as for placement
  uint64_t records = 0;
  uint32_t block_bytes = 0;  // the largest payload that it takes; 0: not stated
};

struct Invalidate {
  uint64_t request = 0;
  NamespaceId base;  // of epoch 0
  uint64_t epoch = 0;
};

struct Failed {
  uint64_t request = 0;
  int32_t code = 0;
  uint32_t first = 0;  // the part, for a find
};

// Sizes of the items of messages, and the largest numbers of items: with kMaxFamiliesPerMessage families these fit one
// message.
inline constexpr size_t kFindItemBytes = 20;
inline constexpr size_t kFoundItemBytes = 24;
inline constexpr size_t kFetchItemBytes = 56;
inline constexpr size_t kFetchedItemBytes = 24;
inline constexpr size_t kOfferItemBytes = 48;
inline constexpr uint32_t kMaxFindItems = 2048;
inline constexpr uint32_t kMaxFetchItems = 1024;
inline constexpr uint32_t kMaxOfferItems = 1024;
inline constexpr uint32_t kMaxReleases = 4096;

// Return the number of bytes written; 0 if it does not fit `out` or counts are above the limits. out must hold the
// whole body.
size_t encode(const Find& m, MutableBytes out) noexcept;
size_t encode(const Found& m, MutableBytes out) noexcept;
size_t encode(const Fetch& m, MutableBytes out) noexcept;
size_t encode(const Fetched& m, MutableBytes out) noexcept;
size_t encode(const Offer& m, MutableBytes out) noexcept;
size_t encode(const Want& m, MutableBytes out) noexcept;
size_t encode(const Lease& m, MutableBytes out) noexcept;
size_t encode(const Release& m, MutableBytes out) noexcept;
size_t encode(const NodeStatus& m, MutableBytes out) noexcept;
size_t encode(const Invalidate& m, MutableBytes out) noexcept;
size_t encode(const Failed& m, MutableBytes out) noexcept;
size_t encode(const Head& m, MutableBytes out) noexcept;

// Returns the head of any body; damaged if it is none, unsupported for an unknown type.
Result<Head> peek(ConstBytes body);

// Return damaged with a static text; `out` is then unspecified.
Status decode(ConstBytes body, Find& out);
Status decode(ConstBytes body, Found& out);
Status decode(ConstBytes body, Fetch& out);
Status decode(ConstBytes body, Fetched& out);
Status decode(ConstBytes body, Offer& out);
Status decode(ConstBytes body, Want& out);
Status decode(ConstBytes body, Lease& out);
Status decode(ConstBytes body, Release& out);
Status decode(ConstBytes body, NodeStatus& out);
Status decode(ConstBytes body, Invalidate& out);
Status decode(ConstBytes body, Failed& out);
Status decode(ConstBytes body, Head& out);

}  // namespace kvbm::cluster::wire
