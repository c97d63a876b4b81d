// A short-lived or long-lived member of a pool on the public C interface: a context, a manager that is a node, and a
// namespace of opaque blocks. Files are stored in it block by block.
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
  std::string protect;           // node.protect; empty: as configured
  bool trusted_network = false;  // node.trusted_network; false: as configured
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
  std::string share;           // a directory: the tier set in it is shared with other processes (share=on)
  std::string share_ask;       // how long a lookup waits for an answer of that set's owner; empty: as configured
  std::string local = "auto";  // node.local
  std::string admission;       // node.admission; empty: as configured
  std::string codec = "off";   // node.codec
  std::string disk_codec = "off";
  std::string seal_key_file;                  // seal.key_file
  const kvbm_geometry_t* geometry = nullptr;  // of the namespace; null: opaque
  bool log = false;                           // log warnings, and nodes that connect or disconnect, on stderr
};

class Member {
 public:
  static Result<std::unique_ptr<Member>> open(const MemberOptions& options);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  [[nodiscard]] std::string address() const;
  [[nodiscard]] std::vector<kvbm_node_row_t> nodes() const;
  // Waits until a peer is ready and the others are too, have failed, or have had a second more. Returns owner_gone
  // with the peers' reasons, after timeout_ns, or at once if all of them refuse this member. A key's home is chosen
  // among the ready peers.
  Status wait_for_peers(uint64_t timeout_ns) const;
  [[nodiscard]] kvbm_manager_t* manager() const noexcept { return manager_; }
  [[nodiscard]] kvbm_context_t* context() const noexcept { return context_; }
  [[nodiscard]] kvbm_namespace_t* ns() const noexcept { return ns_; }
  [[nodiscard]] kvbm_manager_stats_t stats() const;
  [[nodiscard]] std::string metrics() const;  // Prometheus text
  // Returns the metric `name` of metrics(), which must be one without labels; 0 if there is none.
  [[nodiscard]] uint64_t metric(const std::string& name) const;
  // Returns "the owner", or the process of which this one is a client.
  [[nodiscard]] std::string share_role() const;

  using Digest = std::array<uint8_t, 32>;  // SHA-256
  // How many of a file's blocks the nodes have.
  struct Kept {
    size_t blocks = 0;
    size_t of = 0;
    [[nodiscard]] bool all() const noexcept { return blocks == of; }
  };
  // Stores `bytes` under `name` in the pool, through this member's host memory, which may be smaller. Returns what
  // the nodes had of it when they were asked afterwards. A file that is larger than the pool is refused before
  // anything is stored: no_room.
  //
  // In a shared tier set the result counts the blocks on its disk, or in its owner's memory if there is no disk and
  // the owner is another process. durable, in a shared tier set with a disk: the blocks survive a power cut. exists:
  // other bytes are stored under that name.
  Result<Kept> put(const std::string& name, const std::string& bytes, bool durable = false);
  // Returns miss if no node has all of it.
  Result<std::string> get(const std::string& name, uint64_t timeout_ns);
  enum class Extent : uint8_t { none, part, all };
  // Returns how much of the file exists. Without its first block the remaining blocks belong to no file.
  Result<Extent> exists(const std::string& name, uint64_t timeout_ns);
  // Returns how many of a file's leading blocks each node has, tier by tier; empty if no node has the first. Fetches
  // the first block.
  Result<std::vector<kvbm_location_t>> locate(const std::string& name, uint64_t timeout_ns);

 private:
  Member() = default;
  static void log_line(void* self, int32_t level, const char* component, const char* text);
  // Returns the library's last warning, as the detail of a status.
  [[nodiscard]] std::string last_warning() const;
  Result<std::vector<kvbm_key_t>> keys_of(const std::string& name, size_t n, const Digest& digest) const;
  [[nodiscard]] size_t blocks_of(uint64_t length) const noexcept;
  Status check_name(const std::string& name, uint64_t length, const Digest& digest);
  struct Head {
    uint64_t length = 0;  // of the file
    Digest digest{};
    std::string bytes;  // of the first block
  };
  // Returns miss if no node has the first block, mismatch if the file's blocks have another size than this member's.
  Result<Head> head_of(const std::string& name, uint64_t timeout_ns);
  // Returns which other nodes have which of the keys.
  Result<std::vector<kvbm_location_t>> places(const std::vector<kvbm_key_t>& keys, uint64_t timeout_ns) const;
  std::optional<kvbm_location_t> where(const std::vector<kvbm_key_t>& keys, uint64_t timeout_ns) const;  // the first
  // Returns no_room, with the sizes, if the pool is too small.
  Status check_room(const std::string& name, uint64_t bytes) const;
  [[nodiscard]] size_t on_disk(const std::vector<kvbm_key_t>& keys) const;
  Result<Kept> ask_kept(const std::vector<kvbm_key_t>& keys) const;
  [[nodiscard]] Status other_blocks(const std::string& name, uint64_t bytes,
                                    const std::optional<kvbm_location_t>& at) const;
  Status nobody_has(const std::string& name, uint64_t timeout_ns) const;
  [[nodiscard]] uint64_t damaged() const;
  // Returns how many of the keys, from the first on, any node or this one has. Fetches them if `fetch`.
  Result<size_t> find(const std::vector<kvbm_key_t>& keys, bool fetch, uint64_t timeout_ns, std::string* bytes);
  Result<size_t> fetch_some(std::span<const kvbm_key_t> keys, std::string* bytes);
  // `all`: the file behind its head. Sets `first` to the beginning of the next blocks.
  kvbm_status_t put_some(const std::vector<kvbm_key_t>& keys, const std::string& all, size_t& first);

  kvbm_context_t* context_ = nullptr;
  kvbm_manager_t* manager_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
  MemberOptions options_;
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
