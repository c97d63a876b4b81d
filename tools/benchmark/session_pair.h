// Two engines for a measurement of sessions: a prefill side in a child process, which offers the same blocks under many
// requests, and a decode side in this one, both on the public C interface and linked over TCP.
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
  static constexpr uint64_t kBytes = 32ULL << 20;  // that one request moves

  static constexpr uint64_t kLayerBytes = kBytes / 8;

  // Requests may be received `requests` times, at most 4,096. codec: node.codec of both. numbers: bf16, every layer's
  // behind its number, kLayerBytes.
  static Result<std::unique_ptr<SessionPair>> open(const std::string& codec, uint32_t requests,
                                                   std::vector<std::byte> numbers);

  // Overwrites the decode side's blocks, so that check() sees what the next receive() brings.
  void forget();
  // One session from its opening to the last layer in place.
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
