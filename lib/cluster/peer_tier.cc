#include "cluster/peer_tier.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "cluster/locations.h"
#include "cluster/staging_pool.h"
#include "codec/leaf_hash.h"
#include "codec/record.h"

namespace kvbm::cluster {

namespace {

// Pools of so few nodes are asked whole; in larger ones a key's home is.
constexpr size_t kAskAll = 16;
// What one request to a node carries at most, so that copies begin while the rest is still on its way.
constexpr uint64_t kFetchBytes = 8ULL << 20;
constexpr size_t kFetchItems = 256;
// When a node that wanted a record is asked whether it has it: at first, and at most.
constexpr uint64_t kConfirmNs = 500'000;
constexpr uint64_t kConfirmMostNs = 50'000'000;

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

class PeerTier::Core final : public StagingOwner, public std::enable_shared_from_this<Core> {
 public:
  Core(const PeerTierOptions& options, Executor& core, FamilyTable& families, Mesh& mesh)
      : options_(options),
        executor_(core),
        families_(families),
        mesh_(mesh),
        staging_(options.staging_bytes),
        locations_({.memory_bytes = options.location_bytes}) {}

  // Where a record is.
  struct Place {
    NodeId node;
    NodeIndex index = kNoNode;
    uint32_t head_bytes = 0;
    uint64_t payload_bytes = 0;
    uint64_t hint = 0;
  };

  // ---- What is known ----

  void find(std::span<const Identity> ids, std::span<tier::Found> out) noexcept {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < ids.size(); ++i) {
      out[i] = {};
      Place known;
      if (!place_of(ids[i], known)) continue;
      out[i].present = true;
      out[i].head_bytes = known.head_bytes;
      out[i].payload_bytes = known.payload_bytes;
      out[i].location = 1;  // the identity says the rest
    }
  }

  void learn(const NodeFacts& node, std::span<const Offered> offered) {
    MutexLock lock(mutex_);
    for (const Offered& one : offered) {
      put_place(one.id, node, 0, one.item.head_bytes, one.item.payload_bytes, one.item.location);
    }
  }

  bool locate(const Identity& id, NodeId& node) {
    MutexLock lock(mutex_);
    Place known;
    if (!place_of(id, known)) return false;
    node = known.node;
    return true;
  }

  // All holders of these.
  void forget(std::span<const Identity> ids) {
    MutexLock lock(mutex_);
    for (const Identity& id : ids) forget_all(id);
  }

  void reject(const Identity& id) {
    MutexLock lock(mutex_);
    forget_all(id);
    ++stats_.damaged;
  }

  void forget_family(FamilyId family) {
    MutexLock lock(mutex_);
    forgotten_[family] = executor_.clock().now_ns();
  }

  [[nodiscard]] tier::TierStats stats() const {
    const uint64_t staged = staging_.used();
    MutexLock lock(mutex_);
    tier::TierStats out = stats_;
    out.staging_bytes = staged;
    out.index_bytes = locations_.bytes();
    return out;
  }

  // ---- Asking ----

  struct Question {
    std::vector<Identity> ids;
    uint64_t deadline_ns = kNever;
    UniqueFunction<void()> done;
    size_t waiting = 0;
  };

  void ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done) {
    auto question = std::make_shared<Question>();
    question->ids = std::move(ids);
    question->deadline_ns = deadline_ns;
    question->done = std::move(done);
    if (!enter()) {
      executor_.post([question] { question->done(); });
      return;
    }
    mesh_.executor().post([self = shared_from_this(), question] { self->put_question(question); });
  }

  // ---- Reading ----

  struct GetOp {
    std::unique_ptr<tier::GetBatch> batch;
    std::vector<Place> where;
    std::atomic<size_t> left{0};
    uint64_t deadline_ns = kNever;
  };

