// A node's description of its machine, so that another node on the same machine finds the way to its memory
// (same_host.h). The message's bytes; cluster/README.md (Messages, Same host) is normative.
//
// Both sides send it over a link's keyed channel once that is ready; socket and tokens are sent only by the dialled
// side. The tokens are random and good for one connection. A node that presents `come` at the socket is the node that
// received it here, and a node that answers with `show` is the node that sent it. Thread: any, no state.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "cluster/node.h"

namespace kvbm::cluster {

using HostToken = std::array<uint8_t, 16>;

// Longest path of a socket.
inline constexpr size_t kMaxHostPath = 1024;

struct HostFacts {
  std::array<uint8_t, 16> boot{};  // of the running kernel
  uint32_t user = 0;
  HostToken come{};
  HostToken show{};
  std::string path;  // empty: no socket to connect to
  bool operator==(const HostFacts&) const = default;
};

// Encodes a message body: wire::Type::host, count = length of the path, request 0. Returns 0 if it does not fit.
size_t encode(const HostFacts& facts, MutableBytes out) noexcept;
Status decode(ConstBytes body, HostFacts& out);

// Messages at the socket, in this order: come, show, and here, which follows the descriptors. One size, 72 bytes.
inline constexpr size_t kHostWordBytes = 72;
struct HostWord {
  enum class Kind : uint32_t { come = 1, show = 2, here = 3 };
  Kind kind = Kind::come;
  HostToken token{};  // zero in here
  NodeId node;        // the sender
  uint64_t incarnation = 0;
  bool operator==(const HostWord&) const = default;
};
void encode(const HostWord& word, std::byte* out) noexcept;
Status decode(ConstBytes bytes, HostWord& out);

// Returns this machine's boot id: zero if the system has none.
std::array<uint8_t, 16> boot_id();

}  // namespace kvbm::cluster
