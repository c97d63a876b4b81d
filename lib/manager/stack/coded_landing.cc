#include "manager/stack/coded_landing.h"

#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "codec/coded/coded_record.h"
#include "codec/coded/leaf_codec.h"
#include "manager/host/host_tier.h"
#include "manager/lower/lower_tiers.h"

namespace kvbm::manager {

void BackgroundDecoder::keep(const Identity& id, Delivery record) {
  const MemoryWait until_it_is_queued;
  const uint64_t most = std::min<uint64_t>(host_.arena().slots() / 8, kMostBytes / host_.arena().block_bytes());
  const SlotId slot = record.slot;
  bool taken = false;
  bool begin = false;
  {
    MutexLock lock(mutex_);
    taken = !host_.closing() && slots_ < std::max<uint64_t>(most, 1);
    if (taken) {
      waiting_.push_back({id, std::move(record)});
      ++slots_;
      begin = tasks_ < kTasks;
      if (begin) ++tasks_;
    }
  }
  if (!taken) {
    add(host_.counters().left_below, 1);
    return host_.release({&slot, 1});
  }
  if (begin) post(std::make_unique<codec::Workspace>());
}

void BackgroundDecoder::post(std::unique_ptr<codec::Workspace> workspace) {
  host_.env().executor->post([this, alive = host_.lifetime().keep(*this), workspace = std::move(workspace)]() mutable {
    work(std::move(workspace));
  });
}

// Decodes one record, then posts itself again behind the tasks that were queued meanwhile.
void BackgroundDecoder::work(std::unique_ptr<codec::Workspace> workspace) {
  const MemoryWait until_released;
  Waiting one;
  {
    MutexLock lock(mutex_);
    if (waiting_.empty()) {
      --tasks_;
      return;
    }
    one = std::move(waiting_.front());
    waiting_.pop_front();
  }
  if (!host_.closing()) decode(one, *workspace);
  host_.release({&one.record.slot, 1});
  {
    MutexLock lock(mutex_);
    --slots_;
  }
  post(std::move(workspace));
}

void BackgroundDecoder::decode(Waiting& one, codec::Workspace& workspace) {
  Delivery& record = one.record;
  const auto head = codec::HeadView::parse(record.coded->head);
  Status s = head.ok() ? Status() : head.status();
  const MutableBytes room = host_.arena().payload(record.slot);
  if (s.ok()) s = codec::decode_opened(head.value(), record.coded->leaves, room, workspace);
  if (s.ok()) {
    const Code settled = settle_head(host_, record, record.coded->head, on_tier_flag(record.from));
    // A record that the host cannot keep is still in the tier below.
    if (settled == Code::ok) (void)register_(one.id, record);
    add(host_.counters().decoded_late, 1);
    return;
  }
  // The device decoded only the leaves that were wanted; the others may be damaged.
  if (s.code() == Code::damaged) lower_.reject(record.from, one.id, record.location);
}

}  // namespace kvbm::manager
