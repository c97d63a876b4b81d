#include "capi/plugin_tier.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "codec/key.h"
#include "codec/leaf_hash.h"
#include "codec/record.h"

namespace kvbm::capi {

namespace {

// Without a deadline of the caller's, a plug-in may take this long for a batch.
constexpr uint64_t kDefaultTimeoutNs = 10'000'000'000ULL;
// Hangs and wrong bytes after which the tier is taken out of service.
constexpr uint32_t kMaxFaults = 16;
// The largest head a record can have.
constexpr size_t kMaxHeadBytes = codec::head_bytes(codec::kMaxLeaves, codec::kMaxAttributeBytes);

using Name = std::array<uint8_t, 32>;

// What the plug-in stores a record under: nothing of it can be guessed or chosen by a tenant.
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

}  // namespace

// Shared by the tier, its threads and its timers; dies with the last of them.
class PluginCore : public std::enable_shared_from_this<PluginCore> {
 public:
  PluginCore(const kvbm_tier_table_t& table, void* user, Executor& executor, const FamilyTable& families,
             TierIndex index, tier::TierListener* listener)
      : table_(table), user_(user), executor_(executor), families_(families), index_(index), listener_(listener) {}

  [[nodiscard]] Name name(const Identity& id) const { return name_of(families_.get(id.family), id.key); }
  [[nodiscard]] bool disabled() const noexcept { return disabled_.load(std::memory_order_relaxed); }

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
  ThreadExecutor* threads_ = nullptr;  // the tier's
  std::atomic<uint32_t> inside_{0};    // threads inside the plug-in
  std::atomic<uint32_t> faults_{0};
  std::atomic<bool> disabled_{false};
  std::atomic<uint64_t> puts{0}, put_bytes{0}, put_errors{0}, gets{0}, get_bytes{0}, get_errors{0}, misses{0}, damaged{0};

  Mutex mutex_;
  uint64_t in_flight_ KVBM_GUARDED_BY(mutex_) = 0;
  std::vector<UniqueFunction<void()>> idle_ KVBM_GUARDED_BY(mutex_);

  void begin() {
    MutexLock lock(mutex_);
    ++in_flight_;
  }
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

// One call into the plug-in: its memory, and the race between its answer and its deadline, which
// exactly one side wins.
template <class Batch>
struct Call : std::enable_shared_from_this<Call<Batch>> {
  std::shared_ptr<PluginCore> core;
  std::unique_ptr<Batch> batch;
  std::atomic<bool> decided{false};
  // Kept here, for the batch belongs to whoever decides, and may be gone while the plug-in is still busy.
  std::vector<Identity> ids;
  std::vector<kvbm_tier_item_t> items;
  std::vector<kvbm_status_t> status;
  std::vector<std::vector<std::byte>> heads;
  std::vector<std::vector<std::byte>> payloads;

  [[nodiscard]] bool win() noexcept { return !decided.exchange(true, std::memory_order_acq_rel); }

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

  // Hands the batch back on the core's executor.
  void finish() {
    core->executor_.post([self = this->shared_from_this()] {
      self->batch->done(*self->batch);
      self->batch.reset();
      self->core->end();
    });
  }

