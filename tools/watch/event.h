// Decodes KV events of engines: vLLM's and SGLang's. docs/engines/events.md has the formats and their senders.
//
// Input comes from a socket that any process may write to. Nesting, the number of values and every field are checked
// before anything is stored. An invalid event is counted and left out; the rest of its batch is used.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvbm::watch {

// Limit of one message. A batch of 8 million tokens is below it.
inline constexpr size_t kMaxPayload = size_t{64} << 20;
// Limits of values in one message, and of their nesting: a value's memory is many times its byte on the wire.
inline constexpr size_t kMaxValues = size_t{4} << 20;
inline constexpr size_t kMaxDepth = 16;

enum class Kind { stored, removed, cleared };

struct Event {
  Kind kind = Kind::cleared;
  std::string medium;            // "GPU" if the event names none
  std::vector<uint64_t> hashes;  // of byte strings the last 8 bytes, as the engines shorten them
  uint64_t tokens = 0;
  // All fields of the event, by name, in either encoding.
  nlohmann::json fields;
};

struct Batch {
  double ts = 0;
  std::optional<int64_t> rank;
  std::vector<Event> events;
  uint64_t malformed = 0;  // events that were left out
  uint64_t unknown = 0;    // events of kinds that are not known
};

const char* kind_name(Kind kind) noexcept;
// Fails with Code::damaged if the payload is no batch.
Result<Batch> decode(std::string_view payload);
// Returns the event as a printable object: byte strings become hexadecimal digits. Tokens are left out without
// `with_tokens`.
nlohmann::ordered_json printable(const Event& event, bool with_tokens);

}  // namespace kvbm::watch
