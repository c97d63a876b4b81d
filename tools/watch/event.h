// KV events of engines as bytes: vLLM's and SGLang's. The formats and who sends which are in docs/engines/events.md.
//
// What is decoded comes from a socket that anybody may write to: nesting, the number of values and every field are
// checked before anything is kept. An event that is not right is counted and left out; the rest of its batch stays.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvbm::watch {

// Of one message. A batch of 8 million tokens is below it.
inline constexpr size_t kMaxPayload = size_t{64} << 20;
// Values in one message, and how deep they nest: what a value costs in memory is many times its byte on the wire.
inline constexpr size_t kMaxValues = size_t{4} << 20;
inline constexpr size_t kMaxDepth = 16;

enum class Kind { stored, removed, cleared };

struct Event {
  Kind kind = Kind::cleared;
  std::string medium;            // "GPU" where the event names none
  std::vector<uint64_t> hashes;  // of byte strings the last 8 bytes, as the engines shorten them
  uint64_t tokens = 0;
  // All fields that were sent, by name, whichever encoding they came in.
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
// Code::damaged where the whole is no batch.
Result<Batch> decode(std::string_view payload);
// The event as an object that can be printed: byte strings become hexadecimal digits. Tokens are left out unless asked.
nlohmann::ordered_json printable(const Event& event, bool with_tokens);

}  // namespace kvbm::watch
