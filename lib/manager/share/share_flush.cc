// Flushes of a shared tier set, on both sides. One runs at a time: requests that arrive meanwhile are answered by the
// next one, which also reports what the one before found to be lost. A flush covers the blocks stored here
// (unflushed.h): they are offered, the owner writes them, and then each is looked up by name on the disk of the owner
// at that time.
#include <algorithm>
#include <utility>

#include "copy/transport_thread.h"
#include "manager/node/node_source.h"
#include "manager/share/durability_check.h"
#include "manager/share/owned_tier.h"
#include "manager/share/share.h"
#include "manager/share/shared_tier.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

Rewrite rewrite_of(uint64_t value) noexcept {
  if (value == static_cast<uint64_t>(Rewrite::durably)) return Rewrite::durably;
  return value == static_cast<uint64_t>(Rewrite::nothing) ? Rewrite::nothing : Rewrite::once;
}

// Returns true if one message cannot name all entries, which are sorted by family.
bool take_several_messages(std::span<const Unflushed::Entry> entries) noexcept {
  return entries.size() > kMaxShareKeys || (!entries.empty() && entries.front().id.family != entries.back().id.family);
}

}  // namespace

struct Share::Flush {
  std::vector<FlushDone> waiting;  // empty: no caller, only a check of the stored blocks
  bool durable = false;
  uint64_t gone_since_ns = 0;             // 0: not seen without an owner
  uint64_t owners_lost = 0;               // at the start of its turn
  std::vector<Unflushed::Entry> entries;  // by family
  bool only_looks = false;  // the owner has written for all messages what it could, and is asked once more
  bool partial = false;     // blocks are missing there that are here
  bool lost = false;        // blocks are missing there and here; reported once
};

void Share::flush(bool durable, FlushDone done) {
  elections_->post([this, durable, done = std::move(done)]() mutable {
    if (flushing_ != nullptr) {
      next_durable_ = next_durable_ || durable;
      return next_flush_.push_back(std::move(done));
    }
    std::vector<FlushDone> one;
    one.push_back(std::move(done));
    begin_flush(std::move(one), durable);
  });
}

// Starts a flush without a caller, because many blocks were stored since the last one.
void Share::flush_without_caller() {
  elections_->post([this] {
    if (flushing_ == nullptr) begin_flush({}, false);
  });
}

void Share::begin_flush(std::vector<FlushDone> waiting, bool durable) {
  flushing_ = std::make_shared<Flush>();
  flushing_->durable = durable;
  flushing_->waiting = std::move(waiting);
  flushing_->lost = std::exchange(loss_unreported_, false);
  try_flush(flushing_);
}

void Share::end_flush(const std::shared_ptr<Flush>& flush, Code code) {
  if (flushing_ != flush) return;  // ended before
  flushing_ = nullptr;
  if (code == Code::ok && (flush->partial || flush->lost)) code = Code::partial;
  bool reported = false;
  for (FlushDone& done : flush->waiting) reported = done(code) || reported;
  // Losses are also reported to flushes requested meanwhile. If no caller received them, or only another code, the
  // next flush reports them.
  if (flush->lost && (code != Code::partial || !reported || !next_flush_.empty())) loss_unreported_ = true;
  if (!next_flush_.empty()) begin_flush(std::exchange(next_flush_, {}), std::exchange(next_durable_, false));
}

// Runs on the links' thread.
void Share::end_flush_later(const std::shared_ptr<Flush>& flush, Code code) {
  elections_->post([this, flush, code] { end_flush(flush, code); });
}

void Share::again_later(const std::shared_ptr<Flush>& flush) {
  if (stopping_) return end_flush(flush, Code::closed);  // a timer may not run any more
  elections_->post_at(elections_->clock().now_ns() + ShareElection::kRetryNs, [this, flush] { try_flush(flush); });
}

