#include "tier/store/store_tier.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "tier/store/store_core.h"

namespace kvbm::tier::store {

StoreCore::StoreCore(std::unique_ptr<ObjectStore> store, StoreTierOptions options, Executor& executor,
                     const FamilyTable& families, Random& random, Log* log, TierIndex index, TierListener* listener)
    : store_(std::move(store)),
      description_(store_->facts().description),
      options_(std::move(options)),
      executor_(executor),
      families_(families),
      random_(random),
      log_(log),
      index_number_(index),
      listener_(listener),
      writer_(random.next()),
      requests_(std::make_shared<Requests>(*store_, executor, random, options_.timeout_ns)),
      // From the system, also in a simulation: no answer depends on it, and the numbers of writers are in names.
      index_(options_.index_bytes, SystemRandom().next()),
      found_(options_.ahead_bytes != 0 ? std::make_unique<FoundNames>() : nullptr) {
  if (!options_.unix_ms) {
    options_.unix_ms = [] {
      const auto since = std::chrono::system_clock::now().time_since_epoch();
      return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
    };
  }
}

void StoreCore::say(LogLevel level, const std::string& text) {
  if (log_ != nullptr) log_->write(level, "store", describe() + ": " + text);
}

void StoreCore::start(uint64_t open_ns) {
  requests_->on_back_off([weak = weak_from_this()](bool begins, const std::string& why) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    if (!begins) return self->say(LogLevel::info, "it answers again");
    self->say(LogLevel::warning, "not asked for a while, its blocks are misses: " + why);
  });
  // The caller waits for this first listing, so that a namespace that is opened next has its epoch.
  auto ask = request(Verb::list, std::string(kEpochPrefix));
  ask->data = Buffer::of(256 << 10);
  ask->bytes = ask->data.size;
  ask->timeout_ns = open_ns;
  const auto back = requests_->run(std::move(ask));
  read_epochs(back != nullptr && back->code == Code::ok && back->done <= back->bytes ? back.get() : nullptr);
  collect_later();
}

// Rounds up by an eighth at most.
size_t StoreCore::buffer_bytes(size_t bytes) noexcept {
  const size_t step = std::bit_floor(bytes | 4096) / 8;
  return (bytes + step - 1) / step * step;
}

Buffer StoreCore::take_buffer(size_t bytes) {
  const size_t size = buffer_bytes(bytes);
  {
    MutexLock lock(mutex_);
    const auto fits =
        std::find_if(spare_.rbegin(), spare_.rend(), [size](const Buffer& each) { return each.size == size; });
    if (fits != spare_.rend()) {
      Buffer out = std::move(*fits);
      spare_.erase(std::next(fits).base());
      spare_bytes_ -= out.size;
      return out;
    }
  }
  return Buffer::of(size);
}

void StoreCore::give_buffer(Buffer buffer) {
  std::vector<Buffer> gone;  // freed without the lock
  MutexLock lock(mutex_);
  spare_bytes_ += buffer.size;
  spare_.push_back(std::move(buffer));
  while (!spare_.empty() && staged_ + spare_bytes_ > options_.staging_bytes) {
    spare_bytes_ -= spare_.front().size;
    gone.push_back(std::move(spare_.front()));
    spare_.erase(spare_.begin());
  }
}

void StoreCore::erase(std::span<const Identity> ids) {
  bool all = true;
  {
    MutexLock lock(mutex_);
    for (const Identity& id : ids) {
      const RecordName name = record_name(families_.get(id.family), id.key);
      const bool known = index_.erase(name);
      if (on_their_way_.contains(name)) erased_on_their_way_.insert(name);
      if (known && options_.write) all = unpublished_rows_.erase(name) && all;
    }
  }
  if (!all) lose_rows();
  publish_soon();
}

void StoreCore::erase_family(FamilyId family) {
  FamilyErasure erasure;
  const uint64_t tag = family_tag(families_.get(family)), ms = unix_ms();
  {
    MutexLock lock(mutex_);
    std::set<PackRef> packs;
    for (const auto& [name, pack] : on_their_way_) packs.insert(pack);
    for (const PackRef& pack : packs) {
      for (const PackedRecord& record : pack->row.records) {
        if (record.family == tag) erased_on_their_way_.insert(record.name);
      }
    }
    if (index_.has_family(tag)) erasure.add(tag, UINT64_MAX);
  }
  erase_families(erasure);
  bool all = true;
  if (erasure.erased != 0 && options_.write) {
    MutexLock lock(mutex_);
    all = unpublished_rows_.erase_family(tag, ms);
  }
  if (!all) lose_rows();
  publish_soon();
}

// Releases the lock between pages, because lookups wait for it. All pages are done when it returns.
void StoreCore::erase_families(FamilyErasure& erasure) {
  for (bool more = !erasure.until_ms.empty(); more;) {
    let_finds_in();
    MutexLock lock(mutex_);
    more = index_.erase_families(erasure, kRecordsAtOnce);
  }
}

TierStats StoreCore::stats() const {
  const StoreStats requests = requests_->stats();
  MutexLock lock(mutex_);
  TierStats out = counts_;
  out.capacity_bytes = options_.capacity_bytes;
  out.used_bytes = index_.stored_bytes();
  out.records = index_.records();
  out.payload_bytes = index_.payload_bytes();
  out.index_bytes = index_.memory_bytes() + arrived_bytes_;
  out.index_bytes += (known_indexes_.size() + opaque_indexes_.size()) * kKnownBytes;
  out.staging_bytes = staged_;
  out.store = requests;
  out.store.ahead_bytes = counts_.store.ahead_bytes;
  out.store.ahead_used_bytes = counts_.store.ahead_used_bytes;
  out.store.ahead_unused_bytes = counts_.store.ahead_unused_bytes;
  out.store.packs = index_.packs();
  out.store.is_store = 1;
  out.store.backs_off = requests_->backs_off() ? 1 : 0;
  return out;
}

