// Bytes of a TCP peer, through the receiving half of a connection. The first byte says whether the peer is admitted,
// the second one the size of the pieces that the rest is cut into. A receiver that takes the bytes whole must report
// the same events.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "copy/tcp/receiver.h"
#include "copy/transport_abi.h"
#include "target.h"

namespace tcp_stream_fuzz {

namespace {

using namespace kvbm;
using copy::tcp::Receiver;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

constexpr uint64_t kPosts = 8;
constexpr uint64_t kPostBytes = 3000;

struct Heard final : copy::tcp::ReceiverSink {
  explicit Heard(bool peer_admitted) : admitted(peer_admitted) {}
  void on_message(ConstBytes bytes) override {
    check(reinterpret_cast<uintptr_t>(bytes.data()) % 8 == 0);
    check(bytes.size() <= (admitted ? KVBM_TRANSPORT_MESSAGE_BYTES : KVBM_TRANSPORT_STRANGER_BYTES));
    log.append("message ").append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void on_arrived(uint64_t token, uint64_t bytes) override {
    check(token < kPosts && !ended[token] && bytes < kPostBytes && bytes >= arrived[token] && admitted);
    arrived[token] = bytes;
  }
  void on_received(uint64_t token, Code status, uint64_t bytes) override {
    check(token < kPosts && !ended[token] && bytes <= kPostBytes && admitted);
    ended[token] = true;
    log += "received " + std::to_string(token) + " " + std::to_string(static_cast<int>(status)) + " " +
           std::to_string(bytes);
    if (status == Code::ok) log.append(reinterpret_cast<const char*>(memory[token].data()), bytes);
  }
  [[nodiscard]] bool open() const override { return true; }

  const bool admitted;
  std::string log;
  std::array<std::vector<std::byte>, kPosts> memory;  // of exactly the posted size, so that a sanitizer sees an overrun
  std::array<bool, kPosts> ended{};
  std::array<uint64_t, kPosts> arrived{};
};

std::string run(ConstBytes bytes, bool admitted, size_t step) {
  Heard heard(admitted);
  Receiver receiver;
  for (uint64_t i = 0; i < kPosts; ++i) {
    heard.memory[i].resize(kPostBytes);
    check(receiver.post(i, {heard.memory[i].data(), kPostBytes, i}));
  }
  alignas(8) static std::array<std::byte, Receiver::kStagingBytes> staging;
  const char* why = nullptr;
  while (!bytes.empty() && why == nullptr) {
    iovec vectors[2];
    const size_t n = receiver.targets(staging, vectors);
    size_t landed = 0;
    for (size_t i = 0; i < n; ++i) {
      const size_t part = std::min({vectors[i].iov_len, bytes.size(), step - landed});
      if (part != 0) std::memcpy(vectors[i].iov_base, bytes.data(), part);
      bytes = bytes.subspan(part);
      landed += part;
      if (part != vectors[i].iov_len) break;
    }
    why = receiver.landed(landed, staging, admitted, heard);
  }
  return heard.log + (why != nullptr ? why : "");
}

}  // namespace

KVBM_FUZZ_TARGET(tcp_stream) {
  if (size < 2) return 0;
  const bool admitted = (data[0] & 1) != 0;
  const size_t step = data[1] == 0 ? 1 : data[1];
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data) + 2, size - 2);
  check(run(bytes, admitted, step) == run(bytes, admitted, SIZE_MAX));
  return 0;
}

}  // namespace tcp_stream_fuzz
