#include "manager/session/session_mover.h"

#include <utility>

#include "codec/hash/leaf_hash.h"

namespace kvbm::manager {

using cluster::session::SliceMove;

struct SessionMover::Job {
  std::unique_ptr<SliceMove> move;
  Done done;
  device::Transfers& transfers;
  std::string device;
  Executor* session = nullptr;
  std::shared_ptr<void> keep;      // owner of the payload's memory
  std::vector<uint64_t> expected;  // of each run; scatter
  bool again = false;              // the device's bytes were wrong once

  // Calls `call` with (run, its bytes in staging) for the runs of a leaf.
  template <class Fn>
  void each_run(const SliceMove::Leaf& leaf, Fn&& call) const {
    std::byte* at = move->payload + leaf.offset;
    for (uint32_t i = leaf.first_run; i < leaf.first_run + leaf.runs; ++i) {
      const uint64_t bytes = move->runs[i].total();
      call(i, MutableBytes(at, bytes));
      at += bytes;
    }
  }
  [[nodiscard]] Status failed(Code code) const {
    if (code == Code::tier_disabled) {
      return {code, "the device of a session's blocks is lost", device + ": " + transfers.device().lost_why()};
    }
    return {code, "a session's blocks could not be copied", device};
  }
};

namespace {

const char kRead[] = "what was read out of a device is not what it says it wrote";
const char kWrong[] = "a leaf of a slice is not what its hash says";
const char kManyRuns[] = "a leaf in shared memory is several runs";
const char kNotShared[] = "device memory is not shared";
const char kNotThere[] = "what a network card has written to a device cannot be read";

bool is_one_run_each(const SliceMove& move) noexcept { return move.runs.size() == move.leaves.size(); }

}  // namespace

SessionMover::SessionMover(device::Transfers& transfers, std::string name, Executor& work, Executor& session,
                           std::unique_ptr<DeviceShare> share, std::unique_ptr<DeviceDirect> direct)
    : transfers_(transfers),
      name_(std::move(name)),
      work_(work),
      session_(session),
      share_(std::move(share)),
      direct_(std::move(direct)) {}

SessionMover::~SessionMover() = default;

void SessionMover::use_staging(std::shared_ptr<Arena> arena) { staging_.push_back(std::move(arena)); }

std::shared_ptr<SessionMover::Job> SessionMover::job_of(std::unique_ptr<SliceMove> move, Done done) {
  auto job =
      std::make_shared<Job>(Job{std::move(move), std::move(done), transfers_, name_, &session_, nullptr, {}, false});
  if (job->move->shared) {
    job->keep = job->move->keep;
    return job;
  }
  const std::byte* payload = job->move->payload;
  for (const auto& arena : staging_) {
    if (payload >= arena->data() && payload < arena->data() + arena->bytes()) job->keep = arena;
  }
  return job;
}

device::TransferBatch SessionMover::batch_of(const Job& job) {
  device::TransferBatch batch;
  batch.keep = job.keep;
  batch.leaves.reserve(job.move->runs.size());
  for (const SliceMove::Leaf& leaf : job.move->leaves) {
    job.each_run(leaf, [&](uint32_t run, MutableBytes at) {
      device::LeafMove one;
      one.device = job.move->runs[run];
      one.record = at.data();
      one.on_device = job.move->shared;
      one.check = !job.expected.empty();
      if (one.check) one.expected = job.expected[run];
      batch.leaves.push_back(one);
    });
  }
  return batch;
}

void SessionMover::end(const std::shared_ptr<Job>& job, Status status) {
  job->session->post([job, status = std::move(status)] {
    const std::unique_ptr<SliceMove> move = std::move(job->move);
    Done done = std::move(job->done);
    done(*move, status);
  });
}

void SessionMover::gather(std::unique_ptr<SliceMove> move, Done done) {
  auto job = job_of(std::move(move), std::move(done));
  if (job->move->shared && !is_one_run_each(*job->move)) return end(job, {Code::internal, kManyRuns, job->device});
  submit_gather(std::move(job));
}

void SessionMover::submit_gather(std::shared_ptr<Job> job) {
  device::TransferBatch batch = batch_of(*job);
  device::Transfers& transfers = job->transfers;
  batch.done = [job = std::move(job)](device::TransferBatch& moved, Code code) {
    if (code != Code::ok) return end(job, job->failed(code));
    SliceMove& slice = *job->move;
    bool right = true;
    for (const uint8_t good : moved.good) right = right && good != 0;
    for (size_t i = 0; i < slice.leaves.size(); ++i) {
      const SliceMove::Leaf& leaf = slice.leaves[i];
      if (leaf.runs == 1) {
        slice.hashes[i] = moved.hashes[leaf.first_run];
        continue;
      }
      job->each_run(leaf,
                    [&](uint32_t run, MutableBytes at) { right = right && codec::leaf_hash(at) == moved.hashes[run]; });
      slice.hashes[i] = codec::leaf_hash({slice.payload + leaf.offset, leaf.bytes});
    }
    if (!right && !std::exchange(job->again, true)) return submit_gather(job);
    end(job, right ? Status() : Status(Code::damaged, kRead, job->device));
  };
  transfers.gather(std::move(batch));
}

void SessionMover::scatter(std::unique_ptr<SliceMove> move, Done done) {
  auto job = job_of(std::move(move), std::move(done));
  work_.post([job] { submit_scatter(job); });
}

// The runs' hashes are taken before the leaf's. If the leaf's hash is right, the runs were right when they were hashed,
// unless staging changed in between, and then the device finds the runs wrong.
void SessionMover::submit_scatter(std::shared_ptr<Job> job) {
  const SliceMove& slice = *job->move;
  if (slice.shared && !is_one_run_each(slice)) return end(job, {Code::damaged, kManyRuns, job->device});
  job->expected.resize(slice.runs.size());
  for (size_t i = 0; i < slice.leaves.size(); ++i) {
    const SliceMove::Leaf& leaf = slice.leaves[i];
    if (leaf.runs == 1) {
      job->expected[leaf.first_run] = slice.hashes[i];
      continue;
    }
    job->each_run(leaf, [&](uint32_t run, MutableBytes at) { job->expected[run] = codec::leaf_hash(at); });
    if (codec::leaf_hash({slice.payload + leaf.offset, leaf.bytes}) != slice.hashes[i]) {
      return end(job, Status(Code::damaged, kWrong, job->device));  // nothing was written
    }
  }
  device::TransferBatch batch = batch_of(*job);
  batch.settles = slice.landed;
  batch.done = [job](device::TransferBatch& moved, Code code) {
    if (code == Code::damaged) return end(job, {code, kNotThere, job->device});  // sent again, through the host
    if (code != Code::ok) return end(job, job->failed(code));
    bool right = true;
    for (const uint8_t good : moved.good) right = right && good != 0;
    end(job, right ? Status() : Status(Code::damaged, kWrong, job->device));
  };
  job->transfers.scatter(std::move(batch));
}

// ---- Memory of the device ----

std::vector<std::byte> SessionMover::place() const {
  return share_ != nullptr ? share_->place() : std::vector<std::byte>();
}

Status SessionMover::near(ConstBytes place) const {
  return share_ != nullptr ? share_->near(place) : Status(Code::unsupported, kNotShared, "device.ipc is off");
}

void SessionMover::share(uint64_t bytes, MemoryDone done) {
  if (share_ != nullptr) return share_->share(bytes, std::move(done));
  session_.post(
      [done = std::move(done)]() mutable { done(Status(Code::unsupported, kNotShared, "device.ipc is off")); });
}

void SessionMover::direct(uint64_t bytes, bool written, MemoryDone done) {
  if (direct_ != nullptr) return direct_->make(bytes, written, std::move(done));
  session_.post([done = std::move(done)]() mutable {
    done(Status(Code::unsupported, "no transport reaches the device", "device.rdma is off"));
  });
}

void SessionMover::map(ConstBytes said, uint64_t bytes, MemoryDone done) {
  if (share_ != nullptr) return share_->map(said, bytes, std::move(done));
  session_.post(
      [done = std::move(done)]() mutable { done(Status(Code::unsupported, kNotShared, "device.ipc is off")); });
}

}  // namespace kvbm::manager
