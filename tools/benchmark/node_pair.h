// Two nodes for a measurement, both on the public C interface. One in a child process has blocks in its host memory.
// The one in this process loads them into an engine's cache.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/io/fd.h"
#include "base/memory/memory.h"
#include "base/status.h"
#include "benchmark/socket_child.h"
#include "kvbm.h"
#include "node/member.h"

namespace kvbm::benchmark {

struct NodePairOptions {
  uint64_t block_bytes = 0;
  uint32_t blocks = 0;                 // of the owner; block i is full of the byte i
  uint64_t host_bytes = 192ULL << 20;  // of each
  uint64_t reader_host_bytes = 192ULL << 20;
  std::string local = "off";  // node.local
  std::string codec = "off";  // node.codec
  std::string key_file;       // node.key_file
  std::string protect;        // node.protect
  std::string share;          // a directory: no nodes, but the owner and a client of the tier set that meets there
  // If not empty, blocks are these bf16 numbers, as in a cache, block i beginning with i, in a namespace with that
  // geometry. The size is that of a block, a multiple of kNumbersBytes.
  std::vector<std::byte> numbers;
  static constexpr uint64_t kNumbersBytes = 2 * 8 * 128 * 2;  // of one token: K and V, 8 heads of 128
};

// Makes sums of noise with a scale for each channel of 128: exponents as varied as those of real caches (2.7 bits),
// mantissas of noise. bf16.
std::vector<std::byte> made_up_numbers(uint64_t bytes);

// A node, or the owner of a shared set, in a child process, which ends with the object.
class NodeOwner {
 public:
  static Result<std::unique_ptr<NodeOwner>> start(const NodePairOptions& options);
  // Starts in two steps: prepare() makes the process, and must be called while this process has no threads. begin()
  // makes it a node. listen: the address of a killed node, or 127.0.0.1:0.
  static Result<std::unique_ptr<NodeOwner>> prepare(const NodePairOptions& options);
  Status begin(const std::string& listen);
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  NodeOwner() = default;
  Fd said_;      // pipe that the child writes
  Fd to_child_;  // pipe that the child reads
  std::unique_ptr<Child> child_;
  std::string address_;
  pid_t pid_ = 0;
};

// This process as a node that reads from the owner into an engine's blocks.
class NodeReader {
 public:
  static Result<std::unique_ptr<NodeReader>> open(const NodePairOptions& options, const std::string& address);
  ~NodeReader() {
    kvbm_match_release(match_);
    kvbm_cache_release(cache_);
  }
  NodeReader(const NodeReader&) = delete;
  NodeReader& operator=(const NodeReader&) = delete;

  // Looks up and loads n blocks. Asks for their location only if it is not known. No block stays in this node's host.
  Status load(size_t first, size_t n);
  // Loads in two steps. find() again or the destructor ends the loads of fetch().
  Status find(size_t first, size_t n);
  Status fetch();
  // Checks the bytes of the last load of these blocks.
  [[nodiscard]] Status check(size_t first, size_t n) const;
  [[nodiscard]] MutableBytes engine() const noexcept { return {engine_->data(), blocks() * block_bytes_}; }
  [[nodiscard]] size_t blocks() const noexcept { return keys_.size(); }
  [[nodiscard]] const node::Member& member() const noexcept { return *member_; }

 private:
  NodeReader() = default;
  std::unique_ptr<node::Member> member_;
  std::vector<kvbm_key_t> keys_;
  std::vector<uint32_t> ids_;
  std::vector<kvbm_status_t> item_status_;
  std::unique_ptr<Arena> engine_;
  uint64_t block_bytes_ = 0;
  std::vector<std::byte> numbers_;  // bytes of every block behind its number; empty: blocks are full of one byte
  kvbm_cache_t* cache_ = nullptr;
  kvbm_match_t* match_ = nullptr;
  size_t first_ = 0;
  size_t n_ = 0;
};

}  // namespace kvbm::benchmark
