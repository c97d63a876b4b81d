#include "cluster/tier/peer_fetch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/thread/memory_wait.h"
#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"

namespace kvbm::cluster {

namespace {

// Limit of bytes copied on the links' thread: less than the cost of handing them to another thread and back (30 to 60
// us here).
constexpr size_t kCopyHere = 256ULL << 10;
// Limits for coded bytes: decoding takes about twice as long as copying, and a smaller task would cost more than it
// gains.
constexpr size_t kDecodeHere = 64ULL << 10;
constexpr size_t kDecodeTask = 256ULL << 10;

// A node that has no memory to lend is asked again every kAskAgainNs, for kRoomWaitNs in all.
constexpr uint64_t kRoomWaitNs = 1'000'000'000;
constexpr uint64_t kAskAgainNs = 200'000;

// Copies a payload from staging to its place, and compares each leaf on the way. The link has checked the head.
Code copy_checked(MutableBytes to, const codec::HeadView& head, ConstBytes payload) {
  const codec::CopiesOrdered of_all_leaves;
  for (uint32_t i = 0; i < head.header().leaf_count; ++i) {
    const codec::Leaf leaf = head.leaf(i);
    const uint64_t hash = codec::copy_hashed(to.data() + leaf.offset, payload.data() + leaf.offset, leaf.stored_bytes,
                                             codec::CopyHint::automatic, codec::CopyOrder::later);
    if (hash != leaf.hash) return Code::damaged;
  }
  return Code::ok;
}

}  // namespace

void PeerFetch::get(std::unique_ptr<tier::GetBatch> batch) {
  auto op = std::make_shared<GetOp>();
  const size_t n = batch->items.size();
  const bool open = context_->enter();
  batch->status.assign(n, open ? Code::miss : Code::closed);
  op->where.resize(n);
  op->left.store(n + 1, std::memory_order_relaxed);
  op->deadline_ns = batch->deadline_ns;
  op->batch = std::move(batch);
  if (!open) {
    context_->executor.post([op] { op->batch->done(*op->batch); });
    return;
  }
  std::vector<size_t> known;
  std::vector<size_t> here;
  known.reserve(n);
  uint64_t bytes = 0;
  for (size_t i = 0; i < n; ++i) {
    if (context_->places.locate(op->batch->items[i].id, op->where[i])) {
      tier::InPlace place;
      (in_place_.find(op->where[i], place) ? here : known).push_back(i);
      bytes += round_up(room_of(op->where[i]), kIoAlign);
    } else {
      context_->places.count_miss();
    }
  }
  op->lends = op->batch->accepts.verifies && op->batch->accepts.borrows && bytes <= staging_.limit() / 2;
  const size_t settled = n - known.size() - here.size();
  read_here(op, here);
  if (known.empty()) return items_done(op, settled + 1);
  context_->mesh.executor().post([self = shared_from_this(), op, settled, known = std::move(known)] {
    self->items_done(op, settled + 1);
    self->begin(op, known);
  });
}

void PeerFetch::begin(const std::shared_ptr<GetOp>& op, const std::vector<size_t>& items) {
  for (const size_t i : items) waiting_.push_back({op, i});
  first_late_ns_ = std::min(first_late_ns_, op->deadline_ns);
  pump();
}

void PeerFetch::staging_quiet(uint64_t cookie) {
  const auto known = quarantine_.find(cookie);
  if (known == quarantine_.end()) return;
  staging_.give_back(known->second);
  quarantine_.erase(known);
  // May be the last reference to this object.
  const std::shared_ptr<PeerFetch> self = quarantine_.empty() ? std::move(self_) : self_;
  pump();
}

// ---- Requests ----

// Sends what staging allows, in order, each node's share in requests of kFetchBytes. Whether a record can be read
// otherwise than over its node's link is decided here, before its staging is taken.
void PeerFetch::pump() {
  while (!waiting_.empty()) {
    const NodeId node = where(waiting_.front()).node;
    PeerLink* const link = context_->mesh.link_to(node);
    auto batch = std::make_unique<FetchBatch>();
    batch->deadline_ns = context_->latest_ns();
    const std::shared_ptr<Request> request = ask(node);
    if (request != nullptr) batch->coding = request->asked.coding;
    Pieces pieces;
    uint64_t bytes = 0;
    bool starved = false;
    while (!waiting_.empty() && where(waiting_.front()).node == node && pieces.size() < kFetchItems &&
           bytes < kFetchBytes) {
      const Waiting next = waiting_.front();
      if (refused(next, link)) {
        waiting_.pop_front();
        continue;
      }
      bool none = false;
      const MutableBytes staging = take_staging(room_of(where(next)), none);
      starved = staging.empty() && !none;
      if (starved) break;
      waiting_.pop_front();
      if (none) {
        end_item(next, Code::no_memory);
        continue;
      }
      FetchItem one;
      one.id = item(next).id;
      one.location = where(next).hint;
      one.staging = staging;
      one.cookie = ++last_cookie_;
      batch->deadline_ns = std::min(batch->deadline_ns, next.op->deadline_ns);
      batch->items.push_back(std::move(one));
      pieces.push_back({next, staging, 0, 0, false, request});
      bytes += where(next).head_bytes + where(next).payload_bytes;
    }
    if (pieces.empty()) {
      if (starved) return end_late();  // released staging continues this
      continue;
    }
    batch->owner = this;
    batch->done = [self = shared_from_this(), pieces = std::move(pieces)](FetchBatch& answer) mutable {
      self->fetched(answer, pieces);
    };
    link->fetch(std::move(batch));
  }
}

// Ends an item that cannot be requested.
bool PeerFetch::refused(const Waiting& next, const PeerLink* link) {
  const Place& place = where(next);
  Code code = Code::ok;
  if (now_ns() >= next.op->deadline_ns) {
    code = Code::deadline;
  } else if (link == nullptr) {
    context_->places.forget_holder(item(next).id, place.index);
    code = Code::owner_gone;
  } else if (!staging_.fits(room_of(place))) {
    code = Code::no_room;
  }
  if (code == Code::ok) return false;
  end_item(next, code);
  return true;
}

// Sets starved_ before the second try, so that a release in between sees it.
MutableBytes PeerFetch::take_staging(size_t bytes, bool& none) {
  const MutableBytes first = staging_.take(bytes, none);
  if (!first.empty() || none) return first;
  starved_.store(true, std::memory_order_seq_cst);
  return staging_.take(bytes, none);
}

void PeerFetch::give_back(MutableBytes staging) {
  staging_.give_back(staging);
  if (!starved_.load(std::memory_order_seq_cst) || !starved_.exchange(false)) return;
  context_->mesh.executor().post([self = shared_from_this()] { self->pump(); });
}

// Ends items that wait for staging past their deadline, and sets a timer for the next deadline.
void PeerFetch::end_late() {
  if (first_late_ns_ <= now_ns()) {
    const uint64_t now = now_ns();
    std::deque<Waiting> all;
    all.swap(waiting_);
    first_late_ns_ = kNever;
    for (Waiting& one : all) {
      if (one.op->deadline_ns <= now) {
        end_item(one, Code::deadline);
      } else {
        first_late_ns_ = std::min(first_late_ns_, one.op->deadline_ns);
        waiting_.push_back(std::move(one));
      }
    }
  }
  if (first_late_ns_ >= armed_ns_) return;
  armed_ns_ = first_late_ns_;
  context_->mesh.executor().post_at(armed_ns_, [weak = weak_from_this(), at = armed_ns_] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    if (self->armed_ns_ == at) self->armed_ns_ = kNever;
    self->pump();
  });
}

