#include "tier/coded/coded_tier.h"

#include <string>
#include <utility>

#include "base/thread/memory_wait.h"
#include "tier/coded/coded_core.h"

namespace kvbm::tier::coded {

CodedTier::CodedTier(CodedTierOptions options, std::unique_ptr<Tier> inner, Executor& executor, Random& random)
    : inner_(std::move(inner)), core_(std::make_shared<CodedCore>(std::move(options), *inner_, executor, random)) {}

CodedTier::~CodedTier() { core_->leave(); }

std::string CodedTier::describe() const {
  const CodedTierOptions& options = core_->options();
  std::string text = inner_->describe();
  if (options.automatic) {
    text += options.goal == Goal::space ? ", codec auto for space" : ", codec auto";
  } else if (options.mode != codec::Mode::off) {
    text += ", codec " + std::string(codec::mode_name(options.mode));
  }
  if (options.keys != nullptr) text += ", sealed";
  return text;
}

void CodedTier::find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept {
  inner_->find(ids, out, touch);
  size_t asked = SIZE_MAX;  // blocks that are looked up together are mostly alike
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!out[i].present) continue;
    const bool alike =
        asked != SIZE_MAX && ids[i].family == ids[asked].family && out[i].payload_bytes == out[asked].payload_bytes;
    out[i].room_bytes = alike ? out[asked].room_bytes : core_->room_of(ids[i].family, out[i].payload_bytes);
    asked = i;
  }
}

void CodedTier::put(std::unique_ptr<PutBatch> batch) { core_->put(std::move(batch)); }
void CodedTier::get(std::unique_ptr<GetBatch> batch) {
  // Reads heads alone: a receiver that reads payloads itself takes plain records only.
  if (batch->accepts.files) return inner_->get(std::move(batch));
  core_->get(std::move(batch));
}

bool CodedTier::reads_from_files() const noexcept {
  return core_->options().keys == nullptr && inner_->reads_from_files();
}

// Coded records are not read in place.
void CodedTier::in_place(std::span<InPlace> items) noexcept {
  inner_->in_place(items);
  for (InPlace& item : items) {
    if (item.memory == nullptr) continue;
    const auto head = codec::HeadView::parse(item.head);
    if (head.ok() && !codec::is_coded(head.value())) continue;
    item.head = {};
    item.payload = {};
    item.memory.reset();
  }
}

void CodedTier::erase(std::span<const Identity> ids) {
  core_->forget(ids);
  inner_->erase(ids);
}

void CodedTier::hint(std::span<const Identity> ids, uint8_t priority) { inner_->hint(ids, priority); }

Status CodedTier::erase_family(FamilyId family) {
  core_->forget(family);
  return inner_->erase_family(family);
}

Status CodedTier::erase_families(std::span<const FamilyId> families) {
  for (const FamilyId family : families) core_->forget(family);
  return inner_->erase_families(families);
}

void CodedTier::families(FamilyTable::Named& named) { inner_->families(named); }

void CodedTier::forget_families(std::span<const FamilyId> gone) {
  core_->forget_families(gone);
  inner_->forget_families(gone);
}

TierStats CodedTier::stats() const {
  TierStats stats = inner_->stats();
  core_->add_stats(stats);
  return stats;
}

void CodedTier::shutdown(UniqueFunction<void()> done) {
  const MemoryWait no_error_path;
  // Closes both tiers at the same time, because this tier's work ends only when the inner tier ends its own. `done`
  // runs when both have ended.
  const auto left = std::make_shared<std::atomic<int>>(2);
  const auto both = std::make_shared<UniqueFunction<void()>>(std::move(done));
  const auto one = [left, both] {
    if (left->fetch_sub(1, std::memory_order_acq_rel) == 1) (*both)();
  };
  core_->shutdown(one);
  inner_->shutdown(one);
}

// ---- CodedCore: parts that both paths share ----

namespace {
constexpr size_t kMostSaid = 64;
constexpr size_t kMostWorkspaces = 16;
}  // namespace