// Runs on the elections' thread, so never while the role changes.
void Share::try_flush(const std::shared_ptr<Flush>& flush) {
  if (flushing_ != flush) return;
  if (stopping_) return end_flush(flush, Code::closed);
  const ShareState& state = *state_;
  if (!is(ShareRole::owner)) {
    const uint64_t now = env_.clock().now_ns();
    if (!state.connected.load(std::memory_order_acquire)) {
      if (flush->gone_since_ns == 0) flush->gone_since_ns = now;
      if (now - flush->gone_since_ns >= kGoneNs) return end_flush(flush, Code::owner_gone);
      return again_later(flush);
    }
    flush->gone_since_ns = 0;
    if (unsettled_) return again_later(flush);
  }
  flush->owners_lost = state.owners_lost.load(std::memory_order_acquire);
  bool too_many = false;
  flush->entries = stack_->unflushed().all(too_many);
  flush->only_looks = false;
  flush->lost = flush->lost || too_many;
  std::sort(flush->entries.begin(), flush->entries.end(),
            [](const Unflushed::Entry& a, const Unflushed::Entry& b) { return a.id.family < b.id.family; });
  if (is(ShareRole::owner)) return flush_own(flush);
  if (shared_->refused() != 0 || offer_again_.exchange(false)) stack_->lower().offer_missing(shared_index_);
  stack_->lower().flush([this, flush, links = source_->links()] {
    links->post([this, flush] {
      ShareMessage message;
      message.kind = ShareKind::flush;
      message.value = flush->durable ? 1 : 0;
      links_->ask(std::move(message), kNever, [this, flush](Code code, uint64_t, const std::vector<Key>&) {
        if (is_another_owners(flush, code)) return;
        if (code != Code::ok) return end_flush_later(flush, code);
        ask_durability(flush, 0);
      });
    });
  });
}

// Retries the flush if the answer is from another owner than the one that everything was offered to.
bool Share::is_another_owners(const std::shared_ptr<Flush>& flush, Code code) {
  const uint64_t lost = state_->owners_lost.load(std::memory_order_acquire);
  if (code != Code::owner_gone && lost == flush->owners_lost) return false;
  elections_->post([this, flush] { again_later(flush); });
  return true;
}

void Share::flush_own(const std::shared_ptr<Flush>& flush) {
  if (offer_again_.exchange(false)) stack_->lower().offer_missing(owned_index_);
  auto look = [this, flush, links = source_->links()](Code synced) {
    std::vector<Identity> ids;
    ids.reserve(flush->entries.size());
    for (const Unflushed::Entry& entry : flush->entries) ids.push_back(entry.id);
    const Rewrite rewrite = flush->durable ? Rewrite::durably : Rewrite::once;
    auto found = [this, flush, links, synced](std::vector<Identity> missing) {
      links->post([this, flush, synced, missing = std::move(missing)] {
        std::vector<Identity> sorted = missing;
        std::sort(sorted.begin(), sorted.end());
        settle(*flush, flush->entries, sorted);
        end_flush_later(flush, synced == Code::ok ? own_disk() : synced);
      });
    };
    check_durability(stack_, owned_index_, std::move(ids), rewrite, std::move(found));
  };
  stack_->lower().flush([this, flush, look = std::move(look)]() mutable {
    if (flush->durable)
      stack_->lower().sync_tiers(std::move(look));
    else
      look(Code::ok);
  });
}

// Sends one message after the other, each for one family. What the owner writes for one message may evict blocks of
// another. So if there are several, it is asked for all blocks once more, and the answers without writes count. Runs on
// the links' thread.
void Share::ask_durability(const std::shared_ptr<Flush>& flush, size_t first) {
  const std::vector<Unflushed::Entry>& entries = flush->entries;
  const bool again = !flush->only_looks && take_several_messages(entries);
  if (first == entries.size()) {
    if (!again) return end_flush_later(flush, Code::ok);
    flush->only_looks = true;
    return ask_durability(flush, 0);
  }
  ShareMessage message;
  message.kind = ShareKind::flush;
  const Rewrite written = flush->durable ? Rewrite::durably : Rewrite::once;
  message.value = static_cast<uint64_t>(flush->only_looks ? Rewrite::nothing : written);
  message.family = stack_->host().families().get(entries[first].id.family);
  size_t end = first;
  for (; end < entries.size() && end - first < kMaxShareKeys; ++end) {
    if (entries[end].id.family != entries[first].id.family) break;
    message.keys.push_back(entries[end].id.key);
  }
  links_->ask(std::move(message), kNever,
              [this, flush, first, end, again](Code code, uint64_t, const std::vector<Key>& keys) {
                if (is_another_owners(flush, code)) return;
                if (code != Code::ok) return end_flush_later(flush, code);
                if (again) return ask_durability(flush, end);
                std::vector<Identity> missing;
                for (const Key& key : keys) missing.push_back({key, flush->entries[first].id.family});
                std::sort(missing.begin(), missing.end());
                settle(*flush, std::span(flush->entries).subspan(first, end - first), missing);
                ask_durability(flush, end);
              });
}

