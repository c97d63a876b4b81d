// The way up. Plain records are read straight into their target, coded ones into this tier's memory and decoded from
// there.
//
// A receiver that decodes itself (Accepts::decodes) is handed coded records on: hand_on.h.
//
// Only the head says whether a record is coded, and it is read together with the payload. So this is guessed: by the
// size where all plain payloads of a family have one size, else by the last record read. A wrong guess costs a copy or
// a second read.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/thread/memory_wait.h"
#include "codec/hash/leaf_hash.h"
#include "tier/coded/coded_core.h"

namespace kvbm::tier::coded {

namespace {

// Least work of one decoding task, in plain bytes.
constexpr uint64_t kDecodeTaskBytes = uint64_t{512} << 10;

std::string hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t b : bytes) {
    text += kDigits[b >> 4];
    text += kDigits[b & 15];
  }
  return text;
}

}  // namespace

void CodedCore::get(std::unique_ptr<GetBatch> batch) {
  const MemoryWait until_done;
  Tier* const below = inner();
  if (below == nullptr) return end_closed(std::move(batch));
  auto op = std::make_shared<GetOp>();
  const size_t n = batch->items.size();
  const uint64_t deadline = batch->deadline_ns;
  batch->status.assign(n, Code::again);
  op->batch = std::move(batch);
  op->places.resize(n);
  op->open = n;
  std::vector<Identity> ids(n);
  std::vector<Found> found(n);
  for (size_t i = 0; i < n; ++i) ids[i] = op->batch->items[i].id;
  below->find(ids, found, false);
  bool refused = n == 0;
  {
    MutexLock lock(mutex_);
    ++in_flight_;
    if (stopping_) {
      for (size_t i = 0; i < n; ++i) settle(*op, i, Code::closed);
      refused = true;
    } else if (n != 0) {
      place(*op, found);
      if (options_.automatic && deadline != kNever) {
        const uint64_t now = executor_.clock().now_ns();
        uint64_t bytes = 0;
        for (const Place& one : op->places) bytes += one.stored_bytes;
        choice_.asked(bytes, deadline - std::min(now, deadline));
      }
      get_queue_.push_back(op);
    }
  }
  if (refused) {
    executor_.post([self = shared_from_this(), over = GetOps{op}]() mutable { self->end(over); });
    return;
  }
  if (deadline != kNever) {
    executor_.post_at(deadline, [weak = weak_from_this(), deadline] {
      if (const auto self = weak.lock()) self->expire(deadline);
    });
  }
  pump_reads();
}

// Guesses which items are coded.
void CodedCore::place(GetOp& op, std::span<const Found> found) {
  std::shared_ptr<const FamilyTerms> known;
  for (size_t i = 0; i < op.places.size(); ++i) {
    Place& place = op.places[i];
    const FamilyId family = op.batch->items[i].id.family;
    if (i == 0 || op.batch->items[i - 1].id.family != family) known = terms(family);
    place.head_bytes = found[i].head_bytes;
    place.stored_bytes = found[i].payload_bytes;
    const bool one_size = known != nullptr && known->plain_bytes != 0;
    const GetItem& item = op.batch->items[i];
    // A seal makes the stored record longer than its target.
    const bool longer = place.stored_bytes > item.payload.size() || place.head_bytes > item.head.size();
    const bool coded = one_size ? place.stored_bytes != known->plain_bytes : coded_.count(family) != 0;
    place.staged = found[i].present && (longer || coded);
    // A receiver that decodes gets the record at the place where hand_on() leaves it. Sealed records are opened on
    // their way there.
    const bool as_it_is = op.batch->accepts.decodes && options_.keys == nullptr && place.staged && !longer;
    if (as_it_is) place.landing = landing_of(item.payload, place.stored_bytes);
    op.unasked.push_back(i);
  }
}

void CodedCore::pump_reads() {
  for (;;) {
    Tier* const below = inner();
    std::unique_ptr<GetBatch> ask;
    GetOps over;
    uint64_t bytes = 0;
    {
      MutexLock lock(mutex_);
      if (below == nullptr) {
        over = close_unasked();
      } else if (!get_queue_.empty()) {
        ask = next_ask(over, bytes);
      }
    }
    if (!over.empty()) {
      executor_.post([self = shared_from_this(), over = std::move(over)]() mutable { self->end(over); });
    }
    if (ask == nullptr) return;
    if (options_.measure) {
      auto answer = options_.measure(executor_.clock().now_ns(), bytes);
      ask->done = [self = shared_from_this(), then = std::move(ask->done),
                   answer = std::move(answer)](GetBatch& done) mutable {
        uint64_t got = 0;
        for (size_t i = 0; i < done.items.size(); ++i)
          got += done.status[i] == Code::ok ? done.items[i].payload_bytes : 0;
        answer(self->executor_.clock().now_ns(), got);
        then(done);
      };
    }
    below->get(std::move(ask));
  }
}

