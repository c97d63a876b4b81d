// Blocks that ranks of one tensor-parallel size stored, read by ranks of another: every pair of sizes against bytes
// that are worked out for each head, and what is left alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "layout/engine_forms.h"
#include "layout/shard.h"
#include "manager/operation/cache.h"
#include "manager/operation/load.h"
#include "manager/operation/lookup.h"
#include "manager/operation/move.h"
#include "manager/operation/store.h"
#include "manager/stack/stats.h"
#include "support/small_manager.h"

namespace kvbm::manager::other_sizes_test {
namespace {

// A byte that names its namespace, block, layer, plane, head, token and place.
std::byte truth(uint64_t content, uint64_t block, uint64_t layer, uint64_t plane, uint64_t head, uint64_t token,
                uint64_t at) {
  uint64_t z = content * 7368787 + block * 1000003 + layer * 7919 + plane * 104729 + head * 15485863 +
               token * 32452843 + at * 49979687;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  // Returns a byte. Every second one is similar to its neighbours, like the bytes of numbers, so that blocks can be
  // coded.
  return static_cast<std::byte>(at % 2 == 0 ? z >> 40 : 0x3E + (z >> 40) % 2);
}

constexpr auto kUntouched = std::byte{0xEE};
constexpr uint32_t kBlocks = 6;  // stored ones of a rank's cache

// One rank of an engine: its paged cache in a form of its own.
class Rank {
 public:
  Rank(const std::shared_ptr<Manager>& manager, const std::shared_ptr<Namespace>& ns, const Shard& shard,
       layout::Form form)
      : shard_(shard) {
    const PartPlan plan = ns->plan({0, shard}).value();
    units_ = ns->options().geometry->units();
    const layout::RecordShape& shape = *plan.shape;
    const uint64_t blocks = uint64_t{kBlocks} * units_;
    const uint32_t n = layout::form_tensors(form, shape);
    memory_.assign(n, std::vector<std::byte>(shape.payload_bytes() * kBlocks / n, kUntouched));
    std::vector<layout::Tensor> tensors;
    for (auto& memory : memory_) tensors.push_back({memory.data(), memory.size()});
    auto made = layout::arrange(form, shape, blocks, tensors);
    if (!made.ok()) throw std::runtime_error(made.status().message());
    auto part = CachePart::shaped(plan, std::move(made).value());
    auto created = Cache::create(manager->stack().keep(), ns, {std::move(part).value()});
    if (!created.ok()) throw std::runtime_error(created.status().message());
    cache_ = std::move(created).value();
  }

  [[nodiscard]] const std::shared_ptr<Cache>& cache() const { return cache_; }
  [[nodiscard]] uint32_t units() const { return units_; }

  void fill(uint64_t content) {
    each_byte([&](std::byte& is, std::byte should) { is = should; }, content, kBlocks);
  }
  void clear() {
    for (auto& memory : memory_) std::fill(memory.begin(), memory.end(), kUntouched);
  }
  // Returns the number of wrong bytes in the first `n` stored blocks.
  size_t wrong(uint64_t content, uint32_t n) {
    size_t out = 0;
    each_byte([&](std::byte& is, std::byte should) { out += is != should ? 1 : 0; }, content, n);
    return out;
  }
  // Returns whether nothing but these blocks was written.
  bool rest_untouched(uint32_t n) {
    bool out = true;
    for (uint32_t b = n; b < kBlocks; ++b)
      each_of(
          b, [&](std::byte& is, std::byte) { out = out && is == kUntouched; }, 0);
    return out;
  }

 private:
  template <class Do>
  void each_byte(Do what, uint64_t content, uint32_t n) {
    for (uint32_t b = 0; b < n; ++b) each_of(b, what, content);
  }
  template <class Do>
  void each_of(uint32_t stored, Do what, uint64_t content) {
    const layout::Arrangement& a = cache_->parts()[0].arrangement();
    for (uint32_t u = 0; u < units_; ++u) {
      const uint64_t block = uint64_t{stored} * units_ + u;
      for (uint32_t l = 0; l < a.layers(); ++l) {
        for (uint32_t p = 0; p < a.planes(); ++p) {
          const layout::PlaneView& v = a.view(l, p);
          for (uint32_t h = 0; h < a.heads(); ++h) {
            for (uint32_t t = 0; t < a.tokens(); ++t) {
              std::byte* row =
                  v.base + static_cast<int64_t>(block) * v.block_stride + h * v.head_stride + t * v.token_stride;
              for (uint32_t i = 0; i < a.row_bytes(); ++i) {
                what(row[i], truth(content, block, shard_.first_layer + l, p, shard_.first_head + h, t, i));
              }
            }
          }
        }
      }
    }
  }

