// Writes records into the store: they are copied into packs, packs are written, then published in an index object.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tier/store/store_core.h"

namespace kvbm::tier::store {

namespace {

// Deadline of requests for packs and index objects, in timeouts of a try: the puts that wait have deadlines of their
// own.
constexpr uint64_t kPutTries = 3;
// Most records that one index object names.
constexpr size_t kPublishRecords = 200'000;
// Limit of packs that wait to be published. With more, the store accepts packs but no index objects, and the oldest are
// never published.
constexpr size_t kMaxUnpublished = 4096;
// Share that heads may take beyond a pack's size: so payloads of round sizes fill a pack, and a read of neighbours of
// that size reads whole packs.
constexpr uint64_t kHeadShare = 16;

// An index object of this process is never too large to be read. Packs of one that failed may wait beside others.
static_assert(kIndexHeaderBytes + 2 * kMaxUnpublished * kPackRowBytes +
                  (kPublishRecords + kMaxPackRecords) * kRecordRowBytes + UnpublishedRows::kMaxBytes <
              kMaxIndexBytes);

}  // namespace

Stamp StoreCore::next_stamp() { return {unix_ms(), writer_, seq_++}; }

void StoreCore::put(std::unique_ptr<PutBatch> batch) {
  auto op = std::make_shared<PutOp>();
  const size_t n = batch->items.size();
  op->batch = std::move(batch);
  op->batch->status.assign(n, Code::internal);
  op->decided.assign(n, 0);
  op->open = n;
  if (n == 0 || closing_ || !options_.write || requests_->backs_off()) {
    const Code why = closing_ ? Code::closed : !options_.write ? Code::not_permitted : Code::io_error;
    op->batch->status.assign(n, why);
    {
      MutexLock lock(mutex_);
      counts_.put_errors += n;
      ++batches_;
    }
    return give_back(op);
  }
  op->names.reserve(n);
  for (const PutItem& item : op->batch->items)
    op->names.push_back(record_name(families_.get(item.id.family), item.id.key));
  if (op->batch->deadline_ns != kNever) {
    executor_.post_at(op->batch->deadline_ns, [self = shared_from_this(), weak = std::weak_ptr(op)] {
      if (const auto late = weak.lock()) self->expire_put(late);
    });
  }
  {
    MutexLock lock(mutex_);
    ++batches_;
    puts_.push_back(op);
  }
  pump_puts();
}

// Puts records into packs as long as there is memory for packs.
void StoreCore::pump_puts() {
  for (;;) {
    After after;
    PutRef op;
    PackRef pack;
    size_t item = 0, at = 0;
    bool placed = false;
    {
      MutexLock lock(mutex_);
      placed = place_next(op, item, pack, at, after);
    }
    if (placed) {
      const PutItem& from = op->batch->items[item];
      std::byte* const to = memory_of(*pack) + at;
      std::memcpy(to, from.head.data(), from.head.size());
      if (!from.payload.empty()) std::memcpy(to + from.head.size(), from.payload.data(), from.payload.size());
      MutexLock lock(mutex_);
      --op->copying;
      if (--pack->copying == 0 && pack->closed) after.packs.push_back(pack);
      // The put's deadline may have passed during the copy. Then the put ends with its last copy.
      if (op->over && op->copying == 0 && op->open == 0) after.puts.push_back(op);
    }
    run(after);
    if (!placed) return;
  }
}

// The first writer of a pack brings its memory.
std::byte* StoreCore::memory_of(Pack& pack) {
  {
    MutexLock lock(mutex_);
    if (pack.buffer.size != 0) return pack.buffer.bytes.get();
  }
  Buffer fresh = take_buffer(pack.room);
  MutexLock lock(mutex_);
  if (pack.buffer.size == 0) pack.buffer = std::move(fresh);
  return pack.buffer.bytes.get();
}

// Gives the next record its place in a pack. False: none is left, or there is no memory.
bool StoreCore::place_next(PutRef& op, size_t& item, PackRef& pack, size_t& at, After& after) {
  while (!puts_.empty()) {
    op = puts_.front();
    if (op->over || op->next == op->names.size()) {
      puts_.pop_front();
      continue;
    }
    item = op->next;
    const PutItem& from = op->batch->items[item];
    const RecordName& name = op->names[item];
    const uint64_t bytes = from.head.size() + from.payload.size();
    const uint64_t most = store_->facts().max_object_bytes != 0 ? store_->facts().max_object_bytes : kMaxPackBytes;
    if (bytes > std::min(most, kMaxPackBytes)) {
      ++op->next;
      decide(op, item, Code::unsupported, after);
      continue;
    }
    if (index_.find(name).found()) {
      ++op->next;
      decide(op, item, Code::ok, after);
      continue;
    }
    if (const auto same = on_their_way_.find(name); same != on_their_way_.end()) {
      ++op->next;
      erased_on_their_way_.erase(name);
      (op->batch->durable ? same->second->durable : same->second->owners).emplace_back(op, item);
      continue;
    }
    pack = room_for(bytes, after);
    if (pack == nullptr) return false;
    ++op->next;
    at = pack->used;
    pack->used += bytes;
    pack->payload += from.payload.size();
    ++pack->copying;
    ++op->copying;
    pack->row.records.push_back({name, family_tag(families_.get(from.id.family)), from.payload.size(),
                                 static_cast<uint32_t>(at), static_cast<uint32_t>(from.head.size())});
    (op->batch->durable ? pack->durable : pack->owners).emplace_back(op, item);
    on_their_way_[name] = pack;
    if (pack->payload >= pack->full || pack->row.records.size() == kMaxPackRecords) close_pack(after);
    return true;
  }
  return false;
}

StoreCore::PackRef StoreCore::room_for(uint64_t bytes, After& after) {
  if (open_ != nullptr && open_->used + bytes <= open_->room) return open_;
  close_pack(after);
  const StoreFacts& facts = store_->facts();
  const uint64_t most = facts.max_object_bytes != 0 ? facts.max_object_bytes : UINT64_MAX;
  const uint64_t full = std::min(options_.pack_bytes != 0 ? options_.pack_bytes : facts.object_bytes, most);
  // Leaves memory for two packs at a time.
  const uint64_t room = std::max(std::min({full + full / kHeadShare, most, options_.staging_bytes / 2}), bytes);
  const size_t size = buffer_bytes(room);
  // A single pack is always allowed, however large.
  if (staged_ != 0 && staged_ + size > options_.staging_bytes) return nullptr;
  // More packs than the store takes at a time would wait in memory that has left the CPU caches, or is touched for the
  // first time.
  if (sending_ != 0 && sending_bytes_ + size > std::max(1U, facts.concurrency) * buffer_bytes(full)) return nullptr;
  staged_ += size;
  open_ = std::make_shared<Pack>();
  open_->full = full;
  open_->room = room;
  executor_.post_at(now() + options_.linger_ns, [self = shared_from_this(), weak = std::weak_ptr(open_)] {
    After late;
    {
      MutexLock lock(self->mutex_);
      if (const auto pack = weak.lock(); pack != nullptr && pack == self->open_) self->close_pack(late);
    }
    self->run(late);
  });
  return open_;
}

void StoreCore::close_pack(After& after) {
  if (open_ == nullptr) return;
  const PackRef pack = std::move(open_);
  open_ = nullptr;
  pack->closed = true;
  ++sending_;
  sending_bytes_ += buffer_bytes(pack->room);
  if (pack->copying == 0) after.packs.push_back(pack);
}

void StoreCore::decide(const PutRef& op, size_t item, Code code, After& after) {
  if (op->decided[item] != 0) return;
  op->decided[item] = 1;
  op->batch->status[item] = code;
  ++(code == Code::ok ? counts_.puts : counts_.put_errors);
  if (code == Code::ok) counts_.put_bytes += op->batch->items[item].payload.size();
  if (--op->open != 0) return;
  op->over = true;
  if (op->copying == 0) after.puts.push_back(op);
}

void StoreCore::expire_put(const PutRef& op) {
  After after;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < op->decided.size(); ++i) decide(op, i, Code::deadline, after);
  }
  run(after);
}