// Records the result for `entries`. `missing` is sorted. Missing blocks that are still here are offered again by the
// next flush, which covers them.
void Share::settle(Flush& flush, std::span<const Unflushed::Entry> entries, std::span<const Identity> missing) {
  ShareState& state = *state_;
  uint64_t not_kept = 0;
  for (const Unflushed::Entry& entry : entries) {
    if (!std::binary_search(missing.begin(), missing.end(), entry.id)) {
      (void)stack_->unflushed().remove_reported(entry);
      continue;
    }
    if (!stack_->unflushed().has(entry)) continue;  // erased, or stored again: the next flush covers it
    ++not_kept;
    const SlotId slot = stack_->host().acquire_one(entry.id.family, entry.id.key);
    if (slot == kNoSlot) {
      flush.lost = stack_->unflushed().remove_reported(entry) || flush.lost;
      continue;
    }
    flush.partial = true;
    if (!is(ShareRole::owner)) stack_->host().table().clear_flags(slot, on_tier_flag(shared_index_));
    stack_->host().release({&slot, 1});
  }
  if (flush.partial) offer_again_ = true;
  state.not_kept.fetch_add(not_kept, std::memory_order_relaxed);
}

Code Share::own_disk() const {
  return owned_index_ != kNoTier && stack_->lower().disabled(owned_index_) ? Code::tier_disabled : Code::ok;
}

// ---- The owner's answers; the links' thread ----

void Share::asked_to_flush(const ShareMessage& message, ShareLinks::Answered answer) {
  if (message.keys.empty()) {
    flushes_.push_back({last_take_, message.value != 0, std::move(answer)});
    return pump_flushes();
  }
  FamilyId family = 0;
  if (!stack_->host().families().find(message.family, family))
    return answer(Code::ok, message.keys.size(), message.keys);
  std::vector<Identity> ids;
  for (const Key& key : message.keys) ids.push_back({key, family});
  auto reply = std::make_shared<ShareLinks::Answered>(std::move(answer));
  check_durability(stack_, owned_index_, std::move(ids), rewrite_of(message.value),
                   [reply, links = source_->links()](const std::vector<Identity>& missing) {
                     std::vector<Key> keys;
                     for (const Identity& id : missing) keys.push_back(id.key);
                     links->post([reply, keys = std::move(keys)] { (*reply)(Code::ok, keys.size(), keys); });
                   });
}

// Answers clients' flushes. One is due once everything that was offered before it has arrived, and the owner's own
// flush has ended after that. The state of the disk at that time counts.
void Share::pump_flushes() {
  for (size_t i = 0; i < flushes_.size();) {
    if (!takes_.empty() && *takes_.begin() <= flushes_[i].after) {
      ++i;
      continue;
    }
    auto reply = std::make_shared<ShareLinks::Answered>(std::move(flushes_[i].answer));
    const bool durable = flushes_[i].durable;
    flushes_.erase(flushes_.begin() + static_cast<std::ptrdiff_t>(i));
    stack_->lower().flush([this, durable, reply, links = source_->links()] {
      auto tell = [this, reply, links](Code code) {
        links->post([this, reply, code] { (*reply)(code == Code::ok ? own_disk() : code, 0, {}); });
      };
      if (durable)
        stack_->lower().sync_tiers(std::move(tell));
      else
        tell(Code::ok);
    });
  }
}

}  // namespace kvbm::manager
