// Memory, runs and launches for tests of the kernels that move leaves.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "base/crypto/random.h"
#include "codec/hash/leaf_hash.h"
#include "device/driver/driver.h"
#include "device/kernels/leaf_job.h"
#include "layout/engine_forms.h"
#include "layout/plan.h"
#include "layout/shard.h"
#include "support/cuda_emulation/kernels.h"

namespace kvbm::device {

inline DeviceRun device_run(const StridedRun& run) {
  return make_run(address_of(run.data), run.bytes, run.count1, run.stride0, run.stride1);
}

inline LeafJob leaf_job(const StridedRun& run, const std::byte* record, bool checked = false, uint64_t expected = 0) {
  return make_leaf_job(device_run(run), run.count0, address_of(record), checked, expected);
}

// A leaf in memory of its own: runs of `memory` between guards. The rest of the memory is unused.
struct Case {
  std::vector<std::byte> memory;
  StridedRun run;
  std::vector<std::byte> record_memory;
  std::byte* record = nullptr;
};

// Returns memory with malloc's alignment, so that offsets in it decide the alignment of addresses.
inline std::vector<std::byte> random_bytes(size_t bytes, Random& random) {
  std::vector<std::byte> memory(bytes);
  random.fill(memory);
  return memory;
}

// Makes any run of at most `limit` bytes with pieces, strides and offsets that are multiples of `width`.
inline Case make_case(uint64_t width, uint64_t limit, Random& random) {
  Case c;
  c.run.bytes = width * (1 + random.below(std::max<uint64_t>(1, random.below(4) == 0 ? limit / width : 600 / width)));
  c.run.bytes = std::min(c.run.bytes, limit / width * width);
  const uint64_t pieces = limit / c.run.bytes;
  c.run.count0 = static_cast<uint32_t>(1 + random.below(std::min<uint64_t>(pieces, 20)));
  c.run.count1 =
      static_cast<uint32_t>(1 + random.below(std::max<uint64_t>(1, std::min<uint64_t>(pieces / c.run.count0, 70))));
  const auto gap = [&] { return random.below(3) == 0 ? 0 : width * random.below(12); };
  const uint64_t near = c.run.bytes + gap();
  if (random.below(2) == 0) {  // heads outside, or tokens outside
    c.run.stride1 = static_cast<int64_t>(near);
    c.run.stride0 = static_cast<int64_t>(near * c.run.count1 + gap());
  } else {
    c.run.stride0 = static_cast<int64_t>(near);
    c.run.stride1 = static_cast<int64_t>(near * c.run.count0 + gap());
  }
  const uint64_t extent = static_cast<uint64_t>(c.run.stride0) * (c.run.count0 - 1) +
                          static_cast<uint64_t>(c.run.stride1) * (c.run.count1 - 1) + c.run.bytes;
  const uint64_t before = 64 + width * random.below(64);
  c.memory = random_bytes(before + extent + 64, random);
  c.run.data = c.memory.data() + before;
  // Strides of a single piece must be ignored, so they are random.
  if (c.run.count0 == 1) c.run.stride0 = static_cast<int64_t>(random.below(1000));
  if (c.run.count1 == 1) c.run.stride1 = static_cast<int64_t>(random.below(1000));
  const uint64_t record_width = uint64_t{1} << random.below(5);
  const uint64_t at = 64 + record_width * random.below(9);
  c.record_memory = random_bytes(at + c.run.total() + 64, random);
  c.record = c.record_memory.data() + at;
  return c;
}

// References on the CPU.
inline uint64_t gathered(std::byte* to, const StridedRun& run) {
  return codec::gather_hashed(to, {&run, 1}, codec::CopyHint::cached, codec::CopyOrder::now);
}
inline uint64_t scattered(const StridedRun& run, const std::byte* from) {
  return codec::scatter_hashed({&run, 1}, from, codec::CopyHint::cached, codec::CopyOrder::now);
}

inline void overwrite(const StridedRun& run, std::byte value) {
  for (uint32_t i = 0; i < run.count0; ++i)
    for (uint32_t j = 0; j < run.count1; ++j) {
      std::fill_n(run.data + int64_t{i} * run.stride0 + int64_t{j} * run.stride1, run.bytes, value);
    }
}

inline uint32_t largest_of(const std::vector<LeafJob>& jobs) {
  uint32_t largest = 0;
  for (const LeafJob& job : jobs) largest = std::max(largest, job.bytes);
  return largest;
}

struct Results {
  emulation::Outcome outcome;
  std::vector<uint64_t> hashes;
  std::vector<uint8_t> good;
};

struct Launch {
  uint32_t blocks = 2;
  uint32_t threads = kBlockThreads;
  uint32_t warps = 0;  // 0: by the largest job
  emulation::Options options;
};

// Runs the jobs; results start as values that no kernel writes.
inline Results run_jobs(const char* kernel, const std::vector<LeafJob>& jobs, const Launch& launch, bool has_good) {
  Results r;
  r.hashes.assign(jobs.size() + 1, 0x1234567890ABCDEFULL);
  r.good.assign(jobs.size() + 1, 0xEE);
  const auto count = static_cast<uint32_t>(jobs.size());
  const uint32_t warps = launch.warps != 0 ? launch.warps : warps_for(largest_of(jobs));
  const emulation::LaunchShape shape{{launch.blocks, 1, 1}, {launch.threads, 1, 1}, 0};
  r.outcome = has_good
                  ? emulation::launch_named(kernel, shape, launch.options, jobs.data(), count, warps, r.hashes.data(),
                                            r.good.data())
                  : emulation::launch_named(kernel, shape, launch.options, jobs.data(), count, warps, r.hashes.data());
  EXPECT_EQ(r.hashes.back(), 0x1234567890ABCDEFULL);
  EXPECT_EQ(r.good.back(), 0xEE);
  return r;
}

// A paged cache in one of the arrangements that engines use.
struct Pages {
  std::vector<std::vector<std::byte>> memory;
  std::vector<layout::Tensor> tensors;
  layout::Arrangement arrangement;
};

inline Pages make_pages(layout::Form form, const layout::RecordShape& shape, uint64_t blocks, Random& random) {
  const uint32_t n = layout::form_tensors(form, shape);
  const uint64_t total = blocks * shape.unit_bytes() * shape.planes() * shape.layers();
  std::vector<std::vector<std::byte>> memory;
  std::vector<layout::Tensor> tensors;
  for (uint32_t i = 0; i < n; ++i) memory.push_back(random_bytes(total / n, random));
  for (auto& m : memory) tensors.push_back({m.data(), m.size()});
  layout::Arrangement arrangement = layout::arrange(form, shape, blocks, tensors).value();
  return {std::move(memory), std::move(tensors), std::move(arrangement)};
}

// Small shapes of the kinds that models have: grouped heads, few heads, MLA in bf16 and in the 656 and 132 bytes of
// fp8.
inline std::vector<layout::RecordShape> model_shapes() {
  using namespace layout;
  struct Model {
    ComponentGeometry component;
    uint32_t tokens, units;
  };
  const Model models[] = {{attention(2, 2, 128, Element::bf16), 16, 2},   {attention(1, 3, 80, Element::fp16), 5, 3},
                          {attention(2, 8, 64, Element::fp8_e4m3), 4, 1}, {attention(1, 1, 7, Element::bf16), 3, 2},
                          {latent(2, 576, Element::bf16), 8, 2},          {latent(1, 656, Element::fp8_e4m3), 16, 1},
                          {latent(1, 132, Element::fp8_e4m3), 16, 2}};
  std::vector<RecordShape> shapes;
  for (const Model& m : models) {
    const Geometry g = Geometry::make(m.tokens, {m.component}, m.units).value();
    shapes.push_back(RecordShape::make(g, 0, whole_shard(m.component), m.units).value());
  }
  return shapes;
}

}  // namespace kvbm::device