// ---- Answers ----

void PeerFetch::fetched(FetchBatch& answer, Pieces& pieces) {
  Pieces good;
  good.reserve(pieces.size());
  std::vector<Identity> unplaced;
  const NodeId node = where(pieces.front().what).node;  // all pieces of one request are of one node
  for (size_t i = 0; i < pieces.size(); ++i) {
    const FetchItem& one = answer.items[i];
    if (one.status == Code::ok) {
      pieces[i].what.op->no_room_since_ns = 0;
      if (in_place_.worth_asking(where(pieces[i].what))) unplaced.push_back(one.id);
      pieces[i].head_bytes = one.head_bytes;
      pieces[i].bytes = one.head_bytes + one.payload_bytes;
      if (const Code code = look(pieces[i], one); code == Code::ok) {
        good.push_back(std::move(pieces[i]));
      } else {
        staging_.give_back(pieces[i].staging);
        context_->places.forget_holder(one.id, where(pieces[i].what).index);
        end_item(pieces[i].what, code);
      }
    } else {
      failed(one, pieces[i]);
    }
  }
  if (!good.empty()) arrived(std::move(good));
  if (!unplaced.empty()) ask_again(node, std::move(unplaced));
  pump();
}

void PeerFetch::failed(const FetchItem& said, const Piece& piece) {
  if (said.quarantined) {
    quarantine_.emplace(said.cookie, piece.staging);
    self_ = shared_from_this();
  } else {
    staging_.give_back(piece.staging);
  }
  // The node has memory again when its lent records are released.
  uint64_t& since = piece.what.op->no_room_since_ns;
  if (said.status == Code::no_room && since == 0) since = now_ns();
  if (said.status == Code::no_room && now_ns() - since < kRoomWaitNs) return ask_later(piece.what);
  const bool gone = said.status == Code::miss || said.status == Code::no_room || said.status == Code::owner_gone ||
                    said.status == Code::mismatch || said.status == Code::damaged;
  if (gone) context_->places.forget_holder(said.id, where(piece.what).index);
  // A record of another size than was reported counts as gone, until the node is asked again.
  end_item(piece.what, said.status == Code::no_room ? Code::miss : said.status);
}

