#include "capi/plugin/plugin_tier.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/thread/mutex.h"
#include "codec/record/key.h"
#include "codec/record/record.h"
#include "tier/check_record.h"

namespace kvbm::capi {

namespace {

// Limit of a plug-in's time for a batch, if the caller has no earlier deadline.
constexpr uint64_t kDefaultTimeoutNs = 10'000'000'000ULL;
// Number of hangs, wrong bytes and second answers after which the tier is taken out of service.
constexpr uint32_t kMaxFaults = 16;
// Memory of answered calls that is kept because a second answer may still write to it: the last call's, and up to
// this much of earlier ones.
constexpr size_t kAnsweredBytes = 8U << 20;
constexpr size_t kAnsweredCalls = 64;
// Value of a status once it has been read: any other value found later is a second answer.
constexpr kvbm_status_t kAnswered = INT32_MIN;
// The largest head a record can have.
constexpr size_t kMaxHeadBytes = codec::head_bytes(codec::kMaxLeaves, codec::kMaxAttributeBytes);

using Name = std::array<uint8_t, 32>;

// Returns the name that the plug-in stores a record under: a tenant can neither guess nor choose any of it.
Name name_of(const Family& family, const Key& key) {
  std::byte text[64] = {};
  std::memcpy(text, family.ns.bytes.data(), 16);
  std::memcpy(text + 16, key.bytes.data(), 16);
  store_le(text + 32, family.geometry);
  store_le(text + 40, family.component);
  store_le(text + 42, family.shard.first_layer);
  store_le(text + 44, family.shard.layers);
  store_le(text + 46, family.shard.first_head);
  store_le(text + 48, family.shard.heads);
  store_le(text + 50, family.shard.replicated);
  return codec::sha256(text);
}

// Memory of a call that was answered.
struct Answered {
  std::vector<kvbm_tier_item_t> items;
  std::vector<kvbm_status_t> status;
  std::vector<std::vector<std::byte>> heads;
  std::vector<std::vector<std::byte>> payloads;
  size_t bytes = 0;

  // Returns true if a status was written since the last call of this function.
  bool again() noexcept {
    bool found = false;
    for (kvbm_status_t& one : status) {
      const kvbm_status_t was = __atomic_exchange_n(&one, kAnswered, __ATOMIC_RELAXED);
      found = found || was != kAnswered;
    }
    return found;
  }
};

}  // namespace

// Shared by the tier, its threads and its timers; dies with the last of them.
class PluginCore : public std::enable_shared_from_this<PluginCore> {
 public:
  PluginCore(const kvbm_tier_table_t& table, void* user, Executor& executor, const FamilyTable& families,
             TierIndex index, tier::TierListener* listener)
      : table_(table), user_(user), executor_(executor), families_(families), index_(index), listener_(listener) {}

  [[nodiscard]] Name name(const Identity& id) const { return name_of(families_.get(id.family), id.key); }
  [[nodiscard]] bool disabled() const noexcept { return disabled_.load(std::memory_order_relaxed); }

  [[nodiscard]] uint32_t concurrency() const noexcept { return std::clamp(table_.concurrency, 1U, 64U); }

  void fault(const char* what) {
    if (faults_.fetch_add(1, std::memory_order_relaxed) + 1 != kMaxFaults) return;
    disabled_.store(true, std::memory_order_relaxed);
    if (listener_ != nullptr) {
      listener_->disabled(index_, Status(Code::tier_disabled, "a plug-in tier failed too often", what));
    }
  }

  const kvbm_tier_table_t table_;
  void* const user_;
  Executor& executor_;
  const FamilyTable& families_;
  const TierIndex index_;
  tier::TierListener* const listener_;
  ThreadExecutor* threads_ = nullptr;  // owned by the tier
  std::atomic<uint32_t> inside_{0};    // threads inside the plug-in
  std::atomic<uint32_t> faults_{0};
  std::atomic<bool> disabled_{false};
  std::atomic<uint64_t> puts{0}, put_bytes{0}, put_errors{0}, gets{0}, get_bytes{0}, get_errors{0}, misses{0},
      damaged{0};
  std::atomic<int64_t> stuck{0};            // threads in calls that are past their deadlines
  std::atomic<uint64_t> second_answers{0};  // includes answers after the deadline, which counts as the first answer

