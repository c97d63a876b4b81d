// Identity of a cluster's member. A node is a process that offers tiers; its id follows from its name, which is
// stable over restarts (placement depends on it). Its incarnation is new at every start (leases, locations and
// connections of an earlier one are void).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace kvbm::cluster {

struct NodeId {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const NodeId&) const = default;
  // Ids are uniformly distributed (SHA-256), so 8 of their bytes are a hash.
  [[nodiscard]] uint64_t low() const noexcept {
    uint64_t v;
    std::memcpy(&v, bytes.data(), sizeof v);
    return v;
  }
  [[nodiscard]] uint64_t high() const noexcept {
    uint64_t v;
    std::memcpy(&v, bytes.data() + 8, sizeof v);
    return v;
  }
};

// Longest name of a node and of a pool, in bytes.
inline constexpr size_t kMaxName = 63;

// First 128 bits of SHA-256("kvbm node", zero byte, name).
NodeId node_id_of(std::string_view name);

// Returns the bytes in hexadecimal digits.
std::string hex_text(std::span<const uint8_t> bytes);

// Returns the first 8 hexadecimal digits, for messages.
std::string short_text(const NodeId& id);

// Accepts 1 to kMaxName of A-Z a-z 0-9 . _ : - [ ]; a node without a given name is called by its address.
bool valid_name(std::string_view name) noexcept;

}  // namespace kvbm::cluster
