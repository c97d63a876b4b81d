#include "manager/coded_landing.h"

#include <algorithm>
#include <utility>

#include "base/memory_wait.h"
#include "codec/coded_record.h"
#include "codec/leaf_codec.h"
#include "manager/manager.h"
#include "manager/onboard.h"

namespace kvbm::manager {

void LateDecoder::keep(const std::shared_ptr<Manager>& manager, Landed landed) {
  const MemoryWait until_it_is_queued;
  LateDecoder& self = manager->late_decoder();
  const uint64_t most = std::min<uint64_t>(manager->arena().slots() / 8, kMostBytes / manager->arena().block_bytes());
  const SlotId slot = landed.slot;
  bool taken = false;
  bool begin = false;
  {
    MutexLock lock(self.mutex_);
    taken = !manager->closing() && self.slots_ < std::max<uint64_t>(most, 1);
    if (taken) {
      self.waiting_.push_back(std::move(landed));
      ++self.slots_;
      begin = self.tasks_ < kTasks;
      if (begin) ++self.tasks_;
    }
  }
  if (!taken) {
    add(manager->counters().left_below, 1);
    return manager->release({&slot, 1});
  }
  if (!begin) return;
  manager->env().executor->post([manager] { work(manager, std::make_unique<codec::Workspace>()); });
}

// Decodes one record, then posts itself again behind the tasks that were queued meanwhile.
void LateDecoder::work(const std::shared_ptr<Manager>& manager, std::unique_ptr<codec::Workspace> workspace) {
  const MemoryWait nobody_to_tell;
  LateDecoder& self = manager->late_decoder();
  Landed landed;
  {
    MutexLock lock(self.mutex_);
    if (self.waiting_.empty()) {
      --self.tasks_;
      return;
    }
    landed = std::move(self.waiting_.front());
    self.waiting_.pop_front();
  }
  if (!manager->closing()) decode(*manager, landed, *workspace);
  manager->release({&landed.slot, 1});
  {
    MutexLock lock(self.mutex_);
    --self.slots_;
  }
  manager->env().executor->post([manager, workspace = std::move(workspace)]() mutable {
    work(manager, std::move(workspace));
  });
}

void LateDecoder::decode(Manager& manager, Landed& landed, codec::Workspace& workspace) {
  const auto head = codec::HeadView::parse(landed.coded->head);
  Status s = head.ok() ? Status() : head.status();
  const MutableBytes room = manager.arena().payload(landed.slot);
  if (s.ok()) s = codec::decode_opened(head.value(), landed.coded->leaves, room, workspace);
  if (s.ok()) {
    const Code settled = settle_head(manager, landed.slot, landed.tier, landed.coded->head);
    // A record that the host cannot keep is still in the tier below.
    if (settled == Code::ok) (void)register_landed(manager, landed.slot, landed.id, landed.mark);
    add(manager.counters().decoded_late, 1);
    return;
  }
  // The device decoded only the leaves that were wanted; the others may be damaged.
  if (s.code() == Code::damaged) manager.reject(landed.tier, landed.id, landed.location);
}

}  // namespace kvbm::manager