  Mutex mutex_;
  uint64_t in_flight_ KVBM_GUARDED_BY(mutex_) = 0;
  std::vector<UniqueFunction<void()>> idle_ KVBM_GUARDED_BY(mutex_);
  // Names with bytes that failed verification: not found here, whatever the plug-in answers, until they are stored
  // again. Faults disable the tier before this grows.
  std::set<Name> quarantined_ KVBM_GUARDED_BY(mutex_);
  std::atomic<size_t> n_quarantined_{0};                    // lets find() skip the lock
  std::vector<Answered> answered_ KVBM_GUARDED_BY(mutex_);  // oldest first

  // Quarantines records with bytes that failed verification: find() no longer finds them. Thread: any.
  void quarantine(std::span<const Identity> ids) {
    damaged += ids.size();
    std::set<Name> names;
    for (const Identity& id : ids) names.insert(name(id));
    MutexLock lock(mutex_);
    quarantined_.merge(names);
    n_quarantined_.store(quarantined_.size(), std::memory_order_release);
  }
  void stored_again(const Identity& id) {
    if (n_quarantined_.load(std::memory_order_acquire) == 0) return;
    const Name found = name(id);
    MutexLock lock(mutex_);
    quarantined_.erase(found);
    n_quarantined_.store(quarantined_.size(), std::memory_order_release);
  }
  void leave_out(const Name* names, size_t n, uint8_t* present) {
    if (n_quarantined_.load(std::memory_order_acquire) == 0) return;
    MutexLock lock(mutex_);
    for (size_t i = 0; i < n; ++i) {
      if (quarantined_.contains(names[i])) present[i] = 0;
    }
  }

  // Keeps the memory of an answered call for a while, and checks earlier calls for second answers.
  void keep(Answered&& memory) {
    size_t again = 0;
    std::vector<Answered> gone;  // freed without the lock
    {
      MutexLock lock(mutex_);
      for (Answered& each : answered_) again += each.again() ? 1 : 0;
      answered_.push_back(std::move(memory));
      size_t bytes = 0;
      size_t kept = 0;
      while (kept < answered_.size() && kept < kAnsweredCalls) {
        bytes += answered_[answered_.size() - 1 - kept].bytes;
        if (kept != 0 && bytes > kAnsweredBytes) break;
        ++kept;
      }
      const auto first_kept = answered_.end() - static_cast<std::ptrdiff_t>(kept);
      std::move(answered_.begin(), first_kept, std::back_inserter(gone));
      answered_.erase(answered_.begin(), first_kept);
    }
    second_answers += again;
    for (size_t i = 0; i < again; ++i) fault("it answered a call twice");
  }

  // Returns the counter of failed items: of puts or of gets.
  template <class Batch>
  std::atomic<uint64_t>& failed() {
    return std::is_same_v<Batch, tier::PutBatch> ? put_errors : get_errors;
  }

  void begin() {
    MutexLock lock(mutex_);
    ++in_flight_;
  }
  // Runs on the core's executor: the end of the last call may end the tier, which joins its own threads.
  void end() {
    std::vector<UniqueFunction<void()>> idle;
    {
      MutexLock lock(mutex_);
      if (--in_flight_ == 0) idle.swap(idle_);
    }
    for (auto& call : idle) call();
  }
};

namespace {

// One call into the plug-in: its memory, and the race between its answer and its deadline, which exactly one side
// wins.
template <class Batch>
struct Call : std::enable_shared_from_this<Call<Batch>> {
  std::shared_ptr<PluginCore> core;
  std::unique_ptr<Batch> batch;
  enum State { kWaiting, kRunning, kDecided };
  std::atomic<State> state{kWaiting};
  // Held here: the batch belongs to the winner of the race, and may be gone while the plug-in still uses this memory.
  std::vector<Identity> ids;
  std::vector<kvbm_tier_item_t> items;
  std::vector<kvbm_status_t> status;
  std::vector<std::vector<std::byte>> heads;
  std::vector<std::vector<std::byte>> payloads;

