// The plan of one decode rank: which rectangles of which layer are read from which prefill rank.
//
// Pure arithmetic over both sides' descriptions; computed once a session. Every wanted position of every head and
// layer is in exactly one slice or in one gap. Deterministic: of k ranks that hold the same bytes (replicated heads,
// latents), decode rank r reads layer l from number (l + r) mod k. So replicas share the load whether there are more
// of them than readers or fewer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cluster/session/block_map.h"
#include "cluster/session/facts.h"
#include "cluster/session/slice.h"

namespace kvbm::cluster::session {

struct Slice {
  uint32_t source = 0;  // position in `sources`
  uint32_t payload_bytes = 0;
  Extent extent;
};

// Returns text about a part that no source has.
std::string gap_text(const Part& gap);

struct PlanInput {
  const Facts* facts = nullptr;
  std::span<const LocalPart> targets;
  // One list of parts a source; empty for a source that must not be used.
  std::span<const std::vector<Part>> sources;
  uint32_t sink_rank = 0;
  uint32_t slice_bytes = kMinSliceBytes;  // to kMaxSliceBytes
};

class Plan {
 public:
  static constexpr size_t kMaxSlices = 1U << 20;

  // Makes a plan. All arguments were checked before (check_local, check_parts). no_room: more than kMaxSlices.
  static Result<Plan> make(const PlanInput& input);

  // One layer of one component of the target, in the order in which layers are needed: by layer, then component.
  struct Layer {
    Component component = 0;
    uint16_t layer = 0;
    uint32_t first_slice = 0;
    uint32_t slices = 0;
  };
  [[nodiscard]] std::span<const Layer> layers() const noexcept { return layers_; }
  [[nodiscard]] std::span<const Slice> slices() const noexcept { return slices_; }
  // Returns the index of the layer in layers(), or layers().size() if the plan lacks it.
  [[nodiscard]] size_t find_layer(Component component, uint32_t layer) const noexcept;
  // Returns the parts that no source has.
  [[nodiscard]] std::span<const Part> gaps() const noexcept { return gaps_; }
  [[nodiscard]] uint64_t payload_bytes() const noexcept { return payload_bytes_; }

 private:
  std::vector<Layer> layers_;
  std::vector<Slice> slices_;
  std::vector<Part> gaps_;
  uint64_t payload_bytes_ = 0;
};

}  // namespace kvbm::cluster::session