// Takes as many items of the first batch as there is memory for. Null: nothing now.
std::unique_ptr<GetBatch> CodedCore::next_ask(GetOps& over, uint64_t& bytes) {
  auto ask = std::make_unique<GetBatch>();
  std::vector<size_t> which;
  std::shared_ptr<GetOp> op;
  while (!get_queue_.empty() && which.empty()) {
    op = get_queue_.front();
    while (!op->unasked.empty()) {
      const size_t i = op->unasked.front();
      Place& place = op->places[i];
      GetItem item = op->batch->items[i];
      if (place.staged) {
        const uint64_t head = round_up(place.head_bytes, kIoAlign);
        const bool lands = place.landing != kNoLanding;
        auto room = read_staging_.take(head + (lands ? 0 : round_up(place.stored_bytes, kIoAlign)));
        if (!room.has_value()) break;
        place.staging = std::move(*room);
        if (place.staging.data() == nullptr) {
          op->unasked.pop_front();
          if (settle(*op, i, Code::no_memory)) over.push_back(op);
          continue;
        }
        item.head = place.staging.span().first(head);
        item.payload = lands ? item.payload.subspan(place.landing) : place.staging.span().subspan(head);
      }
      op->unasked.pop_front();
      bytes += place.stored_bytes;
      ask->items.push_back(std::move(item));
      which.push_back(i);
    }
    if (!op->unasked.empty()) break;  // the rest waits for memory
    get_queue_.pop_front();
  }
  if (which.empty()) return nullptr;
  ask->status.assign(which.size(), Code::internal);
  ask->deadline_ns = op->batch->deadline_ns;
  ask->accepts.verifies = op->batch->accepts.verifies;
  ask->accepts.borrows = op->batch->accepts.borrows;
  ask->done = [self = shared_from_this(), op, which = std::move(which)](GetBatch& done) {
    self->came(op, which, done);
  };
  return ask;
}

// Runs on any thread, as the receiver allows. Plain records are done; tasks decode the others.
void CodedCore::came(const std::shared_ptr<GetOp>& op, const std::vector<size_t>& which, GetBatch& batch) {
  const MemoryWait no_error_path;
  std::vector<std::pair<size_t, Code>> ended;
  std::vector<Arrived> arrived;
  for (size_t k = 0; k < which.size(); ++k) {
    const size_t i = which[k];
    Code code = batch.status[k];
    // Another record, of another size, was there when it was read.
    if (code == Code::invalid_argument && op->places[i].staged) code = Code::miss;
    if (code == Code::ok) code = take(op, i, batch.items[k], arrived);
    if (code != Code::again) ended.emplace_back(i, code);
  }
  for (size_t first = 0; first < arrived.size();) {
    std::vector<Arrived> task;
    for (uint64_t bytes = 0; first < arrived.size() && bytes < kDecodeTaskBytes; ++first) {
      bytes += arrived[first].second.payload_bytes;
      task.push_back(std::move(arrived[first]));
    }
    executor_.post([self = shared_from_this(), op, task = std::move(task)] { self->decode(op, task); });
  }
  GetOps over;
  {
    MutexLock lock(mutex_);
    bool last = false;
    for (const auto& [i, code] : ended) last = settle(*op, i, code);
    if (last) over.push_back(op);
  }
  end(over);
  pump_reads();
}

// Checks that a plain record may be used as it is. Otherwise a writer on the medium could leave out a seal, or the flag
// that says lossy.
Code CodedCore::allow_plain(const codec::HeadView& head, const Identity& id, uint64_t location) {
  const uint16_t flags = head.header().flags;
  if (options_.keys == nullptr && (flags & codec::kLossy) == 0) return Code::ok;
  const auto known = terms(id.family);
  const Status allowed = codec::permitted(head, {options_.keys.get(), known != nullptr && known->allow_lossy, false});
  if (allowed.ok()) return Code::ok;
  CodecStats counts;
  const Code code = refuse(allowed, location, id, head.header(), counts);
  give(nullptr, counts);
  return code;
}

