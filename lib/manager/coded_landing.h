// A record that landed coded in a private slot, for a device that decodes it, and what the host makes of it later.
//
// The device takes the leaves from the slot into the engine's pages; the host wants the plain record in that slot. So when
// the load is over (nobody waits any more) the processor decodes it there too, checks every leaf, and registers it. A load
// is answered as soon as the device is done; what that costs the processor is what it cost before, later, and bounded:
// where loads bring more than two tasks decode, blocks stay in the tier below alone, and are counted.
//
// Thread: any. Lock: mutex_, a leaf.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "codec/opened_leaf.h"

namespace kvbm::codec {
class Workspace;
}

namespace kvbm::manager {

class Manager;

struct CodedLanding {
  std::vector<std::byte> head;            // of the plain record
  std::vector<codec::OpenedLeaf> leaves;  // from the beginning of the slot's payload, or of what is lent
};

class LateDecoder {
 public:
  // A slot whose coded record a device has decoded, with a reference that goes with it.
  struct Landed {
    Identity id;
    TierIndex tier = 0;     // where it came from,
    uint64_t location = 0;  // and from where there
    uint64_t mark = 0;      // Manager::forget_mark of when it was asked for
    SlotId slot = kNoSlot;
    std::shared_ptr<const CodedLanding> coded;
  };
  // Decodes it into its slot and registers it, soon; or lets it go.
  static void keep(const std::shared_ptr<Manager>& manager, Landed landed);

 private:
  // Tasks at once: what is loaded now comes first. And slots that are taken: an eighth of the host's, so many bytes.
  static constexpr uint32_t kTasks = 2;
  static constexpr uint64_t kMostBytes = 64ULL << 20;
  static void work(const std::shared_ptr<Manager>& manager, std::unique_ptr<codec::Workspace> workspace);
  static void decode(Manager& manager, Landed& landed, codec::Workspace& workspace);

  Mutex mutex_;
  std::deque<Landed> waiting_ KVBM_GUARDED_BY(mutex_);
  uint32_t tasks_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t slots_ KVBM_GUARDED_BY(mutex_) = 0;  // that wait or are decoded
};

}  // namespace kvbm::manager
