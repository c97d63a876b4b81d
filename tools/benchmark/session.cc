#include "benchmark/session.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "base/crypto/random.h"
#include "base/memory/memory.h"
#include "benchmark/statistics.h"
#include "cluster/session/plan.h"
#include "cluster/session/slice.h"
#include "layout/engine_forms.h"
#include "layout/shard.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {
namespace {

using cluster::session::Facts;
using cluster::session::LocalPart;
using cluster::session::Part;
using cluster::session::Plan;
using cluster::session::PlanInput;
using cluster::session::Slice;
using cluster::session::SliceCopy;
using cluster::session::SliceShape;
using layout::Form;

constexpr uint32_t kSessionLayers = 80, kSourceRanks = 8, kTargetRanks = 4, kSliceBytes = 1 << 20;
constexpr uint64_t kSessionTokens = 4096;

struct Case {
  const char* name;
  Form from;
  uint32_t from_tokens;
  Form to;
  uint32_t to_tokens;
};
constexpr Case kCases[] = {{"nhd16_to_nhd16", Form::nhd, 16, Form::nhd, 16},
                           {"nhd16_to_hnd64", Form::nhd, 16, Form::hnd, 64},
                           {"packed_hnd16_to_cross_nhd16", Form::packed_hnd, 16, Form::cross_nhd, 16}};

// One rank's cache, in one arena.
struct Rank {
  std::unique_ptr<Arena> memory;
  std::unique_ptr<layout::Arrangement> arrangement;
  LocalPart local;
};

Result<Rank> make_rank(const Facts& facts, const Part& part, Form form, uint32_t block_tokens, Random& random) {
  const auto geometry = layout::Geometry::make(block_tokens, facts.components);
  if (!geometry.ok()) return geometry.status();
  const auto shape = layout::RecordShape::make(geometry.value(), 0, part.shard, 1);
  if (!shape.ok()) return shape.status();
  const uint64_t blocks = kSessionTokens / block_tokens;
  const uint32_t tensors = layout::form_tensors(form, shape.value());
  const uint64_t each = blocks * shape.value().payload_bytes() / tensors;
  auto memory =
      Arena::map({.bytes = each * tensors, .huge_pages = true, .file = {}, .interleave = false, .touch_threads = 2});
  if (!memory.ok()) return memory.status();
  Rank rank;
  rank.memory = std::move(memory).value();
  random.fill({rank.memory->data(), 1 << 20});
  std::vector<layout::Tensor> views;
  for (uint32_t i = 0; i < tensors; ++i) views.push_back({rank.memory->data() + i * each, each});
  auto arrangement = layout::arrange(form, shape.value(), blocks, views);
  if (!arrangement.ok()) return arrangement.status();
  rank.arrangement = std::make_unique<layout::Arrangement>(std::move(arrangement).value());
  std::vector<layout::BlockId> ids(blocks);
  std::iota(ids.begin(), ids.end(), 0U);
  for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random.below(i)]);
  rank.local = {part, {rank.arrangement.get(), std::move(ids), 0}};
  return rank;
}

Part part_of(const Facts& facts, uint32_t rank, uint32_t ranks) {
  return {0,
          layout::tensor_parallel_shard(facts.components[0], rank, ranks, 0, kSessionLayers).value(),
          {0, kSessionTokens}};
}

struct Sides {
  Facts facts;
  std::vector<Rank> sources;  // ranks that the decode rank needs
  std::vector<std::vector<Part>> parts;
  std::vector<LocalPart> targets;
  Rank target;
  Plan plan;
};