// Takes a record that was read. ok: it is in its place; again: it will be decoded, or read again.
Code CodedCore::take(const std::shared_ptr<GetOp>& op, size_t i, GetItem& got, std::vector<Arrived>& arrived) {
  GetItem& item = op->batch->items[i];
  Place& place = op->places[i];
  const auto head = codec::HeadView::parse(ConstBytes(got.head).first(got.head_bytes));
  if (!head.ok()) return Code::damaged;
  const bool coded = codec::is_coded(head.value());
  if (!coded) {
    const Code code = allow_plain(head.value(), item.id, got.location);
    if (code != Code::ok) return code;
  }
  {
    MutexLock lock(mutex_);
    if (coded) {
      coded_.insert(item.id.family);
    } else if (!coded_.empty()) {
      coded_.erase(item.id.family);
    }
    if (coded && !place.staged) {
      place.staged = true;
      place.head_bytes = got.head_bytes;
      place.stored_bytes = got.payload_bytes;
      if (stopping_) return Code::closed;
      if (op->unasked.empty()) get_queue_.push_front(op);
      op->unasked.push_back(i);
      return Code::again;
    }
  }
  item.location = got.location;
  if (!place.staged) {
    item.head_bytes = got.head_bytes;
    item.payload_bytes = got.payload_bytes;
    item.lent = got.lent;
    item.lender = std::move(got.lender);
    return Code::ok;
  }
  arrived.emplace_back(i, std::move(got));
  return Code::again;
}

void CodedCore::decode(const std::shared_ptr<GetOp>& op, const std::vector<Arrived>& arrived) {
  const MemoryWait no_error_path;
  std::vector<Code> codes;
  codes.reserve(arrived.size());
  std::vector<Decoded> decoded;
  CodecStats counts;
  auto workspace = take_workspace();
  for (const auto& [i, record] : arrived) {
    const bool late = executor_.clock().now_ns() >= op->batch->deadline_ns;
    codes.push_back(late ? Code::deadline : decode_one(*op->batch, i, record, *workspace, counts, decoded));
  }
  codec::order_copies();
  give(std::move(workspace), counts);
  GetOps over;
  {
    MutexLock lock(mutex_);
    for (const Decoded& one : decoded) choice_.decoded(one.family, one.level, one.plain_bytes, one.ns);
    bool last = false;
    for (size_t k = 0; k < arrived.size(); ++k) last = settle(*op, arrived[k].first, codes[k]);
    if (last) over.push_back(op);
  }
  end(over);
  pump_reads();
}

// Level of a record coded in `mode`, if its namespace is configured for this mode. nullopt: stored under an earlier
// configuration.
std::optional<TierChoice::Level> CodedCore::level_of(codec::Mode mode, const FamilyTerms* terms) noexcept {
  if (mode == codec::Mode::off) return TierChoice::Level::off;
  if (terms != nullptr && !terms->recipe.rules.empty()) {
    const auto& rules = terms->recipe.rules;
    const bool asked = std::any_of(rules.begin(), rules.end(), [&](const auto& rule) { return rule.mode == mode; });
    return asked ? std::optional(TierChoice::Level::standard) : std::nullopt;
  }
  for (const auto level : {TierChoice::Level::fast, TierChoice::Level::standard, TierChoice::Level::max}) {
    if (TierChoice::mode_of(level) == mode) return level;
  }
  return std::nullopt;
}

