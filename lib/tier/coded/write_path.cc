// The way down. Records of a batch are encoded in chunks, several at a time; chunks go to the inner tier in their order
// of arrival.
#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "tier/coded/coded_core.h"

namespace kvbm::tier::coded {

namespace {

// Bytes sent to the inner tier at once: a disk writes runs of 4 MiB, and meanwhile the next chunk is encoded.
constexpr uint64_t kChunkBytes = uint64_t{2} << 20;
// Least work of one encoding task.
constexpr uint64_t kEncodeTaskBytes = uint64_t{512} << 10;
// Encoding holds writing up if writing waited for it during half of this time.
constexpr uint64_t kWatchNs = 200'000'000;
// Smaller writes are mostly latency, which coding does not shorten.
constexpr uint64_t kLeastMeasured = uint64_t{256} << 10;
// Weight of the earlier measurements of writing when a batch adds one.
constexpr double kKeptOfTime = 7.0 / 8;

// Room for the head, which lies in front of the payload.
uint64_t head_room_of(const PutItem& item) noexcept {
  return round_up(codec::coded_head_room(item.head.size()), kIoAlign);
}

codec::Recipe simple(codec::Mode mode) {
  codec::Recipe recipe;
  if (mode != codec::Mode::off) recipe.rules.push_back({0, UINT32_MAX, 3, mode});
  return recipe;
}

}  // namespace

void CodedCore::put(std::unique_ptr<PutBatch> batch) {
  const MemoryWait until_done;
  Tier* const below = inner();
  if (below == nullptr) return end_closed(std::move(batch));
  auto op = std::make_shared<PutOp>();
  const size_t n = batch->items.size();
  const uint64_t deadline = batch->deadline_ns;
  op->pieces.resize(n);
  op->open = n;
  op->batch = std::move(batch);
  std::vector<std::shared_ptr<const FamilyTerms>> families(n);
  for (size_t i = 0; codes() && i < n; ++i) {
    const FamilyId family = op->batch->items[i].id.family;
    families[i] = i != 0 && op->batch->items[i - 1].id.family == family ? families[i - 1] : terms(family);
  }
  const double read_ns = options_.automatic && options_.link ? options_.link(executor_.clock().now_ns()) : 0;
  bool as_it_is = false;
  bool too_late = false;
  {
    MutexLock lock(mutex_);
    // The inner tier may still take records, and none leaves without its seal.
    too_late = stopping_ && options_.keys != nullptr;
    const bool encodes = plan(*op, families, read_ns);
    as_it_is = stopping_ || n == 0 || (!encodes && puts_.empty());
    if (!as_it_is) {
      watch_encoding();
      op->batch->status.assign(n, Code::internal);
      puts_.push_back(op);
      put_queue_.push_back(op);
      ++in_flight_;
    }
  }
  if (too_late) return end_closed(std::move(op->batch));
  if (as_it_is) {
    if (options_.automatic) measure(*op->batch);
    return below->put(std::move(op->batch));
  }
  if (deadline != kNever) {
    executor_.post_at(deadline, [weak = weak_from_this(), deadline] {
      if (const auto self = weak.lock()) self->expire_puts(deadline);
    });
  }
  pump_writes();
}

// Returns true if any piece is to be encoded.
bool CodedCore::plan(PutOp& op, const std::vector<std::shared_ptr<const FamilyTerms>>& families, double read_ns) {
  const uint64_t now = executor_.clock().now_ns();
  bool encodes = false;
  for (size_t i = 0; i < op.pieces.size(); ++i) {
    PutPiece& piece = op.pieces[i];
    const PutItem& item = op.batch->items[i];
    piece.head = item.head;
    piece.payload = item.payload;
    if (op.batch->as_stored && plan_as_stored(piece, item)) {
      encodes = encodes || piece.failed != Code::ok;
      continue;
    }
    if (families[i] != nullptr) plan_one(piece, item, *families[i], now, read_ns);
    piece.encode = piece.code || piece.probe.has_value() || options_.keys != nullptr;
    encodes = encodes || piece.encode;
    if (codes() && !piece.encode) ++counts_.left_plain;
  }
  return encodes;
}

// Returns true if the record is written as another tier stored it, or not at all. With keys, a plain record is refused:
// an attacker may have put it on the other medium, and sealed here it would be trusted.
bool CodedCore::plan_as_stored(PutPiece& piece, const PutItem& item) {
  const auto head = codec::HeadView::parse(item.head);
  if (!head.ok()) {
    piece.failed = Code::damaged;
    return true;
  }
  // Whether lossy records are allowed is checked where they are read.
  const codec::DecodeRules rules{options_.keys.get(), true, false};
  const bool coded = codec::is_coded(head.value());
  if (options_.keys != nullptr && !codec::permitted(head.value(), rules).ok()) piece.failed = Code::not_permitted;
  if (coded && piece.failed == Code::ok) coded_.insert(item.id.family);
  return coded || piece.failed != Code::ok;
}

void CodedCore::plan_one(PutPiece& piece, const PutItem& item, const FamilyTerms& terms, uint64_t now, double read_ns) {
  piece.form = terms.form;
  piece.own = !terms.recipe.rules.empty();
  if (!options_.automatic || (piece.own && !terms.recipe.codes())) {
    piece.recipe = piece.own ? terms.recipe : simple(options_.mode);
    piece.code = piece.recipe.codes();
    if (!piece.code) counts_.mode = 0;
    return;
  }
  const TierChoice::Plan plan = choice_.plan(now, item.id.family, piece.own, {read_ns, written_.ns_per_byte()});
  piece.level = plan.level;
  piece.probe = plan.probe;
  piece.code = plan.level != TierChoice::Level::off;
  piece.recipe = piece.own ? terms.recipe : simple(TierChoice::mode_of(plan.level));
  if (!piece.code) counts_.mode = 0;
}

void CodedCore::pump_writes() {
  do {
    for (bool more = true; more;) {
      std::vector<UniqueFunction<void()>> tasks;
      {
        MutexLock lock(mutex_);
        watch_encoding();
        more = begin_chunk(tasks);
      }
      for (auto& task : tasks) executor_.post(std::move(task));
    }
  } while (send_ready());
}

// Returns false if nothing is left to begin, or there is no memory for it now.
bool CodedCore::begin_chunk(std::vector<UniqueFunction<void()>>& tasks) {
  while (!put_queue_.empty() && put_queue_.front()->next == put_queue_.front()->pieces.size()) put_queue_.pop_front();
  if (put_queue_.empty()) return false;
  const std::shared_ptr<PutOp> op = put_queue_.front();
  auto chunk = std::make_shared<Chunk>();
  chunk->op = op;
  chunk->first = op->next;
  uint64_t bytes = 0;
  size_t task_from = op->next;
  uint64_t task_bytes = 0;
  const auto task = [&](size_t to) {
    if (task_bytes != 0) {
      ++chunk->tasks;
      tasks.emplace_back([self = shared_from_this(), chunk, from = task_from, to] { self->encode(chunk, from, to); });
    }
    task_from = to;
    task_bytes = 0;
  };
  for (; op->next < op->pieces.size() && bytes < kChunkBytes; ++op->next) {
    PutPiece& piece = op->pieces[op->next];
    const PutItem& item = op->batch->items[op->next];
    if (piece.encode && !room_for(piece, item)) break;
    bytes += item.payload.size() + 1;
    if (piece.encode) task_bytes += item.payload.size() + 1;
    if (task_bytes >= kEncodeTaskBytes) task(op->next + 1);
  }
  chunk->n = op->next - chunk->first;
  if (chunk->n == 0) return false;
  task(op->next);
  chunks_.push_back(std::move(chunk));
  return true;
}

// Returns true if the piece has its memory, or will never get any.
bool CodedCore::room_for(PutPiece& piece, const PutItem& item) {
  const uint64_t payload =
      codec::coded_room(item.payload.size(), static_cast<uint32_t>(item.head.size() / codec::kLeafEntryBytes));
  auto room = write_staging_.take(head_room_of(item) + round_up(payload, kIoAlign));
  if (!room.has_value()) return false;
  piece.staging = std::move(*room);
  if (piece.staging.data() != nullptr) return true;
  piece.encode = false;
  if (options_.keys != nullptr) piece.failed = Code::no_memory;
  return true;
}

void CodedCore::encode(const std::shared_ptr<Chunk>& chunk, size_t from, size_t to) {
  const MemoryWait no_error_path;
  auto workspace = take_workspace();
  CodecStats counts;
  for (size_t i = from; i < to; ++i) {
    PutPiece& piece = chunk->op->pieces[i];
    if (!piece.encode) continue;
    if (executor_.clock().now_ns() >= chunk->op->batch->deadline_ns) {
      piece.failed = Code::deadline;
    } else {
      encode_one(chunk->op->batch->items[i], piece, *workspace, counts);
    }
  }
  give(std::move(workspace), counts);
  {
    MutexLock lock(mutex_);
    watch_encoding();
    --chunk->tasks;
  }
  pump_writes();
}

void CodedCore::encode_one(const PutItem& item, PutPiece& piece, codec::Workspace& workspace, CodecStats& counts) {
  Tier* const below = inner();
  if (below == nullptr) return;
  Found found;
  // A record that is present will not be written, so it need not be encoded. With keys it is sealed all the same: it
  // may be evicted before the write.
  if (options_.keys == nullptr) below->find({&item.id, 1}, {&found, 1}, false);
  if (found.present) return;
  const auto head = codec::HeadView::parse(item.head);
  if (!head.ok()) {
    piece.failed = Code::damaged;
    return;
  }
  if (piece.probe.has_value()) {
    probe(item, piece, head.value(), workspace);
    ++counts.probes;
  }
  if (!piece.code && options_.keys == nullptr) {
    ++counts.left_plain;
    return;
  }
  // A record that was coded with loss before is coded without further loss.
  const bool again = piece.recipe.lossy() && (head.value().header().flags & codec::kLossy) != 0;
  const codec::Recipe& recipe = piece.recipe;
  const codec::Recipe nothing;
  const codec::Recipe lossless = simple(codec::Mode::standard);
  const MutableBytes room = piece.staging.span();
  const uint64_t head_room = head_room_of(item);
  const uint64_t began = executor_.clock().now_ns();
  const auto sizes =
      codec::encode_record(head.value(), item.payload, piece.form,
                           !piece.code ? nothing
                           : again     ? lossless
                                       : recipe,
                           options_.keys.get(), random_, room.first(head_room), room.subspan(head_room), workspace);
  const uint64_t took = executor_.clock().now_ns() - began;
  counts.encode_ns += took;
  if (sizes.ok()) {
    piece.head = room.first(sizes.value().head_bytes);
    piece.payload = room.subspan(head_room, sizes.value().payload_bytes);
    if (piece.code) ++counts.coded;
    if (sizes.value().mode != codec::Mode::off) counts.mode = static_cast<uint32_t>(sizes.value().mode);
    if (options_.keys != nullptr) ++counts.sealed;
    if (sizes.value().lossy) {
      counts.difference += sizes.value().difference;
      counts.value += sizes.value().value;
    }
    counts.plain_bytes += item.payload.size();
    counts.stored_bytes += piece.payload.size();
  } else if (options_.keys != nullptr) {
    piece.failed = sizes.status().code();  // no record leaves without its seal
    return;
  } else {
    ++counts.left_plain;
  }
  if (!options_.automatic || piece.code != (piece.level != TierChoice::Level::off)) return;
  MutexLock lock(mutex_);
  choice_.encoded(item.id.family, piece.level, item.payload.size(), piece.payload.size(), took, 0);
}

// Codes the record for the measurement alone, and decodes it. With keys it is sealed too, as it would be if it were
// written at that level. Level `off` measures sealing alone.
void CodedCore::probe(const PutItem& item, PutPiece& piece, const codec::HeadView& head, codec::Workspace& workspace) {
  const bool plain_too = *piece.probe == TierChoice::Level::off || !piece.own;
  const codec::Recipe recipe = plain_too ? simple(TierChoice::mode_of(*piece.probe)) : piece.recipe;
  const MutableBytes room = piece.staging.span();
  const uint64_t head_room = head_room_of(item);
  const uint64_t began = executor_.clock().now_ns();
  const auto sizes = codec::encode_record(head, item.payload, piece.form, recipe, options_.keys.get(), random_,
                                          room.first(head_room), room.subspan(head_room), workspace);
  const uint64_t encoded = executor_.clock().now_ns();
  uint64_t stored = item.payload.size();
  uint64_t decode_ns = 0;
  if (!sizes.ok() && sizes.status().code() != Code::again) return;
  const Staging::Buffer plain(head_room + round_up(item.payload.size(), kIoAlign));
  if (sizes.ok() && plain.data() != nullptr) {
    const auto view = codec::HeadView::parse(ConstBytes(room).first(sizes.value().head_bytes));
    if (!view.ok()) return;
    std::fill_n(plain.data(), plain.size(), std::byte{0});  // page faults are not to be measured
    const uint64_t from = executor_.clock().now_ns();
    const Status decoded = codec::decode_record(
        view.value(), ConstBytes(room).subspan(head_room, sizes.value().payload_bytes), {options_.keys.get(), true}, 0,
        0, plain.span().first(head_room), plain.span().subspan(head_room, item.payload.size()), workspace);
    if (!decoded.ok()) return;
    decode_ns = executor_.clock().now_ns() - from;
    stored = sizes.value().payload_bytes;
  }
  MutexLock lock(mutex_);
  choice_.encoded(item.id.family, *piece.probe, item.payload.size(), stored, encoded - began, decode_ns);
}

// True if records ended that were not sent: their memory is free for what waits for it.
bool CodedCore::send_ready() {
  for (bool ended = false;;) {
    Tier* const below = inner();
    std::unique_ptr<PutBatch> batch;
    PutOps over;
    {
      MutexLock lock(mutex_);
      if (sending_ != nullptr || chunks_.empty() || chunks_.front()->tasks != 0) return ended;
      watch_encoding();
      sending_ = std::move(chunks_.front());
      chunks_.pop_front();
      batch = batch_of(sending_, over);
      ended = ended || batch == nullptr || batch->items.size() < sending_->n;
      if (batch != nullptr) ++writing_;
    }
    if (batch != nullptr && options_.automatic) measure(*batch);
    if (batch != nullptr) below->put(std::move(batch));
    std::vector<Identity> forgotten;
    {
      MutexLock lock(mutex_);
      sending_ = nullptr;
      forgotten.swap(forgotten_);
    }
    if (!forgotten.empty() && below != nullptr) below->erase(forgotten);
    if (over.empty()) continue;
    executor_.post([self = shared_from_this(), over = std::move(over)]() mutable { self->end(over); });
  }
}

// Makes the batch of a chunk's pieces that are to be written; settles the rest. Null: there are none.
std::unique_ptr<PutBatch> CodedCore::batch_of(const std::shared_ptr<Chunk>& chunk, PutOps& over) {
  auto batch = std::make_unique<PutBatch>();
  const std::shared_ptr<PutOp> op = chunk->op;
  std::vector<size_t> which;
  const bool gone = inner() == nullptr;
  for (size_t i = chunk->first; i < chunk->first + chunk->n; ++i) {
    PutPiece& piece = op->pieces[i];
    if (gone && piece.failed == Code::ok) piece.failed = Code::closed;
    // A record that was forgotten needs no write: ok.
    if (piece.erased || piece.failed != Code::ok) {
      if (settle(*op, i, piece.erased ? Code::ok : piece.failed)) over.push_back(op);
      continue;
    }
    PutItem item = op->batch->items[i];
    item.head = piece.head;
    item.payload = piece.payload;
    batch->items.push_back(item);
    which.push_back(i);
  }
  if (which.empty()) return nullptr;
  batch->status.assign(which.size(), Code::internal);
  batch->deadline_ns = op->batch->deadline_ns;
  batch->durable = op->batch->durable;
  batch->done = [self = shared_from_this(), op, which = std::move(which)](PutBatch& done) {
    self->written(*op, which, done.status, op);
  };
  return batch;
}

// Measures how long the inner tier takes to write the batch.
void CodedCore::measure(PutBatch& batch) {
  const uint64_t asked = executor_.clock().now_ns();
  batch.done = [self = shared_from_this(), then = std::move(batch.done), asked](PutBatch& done) mutable {
    uint64_t bytes = 0;
    for (size_t i = 0; i < done.items.size(); ++i)
      bytes += done.status[i] == Code::ok ? done.items[i].payload.size() : 0;
    {
      MutexLock lock(self->mutex_);
      self->written_.add(asked, self->executor_.clock().now_ns(), bytes);
    }
    then(done);
  };
}

// Batches that queue up one behind another each count from the end of the one before.
void CodedCore::Written::add(uint64_t asked_ns, uint64_t now_ns, uint64_t stored_bytes) noexcept {
  const uint64_t from = std::max(asked_ns, last_end_ns);
  last_end_ns = std::max(last_end_ns, now_ns);
  if (stored_bytes < kLeastMeasured || now_ns <= from) return;
  ns = ns * kKeptOfTime + static_cast<double>(now_ns - from);
  bytes = bytes * kKeptOfTime + static_cast<double>(stored_bytes);
}

void CodedCore::written(PutOp& op, const std::vector<size_t>& which, const std::vector<Code>& codes,
                        const std::shared_ptr<PutOp>& keep) {
  const MemoryWait no_error_path;
  PutOps over;
  {
    MutexLock lock(mutex_);
    watch_encoding();
    --writing_;
    bool last = false;
    for (size_t k = 0; k < which.size(); ++k) last = settle(op, which[k], codes[k]);
    if (last) over.push_back(keep);
  }
  end(over);
  pump_writes();
}

// Ends records that wait for memory. Those being encoded end by themselves, those sent are the inner tier's to end.
void CodedCore::expire_puts(uint64_t now) {
  PutOps over;
  {
    MutexLock lock(mutex_);
    for (const auto& op : put_queue_) {
      if (op->batch->deadline_ns > now) continue;
      bool last = false;
      for (; op->next < op->pieces.size(); ++op->next) {
        last = settle(*op, op->next, op->pieces[op->next].erased ? Code::ok : Code::deadline);
      }
      if (last) over.push_back(op);
    }
  }
  end(over);
  pump_writes();
}

// Returns true if it was the last item of its batch.
bool CodedCore::settle(PutOp& op, size_t i, Code code) {
  op.batch->status[i] = code;
  write_staging_.give(std::move(op.pieces[i].staging));
  return --op.open == 0;
}

void CodedCore::end(PutOps& over) {
  if (over.empty()) return;
  for (const auto& op : over) op->batch->done(*op->batch);
  {
    MutexLock lock(mutex_);
    for (const auto& op : over) puts_.erase(std::find(puts_.begin(), puts_.end(), op));
    in_flight_ -= over.size();
  }
  maybe_closed();
}

// Counts the time since the last call as busy, and as starved if nothing was being written although at least two chunks
// wait for encoding.
void CodedCore::watch_encoding() {
  const uint64_t now = executor_.clock().now_ns();
  const uint64_t passed = now - std::min(now, watched_ns_);
  watched_ns_ = now;
  if (puts_.empty()) return;
  busy_ns_ += passed;
  if (writing_ == 0 && chunks_.size() >= 2) starved_ns_ += passed;
  if (busy_ns_ < kWatchNs) return;
  const bool held_up = starved_ns_ > busy_ns_ / 2;
  busy_ns_ = starved_ns_ = 0;
  if (held_up && (!options_.automatic || choice_.held_up(now))) ++counts_.stepped_down;
}

// ---- Forgetting ----

void CodedCore::forget(std::span<const Identity> ids) {
  MutexLock lock(mutex_);
  if (puts_.empty()) return;
  std::vector<Identity> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  for (const auto& op : puts_) {
    for (size_t i = 0; i < op->pieces.size(); ++i) {
      if (std::binary_search(sorted.begin(), sorted.end(), op->batch->items[i].id)) op->pieces[i].erased = true;
    }
  }
  if (sending_ != nullptr) forgotten_.insert(forgotten_.end(), ids.begin(), ids.end());
}

void CodedCore::forget_families(std::span<const FamilyId> gone) {
  MutexLock lock(mutex_);
  for (const FamilyId family : gone) {
    choice_.forget(family);
    coded_.erase(family);
  }
}

void CodedCore::forget(FamilyId family) {
  MutexLock lock(mutex_);
  for (const auto& op : puts_) {
    for (size_t i = 0; i < op->pieces.size(); ++i) {
      if (op->batch->items[i].id.family == family) op->pieces[i].erased = true;
    }
  }
  if (sending_ == nullptr) return;
  for (size_t i = sending_->first; i < sending_->first + sending_->n; ++i) {
    const Identity& id = sending_->op->batch->items[i].id;
    if (id.family == family) forgotten_.push_back(id);
  }
}

}  // namespace kvbm::tier::coded
