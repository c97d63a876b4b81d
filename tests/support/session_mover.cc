#include "support/session_mover.h"

#include <algorithm>
#include <vector>

#include "codec/leaf_hash.h"

namespace kvbm::test {

using cluster::session::SliceMove;

void SimMover::gather(std::unique_ptr<SliceMove> move, Done done) {
  ++gathers_;
  begin({std::move(move), std::move(done), false});
}

void SimMover::scatter(std::unique_ptr<SliceMove> move, Done done) {
  ++scatters_;
  begin({std::move(move), std::move(done), true});
}

void SimMover::begin(Job job) {
  const uint64_t number = next_++;
  ++under_way_;
  jobs_.emplace(number, std::move(job));
  sim_.post_at(sim_.clock().now_ns() + 1000 + sim_.random().below(delay_ns), [this, number, gone = gone_] {
    if (!*gone && !held) try_end(number);
  });
}

void SimMover::try_end(uint64_t number) {
  if (!stopped || !stopped()) return end(number);
  sim_.post_at(sim_.clock().now_ns() + 5'000'000, [this, number, gone = gone_] {
    if (!*gone) try_end(number);
  });
}

void SimMover::let_go() {
  held = false;
  while (!jobs_.empty()) end(jobs_.begin()->first);
}

void SimMover::end(uint64_t number) {
  const auto it = jobs_.find(number);
  if (it == jobs_.end()) return;
  Job job = std::move(it->second);
  jobs_.erase(it);
  SliceMove& move = *job.move;
  Status status;
  for (size_t i = 0; i < move.leaves.size(); ++i) {
    const SliceMove::Leaf& leaf = move.leaves[i];
    most_runs_ = std::max(most_runs_, leaf.runs);
    const auto runs = std::span(move.runs).subspan(leaf.first_run, leaf.runs);
    std::byte* payload = move.payload + leaf.offset;
    if (!job.in) {
      move.hashes[i] = codec::gather_hashed(payload, runs, codec::CopyHint::cached);
    } else if (codec::scatter_hashed(runs, payload, codec::CopyHint::cached) != move.hashes[i]) {
      status = Status(Code::damaged, "a leaf of a slice is not what its hash says");
    }
  }
  if (job.in && spoil > 0 && static_cast<double>(sim_.random().below(1'000'000)) < spoil * 1e6) {
    move.runs[0].data[0] ^= std::byte{1};
    status = Status(Code::damaged, "a leaf of a slice is not what its hash says");
  }
  if (lost_) status = Status(Code::tier_disabled, "the device is lost", "device 0");
  --under_way_;
  sim_.note(code_name(status.code()), move.leaves.size());
  job.done(move, status);
}

}  // namespace kvbm::test