  const Shard shard_;
  uint32_t units_ = 1;
  std::vector<std::vector<std::byte>> memory_;
  std::shared_ptr<Cache> cache_;
};

class OtherSizesTest : public test::SmallManager {
 protected:
  static constexpr uint32_t kHeads = 8;
  static constexpr uint32_t kLayers = 3;
  static constexpr uint64_t kHostBlock = 4 * kBlock;  // its heads have room for the leaves of two units

  void adjust(Options& options) override {
    options.host.block_bytes = kHostBlock;
    options.host.capacity_bytes = 4096 + 256 * (kHostBlock + tier::HostArena::head_stride(kHostBlock));
    options.tiers[0].codec = codec_;
    if (make_tier_) make_tier_(options);
  }

  // A stored block of all heads: 3 layers x 2 planes x 8 heads x `tokens` x 32 bytes x units.
  void open(uint32_t units = 1,
            layout::ComponentGeometry component = layout::attention(kLayers, kHeads, 16, layout::Element::bf16),
            bool allow_lossy = false) {
    component_ = component;
    if (manager_ == nullptr) make(AdmissionKind::all);
    NamespaceOptions who;
    who.model = "sliced" + std::to_string(++opened_);
    who.allow_lossy = allow_lossy;
    auto geometry = layout::Geometry::make(4 / units, {component}, units);
    ASSERT_TRUE(geometry.ok()) << geometry.status().message();
    who.geometry = std::make_shared<const layout::Geometry>(std::move(geometry).value());
    sliced_ = manager_->namespaces().open(std::move(who)).value();
  }

  std::vector<Rank> engine(uint32_t size, layout::Form form) {
    std::vector<Rank> out;
    for (uint32_t rank = 0; rank < size; ++rank) {
      const auto shard = layout::tensor_parallel_shard(component_, rank, size, 0, component_.layers);
      EXPECT_TRUE(shard.ok());
      out.emplace_back(manager_, sliced_, shard.value(), form);
    }
    return out;
  }

  std::vector<Key> keys(uint32_t n = kBlocks) {
    std::vector<Key> out;
    for (uint32_t i = 0; i < n; ++i) out.push_back(key(1000 * opened_ + i));
    return out;
  }

  Code run(const std::shared_ptr<Operation>& operation) {
    auto done = std::make_shared<bool>(false);
    auto status = std::make_shared<Code>(Code::internal);
    operation->start([done, status](const copy::Completion& completion) {
      *status = static_cast<Code>(completion.status);
      *done = true;
    });
    EXPECT_TRUE(sim_.run_until([&] { return *done; }));
    return *status;
  }

  void store(Rank& rank, uint32_t n = kBlocks, std::vector<codec::Position> positions = {}, bool unchained = false) {
    rank.fill(opened_);
    StoreRequest request;
    request.cache = rank.cache();
    request.keys = keys(n);
    request.positions = std::move(positions);
    request.unchained = unchained;
    for (uint32_t i = 0; i < n * rank.units(); ++i) request.block_ids.push_back(i);
    EXPECT_EQ(run(std::make_shared<StoreOperation>(std::move(request))), Code::ok);
  }

  std::shared_ptr<Match> find(Rank& rank, LookupRequest how = {}) {
    return look_up(manager_->stack().keep(), sliced_, rank.cache()->plans().value(), keys(), how);
  }

  Code load(Rank& rank, std::shared_ptr<Match> match, uint32_t n, bool keep_below = false,
            std::vector<int32_t>* items = nullptr, std::vector<codec::Position> positions = {}) {
    rank.clear();
    LoadRequest request;
    request.cache = rank.cache();
    request.match = std::move(match);
    request.n_ids = size_t{n} * rank.units();
    request.keep_below = keep_below;
    request.positions = std::move(positions);
    for (uint32_t i = 0; i < request.n_ids; ++i) request.block_ids.push_back(i);
    if (items != nullptr) {
      items->assign(n, 12345);
      request.item_status = *items;
    }
    return run(std::make_shared<LoadOperation>(std::move(request)));
  }

