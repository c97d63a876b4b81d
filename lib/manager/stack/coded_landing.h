// Coded records that were read into a private slot for a device to decode, and their later decoding for the host.
//
// The device decodes the leaves from the slot into the engine's pages; the host needs the plain record in that slot.
// So the processor decodes it there too once the load has completed, checks every leaf, and registers the block. A
// load completes as soon as the device is done. The processor spends the same time as without a device, but later and
// bounded: where loads bring more records than two tasks decode, the rest stay in the tier below only, and are
// counted.
//
// Thread: any. Lock: mutex_, a leaf.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "base/ids.h"
#include "base/status.h"
#include "base/thread/mutex.h"
#include "manager/stack/delivery.h"

namespace kvbm::codec {
class Workspace;
}

namespace kvbm::manager {

class HostTier;
class LowerTiers;

class BackgroundDecoder {
 public:
  // Registers the verified record of a private slot (TierStack::register_landed).
  using Register = std::function<Code(const Identity& id, Delivery& record)>;

  BackgroundDecoder(HostTier& host, LowerTiers& lower, Register registers)
      : host_(host), lower_(lower), register_(std::move(registers)) {}
  // Queues a record that a device has decoded, to be decoded into its slot and registered; or releases the slot if too
  // much is queued.
  void keep(const Identity& id, Delivery record);

 private:
  struct Waiting {
    Identity id;
    Delivery record;
  };
  // Limit of concurrent tasks: loads in progress have priority. And of slots in use: an eighth of the host's, and at
  // most so many bytes.
  static constexpr uint32_t kTasks = 2;
  static constexpr uint64_t kMostBytes = 64ULL << 20;
  void post(std::unique_ptr<codec::Workspace> workspace);
  void work(std::unique_ptr<codec::Workspace> workspace);
  void decode(Waiting& one, codec::Workspace& workspace);

  HostTier& host_;
  LowerTiers& lower_;
  const Register register_;
  Mutex mutex_;
  std::deque<Waiting> waiting_ KVBM_GUARDED_BY(mutex_);
  uint32_t tasks_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t slots_ KVBM_GUARDED_BY(mutex_) = 0;  // waiting or being decoded
};

}  // namespace kvbm::manager
