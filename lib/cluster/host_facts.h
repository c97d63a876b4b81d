// What a node says of the machine it runs on, so that another one on the same machine finds the way to its memory
// (same_host.h). The message's bytes; README.md (Messages, Same host) is normative.
//
// Said over a link's keyed channel, once it is ready, by both sides; socket and tokens only by the one that was dialled. The
// tokens are random and good for one connection: who shows `come` at the socket is the node that heard it here, who answers with `show` is the node
// that said it. Thread: any, no state.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "cluster/node.h"

namespace kvbm::cluster {

using HostToken = std::array<uint8_t, 16>;

// Longest path of a socket that is said.
inline constexpr size_t kMaxHostPath = 1024;

struct HostFacts {
  std::array<uint8_t, 16> boot{};  // of the running kernel
  uint32_t user = 0;
  HostToken come{};
  HostToken show{};
  std::string path;  // empty: nobody can come
  bool operator==(const HostFacts&) const = default;
};

// As a message's body: wire::Type::host, count = length of the path, request 0. 0 if it does not fit.
size_t encode(const HostFacts& facts, MutableBytes out) noexcept;
Status decode(ConstBytes body, HostFacts& out);

// What is said at the socket, in this order: come, show, and here, behind what was handed over. One size, 72 bytes.
inline constexpr size_t kHostWordBytes = 72;
struct HostWord {
  enum class Kind : uint32_t { come = 1, show = 2, here = 3 };
  Kind kind = Kind::come;
  HostToken token{};  // zero in here
  NodeId node;        // who speaks
  uint64_t incarnation = 0;
  bool operator==(const HostWord&) const = default;
};
void encode(const HostWord& word, std::byte* out) noexcept;
Status decode(ConstBytes bytes, HostWord& out);

// Of this machine: zero where the system does not say.
std::array<uint8_t, 16> boot_id();

}  // namespace kvbm::cluster