  [[nodiscard]] bool start() noexcept {
    State was = kWaiting;
    return state.compare_exchange_strong(was, kRunning, std::memory_order_acq_rel);
  }
  // Notes that the plug-in has answered. False: the deadline was earlier, and the batch is gone.
  [[nodiscard]] bool answered() noexcept {
    if (state.exchange(kDecided, std::memory_order_acq_rel) == kRunning) return true;
    --core->stuck;  // first: a caller that sees the count may call again
    ++core->second_answers;
    return false;
  }

  void add_item(const Identity& id, size_t head_bytes, size_t payload_bytes) {
    ids.push_back(id);
    heads.emplace_back(head_bytes);
    payloads.emplace_back(payload_bytes);
    kvbm_tier_item_t item{};
    const Name name = core->name(id);
    std::memcpy(item.identity, name.data(), name.size());
    item.head = heads.back().data();
    item.payload = payloads.back().data();
    item.head_bytes = static_cast<uint32_t>(head_bytes);
    item.payload_bytes = payload_bytes;
    items.push_back(item);
  }

  // Ends the batch on the core's executor.
  void finish() {
    core->executor_.post([self = this->shared_from_this()] {
      self->batch->done(*self->batch);
      self->batch.reset();
      self->core->end();
    });
  }

  // Ends the call after the plug-in has returned: none of its memory is read any more.
  void close() {
    Answered memory{std::move(items), std::move(status), std::move(heads), std::move(payloads)};
    for (const auto& head : memory.heads) memory.bytes += head.size();
    for (const auto& payload : memory.payloads) memory.bytes += payload.size();
    memory.again();  // marks the statuses as read
    core->keep(std::move(memory));
  }

