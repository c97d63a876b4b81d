// Moves slices of sessions between a device's memory and staging: cluster/session's mover over
// device/transfer/transfers.
//
// The wire's leaves are cut at positions, the device's at blocks, so one leaf of a slice is often several runs. The
// device hashes each run from the registers that it stores. If a leaf is one run, that is the leaf's hash and the CPU
// touches none of its bytes. If it is more, the executor reads staging.
// Bytes read out of the device must have the runs' hashes (else they are read once more), and give the leaf's hash.
// Bytes on their way in must have the leaf's hash, and give the runs', which the device then checks. So every byte is
// compared with a hash in both directions.
//
// A payload in shared memory of a device (device_share.h) moves from device memory to device memory, and the CPU reads
// none of it: its leaves are one run each. So does a payload that a network card writes (device_direct.h), after the
// writes were made visible to the device.
//
// A device that is lost may still write into staging: the arena stays mapped until that is over (use_staging). If it
// damages a later slice, that slice's receiver finds it.
//
// Thread: gather(), scatter() and, once they may be called, use_staging() on the links' thread; the rest on any. The
// work runs on the executor, and `done` on `session`, the links' thread. Blocks: no.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/memory/memory.h"
#include "base/thread/executor.h"
#include "cluster/session/mover.h"
#include "device/transfer/transfers.h"
#include "manager/session/device_direct.h"
#include "manager/session/device_share.h"

namespace kvbm::manager {

class SessionMover final : public cluster::session::SliceMover {
 public:
  // `transfers` and both executors outlive this object and every `done`. name: of the device, for messages. share,
  // direct: null if memory is not shared, or if no transport reaches the device.
  SessionMover(device::Transfers& transfers, std::string name, Executor& work, Executor& session,
               std::unique_ptr<DeviceShare> share = nullptr, std::unique_ptr<DeviceDirect> direct = nullptr);
  ~SessionMover() override;

  // Adds staging that payloads may lie in.
  void use_staging(std::shared_ptr<Arena> arena);
  void gather(std::unique_ptr<cluster::session::SliceMove> move, Done done) override;
  void scatter(std::unique_ptr<cluster::session::SliceMove> move, Done done) override;
  [[nodiscard]] std::vector<std::byte> place() const override;
  [[nodiscard]] Status near(ConstBytes place) const override;
  void share(uint64_t bytes, MemoryDone done) override;
  void map(ConstBytes said, uint64_t bytes, MemoryDone done) override;
  void direct(uint64_t bytes, bool written, MemoryDone done) override;

 private:
  struct Job;
  std::shared_ptr<Job> job_of(std::unique_ptr<cluster::session::SliceMove> move, Done done);
  static device::TransferBatch batch_of(const Job& job);
  static void submit_gather(std::shared_ptr<Job> job);
  static void submit_scatter(std::shared_ptr<Job> job);
  static void end(const std::shared_ptr<Job>& job, Status status);

  device::Transfers& transfers_;
  const std::string name_;
  Executor& work_;
  Executor& session_;
  const std::unique_ptr<DeviceShare> share_;
  const std::unique_ptr<DeviceDirect> direct_;
  std::vector<std::shared_ptr<Arena>> staging_;
};

}  // namespace kvbm::manager