void PeerFetch::ask_later(const Waiting& what) {
  later_.push_back(what);
  if (later_.size() != 1) return;
  context_->mesh.executor().post_at(now_ns() + kAskAgainNs, [self = shared_from_this()] {
    for (Waiting& one : self->later_) {
      self->first_late_ns_ = std::min(self->first_late_ns_, one.op->deadline_ns);
      self->waiting_.push_back(std::move(one));
    }
    self->later_.clear();
    self->pump();
  });
}

// Ends records that are lent, and small ones that the receiver checks; the others are copied on other threads.
void PeerFetch::arrived(Pieces pieces) {
  Pieces rest;
  for (Piece& piece : pieces) {
    const tier::GetBatch& batch = *piece.what.op->batch;
    const size_t most = piece.coded ? kDecodeHere : kCopyHere;
    if ((piece.what.op->lends && !piece.coded) || (batch.accepts.verifies && piece.bytes <= most)) {
      end_item(piece.what, deliver(piece));
    } else {
      rest.push_back(std::move(piece));
    }
  }
  elsewhere(std::move(rest));
}

// Posts tasks that are worth a turn of the executor each, so that its threads decode in parallel.
void PeerFetch::elsewhere(Pieces pieces) {
  Pieces some;
  size_t coded = 0;
  for (Piece& piece : pieces) {
    if (piece.coded) coded += piece.bytes;
    some.push_back(std::move(piece));
    if (coded < kDecodeTask && &piece != &pieces.back()) continue;
    context_->executor.post(
        [self = shared_from_this(), task = std::exchange(some, {})]() mutable { self->copy_out(std::move(task)); });
    coded = 0;
  }
}

// Runs on the core's executor.
void PeerFetch::copy_out(Pieces pieces) {
  for (Piece& piece : pieces) {
    const Waiting what = piece.what;
    const Code code = deliver(piece);
    piece.request.reset();
    end_item(what, code);
  }
}

Code PeerFetch::deliver(const Piece& piece) {
  const tier::GetBatch& batch = *piece.what.op->batch;
  tier::GetItem& target = item(piece.what);
  const ConstBytes head = piece.head();
  const ConstBytes payload = piece.payload();
  const bool fits = piece.coded || (head.size() <= target.head.size() && payload.size() <= target.payload.size());
  Code code = fits ? Code::ok : Code::mismatch;
  if (code == Code::ok && piece.coded) {
    code = decode(piece);
  } else if (code == Code::ok) {
    std::memcpy(target.head.data(), head.data(), head.size());
    target.head_bytes = piece.head_bytes;
    target.payload_bytes = payload.size();
    if (piece.what.op->lends) return lend(target, payload, piece.staging);
    if (batch.accepts.verifies) {
      std::memcpy(target.payload.data(), payload.data(), payload.size());
    } else {
      const auto view = codec::HeadView::parse(head);
      code = view.ok() ? copy_checked(target.payload, view.value(), payload) : view.status().code();
    }
  }
  give_back(piece.staging);
  if (code != Code::ok) context_->places.reject(target.id);
  return code;
}

// Lends staging that a receiver reads in place; counts as a call, so that the tier does not end before it.
Code PeerFetch::lend(tier::GetItem& target, ConstBytes payload, MutableBytes staging) {
  if (!context_->enter()) {
    give_back(staging);
    return Code::closed;
  }
  target.lent = payload;
  target.lender = std::shared_ptr<void>(staging.data(), [self = shared_from_this(), staging](void*) {
    const MemoryWait until_woken;  // fetches may wait for this staging
    self->give_back(staging);
    self->context_->leave();
  });
  return Code::ok;
}

void PeerFetch::end_item(const Waiting& what, Code code) {
  what.op->batch->status[what.item] = code;
  context_->places.count_get(code, item(what).payload_bytes);
  items_done(what.op, 1);
}

void PeerFetch::items_done(const std::shared_ptr<GetOp>& op, size_t n) {
  if (op->left.fetch_sub(n, std::memory_order_acq_rel) != n) return;
  if (op->batch->accepts.verifies) {
    op->batch->done(*op->batch);
    context_->leave();
    return;
  }
  context_->executor.post([self = shared_from_this(), op] {
    op->batch->done(*op->batch);
    self->context_->leave();
  });
}

}  // namespace kvbm::cluster
