// Messages between the processes of one tier set, beyond those of all peers (cluster/README.md): one form for all,
// inside a link's `session` messages, little endian.
//
// | at | bytes | field |
// |---|---|---|
// | 0 | 1 | kind |
// | 2 | 2 | keys after the head, at most kMaxShareKeys |
// | 4 | 4 | code, as kvbm.h has it: of an answer |
// | 8 | 8 | request: the query that an answer belongs to; 0: no answer is wanted |
// | 16 | 8 | value |
// | 24 | 16 | base id of a namespace; in *here* bytes of a block 8, of the disk 8 (0: none) |
// | 40 | 36 | family: id 16, geometry 8, then 2 each: component, first layer, layers, first head, heads, replicated |
// | 76 | 4 | zero |
// | 80 | 16 each | keys |
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"

namespace kvbm::manager {

inline constexpr size_t kShareHeadBytes = 80;
inline constexpr size_t kMaxShareKeys = 2048;

enum class ShareKind : uint8_t {
  here = 1,  // owner to client, the first message; value: its process id; and its configuration
  // without keys: answered when everything offered to the owner has arrived and its own flush has ended, a durable
  // one with value 1. With family and keys: the answer's keys are those that are not where a flush promises them; the
  // value is a Rewrite (kept.h)
  flush = 2,
  epoch = 3,         // of base; the answer's value
  erase = 4,         // family, keys
  erase_family = 5,  // family
  answer = 6         // code, value, keys
};

struct ShareMessage {
  ShareKind kind = ShareKind::answer;
  Code code = Code::ok;
  uint64_t request = 0;
  uint64_t value = 0;
  NamespaceId base;
  uint64_t block_bytes = 0, disk_bytes = 0;  // here: in the place of base
  Family family;
  std::vector<Key> keys;
};

std::vector<std::byte> encode(const ShareMessage& message);
// Returns damaged for a malformed message.
Status decode(ConstBytes bytes, ShareMessage& out);

}  // namespace kvbm::manager