Result<Sides> make_sides(const Case& c) {
  SeededRandom random(1);
  Sides s;
  s.facts.components.push_back(layout::attention(kSessionLayers, 8, 128, layout::Element::bf16));
  for (uint32_t r = 0; r < kSourceRanks; ++r) s.parts.push_back({part_of(s.facts, r, kSourceRanks)});
  for (uint32_t r = 0; r < kSourceRanks / kTargetRanks; ++r) {
    auto rank = make_rank(s.facts, s.parts[r][0], c.from, c.from_tokens, random);
    if (!rank.ok()) return rank.status();
    s.sources.push_back(std::move(rank).value());
  }
  auto target = make_rank(s.facts, part_of(s.facts, 0, kTargetRanks), c.to, c.to_tokens, random);
  if (!target.ok()) return target.status();
  s.target = std::move(target).value();
  s.targets.push_back(s.target.local);
  auto plan = Plan::make({&s.facts, s.targets, s.parts, 0, kSliceBytes});
  if (!plan.ok()) return plan.status();
  s.plan = std::move(plan).value();
  return s;
}

struct SessionSamples {
  std::vector<double> plan, gather, scatter, memcpy;
};

Status move_all(const Sides& s, std::byte* staging, SessionSamples& samples) {
  SliceCopy copy;
  std::vector<uint64_t> hashes(cluster::session::max_leaves(kSliceBytes));
  double gather = 0;
  double scatter = 0;
  uint64_t n = 0;
  for (const Slice& slice : s.plan.slices()) {
    const SliceShape shape(s.facts.components[0], slice.extent);
    const auto of = std::span(hashes).first(shape.leaf_count());
    std::byte* payload = staging + n++ % 4 * kSliceBytes;
    const ThreadStopwatch first;
    copy.gather(s.facts, s.sources[slice.source].local, slice.extent, payload, of);
    gather += first.seconds();
    const ThreadStopwatch second;
    const uint32_t right = copy.scatter(s.facts, s.target.local, slice.extent, payload, of);
    scatter += second.seconds();
    if (right != shape.leaf_count()) return Status(Code::damaged, "a slice did not verify");
  }
  samples.gather.push_back(gather);
  samples.scatter.push_back(scatter);
  return {};
}

double copy_linear(const Sides& s) {
  const uint64_t half = s.plan.payload_bytes() / s.sources.size();
  const ThreadStopwatch watch;
  for (size_t i = 0; i < s.sources.size(); ++i) {
    for (uint64_t at = 0; at < half; at += kSliceBytes) {
      std::memcpy(s.target.memory->data() + i * half + at, s.sources[i].memory->data() + at,
                  std::min<uint64_t>(kSliceBytes, half - at));
    }
  }
  return watch.seconds();
}

Status measure(const Case& c, int rounds, std::byte* staging, terminal::Progress& progress, std::vector<Row>& rows) {
  const auto made = make_sides(c);
  if (!made.ok()) return made.status();
  const Sides& s = made.value();
  SessionSamples samples;
  for (int round = 0; round < rounds; ++round) {
    const ThreadStopwatch watch;
    const auto plan = Plan::make({&s.facts, s.targets, s.parts, 0, kSliceBytes});
    samples.plan.push_back(watch.seconds());
    if (auto status = move_all(s, staging, samples); !status.ok()) return status;
    samples.memcpy.push_back(copy_linear(s));
    progress.advance(1);
  }
  const double gigabytes = static_cast<double>(s.plan.payload_bytes()) / 1e9;
  const double limit = gigabytes / median(samples.memcpy);
  const std::string name = std::string("session.") + c.name;
  rows.push_back({name + ".plan", median(samples.plan) * 1e6, "us", {}, "", {}});
  rows.push_back(more_is_better(name + ".gather", gigabytes / median(samples.gather), "GB/s", limit, "memcpy"));
  rows.push_back(more_is_better(name + ".scatter", gigabytes / median(samples.scatter), "GB/s", limit, "memcpy"));
  return {};
}

}  // namespace

Result<std::vector<Row>> bench_session(const SessionOptions& options) {
  ArenaOptions arena;
  arena.bytes = size_t{4} * kSliceBytes;
  const auto staging = Arena::map(arena);
  if (!staging.ok()) return staging.status();
  terminal::Progress progress("moving", std::size(kCases) * static_cast<uint64_t>(options.rounds),
                              terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const Case& c : kCases) {
    if (auto s = measure(c, options.rounds, staging.value()->data(), progress, rows); !s.ok()) return s;
  }
  return rows;
}

}  // namespace kvbm::benchmark