  void get(std::unique_ptr<tier::GetBatch> batch) {
    auto op = std::make_shared<GetOp>();
    const size_t n = batch->items.size();
    batch->status.assign(n, Code::miss);
    op->where.resize(n);
    op->left.store(n + 1, std::memory_order_relaxed);
    op->deadline_ns = batch->deadline_ns;
    op->batch = std::move(batch);
    const bool open = enter();
    std::vector<size_t> known;
    {
      MutexLock lock(mutex_);
      for (size_t i = 0; i < n; ++i) {
        const bool placed = place_of(op->batch->items[i].id, op->where[i]);
        if (placed && open) known.push_back(i);
        if (!placed) ++stats_.misses;
        if (!open) op->batch->status[i] = Code::closed;
      }
    }
    if (!open) {
      executor_.post([op] { op->batch->done(*op->batch); });
      return;
    }
    mesh_.executor().post([self = shared_from_this(), op, known = std::move(known)] {
      for (const size_t i : known) self->waiting_.push_back({op, i});
      self->items_done(op, op->where.size() - known.size() + 1);
      self->pump();
    });
  }

  // ---- Writing ----

  struct PutOp {
    std::unique_ptr<tier::PutBatch> batch;
    size_t offers = 0;  // and confirmations, that are not answered
    uint64_t deadline_ns = kNever;
  };

  void put(std::unique_ptr<tier::PutBatch> batch) {
    auto op = std::make_shared<PutOp>();
    op->batch = std::move(batch);
    op->deadline_ns = std::min(op->batch->deadline_ns, executor_.clock().now_ns() + options_.lease_ns);
    const bool open = enter();
    op->batch->status.assign(op->batch->items.size(), open ? Code::no_room : Code::closed);
    if (!open) {
      executor_.post([op] { op->batch->done(*op->batch); });
      return;
    }
    mesh_.executor().post([self = shared_from_this(), op] { self->offer(op); });
  }

  void announce(const NamespaceId& base_id, uint64_t epoch) {
    if (!enter()) return;
    mesh_.executor().post([self = shared_from_this(), base_id, epoch] {
      const uint64_t deadline_ns = self->mesh_.executor().clock().now_ns() + self->options_.call_ns;
      for (PeerLink* const link : self->mesh_.ready()) link->invalidate(base_id, epoch, deadline_ns, [](Code) {});
      self->leave();
    });
  }

  void shutdown(UniqueFunction<void()> done) {
    bool quiet = false;
    {
      MutexLock lock(mutex_);
      closing_ = true;
      closed_ = std::move(done);
      quiet = calls_ == 0;
    }
    if (quiet) finish();
  }

  void staging_quiet(uint64_t cookie) override {
    const auto known = quarantine_.find(cookie);
    if (known == quarantine_.end()) return;
    staging_.give_back(known->second.staging);
    // What kept this object for the transport's sake may be the last that did.
    const std::shared_ptr<Core> self = std::move(known->second.self);
    quarantine_.erase(known);
    pump();
  }

 private:
  // The holder of `id` that said so last, and not before the family was forgotten.
  bool place_of(const Identity& id, Place& out) const KVBM_REQUIRES(mutex_) {
    const uint64_t now = executor_.clock().now_ns();
    Location held;
    size_t n = 0;
    if (locations_.find(id, now, {&held, 1}, n) != Locations::Answer::held || n == 0) return false;
    const auto forgotten = forgotten_.find(id.family);
    if (forgotten != forgotten_.end() && now - held.age_ns <= forgotten->second) return false;
    out = {locations_.node_id(held.node), held.node, held.head_bytes, held.payload_bytes, held.hint};
    return true;
  }

  void put_place(const Identity& id, const NodeFacts& node, uint8_t tier, uint32_t head_bytes, uint64_t payload_bytes,
                 uint64_t hint) KVBM_REQUIRES(mutex_) {
    const auto index = locations_.set_node(node.node, node.incarnation);
    if (!index.ok() || payload_bytes == 0) return;
    locations_.put(id, {index.value(), tier, head_bytes, payload_bytes, hint, 0}, executor_.clock().now_ns());
  }

