// One side of a prefill->decode session on the public C interface, in the role of an engine. Ranks have attached
// caches of a given form and block size, all in this process and behind one node. Their bytes are read and written
// here in canonical order: [layer][K, V][head][position][element] of the heads of these ranks, each head once. So two
// sides with different shapes can be compared. If there are more ranks than heads, several ranks hold the same head.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kvbm.h"
#include "layout/arrangement.h"
#include "node/member.h"

namespace kvbm::session {

struct SideOptions {
  node::MemberOptions node;
  std::string model = "a model";
  uint32_t layers = 8;
  uint32_t heads = 8;
  uint32_t head_size = 64;
  std::string element = "bf16";
  std::string order = "nhd";  // a form of layout/engine_forms.h
  uint32_t block_tokens = 16;
  uint32_t tp = 1;
  uint32_t first_rank = 0, ranks = 1;  // the ranks of tp in this process
  uint64_t tokens = 1024;
};

// Returns the bytes of all heads of one token; invalid_argument for an unknown element.
Result<uint64_t> bytes_per_token(const SideOptions& options);

// The heads of a run of ranks: [first, end).
struct Heads {
  uint32_t first = 0;
  uint32_t end = 0;
  [[nodiscard]] uint32_t count() const noexcept { return end - first; }
};
// Returns the heads of the ranks [rank, rank + ranks) of options.tp. The ranks must fit the heads.
Heads heads_of(const SideOptions& options, uint32_t rank, uint32_t ranks);

class Side {
 public:
  static Result<std::unique_ptr<Side>> open(const SideOptions& options);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  struct Rank {
    uint32_t number = 0;
    kvbm_cache_t* cache = nullptr;
    Heads heads;
    std::vector<uint32_t> blocks;  // in the order of the request
    std::vector<std::vector<std::byte>> memory;
    std::unique_ptr<layout::Arrangement> arrangement;  // equal to the cache's, for direct reads and writes
  };

  [[nodiscard]] std::vector<Rank>& ranks() noexcept { return ranks_; }
  [[nodiscard]] const node::Member& member() const noexcept { return *member_; }
  // Return the bytes of the local ranks' heads: of a layer, and of all layers.
  [[nodiscard]] uint64_t layer_bytes() const noexcept { return layer_bytes_; }
  [[nodiscard]] uint64_t bytes() const noexcept { return layer_bytes_ * options_.layers; }
  // Copy canonical bytes of one layer into or out of the caches. Returns false if ranks that share a head have
  // different bytes of it.
  void write_layer(uint32_t layer, const std::byte* from);
  [[nodiscard]] bool read_layer(uint32_t layer, std::byte* to) const;

 private:
  explicit Side(const SideOptions& options) : options_(options) {}
  Status open_rank(uint32_t number);
  Status make_cache(Rank& rank, uint32_t form, const kvbm_shard_t& shard);
  template <class Visit>
  void rows_of(uint32_t layer, Visit&& visit) const;

  const SideOptions options_;
  std::unique_ptr<node::Member> member_;
  kvbm_geometry_t* geometry_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
  std::vector<Rank> ranks_;
  Heads heads_;
  uint64_t row_bytes_ = 0;
  uint64_t layer_bytes_ = 0;
};

// Hashes bytes to 16 hexadecimal digits, which both sides print.
class Digest {
 public:
  void add(const std::byte* data, uint64_t bytes);
  [[nodiscard]] std::string text() const;

 private:
  std::vector<uint64_t> hashes_;
};

// Parses 32 hexadecimal digits, or up to 16 characters.
Result<kvbm_request_id_t> request_named(const std::string& text);

}  // namespace kvbm::session
