#include "cluster/peer_fetch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "codec/leaf_hash.h"
#include "codec/record.h"

namespace kvbm::cluster {

namespace {

// What one request to a node carries at most, so that copies begin while the rest is still on its way.
constexpr uint64_t kFetchBytes = 8ULL << 20;
constexpr size_t kFetchItems = 256;

// Head and payload of a record out of staging into the places of a get, each leaf compared as it is copied.
Code settle(tier::GetItem& item, const Family& family, ConstBytes staged) {
  const auto arrived = check_arrival(staged, family, item.id.key, 0, 0);
  if (!arrived.ok()) return arrived.status().code();
  const codec::HeadView& head = arrived.value().head;
  const ConstBytes payload = arrived.value().payload;
  if (head.head_bytes() > item.head.size() || payload.size() > item.payload.size()) return Code::mismatch;
  std::memcpy(item.head.data(), staged.data(), head.head_bytes());
  for (uint32_t i = 0; i < head.header().leaf_count; ++i) {
    const codec::Leaf leaf = head.leaf(i);
    const uint64_t hash = codec::copy_hashed(item.payload.data() + leaf.offset, payload.data() + leaf.offset,
                                             leaf.stored_bytes, codec::CopyHint::automatic);
    if (hash != leaf.hash) return Code::damaged;
  }
  item.head_bytes = static_cast<uint32_t>(head.head_bytes());
  item.payload_bytes = payload.size();
  return Code::ok;
}

}  // namespace

void PeerFetch::get(std::unique_ptr<tier::GetBatch> batch) {
  auto op = std::make_shared<GetOp>();
  const size_t n = batch->items.size();
  const bool open = commons_->enter();
  batch->status.assign(n, open ? Code::miss : Code::closed);
  op->where.resize(n);
  op->left.store(n + 1, std::memory_order_relaxed);
  op->deadline_ns = batch->deadline_ns;
  op->batch = std::move(batch);
  if (!open) {
    commons_->executor.post([op] { op->batch->done(*op->batch); });
    return;
  }
  std::vector<size_t> known;
  std::vector<size_t> here;
  for (size_t i = 0; i < n; ++i) {
    if (commons_->places.locate(op->batch->items[i].id, op->where[i])) {
      tier::InPlace place;
      (in_place_.find(op->where[i], place) ? here : known).push_back(i);
    } else {
      commons_->places.count_miss();
    }
  }
  const size_t settled = n - known.size() - here.size();
  read_here(op, here);
  if (known.empty()) return items_done(op, settled + 1);
  commons_->mesh.executor().post([self = shared_from_this(), op, settled, known = std::move(known)] {
    for (const size_t i : known) self->waiting_.push_back({op, i});
    self->items_done(op, settled + 1);
    self->pump();
  });
}

void PeerFetch::staging_quiet(uint64_t cookie) {
  const auto known = quarantine_.find(cookie);
  if (known == quarantine_.end()) return;
  staging_.give_back(known->second.staging);
  // What kept this object for the transport's sake may be the last that did.
  const std::shared_ptr<PeerFetch> self = std::move(known->second.self);
  quarantine_.erase(known);
  pump();
}

// Sends what staging allows, in order, each node's share in requests of kFetchBytes.
void PeerFetch::pump() {
  while (!waiting_.empty()) {
    const NodeId node = where(waiting_.front()).node;
    PeerLink* const link = commons_->mesh.link_to(node);
    auto batch = std::make_unique<FetchBatch>();
    batch->deadline_ns = commons_->latest_ns();
    auto pieces = std::make_shared<std::vector<Piece>>();
    uint64_t bytes = 0;
    while (!waiting_.empty() && where(waiting_.front()).node == node && pieces->size() < kFetchItems &&
           bytes < kFetchBytes) {
      const Waiting next = waiting_.front();
      const size_t size = where(next).head_bytes + where(next).payload_bytes;
      const bool late = commons_->mesh.executor().clock().now_ns() >= next.op->deadline_ns;
      if (link == nullptr || late || !staging_.fits(size)) {
        waiting_.pop_front();
        if (link == nullptr) commons_->places.forget_holder(item(next).id, where(next).index);
        end_item(next, late ? Code::deadline : link == nullptr ? Code::owner_gone : Code::no_room);
        continue;
      }
      const MutableBytes staging = staging_.take(size);
      if (staging.empty()) break;
      waiting_.pop_front();
      FetchItem one;
      one.id = item(next).id;
      one.location = where(next).hint;
      one.staging = staging;
      one.cookie = ++last_cookie_;
      batch->deadline_ns = std::min(batch->deadline_ns, next.op->deadline_ns);
      batch->items.push_back(std::move(one));
      pieces->push_back({next, staging, size});
      bytes += size;
    }
    if (pieces->empty()) {
      if (!waiting_.empty() && link != nullptr) return;  // staging comes back
      continue;
    }
    batch->owner = this;
    batch->done = [self = shared_from_this(), pieces](FetchBatch& answer) { self->fetched(answer, *pieces); };
    link->fetch(std::move(batch));
  }
}

void PeerFetch::fetched(FetchBatch& answer, std::vector<Piece>& pieces) {
  auto good = std::make_shared<std::vector<Piece>>();
  std::vector<Identity> unplaced;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const FetchItem& one = answer.items[i];
    Piece& piece = pieces[i];
    if (one.status == Code::ok) {
      piece.bytes = one.head_bytes + one.payload_bytes;
      good->push_back(piece);
      if (in_place_.worth_asking(where(piece.what))) unplaced.push_back(one.id);
      continue;
    }
    if (one.quarantined) {
      quarantine_.emplace(one.cookie, Quarantined{piece.staging, shared_from_this()});
    } else {
      staging_.give_back(piece.staging);
    }
    const bool gone = one.status == Code::miss || one.status == Code::no_room || one.status == Code::owner_gone ||
                      one.status == Code::mismatch || one.status == Code::damaged;
    if (gone) commons_->places.forget_holder(one.id, where(piece.what).index);
    // A record of another size than was heard of: as good as gone, until somebody asks again.
    end_item(piece.what, one.status == Code::no_room ? Code::miss : one.status);
  }
  if (!good->empty()) commons_->executor.post([self = shared_from_this(), good] { self->copy_out(*good); });
  // Pieces of one request are of one node.
  if (!unplaced.empty()) ask_again(where(pieces.front().what).node, std::move(unplaced));
  pump();
}