  void forget_all(const Identity& id) KVBM_REQUIRES(mutex_) {
    Place held;
    for (size_t tries = 0; tries < Locations::kWays && place_of(id, held); ++tries) locations_.forget(id, held.index);
  }

  void forget_holder(const Identity& id, NodeIndex node) {
    MutexLock lock(mutex_);
    locations_.forget(id, node);
  }

  struct Waiting {
    std::shared_ptr<GetOp> op;
    size_t item = 0;
  };
  struct Quarantined {
    MutableBytes staging;
    std::shared_ptr<Core> self;
  };
  struct Piece {
    Waiting what;
    MutableBytes staging;
    size_t bytes = 0;
  };

  // Counts a call in; false after shutdown.
  bool enter() {
    MutexLock lock(mutex_);
    if (closing_) return false;
    ++calls_;
    return true;
  }

  void leave() {
    bool last = false;
    {
      MutexLock lock(mutex_);
      last = --calls_ == 0 && closing_;
    }
    if (last) finish();
  }

  void finish() {
    UniqueFunction<void()> done;
    {
      MutexLock lock(mutex_);
      done = std::move(closed_);
    }
    if (done) executor_.post(std::move(done));
  }

  void put_question(const std::shared_ptr<Question>& question) {
    std::map<PeerLink*, std::vector<Identity>> by_link;
    const std::vector<PeerLink*> ready = mesh_.ready();
    if (ready.size() <= kAskAll) {
      for (PeerLink* link : ready) by_link[link] = question->ids;
    } else {
      for (const Identity& id : question->ids) {
        if (PeerLink* link = mesh_.home(id.key)) by_link[link].push_back(id);
      }
    }
    question->waiting = 1;
    for (PeerLink* const link : ready) {  // in the order of nodes, not of pointers
      const auto mine = by_link.find(link);
      if (mine == by_link.end()) continue;
      auto batch = std::make_unique<FindBatch>();
      batch->ids = std::move(mine->second);
      batch->deadline_ns = std::min(question->deadline_ns, mesh_.executor().clock().now_ns() + options_.call_ns);
      batch->done = [self = shared_from_this(), question, node = link->peer()](FindBatch& answer) {
        self->learn(answer, node);
        self->answered(question);
      };
      ++question->waiting;
      link->find(std::move(batch));
    }
    answered(question);
  }

  void answered(const std::shared_ptr<Question>& question) {
    if (--question->waiting != 0) return;
    executor_.post([self = shared_from_this(), question] {
      question->done();
      self->leave();
    });
  }

