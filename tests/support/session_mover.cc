#include "support/session_mover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::test {

using cluster::session::SharedMemory;
using cluster::session::SliceMove;

namespace {

// Returns the memory that movers of this process share, by the name in their descriptions.
std::vector<std::weak_ptr<std::vector<std::byte>>>& all_shared() {
  static std::vector<std::weak_ptr<std::vector<std::byte>>> all;
  return all;
}

// Returns the memory that movers of this process made for transfers.
std::vector<std::weak_ptr<std::vector<std::byte>>>& all_direct() {
  static std::vector<std::weak_ptr<std::vector<std::byte>>> all;
  return all;
}

}  // namespace

void SimMover::gather(std::unique_ptr<SliceMove> move, Done done) {
  ++gathers_;
  begin({std::move(move), std::move(done), false});
}

void SimMover::scatter(std::unique_ptr<SliceMove> move, Done done) {
  ++scatters_;
  begin({std::move(move), std::move(done), true});
}

std::vector<std::byte> SimMover::place() const {
  return machine == 0 || lost_ ? std::vector<std::byte>() : std::vector<std::byte>{std::byte{machine}};
}

Status SimMover::near(ConstBytes place) const {
  if (place.size() == 1 && place[0] == std::byte{machine}) return {};
  return {Code::unsupported, "device memory is not shared", "the other side is another machine"};
}

void SimMover::share(uint64_t bytes, MemoryDone done) {
  if (lost_) return answer(std::move(done), Status(Code::tier_disabled, "the device is lost"));
  shared_ = std::make_shared<Memory>(bytes);
  SharedMemory memory;
  memory.said.resize(8);
  store_le<uint64_t>(memory.said.data(), all_shared().size());
  all_shared().push_back(shared_);
  memory.data = shared_->data();
  memory.bytes = bytes;
  memory.keep = shared_;
  answer(std::move(done), std::move(memory));
}

void SimMover::direct(uint64_t bytes, bool, MemoryDone done) {
  if (lost_) return answer(std::move(done), Status(Code::tier_disabled, "the device is lost"));
  if (refuses_direct) return answer(std::move(done), Status(Code::unsupported, "no card reaches the device"));
  auto made = std::make_shared<Memory>(bytes);
  all_direct().push_back(made);
  SharedMemory memory;
  memory.data = made->data();
  memory.bytes = bytes;
  memory.keep = std::move(made);
  answer(std::move(done), std::move(memory));
}

bool SimMover::is_direct(const std::byte* data) {
  for (const auto& weak : all_direct()) {
    const auto m = weak.lock();
    if (m != nullptr && data >= m->data() && data < m->data() + m->size()) return true;
  }
  return false;
}

void SimMover::map(ConstBytes said, uint64_t bytes, MemoryDone done) {
  const uint64_t name = said.size() == 8 ? load_le<uint64_t>(said.data()) : ~0ULL;
  auto there = name < all_shared().size() ? all_shared()[name].lock() : nullptr;
  if (refuses_to_map) return answer(std::move(done), Status(Code::unsupported, "the system does not allow it"));
  if (there == nullptr) return answer(std::move(done), Status(Code::stale_handle, "it is not allocated any more"));
  if (there->size() < bytes) return answer(std::move(done), Status(Code::invalid_argument, "beyond its allocation"));
  SharedMemory memory;
  memory.data = there->data();
  memory.bytes = bytes;
  memory.keep = std::move(there);
  answer(std::move(done), std::move(memory));
}

void SimMover::answer(MemoryDone done, Result<SharedMemory> memory) {
  sim_.post_at(sim_.clock().now_ns() + 1000 + sim_.random().below(delay_ns),
               [this, done = std::move(done), memory = std::move(memory), gone = gone_]() mutable {
                 if (*gone) return;
                 if (stopped && stopped()) return answer(std::move(done), std::move(memory));
                 done(std::move(memory));
               });
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

void SimMover::release() {
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
  if (move.shared) {
    const bool direct = is_direct(move.payload);
    if (!direct) ++shared_moves_;
    landed_moves_ += move.landed ? 1 : 0;
    EXPECT_EQ(move.landed, direct && job.in) << "what a transport has written, and nothing else";
    // Checks the leaves as a device would need them: its kernels hash only leaves that are one run.
    for (const SliceMove::Leaf& leaf : move.leaves) {
      if (leaf.runs != 1) status = Status(Code::internal, "a leaf in shared memory is several runs");
    }
  }
  if (lost_) status = Status(Code::tier_disabled, "the device is lost", "device 0");
  --under_way_;
  sim_.note(code_name(status.code()), move.leaves.size());
  job.done(move, status);
}

}  // namespace kvbm::test