  void expire() {
    const State was = state.exchange(kDecided, std::memory_order_acq_rel);
    if (was == kDecided) return;
    if (was == kRunning) ++core->stuck;
    core->fault("it did not answer in time");
    core->failed<Batch>() += ids.size();
    for (Code& code : batch->status) code = Code::deadline;
    finish();
  }
};

Code from_plugin(kvbm_status_t status) noexcept {
  return status == KVBM_OK ? Code::ok : status == KVBM_ERR_MISS ? Code::miss : Code::io_error;
}

// Runs `work` on a plug-in thread and arms the deadline.
template <class Batch, class Work>
void launch(const std::shared_ptr<Call<Batch>>& call, Work work) {
  PluginCore& core = *call->core;
  const uint64_t now = core.executor_.clock().now_ns();
  const uint64_t deadline = std::min(call->batch->deadline_ns, now + kDefaultTimeoutNs);
  core.begin();
  // Weak: an answered call need not keep its memory until the deadline.
  core.executor_.post_at(deadline, [weak = std::weak_ptr(call)] {
    if (const auto late = weak.lock()) late->expire();
  });
  core.threads_->post([call, work, deadline] {
    const uint64_t at = call->core->executor_.clock().now_ns();
    if (at >= deadline || !call->start()) return;
    call->core->inside_.fetch_add(1, std::memory_order_relaxed);
    work(*call, deadline - at);
    call->close();
    call->core->inside_.fetch_sub(1, std::memory_order_release);  // partner: ~PluginTier
  });
}

// Checks a record in the item's own memory, which the plug-in cannot write.
Code check_fetched(const PluginCore& core, const tier::GetItem& item) {
  codec::HeadView head;
  const Code code = tier::check_head(core.families_.get(item.id.family), item.id.key,
                                     ConstBytes(item.head).first(item.head_bytes), item.payload_bytes, &head);
  return code != Code::ok ? code : tier::check_leaves(head, ConstBytes(item.payload).first(item.payload_bytes));
}

// Copies a fetched record. The sizes are read once: a second answer may change them meanwhile.
Code take_fetched(Call<tier::GetBatch>& call, size_t i) {
  tier::GetItem& item = call.batch->items[i];
  const uint32_t head_bytes = call.items[i].head_bytes;
  const uint64_t payload_bytes = call.items[i].payload_bytes;
  if (head_bytes > call.heads[i].size() || payload_bytes > call.payloads[i].size()) return Code::damaged;
  item.head_bytes = head_bytes;
  item.payload_bytes = payload_bytes;
  std::memcpy(item.head.data(), call.heads[i].data(), head_bytes);
  std::memcpy(item.payload.data(), call.payloads[i].data(), payload_bytes);
  return check_fetched(*call.core, item);
}

// Erases records at the plug-in, on a thread of its own, with a deadline like every call.
void drop(const std::shared_ptr<PluginCore>& core, std::span<const Identity> ids) {
  std::vector<Name> names;
  for (const Identity& id : ids) names.push_back(core->name(id));
  const auto decided = std::make_shared<std::atomic<bool>>(false);
  const uint64_t deadline = core->executor_.clock().now_ns() + kDefaultTimeoutNs;
  core->begin();
  core->executor_.post_at(deadline, [core, weak = std::weak_ptr(decided)] {
    const auto late = weak.lock();
    if (late == nullptr || late->exchange(true)) return;
    core->fault("it did not forget records in time");
    core->end();
  });
  core->threads_->post([core, names = std::move(names), decided] {
    if (decided->load()) return;
    core->inside_.fetch_add(1, std::memory_order_relaxed);
    core->table_.erase(core->user_, reinterpret_cast<const uint8_t(*)[32]>(names.data()), names.size());
    core->inside_.fetch_sub(1, std::memory_order_release);  // partner: ~PluginTier
    if (!decided->exchange(true)) core->executor_.post([core] { core->end(); });
  });
}

// Handles damaged records: find() no longer finds them, the listener is notified, and the plug-in must erase them.
void found_damaged(const std::shared_ptr<PluginCore>& core, std::span<const Identity> ids) {
  core->quarantine(ids);
  core->begin();
  core->executor_.post([core, gone = std::vector<Identity>(ids.begin(), ids.end())] {
    if (core->listener_ != nullptr) core->listener_->removed(core->index_, gone, true);
    core->end();
  });
  drop(core, ids);
}

void fetch(Call<tier::GetBatch>& call, uint64_t timeout_ns) {
  PluginCore& core = *call.core;
  core.table_.get(core.user_, call.items.data(), call.items.size(), timeout_ns, call.status.data());
  if (!call.answered()) return;
  std::vector<Identity> damaged;
  for (size_t i = 0; i < call.items.size(); ++i) {
    Code code = from_plugin(call.status[i]);
    if (code == Code::ok) code = take_fetched(call, i);
    ++(code == Code::ok ? core.gets : code == Code::miss ? core.misses : core.get_errors);
    call.batch->status[i] = code;
    if (code == Code::ok) core.get_bytes += call.batch->items[i].payload_bytes;
    if (code == Code::damaged) damaged.push_back(call.ids[i]);
  }
  if (!damaged.empty()) {
    core.fault("it returned bytes that do not verify");
    found_damaged(call.core, damaged);
  }
  call.finish();
}

void store(Call<tier::PutBatch>& call, uint64_t timeout_ns) {
  PluginCore& core = *call.core;
  core.table_.put(core.user_, call.items.data(), call.items.size(), timeout_ns, call.status.data());
  if (!call.answered()) return;
  for (size_t i = 0; i < call.items.size(); ++i) {
    const Code code = from_plugin(call.status[i]);
    call.batch->status[i] = code == Code::miss ? Code::io_error : code;
    ++(code == Code::ok ? core.puts : core.put_errors);
    if (code != Code::ok) continue;
    core.put_bytes += call.payloads[i].size();
    core.stored_again(call.ids[i]);
  }
  call.finish();
}

template <class Batch>
void refuse(const std::shared_ptr<PluginCore>& core, std::unique_ptr<Batch> batch, Code why = Code::tier_disabled) {
  for (Code& code : batch->status) code = why;
  core->executor_.post([held = std::shared_ptr<Batch>(std::move(batch))] { held->done(*held); });
}

// Returns true if no call can begin: the tier is out of service, or every thread hangs in an expired call. So the
// caller need not wait for its own deadline.
template <class Batch>
bool refused(const std::shared_ptr<PluginCore>& core, std::unique_ptr<Batch>& batch) {
  const bool hangs = core->stuck >= static_cast<int64_t>(core->concurrency());
  if (!core->disabled() && !hangs) return false;
  if (!core->disabled()) {
    core->failed<Batch>() += batch->items.size();
    core->begin();
    core->executor_.post([core] {
      core->fault("all of its calls hang");
      core->end();
    });
  }
  refuse(core, std::move(batch), core->disabled() ? Code::tier_disabled : Code::deadline);
  return true;
}

}  // namespace

Result<std::unique_ptr<PluginTier>> PluginTier::create(const kvbm_tier_table_t& table, void* user, Executor& executor,
                                                       const FamilyTable& families, TierIndex index,
                                                       tier::TierListener* listener) {
  if (table.struct_size < sizeof(kvbm_tier_table_t) || table.find == nullptr || table.put == nullptr ||
      table.get == nullptr || table.erase == nullptr || table.stats == nullptr) {
    return Status(Code::unsupported, "a plug-in tier's table needs struct_size, find, put, get, erase and stats");
  }
  auto core = std::make_shared<PluginCore>(table, user, executor, families, index, listener);
  auto threads = ThreadExecutor::create("plugin", core->concurrency());
  if (!threads.ok()) return threads.status();
  core->threads_ = threads.value().get();
  return std::unique_ptr<PluginTier>(new PluginTier(std::move(core), std::move(threads).value()));
}

manager::MakeTier plugin_tier(const kvbm_tier_table_t& table, void* user, Executor& executor) {
  return [table, user, &executor](TierIndex index, FamilyTable& families,
                                  tier::TierListener* listener) -> Result<std::unique_ptr<tier::Tier>> {
    auto made = PluginTier::create(table, user, executor, families, index, listener);
    if (!made.ok()) return made.status();
    return std::unique_ptr<tier::Tier>(std::move(made).value());
  };
}

PluginTier::~PluginTier() {
  // A thread that hangs in the plug-in cannot be joined: it and its pool are leaked, with the memory it may still
  // write to.
  if (core_->inside_.load(std::memory_order_acquire) != 0) [[maybe_unused]]
    auto* left = threads_.release();
}

std::string PluginTier::describe() const {
  return std::string("plug-in ") + (core_->table_.name != nullptr ? core_->table_.name : "without a name");
}

void PluginTier::find(std::span<const Identity> ids, std::span<tier::Found> out, bool /*touch*/) noexcept {
  constexpr size_t kPage = 64;
  for (size_t first = 0; first < ids.size(); first += kPage) {
    const size_t n = std::min(kPage, ids.size() - first);
    Name names[kPage];
    uint8_t present[kPage] = {};
    uint32_t heads[kPage] = {};
    uint64_t payloads[kPage] = {};
    for (size_t i = 0; i < n; ++i) {
      out[first + i] = {};
      names[i] = core_->name(ids[first + i]);
    }
    if (core_->disabled()) continue;
    core_->table_.find(core_->user_, reinterpret_cast<const uint8_t(*)[32]>(names), n, present, heads, payloads);
    core_->leave_out(names, n, present);
    for (size_t i = 0; i < n; ++i) {
      // Sizes that no record can have make it a miss.
      const bool sane =
          heads[i] >= codec::kHeaderBytes && heads[i] <= kMaxHeadBytes && payloads[i] <= codec::kMaxRecordBytes;
      out[first + i].present = present[i] != 0 && sane;
      out[first + i].head_bytes = heads[i];
      out[first + i].payload_bytes = payloads[i];
    }
  }
}

bool PluginTier::pin(const Identity& /*id*/) noexcept { return !core_->disabled(); }
void PluginTier::unpin(const Identity& /*id*/) noexcept {}

void PluginTier::put(std::unique_ptr<tier::PutBatch> batch) {
  if (refused(core_, batch)) return;
  auto call = std::make_shared<Call<tier::PutBatch>>();
  call->core = core_;
  for (const tier::PutItem& item : batch->items) {
    call->add_item(item.id, item.head.size(), item.payload.size());
    std::memcpy(call->heads.back().data(), item.head.data(), item.head.size());
    std::memcpy(call->payloads.back().data(), item.payload.data(), item.payload.size());
  }
  call->status.assign(batch->items.size(), KVBM_ERR_INTERNAL);
  call->batch = std::move(batch);
  launch(call, [](Call<tier::PutBatch>& c, uint64_t timeout_ns) { store(c, timeout_ns); });
}

void PluginTier::get(std::unique_ptr<tier::GetBatch> batch) {
  if (refused(core_, batch)) return;
  auto call = std::make_shared<Call<tier::GetBatch>>();
  call->core = core_;
  for (const tier::GetItem& item : batch->items) call->add_item(item.id, item.head.size(), item.payload.size());
  call->status.assign(batch->items.size(), KVBM_ERR_INTERNAL);
  call->batch = std::move(batch);
  launch(call, [](Call<tier::GetBatch>& c, uint64_t timeout_ns) { fetch(c, timeout_ns); });
}

void PluginTier::erase(std::span<const Identity> ids) {
  if (core_->disabled() || ids.empty()) return;
  std::vector<Name> names(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) names[i] = core_->name(ids[i]);
  core_->table_.erase(core_->user_, reinterpret_cast<const uint8_t(*)[32]>(names.data()), names.size());
}

// Only reached if the record was damaged here: fetch() has fully checked the plug-in's bytes.
void PluginTier::reject(const Identity& id, uint64_t /*location*/) { found_damaged(core_, {&id, 1}); }

// A plug-in knows no families. Records of a raised epoch have names that no one asks for again; those of a reset one
// are still found, so the caller must be notified.
Status PluginTier::erase_family(FamilyId /*family*/) {
  return {Code::unsupported, "a plug-in tier cannot forget a namespace; drop its keys, or invalidate it"};
}

size_t PluginTier::scan(uint64_t& cursor, std::span<tier::ScanRow> /*out*/) {
  cursor = 0;
  return 0;
}

tier::TierStats PluginTier::stats() const {
  tier::TierStats out;
  core_->table_.stats(core_->user_, &out.capacity_bytes, &out.used_bytes, &out.records);
  out.puts = core_->puts;
  out.put_bytes = core_->put_bytes;
  out.put_errors = core_->put_errors;
  out.gets = core_->gets;
  out.get_bytes = core_->get_bytes;
  out.get_errors = core_->get_errors;
  out.misses = core_->misses;
  out.damaged = core_->damaged;
  out.faults = core_->faults_;
  out.second_answers = core_->second_answers;
  return out;
}

Result<uint64_t> PluginTier::epoch(const NamespaceId& /*base_id*/) { return uint64_t{0}; }
Status PluginTier::set_epoch(const NamespaceId& /*base_id*/, uint64_t /*epoch*/) { return {}; }

void PluginTier::shutdown(UniqueFunction<void()> done) {
  {
    MutexLock lock(core_->mutex_);
    if (core_->in_flight_ != 0) {
      core_->idle_.push_back(std::move(done));
      return;
    }
  }
  core_->executor_.post(std::move(done));
}

}  // namespace kvbm::capi