  void learn(const FindBatch& answer, const NodeFacts& node) {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < answer.ids.size(); ++i) {
      if (answer.status[i] != Code::ok || answer.found[i].present == 0) continue;
      const wire::FoundItem& item = answer.found[i];
      put_place(answer.ids[i], node, item.tier, item.head_bytes, item.payload_bytes, item.location);
    }
  }

  // Sends what staging allows, in order, each node's share in requests of kFetchBytes.
  void pump() {
    while (!waiting_.empty()) {
      const NodeId node = where(waiting_.front()).node;
      PeerLink* const link = mesh_.link_to(node);
      auto batch = std::make_unique<FetchBatch>();
      batch->deadline_ns = mesh_.executor().clock().now_ns() + options_.call_ns;
      auto pieces = std::make_shared<std::vector<Piece>>();
      uint64_t bytes = 0;
      while (!waiting_.empty() && where(waiting_.front()).node == node && pieces->size() < kFetchItems &&
             bytes < kFetchBytes) {
        const Waiting next = waiting_.front();
        const size_t size = where(next).head_bytes + where(next).payload_bytes;
        const bool late = mesh_.executor().clock().now_ns() >= next.op->deadline_ns;
        if (link == nullptr || late || !staging_.fits(size)) {
          waiting_.pop_front();
          if (link == nullptr) forget_holder(item(next).id, where(next).index);
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

  void fetched(FetchBatch& answer, std::vector<Piece>& pieces) {
    auto good = std::make_shared<std::vector<Piece>>();
    for (size_t i = 0; i < pieces.size(); ++i) {
      const FetchItem& one = answer.items[i];
      Piece& piece = pieces[i];
      if (one.status == Code::ok) {
        piece.bytes = one.head_bytes + one.payload_bytes;
        good->push_back(piece);
        continue;
      }
      if (one.quarantined) {
        quarantine_.emplace(one.cookie, Quarantined{piece.staging, shared_from_this()});
      } else {
        staging_.give_back(piece.staging);
      }
      const bool gone = one.status == Code::miss || one.status == Code::no_room || one.status == Code::owner_gone ||
                        one.status == Code::mismatch || one.status == Code::damaged;
      if (gone) forget_holder(one.id, where(piece.what).index);
      // A record of another size than was heard of: as good as gone, until somebody asks again.
      end_item(piece.what, one.status == Code::no_room ? Code::miss : one.status);
    }
    if (!good->empty()) executor_.post([self = shared_from_this(), good] { self->copy_out(*good); });
    pump();
  }

  // On the core's executor. With the end of the last item the links may go: nothing of them is used after it.
  void copy_out(const std::vector<Piece>& pieces) {
    std::vector<Code> codes;
    for (const Piece& piece : pieces) {
      tier::GetItem& target = item(piece.what);
      codes.push_back(settle(target, families_.get(target.id.family), ConstBytes(piece.staging).first(piece.bytes)));
      staging_.give_back(piece.staging);
      if (codes.back() != Code::ok) reject(target.id);
    }
    mesh_.executor().post([self = shared_from_this()] { self->pump(); });
    for (size_t i = 0; i < pieces.size(); ++i) end_item(pieces[i].what, codes[i]);
  }

  void end_item(const Waiting& what, Code code) {
    what.op->batch->status[what.item] = code;
    {
      MutexLock lock(mutex_);
      ++stats_.gets;
      if (code == Code::ok) stats_.get_bytes += item(what).payload_bytes;
      if (code == Code::miss) ++stats_.misses;
      if (code != Code::ok && code != Code::miss) ++stats_.get_errors;
    }
    items_done(what.op, 1);
  }

  void items_done(const std::shared_ptr<GetOp>& op, size_t n) {
    if (op->left.fetch_sub(n, std::memory_order_acq_rel) != n) return;
    executor_.post([self = shared_from_this(), op] {
      op->batch->done(*op->batch);
      self->leave();
    });
  }

  static const Place& where(const Waiting& what) { return what.op->where[what.item]; }
  static tier::GetItem& item(const Waiting& what) { return what.op->batch->items[what.item]; }

  void offer(const std::shared_ptr<PutOp>& op) {
    std::map<NodeId, std::vector<size_t>> by_node;
    for (size_t i = 0; i < op->batch->items.size(); ++i) {
      if (PeerLink* link = mesh_.home(op->batch->items[i].id.key)) by_node[link->peer().node].push_back(i);
    }
    op->offers = 1;
    for (const auto& [node, indexes] : by_node) {
      for (size_t first = 0; first < indexes.size(); first += wire::kMaxFamiliesPerMessage) {
        const size_t n = std::min<size_t>(wire::kMaxFamiliesPerMessage, indexes.size() - first);
        offer_some(
            op, node,
            {indexes.begin() + static_cast<ptrdiff_t>(first), indexes.begin() + static_cast<ptrdiff_t>(first + n)});
      }
    }
    offered(op);
  }

  // Few enough that no more families than fit one message can be among them.
  void offer_some(const std::shared_ptr<PutOp>& op, const NodeId& node, std::vector<size_t> indexes,
                  uint64_t wait = kConfirmNs) {
    PeerLink* const link = mesh_.link_to(node);
    if (link == nullptr) return;
    if (!link->may_lease(indexes.size())) return offer_later(op, node, std::move(indexes), wait);
    auto batch = std::make_unique<OfferBatch>();
    batch->lease_ns = options_.lease_ns;
    batch->deadline_ns = std::min(op->batch->deadline_ns, mesh_.executor().clock().now_ns() + options_.call_ns);
    for (const size_t i : indexes) {
      const tier::PutItem& put = op->batch->items[i];
      OfferBatch::Item one;
      one.id = put.id;
      one.uses = put.uses;
      one.priority = put.priority;
      one.head_bytes = static_cast<uint32_t>(put.head.size());
      one.payload_bytes = put.payload.size();
      batch->items.push_back(one);
    }
    batch->done = [self = shared_from_this(), op, facts = link->peer(),
                   indexes = std::move(indexes)](OfferBatch& answer) {
      self->wanted(op, facts.node, indexes, answer);
      self->offered(op);
    };
    ++op->offers;
    link->offer(std::move(batch));
  }

  // More is offered to the node already than it may hold; what it has taken ends soon.
  void offer_later(const std::shared_ptr<PutOp>& op, const NodeId& node, std::vector<size_t> indexes, uint64_t wait) {
    const uint64_t now = mesh_.executor().clock().now_ns();
    if (now >= op->deadline_ns) {
      for (const size_t i : indexes) op->batch->status[i] = Code::deadline;
      return;
    }
    ++op->offers;
    mesh_.executor().post_at(now + wait, [self = shared_from_this(), op, node, indexes = std::move(indexes), wait] {
      self->offer_some(op, node, indexes, std::min(wait * 2, kConfirmMostNs));
      self->offered(op);
    });
  }

  void wanted(const std::shared_ptr<PutOp>& op, const NodeId& node, const std::vector<size_t>& indexes,
              const OfferBatch& answer) {
    std::vector<size_t> coming;
    for (const uint32_t w : answer.wanted) coming.push_back(indexes[w]);
    if (answer.status != Code::ok) {
      for (const size_t i : indexes) op->batch->status[i] = answer.status;
    }
    {
      MutexLock lock(mutex_);
      stats_.put_errors += indexes.size() - coming.size();
    }
    if (!coming.empty()) confirm_later(op, node, std::move(coming), kConfirmNs);
  }

  // A record counts as stored when its node says that it has it: until then it may still be on its way.
  void confirm_later(const std::shared_ptr<PutOp>& op, const NodeId& node, std::vector<size_t> indexes, uint64_t wait) {
    ++op->offers;
    const uint64_t now = mesh_.executor().clock().now_ns();
    mesh_.executor().post_at(now + wait, [self = shared_from_this(), op, node, indexes = std::move(indexes), wait] {
      self->confirm(op, node, indexes, wait);
      self->offered(op);
    });
  }

  void confirm(const std::shared_ptr<PutOp>& op, const NodeId& node, const std::vector<size_t>& indexes,
               uint64_t wait) {
    PeerLink* const link = mesh_.link_to(node);
    const bool late = mesh_.executor().clock().now_ns() >= op->deadline_ns;
    if (link == nullptr || late) {
      for (const size_t i : indexes) op->batch->status[i] = late ? Code::deadline : Code::owner_gone;
      return;
    }
    auto batch = std::make_unique<FindBatch>();
    for (const size_t i : indexes) batch->ids.push_back(op->batch->items[i].id);
    batch->deadline_ns = op->deadline_ns;
    batch->done = [self = shared_from_this(), op, facts = link->peer(), indexes, wait](FindBatch& answer) {
      self->confirmed(op, facts, indexes, answer, wait);
      self->offered(op);
    };
    ++op->offers;
    link->find(std::move(batch));
  }

  void confirmed(const std::shared_ptr<PutOp>& op, const NodeFacts& node, const std::vector<size_t>& indexes,
                 const FindBatch& answer, uint64_t wait) {
    std::vector<size_t> open;
    {
      MutexLock lock(mutex_);
      for (size_t k = 0; k < indexes.size(); ++k) {
        const tier::PutItem& put = op->batch->items[indexes[k]];
        const wire::FoundItem& found = answer.found[k];
        op->batch->status[indexes[k]] = answer.status[k];
        if (answer.status[k] != Code::ok) continue;
        if (found.present == 0) {
          open.push_back(indexes[k]);
          continue;
        }
        ++stats_.puts;
        stats_.put_bytes += put.payload.size();
        put_place(put.id, node, found.tier, found.head_bytes, found.payload_bytes, found.location);
      }
    }
    if (!open.empty()) confirm_later(op, node.node, std::move(open), std::min(wait * 2, kConfirmMostNs));
  }

  void offered(const std::shared_ptr<PutOp>& op) {
    if (--op->offers != 0) return;
    executor_.post([self = shared_from_this(), op] {
      op->batch->done(*op->batch);
      self->leave();
    });
  }

  const PeerTierOptions options_;
  Executor& executor_;
  FamilyTable& families_;
  Mesh& mesh_;
  StagingPool staging_;
  // The links' thread alone.
  std::deque<Waiting> waiting_;
  std::map<uint64_t, Quarantined> quarantine_;
  uint64_t last_cookie_ = 0;

  mutable Mutex mutex_;
  Locations locations_ KVBM_GUARDED_BY(mutex_);
  std::map<FamilyId, uint64_t> forgotten_ KVBM_GUARDED_BY(mutex_);  // when
  tier::TierStats stats_ KVBM_GUARDED_BY(mutex_);
  size_t calls_ KVBM_GUARDED_BY(mutex_) = 0;
  bool closing_ KVBM_GUARDED_BY(mutex_) = false;
  UniqueFunction<void()> closed_ KVBM_GUARDED_BY(mutex_);
};

PeerTier::PeerTier(const PeerTierOptions& options, Executor& core, FamilyTable& families, Mesh& mesh)
    : core_(std::make_shared<Core>(options, core, families, mesh)) {}
PeerTier::~PeerTier() = default;

void PeerTier::ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done) {
  core_->ask(std::move(ids), deadline_ns, std::move(done));
}
void PeerTier::learn(const NodeFacts& node, std::span<const Offered> offered) { core_->learn(node, offered); }
bool PeerTier::locate(const Identity& id, NodeId& node) const { return core_->locate(id, node); }
std::string PeerTier::describe() const { return "other nodes"; }
void PeerTier::find(std::span<const Identity> ids, std::span<tier::Found> out, bool /*touch*/) noexcept {
  core_->find(ids, out);
}
// The node that has it may let it go meanwhile: then a get misses.
bool PeerTier::pin(const Identity& /*id*/) noexcept { return true; }
void PeerTier::put(std::unique_ptr<tier::PutBatch> batch) { core_->put(std::move(batch)); }
void PeerTier::get(std::unique_ptr<tier::GetBatch> batch) { core_->get(std::move(batch)); }
void PeerTier::erase(std::span<const Identity> ids) { core_->forget(ids); }
void PeerTier::reject(const Identity& id, uint64_t /*location*/) { core_->reject(id); }
Status PeerTier::erase_family(FamilyId family) {
  core_->forget_family(family);
  return {};
}
size_t PeerTier::scan(uint64_t& cursor, std::span<tier::ScanRow> /*out*/) {
  cursor = 0;
  return 0;
}
tier::TierStats PeerTier::stats() const { return core_->stats(); }
Status PeerTier::set_epoch(const NamespaceId& base_id, uint64_t epoch) {
  core_->announce(base_id, epoch);
  return {};
}
void PeerTier::shutdown(UniqueFunction<void()> done) { core_->shutdown(std::move(done)); }

}  // namespace kvbm::cluster