// Requests in flight end, open packs are sent, sent packs are published; then the store is closed.
void StoreCore::shutdown(UniqueFunction<void()> done) {
  After after;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    shut_ = std::move(done);
    close_pack(after);
    for (const PutRef& op : puts_) {
      for (size_t i = op->next; i < op->names.size(); ++i) decide(op, i, Code::closed, after);
      op->next = op->names.size();
    }
    puts_.clear();
  }
  run(after);
  end_ahead();
  publish_soon();
  executor_.post([self = shared_from_this()] { self->end_shutdown(); });
}

// A manager that could not be opened drops its tiers as they are.
void StoreCore::leave_listener() {
  listening_.close();
  if (!closing_) shutdown([] {});
}

void StoreCore::end_shutdown() {
  if (!closing_) return;
  UniqueFunction<void()> shut;
  bool tell = false;
  {
    MutexLock lock(mutex_);
    if (!shut_ || batches_ != 0 || sending_ != 0 || publishing_ || !flights_.empty() || !waiting_.empty()) return;
    tell = !unpublished_.empty() || !unpublished_rows_.empty();
    if (!tell) shut = std::move(shut_);
    if (!tell) shut_ = {};
  }
  if (tell) return publish_soon();
  requests_->shutdown(
      [self = shared_from_this(), held = std::make_shared<UniqueFunction<void()>>(std::move(shut))](bool all) {
        if (all) {
          self->store_->close();
        } else {
          self->say(LogLevel::error, "it does not give requests back: it is left as it is");
          ObjectStore& left = *self->store_;
          left.leave(std::move(self->store_));
        }
        (*held)();
      });
}

Result<std::unique_ptr<StoreTier>> StoreTier::open(std::unique_ptr<ObjectStore> store, StoreTierOptions options,
                                                   Executor& executor, const FamilyTable& families, Random& random,
                                                   Log* log, TierIndex index, TierListener* listener,
                                                   uint64_t open_ns) {
  const StoreFacts& facts = store->facts();
  const uint64_t pack = options.pack_bytes != 0 ? options.pack_bytes : facts.object_bytes;
  if (pack < 4096 || pack > uint64_t{1} << 30) {
    return Status(Code::bad_config, "a store's packs are 4 KiB to 1 GiB", facts.description);
  }
  if (options.staging_bytes < 2 * pack) {
    return Status(Code::bad_config, "a store needs memory for two packs at least: raise inflight or lower pack",
                  facts.description);
  }
  if (options.ahead_bytes == UINT64_MAX) options.ahead_bytes = options.staging_bytes / 4;
  if (options.ahead_bytes > options.staging_bytes / 2) {
    return Status(Code::bad_config,
                  "a store reads ahead half of its memory at most: raise inflight or lower prefetch_ahead",
                  facts.description);
  }
  auto core = std::make_shared<StoreCore>(std::move(store), std::move(options), executor, families, random, log, index,
                                          listener);
  core->start(open_ns);
  return std::unique_ptr<StoreTier>(new StoreTier(std::move(core)));
}

StoreTier::StoreTier(std::shared_ptr<StoreCore> core) : core_(std::move(core)) {}
StoreTier::~StoreTier() { core_->leave_listener(); }
std::string StoreTier::describe() const { return core_->describe(); }
void StoreTier::find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept {
  core_->find(ids, out, touch);
}
// Another host may remove the record at any time: then a get misses.
bool StoreTier::pin(const Identity& /*id*/) noexcept { return true; }
void StoreTier::unpin(const Identity& id) noexcept { core_->unwanted(id); }
void StoreTier::put(std::unique_ptr<PutBatch> batch) { core_->put(std::move(batch)); }
void StoreTier::get(std::unique_ptr<GetBatch> batch) { core_->get(std::move(batch)); }
void StoreTier::erase(std::span<const Identity> ids) { core_->erase(ids); }
void StoreTier::reject(const Identity& id, uint64_t location) { core_->reject(id, location); }
Status StoreTier::erase_family(FamilyId family) {
  core_->erase_family(family);
  return {};
}
// Names in a store do not contain identities.
size_t StoreTier::scan(uint64_t& cursor, std::span<ScanRow> /*out*/) {
  cursor = 0;
  return 0;
}
TierStats StoreTier::stats() const { return core_->stats(); }
Result<uint64_t> StoreTier::epoch(const NamespaceId& base_id) { return core_->epoch(base_id); }
Status StoreTier::set_epoch(const NamespaceId& base_id, uint64_t epoch) {
  EpochRow row;
  row.base = base_id;
  row.epoch = epoch;
  return core_->set_epochs({&row, 1});
}
bool StoreTier::keeps_epochs() const noexcept { return core_->writes(); }
// Rows stay in the store: other hosts may need those that this host does not.
Status StoreTier::set_epochs(std::span<const EpochRow> rows, std::span<const NamespaceId> /*forgotten*/,
                             std::span<const EpochRow> /*floored*/) {
  return core_->set_epochs(rows);
}
void StoreTier::sync(UniqueFunction<void(const Status&)> done) { core_->sync(std::move(done)); }
void StoreTier::shutdown(UniqueFunction<void()> done) { core_->shutdown(std::move(done)); }

}  // namespace kvbm::tier::store