  void expire() {
    if (!win()) return;
    core->fault("it did not answer in time");
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
  core.executor_.post_at(deadline, [call] { call->expire(); });
  core.threads_->post([call, work, deadline] {
    const uint64_t at = call->core->executor_.clock().now_ns();
    if (at >= deadline || call->decided.load(std::memory_order_acquire)) return;
    call->core->inside_.fetch_add(1, std::memory_order_relaxed);
    work(*call, deadline - at);
    call->core->inside_.fetch_sub(1, std::memory_order_release);  // partner: ~PluginTier
  });
}

Code check_fetched(Call<tier::GetBatch>& call, size_t i) {
  const Identity& id = call.ids[i];
  const kvbm_tier_item_t& got = call.items[i];
  if (got.head_bytes > call.heads[i].size() || got.payload_bytes > call.payloads[i].size()) return Code::damaged;
  const auto view = codec::HeadView::parse(ConstBytes(call.heads[i]).first(got.head_bytes));
  if (!view.ok()) return Code::damaged;
  const codec::Header& header = view.value().header();
  const Family& family = call.core->families_.get(id.family);
  if (header.key != id.key || header.ns != family.ns || header.component != family.component ||
      header.shard != family.shard || header.stored_bytes != got.payload_bytes) {
    return Code::damaged;
  }
  for (uint32_t l = 0; l < header.leaf_count; ++l) {
    const codec::Leaf leaf = view.value().leaf(l);
    if (codec::leaf_hash(ConstBytes(call.payloads[i]).subspan(leaf.offset, leaf.stored_bytes)) != leaf.hash) {
      return Code::damaged;
    }
  }
  return Code::ok;
}

void fetch(Call<tier::GetBatch>& call, uint64_t timeout_ns) {
  PluginCore& core = *call.core;
  core.table_.get(core.user_, call.items.data(), call.items.size(), timeout_ns, call.status.data());
  std::vector<Code> codes(call.items.size());
  bool lied = false;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = from_plugin(call.status[i]);
    if (codes[i] == Code::ok) codes[i] = check_fetched(call, i);
    lied = lied || codes[i] == Code::damaged;
    ++(codes[i] == Code::ok ? core.gets : codes[i] == Code::miss ? core.misses : core.get_errors);
    if (codes[i] == Code::damaged) ++core.damaged;
  }
  if (lied) core.fault("it returned bytes that do not verify");
  if (!call.win()) return;
  for (size_t i = 0; i < codes.size(); ++i) {
    tier::GetItem& item = call.batch->items[i];
    if (codes[i] == Code::ok && (call.items[i].head_bytes > item.head.size() ||
                                 call.items[i].payload_bytes > item.payload.size())) {
      codes[i] = Code::mismatch;
    }
    call.batch->status[i] = codes[i];
    if (codes[i] != Code::ok) continue;
    item.head_bytes = call.items[i].head_bytes;
    item.payload_bytes = call.items[i].payload_bytes;
    std::memcpy(item.head.data(), call.heads[i].data(), item.head_bytes);
    std::memcpy(item.payload.data(), call.payloads[i].data(), item.payload_bytes);
    core.get_bytes += item.payload_bytes;
  }
  call.finish();
}

void store(Call<tier::PutBatch>& call, uint64_t timeout_ns) {
  PluginCore& core = *call.core;
  core.table_.put(core.user_, call.items.data(), call.items.size(), timeout_ns, call.status.data());
  if (!call.win()) return;
  for (size_t i = 0; i < call.items.size(); ++i) {
    const Code code = from_plugin(call.status[i]);
    call.batch->status[i] = code == Code::miss ? Code::io_error : code;
    ++(code == Code::ok ? core.puts : core.put_errors);
    if (code == Code::ok) core.put_bytes += call.items[i].payload_bytes;
  }
  call.finish();
}

template <class Batch>
void refuse(const std::shared_ptr<PluginCore>& core, std::unique_ptr<Batch> batch) {
  for (Code& code : batch->status) code = Code::tier_disabled;
  core->executor_.post([held = std::shared_ptr<Batch>(std::move(batch))] { held->done(*held); });
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
  auto threads = ThreadExecutor::create("plugin", table.concurrency == 0 ? 1 : std::min(table.concurrency, 64U));
  if (!threads.ok()) return threads.status();
  core->threads_ = threads.value().get();
  return std::unique_ptr<PluginTier>(new PluginTier(std::move(core), std::move(threads).value()));
}

PluginTier::~PluginTier() {
  // A thread that hangs in the plug-in cannot be joined: it and its pool are left behind, with the
  // memory it may still write to.
  if (core_->inside_.load(std::memory_order_acquire) != 0) [[maybe_unused]] auto* left = threads_.release();
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
    for (size_t i = 0; i < n; ++i) {
      // Sizes that no record can have are a lie, and a miss.
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
  if (core_->disabled()) return refuse(core_, std::move(batch));
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
  if (core_->disabled()) return refuse(core_, std::move(batch));
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

// Only if it was damaged here: what a plug-in gives is checked in full before it leaves fetch().
void PluginTier::reject(const Identity& id, uint64_t /*location*/) {
  ++core_->damaged;
  erase({&id, 1});
}

// A plug-in knows no families. Records of a raised epoch have names that nobody asks for again; those of a reset one are
// found again, and the caller must hear of it.
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
  done();
}

}  // namespace kvbm::capi
