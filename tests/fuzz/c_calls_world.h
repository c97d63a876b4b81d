// Objects that a run of C calls has made and may reuse, and the invariants that hold after every call.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kvbm.h"

namespace kvbm::fuzz {

inline void require(bool holds, const char* what, int line) {
  if (holds) return;
  std::fprintf(stderr, "c_calls: %s (line %d)\n", what, line);
  __builtin_trap();
}
#define REQUIRE(condition) ::kvbm::fuzz::require((condition), #condition, __LINE__)

// Draws decisions from the input; zeros when it has ended.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  [[nodiscard]] bool empty() const { return left_ == 0; }
  uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  size_t below(size_t n) { return byte() % n; }
  // Returns true one time in sixteen: an argument is then made wrong.
  bool bad() { return (byte() & 15) == 15; }
  template <class T>
  T* or_null(T* pointer) {
    return bad() ? nullptr : pointer;
  }
  uint64_t edge() {
    static constexpr uint64_t kEdges[] = {0,
                                          1,
                                          2,
                                          127,
                                          4095,
                                          4096,
                                          65535,
                                          65536,
                                          INT32_MAX,
                                          UINT32_MAX,
                                          uint64_t{1} << 32,
                                          INT64_MAX,
                                          uint64_t{1} << 63,
                                          UINT64_MAX - 1,
                                          UINT64_MAX};
    return kEdges[below(std::size(kEdges))];
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

inline constexpr size_t kBlockBytes = 4096;
inline constexpr size_t kHostBlocks = 12;
inline constexpr uint64_t kHostBytes = 4096 + kHostBlocks * (kBlockBytes + 384);
inline constexpr size_t kEngineBlocks = 32;
inline constexpr size_t kGuard = 256;  // bytes before and behind a tensor that must not change
inline constexpr size_t kKeys = 24;    // of a namespace; the last 8 are content keys
inline constexpr uint64_t kUnwritten = 0xDEADBEEFCAFEF00DULL;
inline constexpr kvbm_status_t kNoStatus = 12345;

inline bool is_status(kvbm_status_t s) {
  static constexpr kvbm_status_t kAll[] = {0,    1,    -100, -101, -102, -103, -104, -105, -106, -107,
                                           -200, -201, -202, -203, -204, -300, -301, -302, -303, -400,
                                           -401, -402, -500, -501, -502, -600, -601, -602};
  return std::find(std::begin(kAll), std::end(kAll), s) != std::end(kAll);
}

// Checks a status that a healthy machine may return: nothing here runs out of memory or breaks a disk.
inline kvbm_status_t expected(kvbm_status_t s) {
  REQUIRE(is_status(s));
  REQUIRE(s != KVBM_ERR_INTERNAL && s != KVBM_ERR_FORKED && s != KVBM_ERR_NO_MEMORY);
  REQUIRE(kvbm_status_name(s)[0] != '\0' && kvbm_status_text(s)[0] != '\0');
  return s;
}

// An error slot that knows whether it was written.
struct ErrorSlot {
  kvbm_error_t error;
  ErrorSlot() { std::memset(&error, 0xA5, sizeof error); }
  kvbm_status_t check(kvbm_status_t status, const kvbm_error_t* given) const {
    if (given != nullptr) {
      REQUIRE(error.status == status);
      REQUIRE(std::memchr(error.message, 0, sizeof error.message) != nullptr);
      REQUIRE(status >= 0 || error.message[0] != '\0');
    }
    return status;
  }
};

// The bytes of a block follow from its namespace's id and its key, so that any mix-up shows.
inline void fill(uint8_t* out, size_t bytes, const uint8_t* ns, const kvbm_key_t& key) {
  uint64_t a;
  uint64_t b;
  std::memcpy(&a, ns, 8);
  std::memcpy(&b, key.bytes, 8);
  uint64_t x = (a ^ (b * 0x9E3779B97F4A7C15ULL)) | 1;
  for (size_t i = 0; i < bytes; i += 8) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    std::memcpy(out + i, &x, std::min<size_t>(8, bytes - i));
  }
}
inline bool holds_fill(const uint8_t* bytes, size_t n, const uint8_t* ns, const kvbm_key_t& key) {
  std::vector<uint8_t> want(n);
  fill(want.data(), n, ns, key);
  return std::memcmp(want.data(), bytes, n) == 0;
}

// Keys of a namespace at its present epoch, by number.
struct Keys {
  std::array<kvbm_key_t, kKeys> key{};
  std::array<uint8_t, 16> id{};
  void make(const kvbm_namespace_t* ns) {
    std::array<uint32_t, kKeys * 4> tokens{};
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i);
    size_t n = 0;
    REQUIRE(kvbm_key_chain(ns, nullptr, tokens.data(), 64, 4, nullptr, key.data(), 16, &n) == KVBM_OK && n == 16);
    REQUIRE(kvbm_key_content(ns, tokens.data(), 32, 4, nullptr, key.data() + 16, 8, &n) == KVBM_OK && n == 8);
    kvbm_namespace_id(ns, id.data());
  }
};

// An engine's memory with guards around it; opaque pages, or [block][K,V][token][head][dim] of two layers.
struct Tensors {
  std::vector<uint8_t> memory = std::vector<uint8_t>(kEngineBlocks * kBlockBytes + 2 * kGuard, 0x5A);
  uint8_t* base() { return memory.data() + kGuard; }
  uint8_t* block(size_t id) { return base() + id * kBlockBytes; }
  void check() const {
    for (size_t i = 0; i < kGuard; ++i) {
      REQUIRE(memory[i] == 0x5A);
      REQUIRE(memory[memory.size() - 1 - i] == 0x5A);
    }
  }
};

struct HeldBlock {
  kvbm_block_t value = 0;
  enum Kind { partial, complete, registered, weak } kind = partial;
  size_t key = 0;
  std::array<uint8_t, 16> ns{};
  kvbm_key_t content{};  // key that its bytes were generated from
  bool foreign = false;  // of the other manager
};

struct HeldMatch {
  kvbm_match_t* match = nullptr;
  std::vector<kvbm_key_t> keys;
  std::array<uint8_t, 16> ns{};
  bool whole_part = true;
};

// One submitted operation: what it borrows, and what to check when it has ended.
struct Submitted {
  uint64_t user_data = 0;
  int32_t op = 0;
  size_t items = 0;
  std::vector<uint32_t> ids;
  std::vector<kvbm_key_t> keys;
  std::array<uint8_t, 16> ns{};
  std::vector<kvbm_status_t> status;
  Tensors tensors;  // its own memory: others may run beside it
  kvbm_cache_t* cache = nullptr;
  bool compare = true;  // the loaded bytes must be whole blocks
};

}  // namespace kvbm::fuzz
