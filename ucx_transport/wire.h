// Active messages between two modules; README.md is the specification. Little-endian, fixed sizes, every field
// checked by its reader: `parse` returns nothing for a frame that no peer of this version sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "copy/transport_abi.h"

namespace kvbm::ucx {

// Active message ids: UCX keeps handlers in an array, so they are small.
enum class Frame : unsigned { control = 0, message = 1, bulk = 2 };

enum class Control : uint16_t { hello = 1, welcome = 2, bye = 3, bye_ack = 4 };

constexpr uint64_t kMagic = 0x315843554d42564bULL;  // "KVBMUCX1"
constexpr uint16_t kWireVersion = 1;

struct ControlHead {
  uint64_t magic;
  uint16_t version;
  Control kind;
  uint32_t zero;
};

// Numbers the messages of one direction from 0.
struct MessageHead {
  uint64_t sequence;
};

// A part of a push. Pushes of one direction are numbered from 1; parts of one push are sent in order, without gaps.
struct BulkHead {
  uint64_t push;
  uint64_t tag;
  uint64_t total;
  uint64_t offset;
};

static_assert(sizeof(ControlHead) == 16 && sizeof(MessageHead) == 8 && sizeof(BulkHead) == 32);

// Largest head; UCX copies it into its own header.
constexpr size_t kHeadBytes = sizeof(BulkHead);

template <class Head>
std::optional<Head> parse(const void* bytes, size_t size) {
  if (size != sizeof(Head) || bytes == nullptr) return std::nullopt;
  Head head;
  std::memcpy(&head, bytes, sizeof head);
  return head;
}

inline bool valid(const ControlHead& head) {
  return head.magic == kMagic && head.zero == 0 && head.kind >= Control::hello && head.kind <= Control::bye_ack;
}

// Checks a part; `bytes` is the size of its data. Only an empty push has an empty part.
inline bool valid(const BulkHead& head, uint64_t bytes) {
  return head.push != 0 && head.offset <= head.total && bytes <= head.total - head.offset &&
         (bytes > 0 || head.total == 0);
}

// Start of a registered memory's key, before UCX's own packed key of `packed` bytes. A transport never reuses a
// generation: the key of removed memory is not the key of memory registered later at the same address.
struct KeyHead {
  uint32_t magic;
  uint32_t packed;
  uint64_t generation;
  uint64_t base;
  uint64_t bytes;
};
static_assert(sizeof(KeyHead) == 32);
constexpr uint32_t kKeyMagic = 0x4b58554bU;  // "KUXK"

// Returns nullopt for a malformed or truncated key.
inline std::optional<KeyHead> parse_key(const void* key, size_t size) {
  KeyHead head;
  if (key == nullptr || size < sizeof head || size > KVBM_TRANSPORT_KEY_BYTES) return std::nullopt;
  std::memcpy(&head, key, sizeof head);
  if (head.magic != kKeyMagic || head.packed == 0 || head.packed != size - sizeof head) return std::nullopt;
  if (head.base + head.bytes < head.base) return std::nullopt;
  return head;
}

}  // namespace kvbm::ucx