// On the core's executor.
void PeerFetch::copy_out(const std::vector<Piece>& pieces) {
  std::vector<Code> codes;
  for (const Piece& piece : pieces) {
    tier::GetItem& target = item(piece.what);
    codes.push_back(
        settle(target, commons_->families.get(target.id.family), ConstBytes(piece.staging).first(piece.bytes)));
    staging_.give_back(piece.staging);
    if (codes.back() != Code::ok) commons_->places.reject(target.id);
  }
  // Before the last item ends: with it the mesh may.
  commons_->mesh.executor().post([self = shared_from_this()] { self->pump(); });
  for (size_t i = 0; i < pieces.size(); ++i) end_item(pieces[i].what, codes[i]);
}

void PeerFetch::end_item(const Waiting& what, Code code) {
  what.op->batch->status[what.item] = code;
  commons_->places.count_get(code, item(what).payload_bytes);
  items_done(what.op, 1);
}

void PeerFetch::items_done(const std::shared_ptr<GetOp>& op, size_t n) {
  if (op->left.fetch_sub(n, std::memory_order_acq_rel) != n) return;
  commons_->executor.post([self = shared_from_this(), op] {
    op->batch->done(*op->batch);
    self->commons_->leave();
  });
}

}  // namespace kvbm::cluster
