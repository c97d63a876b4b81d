// Engines for session tests: facts, the ranks of one side in any parallel shape, block size and form, and caches filled
// with bytes that name their place. They are written and read one row at a time by counting through the form's axes.
// The expected bytes use neither lib/layout's strides nor lib/cluster/session.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/crypto/random.h"
#include "cluster/session/block_map.h"
#include "cluster/session/facts.h"
#include "layout/engine_forms.h"

namespace kvbm::test {

// Computes the bytes of one head at one position, for the whole model.
void truth_row(uint64_t seed, uint32_t component, uint64_t layer, uint64_t plane, uint64_t head, uint64_t position,
               std::byte* out, uint32_t bytes);

// Memory of a resource. A std::pmr::vector makes and ends its bytes one by one.
class ResourceBytes {
 public:
  ResourceBytes(size_t size, std::pmr::memory_resource* from) : from_(from), bytes_(make(size, from)) {}
  ~ResourceBytes() {
    if (!bytes_.empty()) from_->deallocate(bytes_.data(), bytes_.size());
  }
  ResourceBytes(ResourceBytes&& other) noexcept : from_(other.from_), bytes_(std::exchange(other.bytes_, {})) {}
  ResourceBytes(const ResourceBytes&) = delete;
  ResourceBytes& operator=(const ResourceBytes&) = delete;
  ResourceBytes& operator=(ResourceBytes&&) = delete;

  [[nodiscard]] std::span<std::byte> all() const noexcept { return bytes_; }

 private:
  static std::span<std::byte> make(size_t size, std::pmr::memory_resource* from) {
    if (size == 0) return {};
    return {static_cast<std::byte*>(from->allocate(size)), size};
  }
  std::pmr::memory_resource* from_;
  std::span<std::byte> bytes_;
};

// One rank's cache of one component.
class RankCache {
 public:
  // Holds `range` in blocks drawn from `random`; blocks[0] begins at `first`. `memory`: where its tensors are.
  RankCache(const cluster::session::Facts& facts, const cluster::session::Part& part, layout::Form form,
            uint32_t block_tokens, uint64_t first, Random& random,
            std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  [[nodiscard]] cluster::session::LocalPart local() const;
  // Writes the model's bytes at these positions of one layer.
  void fill(uint64_t seed, uint32_t layer, cluster::session::Range range);
  // Checks every byte of the cache: the model's bytes in the part's range, the initial pattern elsewhere. Returns "",
  // or the first wrong place.
  [[nodiscard]] std::string check(uint64_t seed) const;
  // Checks one layer like check().
  [[nodiscard]] std::string check_layer(uint64_t seed, uint32_t layer) const;
  [[nodiscard]] const cluster::session::Part& part() const { return part_; }

 private:
  [[nodiscard]] std::byte* row(uint64_t layer, uint64_t plane, uint64_t head, uint64_t position) const;

  const cluster::session::Facts facts_;
  cluster::session::Part part_;
  layout::Form form_;
  uint32_t tokens_ = 0, row_bytes_ = 0, planes_ = 0;
  uint64_t blocks_ = 0, first_ = 0;
  std::vector<layout::BlockId> ids_;
  std::vector<ResourceBytes> memory_;
  std::vector<std::vector<std::byte>> before_;
  std::unique_ptr<layout::Arrangement> arrangement_;
};

// One rank: a cache for each component that it has something of.
struct RankEngine {
  std::vector<std::unique_ptr<RankCache>> caches;
  cluster::session::SliceMover* mover = nullptr;  // set: its memory is a device's
  [[nodiscard]] std::vector<cluster::session::LocalPart> locals() const;
  [[nodiscard]] std::vector<cluster::session::Part> parts() const;
  void fill_all(uint64_t seed);
  [[nodiscard]] std::string check(uint64_t seed) const;
};

struct SideShape {
  uint32_t tp = 1, pp = 1, block_tokens = 16;
  layout::Form form = layout::Form::nhd;
  bool mixed_forms = false;  // every rank another form
  uint64_t begin = 0;        // first token of the request that this side has, or wants
};

cluster::session::Facts random_facts(Random& random, bool large);
SideShape random_side(const cluster::session::Facts& facts, Random& random, uint64_t tokens);
// The ranks of a side; those without any layer are left out. A sliding window has only its last tokens.
std::vector<RankEngine> make_side(const cluster::session::Facts& facts, const SideShape& shape, uint64_t tokens,
                                  Random& random, std::pmr::memory_resource* memory = std::pmr::get_default_resource());

}  // namespace kvbm::test
