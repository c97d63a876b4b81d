// Two engines for a measurement of sessions, both on the public C interface and linked over TCP. The prefill side in
// a child process offers the same blocks under many requests. The decode side is in this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/socket_child.h"
#include "session/side.h"

namespace kvbm::benchmark {

class SessionPair {
 public:
  static constexpr uint64_t kBytes = 32ULL << 20;  // bytes that one request moves

  static constexpr uint64_t kLayerBytes = kBytes / 8;

  // Requests may be received `requests` times, at most 4,096. codec: node.codec of both. numbers: bf16, the content
  // of every layer behind its number, kLayerBytes.
  static Result<std::unique_ptr<SessionPair>> open(const std::string& codec, uint32_t requests,
                                                   std::vector<std::byte> numbers);

  // Overwrites the decode side's blocks, so that check() sees the bytes of the next receive().
  void forget();
  // Runs one session from its opening to the last layer in place.
  Status receive();
  [[nodiscard]] Status check() const;

 private:
  SessionPair() = default;
  std::unique_ptr<Child> prefill_;
  std::string address_;
  std::unique_ptr<session::Side> decode_;
  std::vector<std::byte> numbers_;
  uint32_t received_ = 0;
};

}  // namespace kvbm::benchmark