CodedCore::CodedCore(CodedTierOptions options, Tier& inner, Executor& executor, Random& random)
    : options_(std::move(options)),
      inner_(&inner),
      executor_(executor),
      random_(random),
      choice_(options_.goal, options_.keys != nullptr),
      write_staging_(options_.write_budget_bytes),
      read_staging_(options_.read_budget_bytes) {
  counts_.automatic = options_.automatic ? 1 : 0;
  counts_.setting = options_.automatic ? 0 : static_cast<uint32_t>(options_.mode);
  counts_.seals = options_.keys != nullptr ? 1 : 0;
  counts_.mode = static_cast<uint32_t>(options_.mode);
}

std::unique_ptr<codec::Workspace> CodedCore::take_workspace() {
  {
    MutexLock lock(mutex_);
    if (!workspaces_.empty()) {
      auto one = std::move(workspaces_.back());
      workspaces_.pop_back();
      return one;
    }
  }
  return std::make_unique<codec::Workspace>();
}

void CodedCore::give(std::unique_ptr<codec::Workspace> workspace, const CodecStats& counts) {
  MutexLock lock(mutex_);
  if (workspace != nullptr && workspaces_.size() < kMostWorkspaces) workspaces_.push_back(std::move(workspace));
  counts_.coded += counts.coded;
  counts_.plain_bytes += counts.plain_bytes;
  counts_.stored_bytes += counts.stored_bytes;
  counts_.sealed += counts.sealed;
  counts_.left_plain += counts.left_plain;
  counts_.encode_ns += counts.encode_ns;
  counts_.decoded += counts.decoded;
  counts_.decoded_bytes += counts.decoded_bytes;
  counts_.decode_ns += counts.decode_ns;
  counts_.refused_lossy += counts.refused_lossy;
  counts_.missing_keys += counts.missing_keys;
  counts_.damaged += counts.damaged;
  counts_.probes += counts.probes;
  if (counts.mode != 0) counts_.mode = counts.mode;
  counts_.difference += counts.difference;
  counts_.value += counts.value;
}

void CodedCore::add_stats(TierStats& stats) const {
  MutexLock lock(mutex_);
  stats.codec = counts_;
  stats.staging_bytes += write_staging_.bytes() + read_staging_.bytes();
}

uint64_t CodedCore::room_of(FamilyId family, uint64_t stored_bytes) noexcept {
  const auto known = terms(family);
  if (known != nullptr && known->plain_bytes != 0) return known->plain_bytes == stored_bytes ? 0 : known->plain_bytes;
  if (codes() || options_.keys != nullptr) return options_.most_payload_bytes;
  MutexLock lock(mutex_);
  return coded_.count(family) != 0 ? options_.most_payload_bytes : 0;
}

void CodedCore::shutdown(UniqueFunction<void()> done) {
  GetOps over;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    closed_ = std::move(done);
    over = close_unasked();  // items of loads that were cancelled or ran out of time
  }
  executor_.post([self = shared_from_this(), over = std::move(over)]() mutable {
    self->end(over);
    self->maybe_closed();
  });
}

void CodedCore::leave() noexcept {
  const MemoryWait patient;
  inner_.store(nullptr, std::memory_order_release);
  {
    MutexLock lock(mutex_);
    if (in_flight_ == 0) return;
  }
  executor_.post([self = shared_from_this()] {
    self->pump_writes();
    self->pump_reads();
  });
}

void CodedCore::maybe_closed() {
  UniqueFunction<void()> call;
  {
    MutexLock lock(mutex_);
    if (!stopping_ || in_flight_ != 0) return;
    call = std::move(closed_);
    closed_ = {};
  }
  if (call) executor_.post(std::move(call));
}

// Logs one line for each cause.
void CodedCore::say_once(std::string what, const char* text) {
  if (options_.log == nullptr) return;
  {
    MutexLock lock(mutex_);
    if (said_.size() >= kMostSaid || !said_.insert(what).second) return;
  }
  options_.log->write(LogLevel::warning, "codec", text, {{"what", std::move(what)}});
}

}  // namespace kvbm::tier::coded
