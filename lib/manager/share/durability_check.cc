#include "manager/share/durability_check.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/thread/memory_wait.h"
#include "manager/lower/offload.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

constexpr uint64_t kPortionBytes = 16ULL << 20;  // rewritten in one batch, and held in memory meanwhile
constexpr uint64_t kPortionShare = 8;            // at most this part of the host

class Search : public std::enable_shared_from_this<Search> {
 public:
  Search(std::shared_ptr<TierStack> stack, TierIndex disk, std::vector<Identity> ids, Rewrite rewrite,
         UniqueFunction<void(std::vector<Identity>)> done)
      : stack_(std::move(stack)),
        host_(stack_->host()),
        disk_(disk),
        ids_(std::move(ids)),
        rewrite_(rewrite),
        done_(std::move(done)) {
    all_ = disk_ != kNoTier && host_.options().tiers[disk_ - 1U].admission == AdmissionKind::all;
    const uint64_t slots =
        std::min(kPortionBytes / host_.arena().slot_bytes(), uint64_t{host_.arena().slots()} / kPortionShare);
    portion_ = std::max<uint64_t>(slots, 1);
  }

  void run() {
    missing_ = look();
    in_use_ = disk_ != kNoTier && !stack_->lower().out_of_use(disk_);
    if (all_ && in_use_ && rewrite_ != Rewrite::nothing) return write_some();
    end();
  }

 private:
  [[nodiscard]] std::vector<Identity> look() const {
    std::vector<Identity> missing;
    std::vector<tier::Found> found(std::min(ids_.size(), tier::kFoundAtOnce));
    for (size_t first = 0; first < ids_.size(); first += tier::kFoundAtOnce) {
      const auto part = std::span(ids_).subspan(first, std::min(tier::kFoundAtOnce, ids_.size() - first));
      std::fill(found.begin(), found.end(), tier::Found{});
      if (disk_ != kNoTier) stack_->lower().tier(disk_).find(part, std::span(found).first(part.size()), false);
      for (size_t i = 0; i < part.size(); ++i) {
        if (!found[i].present && (all_ || !is_in_host(part[i]))) missing.push_back(part[i]);
      }
    }
    return missing;
  }

  [[nodiscard]] bool is_in_host(const Identity& id) const {
    const SlotId slot = host_.acquire_one(id.family, id.key);
    host_.release(slot);
    return slot != kNoSlot;
  }

  // Rewrites the next missing blocks that are in memory.
  void write_some() {
    std::vector<SlotId> slots;
    for (; next_ < missing_.size() && slots.size() < portion_; ++next_) {
      const SlotId slot = host_.acquire_one(missing_[next_].family, missing_[next_].key);
      if (slot != kNoSlot) slots.push_back(slot);
    }
    if (slots.empty()) return end();
    wrote_ = true;
    open_.store(slots.size(), std::memory_order_relaxed);
    auto self = shared_from_this();
    auto report = std::make_shared<Offloader::Report>([self](size_t, Code code) {
      if (code != Code::ok) self->failed_.store(true, std::memory_order_relaxed);
      if (self->open_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      const MemoryWait no_error_path;
      self->host_.env().executor->post([self] { self->wrote_some(); });
    });
    stack_->lower().offloader(disk_).request(std::move(slots), std::move(report));
  }

  // Stops writing once the disk has refused a block.
  void wrote_some() {
    const MemoryWait no_error_path;
    if (failed_.load(std::memory_order_relaxed)) return end();
    write_some();
  }

  // Looks for all again after writes, because they may evict others. Syncs after that look: what it has found was
  // written before the sync.
  void end() {
    if (wrote_) missing_ = look();
    if (rewrite_ != Rewrite::durably || !in_use_) return done_(std::move(missing_));
    stack_->lower().tier(disk_).sync([self = shared_from_this()](const Status& /*status*/) {
      const MemoryWait no_error_path;
      self->host_.env().executor->post([self] { self->synced(); });
    });
  }

  // Kept is what was found before the sync and after it: a sync that fails drops records.
  void synced() {
    const MemoryWait no_error_path;
    const std::vector<Identity> now = look();
    std::vector<Identity> both;
    auto before = missing_.cbegin();
    auto after = now.cbegin();
    for (const Identity& id : ids_) {
      const bool was = before != missing_.cend() && *before == id;
      const bool is = after != now.cend() && *after == id;
      if (was) ++before;
      if (is) ++after;
      if (was || is) both.push_back(id);
    }
    done_(std::move(both));
  }

  const std::shared_ptr<TierStack> stack_;
  HostTier& host_;
  const TierIndex disk_;
  const std::vector<Identity> ids_;
  const Rewrite rewrite_;
  UniqueFunction<void(std::vector<Identity>)> done_;
  bool all_ = false;  // the disk is to have every block
  bool in_use_ = false;
  size_t portion_ = 1;
  std::vector<Identity> missing_;
  size_t next_ = 0;
  bool wrote_ = false;
  std::atomic<size_t> open_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace

void check_durability(const std::shared_ptr<TierStack>& stack, TierIndex disk, std::vector<Identity> ids,
                      Rewrite rewrite, UniqueFunction<void(std::vector<Identity> missing)> done) {
  const MemoryWait no_error_path;
  auto search = std::make_shared<Search>(stack, disk, std::move(ids), rewrite, std::move(done));
  stack->host().env().executor->post([search] {
    const MemoryWait patient;
    search->run();
  });
}

}  // namespace kvbm::manager
