#include "manager/operation/reslice_landing.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "base/io/file.h"
#include "base/memory/aligned_bytes.h"
#include "base/thread/memory_wait.h"
#include "codec/coded/coded_record.h"
#include "codec/hash/leaf_hash.h"
#include "manager/host/host_record.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

AlignedBytes take_memory(uint64_t bytes) { return aligned_bytes(kIoAlign, std::max<uint64_t>(bytes, 1)); }

// A record of one shard, while its block is made.
struct Source {
  Code code = Code::ok;
  SlotId slot = kNoSlot;  // the match's; kNoSlot: read from `tier`
  TierIndex tier = 0;
  uint64_t location = 0;
  uint64_t mark = 0;  // Invalidations::mark of the shard's family at the time of the request
  AlignedBytes head_memory;
  AlignedBytes payload_memory;
  ConstBytes head;
  ConstBytes payload;
  std::optional<codec::HeadView> view;
};

// Attributes that all shards of a block agree on, and that the block made of them gets.
struct Joined {
  Key parent;
  uint32_t tokens = 0;
  uint16_t flags = 0;
  std::vector<std::byte> attributes;  // without the keys of units
  std::vector<std::byte> unit_keys;   // of shards that had room for them
};

class Reslicing : public std::enable_shared_from_this<Reslicing> {
 public:
  Reslicing(std::shared_ptr<Match> match, std::vector<ResliceItem> items, LandingRoom room, uint64_t deadline_ns,
            bool registered, UniqueFunction<void(std::vector<Delivery>)> done)
      : match_(std::move(match)),
        stack_(match_->stack()),
        host_(stack_.host()),
        items_(std::move(items)),
        room_(std::move(room)),
        landed_(items_.size()),
        deadline_ns_(deadline_ns),
        registered_(registered),
        done_(std::move(done)) {
    for (size_t i = 0; i < items_.size(); ++i) landed_[i].mark = mark_of(items_[i]);
  }

  // Reads the records of as many blocks as may be held at once.
  void run() {
    const MemoryWait until_done;
    group_first_ = next_;
    uint64_t bytes = 0;
    while (next_ < items_.size() && (next_ == group_first_ || bytes + bytes_of(items_[next_]) <= kMostAtOnce)) {
      bytes += bytes_of(items_[next_++]);
    }
    if (next_ == group_first_) return finish();
    sources_.clear();
    sources_.resize(next_ - group_first_);
    std::array<std::unique_ptr<tier::GetBatch>, kMaxTiersBelow + 1> batches;
    std::array<std::vector<Source*>, kMaxTiersBelow + 1> of_batch;
    for (size_t i = 0; i < sources_.size(); ++i) prepare(i, batches, of_batch);
    size_t asked = 1;  // this call
    for (const auto& batch : batches) asked += batch != nullptr ? 1 : 0;
    waiting_.store(asked, std::memory_order_relaxed);
    for (size_t t = 1; t < batches.size(); ++t) {
      if (batches[t] == nullptr) continue;
      batches[t]->done = [self = shared_from_this(), from = std::move(of_batch[t])](tier::GetBatch& batch) {
        self->came(batch, from);
      };
      stack_.lower().tier(static_cast<TierIndex>(t)).get(std::move(batches[t]));
    }
    one_came();
  }

 private:
  static constexpr uint64_t kMostAtOnce = uint64_t{32} << 20;

  [[nodiscard]] const MatchPart& part_of(const ResliceItem& item) const noexcept { return match_->parts()[item.part]; }
  [[nodiscard]] const FromOtherSize& other_of(const ResliceItem& item) const noexcept {
    return part_of(item).other(item.key);
  }
  [[nodiscard]] const layout::RecordShape& shape_of(const ResliceItem& item) const noexcept {
    return *part_of(item).plan.shape;
  }
  [[nodiscard]] uint64_t bytes_of(const ResliceItem& item) const noexcept {
    uint64_t bytes = 0;
    for (const layout::RecordShape& shape : other_of(item).size->shapes) bytes += shape.payload_bytes();
    return bytes;
  }

  // Returns the mark of the block's family. The marks of the shards' families are checked once more at the end.
  [[nodiscard]] uint64_t mark_of(const ResliceItem& item) const noexcept {
    return host_.invalidations().mark(part_of(item).plan.family);
  }