  // Evicts the blocks, so that only tiers below have them.
  void leave_host() {
    flush();
    manager_->host().table().erase_all();
  }

  // Ranks of size n store, and ranks of size m find and load all of it.
  void read_all(uint32_t m, layout::Form form, bool keep_below = false) {
    for (Rank& rank : engine(m, form)) {
      auto match = find(rank);
      ASSERT_NE(match, nullptr);
      ASSERT_EQ(match->hits(), kBlocks);
      EXPECT_EQ(load(rank, std::move(match), kBlocks - 1, keep_below), Code::ok);
      EXPECT_EQ(rank.wrong(opened_, kBlocks - 1), 0U);
      EXPECT_TRUE(rank.rest_untouched(kBlocks - 1));
    }
    EXPECT_EQ(manager_->counters().matches(), 0U);
    EXPECT_EQ(manager_->host().landing_staging().used_bytes(), 0U);
  }

  std::string codec_ = "off";
  std::function<void(Options&)> make_tier_;
  layout::ComponentGeometry component_;
  uint64_t opened_ = 0;
  std::shared_ptr<Namespace> sliced_;

  void TearDown() override {
    flush();
    std::vector<block::SlotInfo> infos;
    manager_->host().table().scan(0, infos, 1024);
    for (const block::SlotInfo& info : infos) EXPECT_EQ(info.references, 0U) << "slot " << info.slot;
    SmallManager::TearDown();
  }
};

TEST_F(OtherSizesTest, every_size_reads_what_every_other_stored) {
  const layout::Form forms[] = {layout::Form::nhd,          layout::Form::hnd,
                                layout::Form::packed_hnd,   layout::Form::cross_packed_hln,
                                layout::Form::heads_packed, layout::Form::sglang_page_first};
  size_t which = 0;
  uint64_t made = 0;
  for (const uint32_t units : {1U, 2U}) {
    for (const uint32_t n : {1U, 2U, 4U, 8U, 16U}) {
      for (const uint32_t m : {1U, 2U, 4U, 8U, 16U}) {
        for (const bool on_disk : {false, true}) {
          SCOPED_TRACE(std::to_string(n) + " to " + std::to_string(m) + (on_disk ? " on disk, " : ", ") +
                       std::to_string(units) + " units");
          open(units);
          for (Rank& rank : engine(n, forms[which++ % 6])) store(rank);
          if (on_disk) leave_host();
          const uint64_t before = get(manager_->counters().keys_resliced);
          ++which;
          read_all(m, forms[which % 6], which % 3 == 0);
          if (::testing::Test::HasFailure()) return;
          const uint64_t resliced = get(manager_->counters().keys_resliced) - before;
          EXPECT_EQ(resliced != 0, n != m);
          made += resliced;
          manager_->host().table().erase_all();
        }
      }
    }
  }
  EXPECT_GT(made, 1000U);
  EXPECT_EQ(get(manager_->counters().shards_missing), 0U);
  EXPECT_EQ(get(manager_->counters().verify_failures), 0U);
}

// Leaves of one head each, and heads that are cut into several leaves.
TEST_F(OtherSizesTest, leaves_of_any_cut_are_put_together) {
  make_tier_ = [](Options& options) {
    options.host.block_bytes = 2 << 20;
    options.host.capacity_bytes = 4096 + 64 * ((2 << 20) + tier::HostArena::head_stride(2 << 20));
    options.tiers[0].capacity_bytes = 1 << 30;
  };
  for (const uint32_t dim : {3000U, 12000U}) {  // rows of 6,000 and 24,000 bytes: 4 tokens are 24,000 and 96,000
    open(1, layout::attention(2, 4, dim, layout::Element::bf16));
    for (Rank& rank : engine(2, layout::Form::nhd)) store(rank);
    leave_host();
    read_all(4, layout::Form::hnd);
    read_all(1, layout::Form::nhd);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST_F(OtherSizesTest, what_is_coded_is_decoded_first) {
  codec_ = "default";
  make_tier_ = [](Options& options) { options.tiers[0].codec_for_space = true; };
  open(1, layout::attention(kLayers, kHeads, 64,
                            layout::Element::bf16));  // shards of several pages, so that there is a gain
  for (Rank& rank : engine(2, layout::Form::nhd)) store(rank);
  leave_host();
  read_all(4, layout::Form::hnd);
  read_all(1, layout::Form::nhd);
  EXPECT_GT(manager_->lower().tier(1).stats().codec.decoded, 0U);
}

TEST_F(OtherSizesTest, shards_lie_in_several_tiers) {
  open();
  auto four = engine(4, layout::Form::nhd);
  store(four[0]);
  store(four[1]);
  leave_host();
  store(four[2]);
  store(four[3]);
  auto one = engine(1, layout::Form::hnd);
  auto match = find(one[0]);
  ASSERT_NE(match, nullptr);
  EXPECT_EQ(match->hits(), kBlocks);
  EXPECT_EQ(match->tier_of(0, 0), kOtherSize);
  EXPECT_EQ(match->source_of(0, 0), 1);
  EXPECT_EQ(load(one[0], std::move(match), kBlocks), Code::ok);
  EXPECT_EQ(one[0].wrong(opened_, kBlocks), 0U);
}

TEST_F(OtherSizesTest, a_shard_that_is_missing_is_a_miss_that_is_counted) {
  open();
  auto two = engine(2, layout::Form::nhd);
  store(two[0]);
  store(two[1], 4);  // of the last two blocks one shard alone
  auto one = engine(1, layout::Form::nhd);
  auto match = find(one[0]);
  ASSERT_NE(match, nullptr);
  EXPECT_EQ(match->hits(), 4U);
  EXPECT_EQ(get(manager_->counters().shards_missing), 1U);
  match = nullptr;
  LookupRequest each;
  each.mode = LookupMode::each;
  match = find(one[0], each);
  EXPECT_EQ(match->hits(), 4U);
  EXPECT_EQ(match->tier_of(0, 5), kNoTier);
  match = nullptr;
  EXPECT_EQ(get(manager_->counters().shards_missing), 2U);
  // Half of the heads need one shard of size 2.
  auto four = engine(4, layout::Form::nhd);
  EXPECT_EQ(find(four[0])->hits(), kBlocks);
  EXPECT_EQ(find(four[3])->hits(), 4U);
  EXPECT_EQ(get(manager_->counters().shards_missing), 2U) << "nothing of these was there";
  EXPECT_EQ(snapshot(manager_->observed()).shards_missing, 2U);
  EXPECT_NE(metrics_text(manager_->observed()).find("kvbm_lookup_shards_missing_total 2"), std::string::npos);
}

TEST_F(OtherSizesTest, nothing_is_asked_of_a_size_that_nobody_used) {
  open();
  auto two = engine(2, layout::Form::nhd);
  store(two[0]);
  EXPECT_EQ(find(two[1]), nullptr);
  EXPECT_EQ(get(manager_->counters().shards_missing), 0U);
  EXPECT_EQ(sliced_->other_sizes(two[1].cache()->plans().value()[0]), nullptr);
}

// A prefix of blocks in this size, blocks in another size, and a gap that another size fills.
TEST_F(OtherSizesTest, records_of_both_sizes_make_one_prefix) {
  open();
  auto one = engine(1, layout::Form::nhd);
  auto two = engine(2, layout::Form::nhd);
  store(one[0]);
  leave_host();
  for (Rank& rank : two) store(rank);
  const std::vector<Key> all = keys();
  const FamilyId whole = one[0].cache()->plans().value()[0].family;
  manager_->stack().drop(whole, std::span(all).subspan(1, 2));
  manager_->stack().drop(whole, std::span(all).subspan(4, 1));
  auto match = find(one[0]);
  ASSERT_NE(match, nullptr);
  EXPECT_EQ(match->hits(), kBlocks);
  const TierIndex expected[] = {1, kOtherSize, kOtherSize, 1, kOtherSize, 1};
  for (size_t i = 0; i < kBlocks; ++i) EXPECT_EQ(match->tier_of(0, i), expected[i]) << i;
  EXPECT_EQ(load(one[0], std::move(match), kBlocks), Code::ok);
  EXPECT_EQ(one[0].wrong(opened_, kBlocks), 0U);
  EXPECT_EQ(find(one[0])->tier_of(0, 1), 0) << "what was made is in the host, as such";
}

TEST_F(OtherSizesTest, a_prefetch_makes_them_and_they_stay) {
  open();
  for (Rank& rank : engine(2, layout::Form::nhd)) store(rank);
  leave_host();
  auto eight = engine(8, layout::Form::hnd);
  const PartPlan plan = eight[5].cache()->plans().value()[0];
  LookupRequest each;
  each.mode = LookupMode::each;
  auto match = look_up(manager_->stack().keep(), sliced_, {&plan, 1}, keys(), each);
  EXPECT_EQ(run(std::make_shared<PrefetchOperation>(manager_->stack().keep(), std::move(match), kBlocks, kNever)),
            Code::ok);
  match = find(eight[5]);
  ASSERT_NE(match, nullptr);
  for (size_t i = 0; i < kBlocks; ++i) EXPECT_EQ(match->tier_of(0, i), 0);
  EXPECT_EQ(load(eight[5], std::move(match), kBlocks), Code::ok);
  EXPECT_EQ(eight[5].wrong(opened_, kBlocks), 0U);
}

TEST_F(OtherSizesTest, a_damaged_shard_is_found_out) {
  open();
  auto two = engine(2, layout::Form::nhd);
  for (Rank& rank : two) store(rank);
  flush();
  const SlotId slot = manager_->host().acquire_one(two[1].cache()->plans().value()[0].family, keys()[2]);
  ASSERT_NE(slot, kNoSlot);
  manager_->host().arena().payload(slot)[100] ^= std::byte{1};
  manager_->host().release({&slot, 1});
  auto one = engine(1, layout::Form::nhd);
  std::vector<int32_t> items;
  EXPECT_EQ(load(one[0], find(one[0]), kBlocks, false, &items), Code::partial);
  EXPECT_EQ(items[2], static_cast<int32_t>(Code::damaged));
  for (const size_t i : {0U, 1U, 3U, 4U, 5U}) EXPECT_EQ(items[i], static_cast<int32_t>(Code::ok));
  EXPECT_EQ(get(manager_->counters().verify_failures), 1U);
  EXPECT_EQ(find(two[1])->hits(), kBlocks) << "the disk has it";
}

// A record of an opaque format under a shard's name.
TEST_F(OtherSizesTest, an_opaque_record_is_never_cut) {
  open();
  auto two = engine(2, layout::Form::nhd);
  store(two[0]);
  const std::vector<Key> all = keys();
  family_ = two[1].cache()->plans().value()[0].family;
  SlotId slots[kBlocks];
  ASSERT_EQ(manager_->stack().allocate(block::kSharedAccount, slots, nullptr), Code::ok);
  for (size_t i = 0; i < kBlocks; ++i) {
    HeadFacts facts;
    facts.family = family_;
    facts.key = all[i];
    if (i != 0) facts.parent = all[i - 1];
    ASSERT_EQ(manager_->host().table().complete({&slots[i], 1}), Code::ok);
    manager_->host().arena().clear_head(slots[i]);
    note_payload_bytes(manager_->host(), slots[i], two[1].cache()->parts()[0].payload_bytes());
    if (i % 2 != 0) continue;  // these have none
    ASSERT_EQ(make_head(manager_->host(), slots[i], facts, {}), Code::ok);
  }
  block::Publication what;
  what.family = family_;
  what.keys = all;
  Code codes[kBlocks];
  ASSERT_EQ(manager_->stack().publish(slots, what, {}, codes), Code::ok);
  manager_->host().release(slots);
  auto one = engine(1, layout::Form::nhd);
  auto match = find(one[0]);
  ASSERT_NE(match, nullptr);
  std::vector<int32_t> items;
  EXPECT_EQ(load(one[0], std::move(match), kBlocks, false, &items), Code::mismatch);
  for (const int32_t item : items) EXPECT_EQ(item, static_cast<int32_t>(Code::mismatch));
  EXPECT_EQ(find(one[0]), nullptr) << "they are not found a second time";
}

TEST_F(OtherSizesTest, shards_of_different_positions_do_not_make_a_block) {
  open();
  auto two = engine(2, layout::Form::nhd);
  std::vector<codec::Position> here(kBlocks, {64, 1, 0});
  auto there = here;
  there[3].first_token = 65;
  store(two[0], kBlocks, here, true);
  store(two[1], kBlocks, there, true);
  auto one = engine(1, layout::Form::nhd);
  std::vector<int32_t> items;
  EXPECT_EQ(load(one[0], find(one[0]), kBlocks, false, &items, here), Code::partial);
  for (size_t i = 0; i < kBlocks; ++i) EXPECT_EQ(items[i], static_cast<int32_t>(i == 3 ? Code::mismatch : Code::ok));
}

TEST_F(OtherSizesTest, an_epoch_that_has_ended_is_not_read) {
  open();
  for (Rank& rank : engine(2, layout::Form::nhd)) store(rank);
  leave_host();
  auto one = engine(1, layout::Form::nhd);
  EXPECT_EQ(find(one[0])->hits(), kBlocks);
  ASSERT_TRUE(manager_->namespaces().invalidate(*sliced_).ok());
  EXPECT_EQ(find(one[0]), nullptr);
  for (Rank& rank : engine(2, layout::Form::nhd)) store(rank);
  EXPECT_EQ(find(one[0])->hits(), kBlocks);
  ASSERT_TRUE(manager_->namespaces().reset(*sliced_).ok());
  EXPECT_EQ(find(one[0]), nullptr);
}

// A block made while its shards are erased is returned, as it was held, but does not stay.
TEST_F(OtherSizesTest, what_is_forgotten_meanwhile_does_not_stay) {
  open();
  for (Rank& rank : engine(2, layout::Form::nhd)) store(rank);
  leave_host();
  auto one = engine(1, layout::Form::nhd);
  LoadRequest request;
  request.cache = one[0].cache();
  request.match = find(one[0]);
  request.n_ids = kBlocks;
  for (uint32_t i = 0; i < kBlocks; ++i) request.block_ids.push_back(i);
  bool done = false;
  auto operation = std::make_shared<LoadOperation>(std::move(request));
  operation->start([&](const copy::Completion&) { done = true; });
  for (int i = 0; i < 3; ++i) sim_.step();
  ASSERT_TRUE(manager_->namespaces().reset(*sliced_).ok());
  ASSERT_TRUE(sim_.run_until([&] { return done; }));
  operation.reset();
  EXPECT_EQ(find(one[0]), nullptr);
}

TEST_F(OtherSizesTest, after_a_restart_the_disk_says_which_sizes_there_are) {
  open();
  for (Rank& rank : engine(4, layout::Form::nhd)) store(rank);
  flush();
  sliced_.reset();
  ns_.reset();
  TearDown();
  manager_.reset();
  make(AdmissionKind::all);
  opened_ = 0;
  open();
  read_all(2, layout::Form::hnd);
}

// Ranks of more than the heads hold one head each, under one name; latents are whole on every rank.
TEST_F(OtherSizesTest, what_every_rank_holds_is_found_as_such) {
  open(1, layout::latent(kLayers, 64, layout::Element::bf16));
  auto eight = engine(8, layout::Form::nhd);
  store(eight[0]);
  for (const uint32_t size : {1U, 2U, 8U}) {
    for (Rank& rank : engine(size, layout::Form::nhd)) EXPECT_EQ(find(rank)->tier_of(0, 0), 0);
  }
  EXPECT_EQ(get(manager_->counters().keys_resliced), 0U);
}

TEST_F(OtherSizesTest, heads_that_do_not_divide_are_left_out) {
  open(1, layout::attention(kLayers, 6, 16, layout::Element::bf16));
  for (Rank& rank : engine(3, layout::Form::nhd)) store(rank);
  leave_host();
  read_all(2, layout::Form::hnd);  // heads 0 to 2 are of shards 0 and 1
  read_all(1, layout::Form::nhd);
  read_all(6, layout::Form::nhd);
  read_all(12, layout::Form::nhd);
}

// A host of fewer slots than a load brings: some land beside it.
TEST_F(OtherSizesTest, a_full_host_does_not_hinder_them) {
  make_tier_ = [](Options& options) {
    options.host.capacity_bytes = 4096 + 4 * (kHostBlock + tier::HostArena::head_stride(kHostBlock));
  };
  open();
  for (Rank& rank : engine(4, layout::Form::nhd)) store(rank);
  leave_host();
  read_all(2, layout::Form::hnd);
  read_all(1, layout::Form::nhd, true);
}

}  // namespace
}  // namespace kvbm::manager::other_sizes_test
