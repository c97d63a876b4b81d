// A short-lived or long-lived member of a pool on the public C interface: a context, a manager that is a node, and a
// namespace of opaque blocks under which files are kept, block by block.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kvbm.h"

namespace kvbm::node {

struct MemberOptions {
  std::string listen;
  std::string peers;
  std::string key_file;
  std::string protect;  // node.protect; empty: as is configured
  bool trusted_network = false;  // node.trusted_network; false: as is configured
  std::string name;
  std::string pool = "default";
  std::string peers_file;
  bool join = false;  // write this member into peers_file
  uint32_t replicas = 1;
  std::string transport = "auto";
  std::string ucx_devices;
  uint64_t host_bytes = 256ULL << 20;
  uint64_t block_bytes = 1ULL << 20;
  std::string disk_path;
  uint64_t disk_bytes = 0;
  std::string share;  // a directory: the tier set in it is shared with other processes (share=on)
  std::string share_ask;  // how long a lookup waits for what the owner of that set has; empty: as is configured
  std::string local = "auto";  // node.local
  std::string admission;       // node.admission; empty: as is configured
  std::string codec = "off";   // node.codec
  std::string disk_codec = "off";
  std::string seal_key_file;   // seal.key_file
  const kvbm_geometry_t* geometry = nullptr;  // of the namespace; null: opaque
  bool log = false;  // warnings and what nodes come and go, on stderr
};

class Member {
 public:
  static Result<std::unique_ptr<Member>> open(const MemberOptions& options);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  [[nodiscard]] std::string address() const;
  [[nodiscard]] std::vector<kvbm_node_row_t> nodes() const;
  // Until a peer is ready and the others are too, have failed, or have had a second more; owner_gone with what the
  // peers say, after timeout_ns, or at once where all of them refuse this one for what it is. A key's home is chosen
  // among those that are ready.
  Status wait_for_peers(uint64_t timeout_ns) const;
  [[nodiscard]] kvbm_manager_t* manager() const noexcept { return manager_; }
  [[nodiscard]] kvbm_context_t* context() const noexcept { return context_; }
  [[nodiscard]] kvbm_namespace_t* ns() const noexcept { return ns_; }
  [[nodiscard]] kvbm_manager_stats_t stats() const;
  [[nodiscard]] std::string metrics() const;  // Prometheus text
  // One of these, without labels; 0 where there is none of that name.
  [[nodiscard]] uint64_t metric(const std::string& name) const;
  // "the owner", or whose client this process is.
  [[nodiscard]] std::string share_role() const;

  using Digest = std::array<uint8_t, 32>;  // SHA-256
  // Of a file's blocks those that nodes have.
  struct Kept {
    size_t blocks = 0;
    size_t of = 0;
    [[nodiscard]] bool all() const noexcept { return blocks == of; }
  };
  // Brings `bytes` under `name` to the pool, through this member's host memory, which may be smaller; gives what nodes
  // had of it when they were asked afterwards. A file that is larger than the pool is refused before anything is
  // stored: no_room. In a shared tier set: what its disk has, or its owner's memory where there is none and the owner
  // is another process. durable, in a shared tier set with a disk: there after a power cut, too. exists: other bytes
  // are stored under that name.
  Result<Kept> put(const std::string& name, const std::string& bytes, bool durable = false);
  // miss where no node has all of it.
  Result<std::string> get(const std::string& name, uint64_t timeout_ns);
  enum class Extent : uint8_t { none, part, all };
  // Whether all blocks of the file are there. What is left of one that has lost its first is nobody's any more.
  Result<Extent> exists(const std::string& name, uint64_t timeout_ns);
  // How many of a file's leading blocks each node has, tier by tier; empty where nothing has the first. Brings that
  // here.
  Result<std::vector<kvbm_location_t>> locate(const std::string& name, uint64_t timeout_ns);

 private:
  Member() = default;
  static void log_line(void* self, int32_t level, const char* component, const char* text);
  // What the library warned of last: of a status that it gives, the detail.
  [[nodiscard]] std::string last_warning() const;
  Result<std::vector<kvbm_key_t>> keys_of(const std::string& name, size_t n, const Digest& digest) const;
  [[nodiscard]] size_t blocks_of(uint64_t length) const noexcept;
  Status check_name(const std::string& name, uint64_t length, const Digest& digest);
  struct Head {
    uint64_t length = 0;  // of the file
    Digest digest{};
    std::string bytes;    // of the first block
  };
  // miss where no node has the first block; mismatch where the file's blocks are of another size than this member's.
  Result<Head> head_of(const std::string& name, uint64_t timeout_ns);
  // Which other nodes have which of the keys.
  Result<std::vector<kvbm_location_t>> places(const std::vector<kvbm_key_t>& keys, uint64_t timeout_ns) const;
  std::optional<kvbm_location_t> where(const std::vector<kvbm_key_t>& keys, uint64_t timeout_ns) const;  // the first
  // no_room, with the sizes, where the pool cannot hold so much.
  Status check_room(const std::string& name, uint64_t bytes) const;
  [[nodiscard]] size_t on_disk(const std::vector<kvbm_key_t>& keys) const;
  Result<Kept> ask_kept(const std::vector<kvbm_key_t>& keys) const;
  [[nodiscard]] Status other_blocks(const std::string& name, uint64_t bytes,
                                    const std::optional<kvbm_location_t>& at) const;
  Status nobody_has(const std::string& name, uint64_t timeout_ns) const;
  [[nodiscard]] uint64_t damaged() const;
  // How many of the keys some node, or this one, has from the first on; brings them here if `fetch`.
  Result<size_t> find(const std::vector<kvbm_key_t>& keys, bool fetch, uint64_t timeout_ns, std::string* bytes);
  Result<size_t> fetch_some(std::span<const kvbm_key_t> keys, std::string* bytes);
  // `all`: the file behind its head. `first` is where the next ones begin.
  kvbm_status_t put_some(const std::vector<kvbm_key_t>& keys, const std::string& all, size_t& first);

  kvbm_context_t* context_ = nullptr;
  kvbm_manager_t* manager_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
  uint64_t block_bytes_ = 0;
  size_t fetched_at_once_ = 1;  // blocks
  uint32_t peers_tier_ = 0;
  bool shared_ = false;
  bool on_disk_ = false;  // there is a disk tier
  bool log_ = false;
  mutable std::mutex warning_mutex_;
  std::string warning_;
};

}  // namespace kvbm::node