  template <class Batches, class OfBatch>
  void prepare(size_t i, Batches& batches, OfBatch& of_batch) {
    const ResliceItem& item = items_[group_first_ + i];
    const FromOtherSize& part = other_of(item);
    sources_[i] = std::vector<Source>(part.shards.size());
    for (size_t s = 0; s < part.shards.size(); ++s) {
      const MatchPart& from = part.shards[s];
      Source& source = sources_[i][s];
      source.mark = host_.invalidations().mark(from.plan.family);
      source.tier = Match::tier_of_part(from, item.key);
      if (source.tier == 0) {
        source.slot = from.slots[item.key];
        continue;
      }
      const layout::RecordShape& shape = part.size->shapes[s];
      const tier::Found& found = from.found[item.key];
      const uint64_t payload = shape.payload_bytes();
      // The record's room may be another node's statement: more than coding can add is not believed.
      const uint64_t room = std::min(std::max(payload, found.room()), payload + codec::kMaxLeafBytes);
      const uint64_t head = codec::head_bytes(shape.leaf_count(), codec::kMaxAttributeBytes) + kIoAlign;
      source.head_memory = take_memory(head);
      source.payload_memory = take_memory(room);
      const bool asks = source.head_memory != nullptr && source.payload_memory != nullptr;
      source.code = !asks ? Code::no_memory : stack_.lower().disabled(source.tier) ? Code::tier_disabled : Code::ok;
      if (source.code != Code::ok) continue;
      auto& batch = batches[source.tier];
      if (batch == nullptr) {
        batch = std::make_unique<tier::GetBatch>();
        batch->deadline_ns = deadline_ns_;
        batch->accepts.verifies = true;
      }
      tier::GetItem wanted;
      wanted.id = {match_->keys()[item.key], from.plan.family};
      wanted.location = found.location;
      wanted.head = {source.head_memory.get(), round_up(head, kIoAlign)};
      wanted.payload = {source.payload_memory.get(), round_up(room, kIoAlign)};
      batch->items.push_back(std::move(wanted));
      batch->status.push_back(Code::internal);
      of_batch[source.tier].push_back(&source);
    }
  }

  void came(const tier::GetBatch& batch, const std::vector<Source*>& from) {
    for (size_t i = 0; i < from.size(); ++i) {
      Source& source = *from[i];
      source.code = batch.status[i];
      source.location = batch.items[i].location;
      TierCounters& counters = host_.counters().tiers[source.tier];
      const bool failed = source.code != Code::ok && source.code != Code::miss && source.code != Code::deadline;
      if (failed) add(counters.errors, 1);
      if (source.code != Code::ok) continue;
      add(counters.loads, 1);
      add(counters.load_bytes, batch.items[i].payload_bytes);
      source.head = {source.head_memory.get(), batch.items[i].head_bytes};
      source.payload = {source.payload_memory.get(), batch.items[i].payload_bytes};
    }
    one_came();
  }