Code CodedCore::decode_one(GetBatch& batch, size_t i, const GetItem& from, codec::Workspace& workspace,
                           CodecStats& counts, std::vector<Decoded>& decoded_here) {
  GetItem& item = batch.items[i];
  const ConstBytes stored_head = ConstBytes(from.head).first(from.head_bytes);
  const ConstBytes stored = from.lender != nullptr ? from.lent : ConstBytes(from.payload).first(from.payload_bytes);
  const auto head = codec::HeadView::parse(stored_head);
  if (!head.ok()) return Code::damaged;
  const codec::Header& header = head.value().header();
  const bool coded = codec::is_coded(head.value());
  const uint64_t bytes = coded ? header.raw_bytes : stored.size();
  const size_t head_bytes = coded ? codec::plain_head_bytes(head.value()) : stored_head.size();
  if (item.head.size() < head_bytes || item.payload.size() < bytes) return Code::invalid_argument;
  if (coded) {
    const auto known = terms(item.id.family);
    // The inner tier compared the stored bytes with their hashes, unless the receiver does that.
    const codec::DecodeRules rules{options_.keys.get(), known != nullptr && known->allow_lossy,
                                   !batch.accepts.verifies};
    std::optional<codec::Mode> mode;
    const uint64_t began = executor_.clock().now_ns();
    const Status decoded =
        batch.accepts.decodes
            ? hand_on(item, head.value(), stored, from.lender, rules, batch.accepts.decodes, workspace)
            : codec::decode_record(head.value(), stored, rules, 0, 0, item.head.first(head_bytes),
                                   item.payload.first(bytes), workspace, &mode);
    if (!decoded.ok()) return refuse(decoded, from.location, item.id, header, counts);
    if (item.coded.empty()) {
      const uint64_t took = executor_.clock().now_ns() - began;
      counts.decode_ns += took;
      ++counts.decoded;
      counts.decoded_bytes += bytes;
      const auto level = options_.automatic && mode.has_value() ? level_of(*mode, known.get()) : std::nullopt;
      if (level.has_value()) decoded_here.push_back({item.id.family, *level, bytes, took});
    }
  } else {
    std::memcpy(item.head.data(), stored_head.data(), head_bytes);
    std::memmove(item.payload.data(), stored.data(), bytes);  // ranges overlap if hand_on() landed it here
  }
  item.head_bytes = static_cast<uint32_t>(head_bytes);
  item.payload_bytes = bytes;
  return Code::ok;
}

// Handles a record that does not decode. Only a damaged one is deleted.
Code CodedCore::refuse(const Status& why, uint64_t location, const Identity& id, const codec::Header& header,
                       CodecStats& counts) {
  switch (why.code()) {
    case Code::damaged:
      ++counts.damaged;
      if (Tier* const below = inner(); below != nullptr) below->reject(id, location);
      return Code::damaged;
    case Code::not_permitted:
      if ((header.flags & codec::kLossy) == 0) {
        ++counts.missing_keys;
        say_once("a record that is not sealed", "it was not read: with seal.key_file all must be");
        return Code::miss;
      }
      ++counts.refused_lossy;
      say_once("namespace " + hex(header.ns.bytes),
               "a lossy record was not read: no namespace here allows it (allow_lossy)");
      return Code::miss;
    case Code::mismatch:
      ++counts.missing_keys;
      say_once("key id " + std::to_string(header.key_id), "a sealed record was not read: seal.key_file lacks its key");
      return Code::miss;
    case Code::newer_version:
      say_once("codec of a newer version", "a record was not read: a later version of this library coded it");
      return Code::miss;
    case Code::unsupported:
      say_once("zstd", "a record was not read: it is coded with zstd, which this build is without");
      return Code::miss;
    default:
      return why.code();
  }
}

// Ends the items that were not yet requested from the inner tier. Returns the batches that are complete now.
CodedCore::GetOps CodedCore::close_unasked() {
  GetOps over;
  for (const auto& op : get_queue_) {
    bool last = false;
    for (const size_t i : std::exchange(op->unasked, {})) last = settle(*op, i, Code::closed);
    if (last) over.push_back(op);
  }
  get_queue_.clear();
  return over;
}

void CodedCore::expire(uint64_t now) {
  GetOps over;
  {
    MutexLock lock(mutex_);
    for (auto at = get_queue_.begin(); at != get_queue_.end();) {
      GetOp& op = **at;
      if (op.batch->deadline_ns > now) {
        ++at;
        continue;
      }
      bool last = false;
      for (const size_t i : std::exchange(op.unasked, {})) last = settle(op, i, Code::deadline);
      if (last) over.push_back(*at);
      at = get_queue_.erase(at);
    }
  }
  end(over);
}

bool CodedCore::settle(GetOp& op, size_t i, Code code) {
  op.batch->status[i] = code;
  read_staging_.give(std::move(op.places[i].staging));
  return --op.open == 0;
}

void CodedCore::end(GetOps& over) {
  if (over.empty()) return;
  for (const auto& op : over) op->batch->done(*op->batch);
  {
    MutexLock lock(mutex_);
    in_flight_ -= over.size();
  }
  maybe_closed();
}

}  // namespace kvbm::tier::coded
