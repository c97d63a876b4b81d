// A node of a pool on the C interface, for tests of faults between nodes: a manager with host memory, blocks with bytes
// computed from their keys, and loads that compare every byte with the expected one.
//
// A block is named by (salt, index), which its key and its first words contain, and the rest follows from these. So
// bytes can be checked against a key without knowing their writer.
#pragma once

#include <kvbm.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace kvbm::test {

struct MemberSetup {
  std::string listen = "127.0.0.1:0";  // empty: no node can connect to it
  std::string peers;
  std::string name;
  std::string pool = "trust";
  std::string local = "off";  // faults on links would not affect reads in place
  std::string key_file;
  uint64_t block_bytes = 128 << 10;
  uint64_t host_blocks = 64;
  uint32_t engine_blocks = 64;  // of the attached cache
  uint64_t staging_bytes = 16 << 20;
  bool counts_slots = true;  // by taking them all, which evicts what a host file brought; leftovers() needs it
  std::string model = "a model";
  std::vector<std::pair<std::string, std::string>> settings;
};

struct Loaded {
  kvbm_status_t status = KVBM_OK;  // of the lookup, then of the load
  size_t asked = 0;
  size_t hits = 0;
  size_t right = 0;
  size_t wrong = 0;   // reported as loaded, and not the bytes of their keys: must never be
  size_t failed = 0;  // hits that did not come
  std::chrono::nanoseconds took{};
};

class PoolMember {
 public:
  // Returns null, with the message in *error, if the member cannot be made.
  static std::unique_ptr<PoolMember> open(const MemberSetup& setup, std::string* error = nullptr);
  ~PoolMember();
  PoolMember(const PoolMember&) = delete;
  PoolMember& operator=(const PoolMember&) = delete;

  static kvbm_key_t key_of(uint64_t salt, uint64_t index);
  static std::vector<kvbm_key_t> keys_of(uint64_t salt, uint64_t first, size_t n);
  static void fill(void* block, uint64_t bytes, uint64_t salt, uint64_t index);
  static bool is_right(const void* block, uint64_t bytes, const kvbm_key_t& key);

  // Registers n blocks in this member's host memory.
  kvbm_status_t put(uint64_t salt, uint64_t first, size_t n);
  // Pushes blocks to their home nodes and waits.
  kvbm_status_t offer(uint64_t salt, uint64_t first, size_t n);
  // Looks up each key by itself, asking the nodes for up to that time, and loads hits into the cache, at most
  // engine_blocks of them. keep: blocks from lower tiers stay in the host.
  Loaded load(const std::vector<kvbm_key_t>& keys, std::chrono::nanoseconds ask, std::chrono::nanoseconds timeout,
              bool keep = false);
  // Returns the number of wrong blocks among all in this member's host memory.
  size_t wrong_in_host(size_t* checked = nullptr);

  [[nodiscard]] std::string address() const;
  [[nodiscard]] std::vector<kvbm_node_row_t> nodes() const;
  [[nodiscard]] size_t ready() const;  // nodes that are connected and have said what they offer
  [[nodiscard]] std::string states() const;
  [[nodiscard]] kvbm_manager_stats_t stats() const;
  [[nodiscard]] std::string metrics() const;
  // Returns the bytes of staging that the tier of other nodes uses.
  [[nodiscard]] uint64_t staging_in_use() const;
  // Checks that nothing is in flight or held, no staging is in use, and every slot of the host can be allocated (which
  // evicts all blocks). Returns "", or what is still in use after `within`.
  std::string leftovers(std::chrono::milliseconds within);
  // Returns the log lines so far that contain the text.
  [[nodiscard]] size_t logged(const std::string& text) const;
  [[nodiscard]] std::string log() const;

  [[nodiscard]] kvbm_manager_t* manager() const { return manager_; }
  [[nodiscard]] kvbm_namespace_t* ns() const { return ns_; }
  [[nodiscard]] kvbm_context_t* context() const { return context_; }
  [[nodiscard]] const MemberSetup& setup() const { return setup_; }
  [[nodiscard]] size_t slots() const { return slots_; }  // of the host

 private:
  PoolMember() = default;
  static void keep_line(void* self, int32_t level, const char* component, const char* text);
  kvbm_status_t make(kvbm_error_t& error);
  [[nodiscard]] std::string still_busy() const;

  MemberSetup setup_;
  kvbm_context_t* context_ = nullptr;
  kvbm_manager_t* manager_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
  kvbm_cache_t* cache_ = nullptr;
  std::vector<uint64_t> engine_;
  size_t slots_ = 0;
  mutable std::mutex log_mutex_;
  std::vector<std::string> log_;
};

// Calls `done` once a millisecond until it returns true. Returns false after `within`.
bool wait_until(const std::function<bool()>& done,
                std::chrono::milliseconds within = std::chrono::milliseconds(60'000));

// Durations that were measured, for a line of the test's output.
class Distribution {
 public:
  void add(std::chrono::nanoseconds one) { all_.push_back(one); }
  // "n 50, median 1.2 ms, p90 3.4 ms, most 5.6 ms"
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::chrono::nanoseconds most() const;

 private:
  std::vector<std::chrono::nanoseconds> all_;
};

}  // namespace kvbm::test