  void one_came() {
    const MemoryWait until_done;
    if (waiting_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    host_.env().executor->post([self = shared_from_this()] { self->make_one(0); });
  }

  // Makes one block per task, because cutting and hashing it takes as long as copying it.
  void make_one(size_t i) {
    const MemoryWait until_done;
    const size_t at = group_first_ + i;
    Delivery& one = landed_[at];
    one.from = kOtherSize;
    one.slot = room_.slots[at];
    one.code = make(i);
    if (one.code == Code::ok && registered_) {
      one.code = stack_.register_landed({match_->keys()[items_[at].key], part_of(items_[at]).plan.family}, one);
    }
    if (one.code != Code::ok) give_back(at);
    sources_[i].clear();
    const bool last = i + 1 == sources_.size();
    host_.env().executor->post([self = shared_from_this(), last, next = i + 1] {
      if (last) {
        self->run();
      } else {
        self->make_one(next);
      }
    });
  }

  void give_back(size_t at) {
    Delivery& one = landed_[at];
    host_.release(one.slot);
    one.slot = kNoSlot;
    if (room_.slots[at] == kNoSlot) room_.staged[at] = nullptr;
    one.keep = nullptr;
  }

  Code make(size_t i) {
    const size_t at = group_first_ + i;
    const ResliceItem& item = items_[at];
    const FromOtherSize& part = other_of(item);
    Joined joined;
    Code code = Code::ok;
    for (size_t s = 0; s < part.shards.size() && code == Code::ok; ++s) code = open(item, s, sources_[i][s]);
    if (code == Code::ok) code = join(sources_[i], joined);
    if (code == Code::mismatch) part.size->refused.store(true, std::memory_order_relaxed);
    if (code != Code::ok) return code;
    Delivery& one = landed_[at];
    const MutableBytes out = one.slot != kNoSlot ? host_.arena().payload(one.slot) : room_.staged[at]->bytes;
    if (out.size() < shape_of(item).payload_bytes()) return Code::mismatch;
    cut(part, sources_[i], out);
    for (size_t s = 0; s < part.shards.size(); ++s) {
      // A block with an invalidated shard must not stay in the host.
      if (host_.invalidations().since(part.shards[s].plan.family, sources_[i][s].mark))
        one.mark = Invalidations::kInProgress;
    }
    return finish_record(item, joined, out, one, room_.slots[at] == kNoSlot ? std::move(room_.staged[at]) : nullptr);
  }

  // Checks that the record is the shard's, plain and cut by its shape, and that every leaf that is used has its hash.
  Code open(const ResliceItem& item, size_t s, Source& source) {
    if (source.code != Code::ok) return source.code;
    const FromOtherSize& part = other_of(item);
    const layout::RecordShape& shape = part.size->shapes[s];
    if (source.slot != kNoSlot) {
      if ((host_.table().flags(source.slot) & kHasHead) == 0) return Code::mismatch;  // bytes of unknown meaning
      if (!host_.trust(source.slot)) return Code::damaged;
      source.head = host_.arena().head(source.slot);
      source.payload = host_.arena().payload(source.slot);
    }
    auto view = codec::HeadView::parse(source.head);
    if (!view.ok()) return reject(part.shards[s], item, source);
    const codec::Header& header = view.value().header();
    const Family& family = part.size->shards[s];
    if (header.key != match_->keys()[item.key] || header.ns != family.ns || header.geometry != family.geometry ||
        header.component != family.component || header.shard != family.shard) {
      return Code::mismatch;
    }
    if ((header.flags & (codec::kOpaque | codec::kSealed)) != 0 || codec::is_coded(view.value())) return Code::mismatch;
    if (header.stored_bytes != shape.payload_bytes() || header.leaf_count != shape.leaf_count() ||
        source.payload.size() < shape.payload_bytes()) {
      return Code::mismatch;
    }
    for (const layout::LeafRange& range : part.size->plan->source_leaves(static_cast<uint32_t>(s))) {
      for (uint32_t l = range.first; l < range.first + range.count; ++l) {
        const codec::Leaf leaf = view.value().leaf(l);
        const layout::LeafExtent extent = shape.leaf(l);
        if (leaf.offset != extent.offset || leaf.raw_bytes != extent.bytes) return Code::mismatch;
        if (codec::leaf_hash(source.payload.subspan(leaf.offset, leaf.raw_bytes)) == leaf.hash) continue;
        return reject(part.shards[s], item, source);
      }
    }
    source.view = std::move(view).value();
    return Code::ok;
  }

  Code reject(const MatchPart& shard, const ResliceItem& item, const Source& source) {
    if (source.slot != kNoSlot) {
      host_.quarantine(source.slot);
    } else {
      stack_.lower().reject(source.tier, {match_->keys()[item.key], shard.plan.family}, source.location);
    }
    return Code::damaged;
  }

  // Joins the attributes of a block's shards, which must agree. A block with a lossy shard is lossy.
  static Code join(const std::vector<Source>& sources, Joined& out) {
    for (size_t s = 0; s < sources.size(); ++s) {
      const codec::HeadView& view = *sources[s].view;
      const codec::Header& header = view.header();
      std::vector<std::byte> attributes;
      const auto all = codec::parse_attributes(view.attributes());
      if (!all.ok()) return Code::mismatch;
      for (const codec::AttributeView& attribute : all.value()) {
        const bool units = attribute.tag == codec::Attribute::unit_keys;
        if (units && out.unit_keys.empty()) out.unit_keys.assign(attribute.value.begin(), attribute.value.end());
        if (units &&
            !std::equal(attribute.value.begin(), attribute.value.end(), out.unit_keys.begin(), out.unit_keys.end()))
          return Code::mismatch;
        if (!units && !codec::append_attribute(attributes, attribute.tag, attribute.value).ok()) return Code::mismatch;
      }
      if (s == 0) {
        out.parent = header.parent;
        out.tokens = header.tokens;
        out.flags = header.flags;
        out.attributes = std::move(attributes);
        continue;
      }
      out.flags |= header.flags & codec::kLossy;
      if (header.parent != out.parent || header.tokens != out.tokens || attributes != out.attributes ||
          ((header.flags ^ out.flags) & codec::kContentKey) != 0) {
        return Code::mismatch;
      }
    }
    return Code::ok;
  }

  static void cut(const FromOtherSize& part, const std::vector<Source>& sources, MutableBytes out) {
    for (const layout::Move& move : part.size->plan->moves()) {
      const std::byte* from = sources[move.source].payload.data() + move.source_offset;
      std::byte* to = out.data() + move.target_offset;
      for (uint32_t k = 0; k < move.count; ++k, from += move.source_stride, to += move.target_stride) {
        std::memcpy(to, from, move.bytes);
      }
    }
  }

  Code finish_record(const ResliceItem& item, Joined& joined, MutableBytes payload, Delivery& one,
                     std::shared_ptr<StagedBlock> staged) {
    const layout::RecordShape& shape = shape_of(item);
    std::vector<codec::Leaf> leaves(shape.leaf_count());
    for (uint32_t l = 0; l < shape.leaf_count(); ++l) {
      const layout::LeafExtent extent = shape.leaf(l);
      leaves[l].offset = static_cast<uint32_t>(extent.offset);
      leaves[l].stored_bytes = leaves[l].raw_bytes = extent.bytes;
      leaves[l].hash = codec::leaf_hash(payload.subspan(extent.offset, extent.bytes));
    }
    HeadFacts facts;
    facts.family = part_of(item).plan.family;
    facts.key = match_->keys()[item.key];
    facts.parent = joined.parent;
    facts.flags = joined.flags;
    facts.tokens = joined.tokens;
    facts.payload_bytes = shape.payload_bytes();
    const size_t room = host_.arena().head(0).size();
    if (!joined.unit_keys.empty() &&
        codec::head_bytes(shape.leaf_count(), joined.attributes.size() + 4 + joined.unit_keys.size()) <= room) {
      (void)codec::append_attribute(joined.attributes, codec::Attribute::unit_keys, joined.unit_keys);
    }
    auto head = encode_head(host_, facts, leaves, joined.attributes);
    if (!head.ok()) return head.status().code();
    one.payload = payload.data();
    one.keep = std::move(staged);
    return settle_head(host_, one, head.value(), 0);  // no tier has this record
  }

  void finish() {
    room_ = {};
    done_(std::move(landed_));
  }

  const std::shared_ptr<Match> match_;
  TierStack& stack_;
  HostTier& host_;
  const std::vector<ResliceItem> items_;
  LandingRoom room_;
  std::vector<Delivery> landed_;
  const uint64_t deadline_ns_;
  const bool registered_;
  UniqueFunction<void(std::vector<Delivery>)> done_;
  size_t group_first_ = 0;
  size_t next_ = 0;
  std::vector<std::vector<Source>> sources_;  // of each block of the group: of its shards
  std::atomic<size_t> waiting_{0};
};

}  // namespace

void onboard_resliced(const std::shared_ptr<Match>& match, std::vector<ResliceItem> items, LandingRoom room,
                      uint64_t deadline_ns, bool registered, UniqueFunction<void(std::vector<Delivery>)> done) {
  const MemoryWait until_done;  // which is called whatever happens
  const auto reslicing =
      std::make_shared<Reslicing>(match, std::move(items), std::move(room), deadline_ns, registered, std::move(done));
  // Posted, not called: the caller may hold a lock that `done` takes.
  match->stack().host().env().executor->post([reslicing] { reslicing->run(); });
}

}  // namespace kvbm::manager