void StoreCore::run(After& after) {
  for (const PutRef& op : after.puts) give_back(op);
  for (const PackRef& pack : after.packs) send_pack(pack);
  for (const auto& sync : after.syncs) {
    executor_.post(
        [sync] { sync->done(sync->failed ? Status(Code::io_error, "a store did not take everything") : Status{}); });
  }
}

void StoreCore::send_pack(const PackRef& pack) {
  auto put = request(Verb::put, {});
  {
    MutexLock lock(mutex_);
    pack->row.stamp = next_stamp();
    pack->row.bytes = pack->used;
  }
  put->name = stamped_name(kPackPrefix, pack->row.stamp);
  put->bytes = pack->used;
  put->data = std::move(pack->buffer);
  put->expire_s = options_.ttl_s;
  const size_t size = buffer_bytes(pack->room);
  requests_->submit(std::move(put), now() + kPutTries * options_.timeout_ns, false,
                    [self = shared_from_this(), pack, size](Code code, std::unique_ptr<ObjectRequest> back) {
                      {
                        MutexLock lock(self->mutex_);
                        self->staged_ -= size;
                      }
                      if (back != nullptr) self->give_buffer(std::move(back->data));
                      self->pack_sent(pack, code);
                    });
}

void StoreCore::pack_sent(const PackRef& pack, Code code) {
  After after;
  {
    MutexLock lock(mutex_);
    --sending_;
    sending_bytes_ -= buffer_bytes(pack->room);
    auto& records = pack->row.records;
    // Records that were erased meanwhile are not published.
    std::erase_if(records, [this](const PackedRecord& record) KVBM_NO_TSA {
      on_their_way_.erase(record.name);
      return erased_on_their_way_.erase(record.name) != 0;
    });
    const bool kept = code == Code::ok && !records.empty() && index_.add(pack->row);
    for (const auto& [op, item] : pack->owners) decide(op, item, code, after);
    pack->owners.clear();
    if (kept) {
      unpublished_.push_back(pack);
      if (unpublished_.size() > kMaxUnpublished) {
        const PackRef oldest = unpublished_.front();
        unpublished_.erase(unpublished_.begin());
        for (const auto& [op, item] : oldest->durable) decide(op, item, Code::io_error, after);
        settle_syncs(oldest, true, after);
      }
    } else {
      for (const auto& [op, item] : pack->durable) decide(op, item, code == Code::ok ? Code::at_limit : code, after);
      settle_syncs(pack, code != Code::ok, after);
    }
  }
  run(after);
  publish_soon();
  collect();
  pump_puts();
  pump_gets();
  end_shutdown();
}

void StoreCore::settle_syncs(const PackRef& pack, bool failed, After& after) {
  for (const auto& sync : pack->syncs) {
    sync->failed = sync->failed || failed;
    if (--sync->left == 0) after.syncs.push_back(sync);
  }
  pack->syncs.clear();
  for (const auto& [op, item] : pack->durable) decide(op, item, failed ? Code::io_error : Code::ok, after);
  pack->durable.clear();
}

void StoreCore::publish_soon() {
  uint64_t when = 0;
  {
    MutexLock lock(mutex_);
    if (publishing_ || (unpublished_.empty() && unpublished_rows_.empty())) return;
    const bool waited_for =
        !publish_failed_ && std::any_of(unpublished_.begin(), unpublished_.end(), [](const PackRef& pack) {
          return !pack->syncs.empty() || !pack->durable.empty();
        });
    if (publish_planned_ && !waited_for && !closing_) return;
    publish_planned_ = true;
    when = now() + (closing_ || waited_for ? 0 : options_.publish_ns);
  }
  executor_.post_at(when, [self = shared_from_this()] { self->publish(); });
}

void StoreCore::publish() {
  IndexObject index;
  Stamp stamp;
  {
    MutexLock lock(mutex_);
    publish_planned_ = false;
    if (!telling_.empty() || publishing_ || (unpublished_.empty() && unpublished_rows_.empty())) return;
    publishing_ = true;
    size_t records = 0;
    while (telling_.size() < unpublished_.size() && records < kPublishRecords) {
      telling_.push_back(unpublished_[telling_.size()]);
      records += telling_.back()->row.records.size();
      index.packs.push_back(telling_.back()->row);
    }
    unpublished_.erase(unpublished_.begin(), unpublished_.begin() + static_cast<std::ptrdiff_t>(telling_.size()));
    telling_rows_ = std::exchange(unpublished_rows_, {});
    telling_rows_.write_to(index);
    stamp = next_stamp();
    known_indexes_.insert(stamp);
  }
  const std::vector<std::byte> bytes = encode_index(stamp, index);
  auto put = request(Verb::put, stamped_name(kIndexPrefix, stamp));
  put->listed = true;
  put->data = Buffer::of(bytes.size());
  std::memcpy(put->data.bytes.get(), bytes.data(), bytes.size());
  put->bytes = bytes.size();
  put->expire_s = options_.ttl_s;
  requests_->submit(std::move(put), now() + options_.timeout_ns, true,
                    [self = shared_from_this(), ms = stamp.ms](Code code, std::unique_ptr<ObjectRequest>) {
                      self->published(ms, code);
                    });
}

void StoreCore::published(uint64_t ms, Code code) {
  After after;
  bool all = true;
  {
    MutexLock lock(mutex_);
    publishing_ = false;
    publish_failed_ = code != Code::ok;
    // A process that listed meanwhile does not look again for an object that old.
    const bool late = unix_ms() > ms + kLatePublishMs;
    if (code == Code::ok || closing_) {
      for (const PackRef& pack : telling_) settle_syncs(pack, code != Code::ok, after);
    }
    if ((code != Code::ok || late) && !closing_) {
      unpublished_.insert(unpublished_.begin(), telling_.begin(), telling_.end());
      all = unpublished_rows_.add(telling_rows_);
    }
    if (code == Code::ok) rows_lost_ = false;
    telling_.clear();
    telling_rows_ = {};
  }
  if (!all) lose_rows();
  run(after);
  publish_soon();
  end_shutdown();
}

// Reports rows that found no place among those that wait for an index object.
void StoreCore::lose_rows() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(rows_lost_, true)) return;
  }
  say(LogLevel::warning, "it takes no index objects: other hosts will find some of what was erased here");
}

void StoreCore::sync(UniqueFunction<void(const Status&)> done) {
  const auto sync = std::make_shared<Sync>();
  sync->done = std::move(done);
  After after;
  {
    MutexLock lock(mutex_);
    close_pack(after);
    std::set<PackRef> packs;
    for (const auto& [name, pack] : on_their_way_) packs.insert(pack);
    packs.insert(unpublished_.begin(), unpublished_.end());
    packs.insert(telling_.begin(), telling_.end());
    for (const PackRef& pack : packs) {
      pack->syncs.push_back(sync);
      ++sync->left;
    }
    if (sync->left == 0) after.syncs.push_back(sync);
  }
  run(after);
  publish_soon();
}

}  // namespace kvbm::tier::store
