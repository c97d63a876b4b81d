// A coded tier over a real disk tier on the simulated disk.
#include "tier/coded/coded_tier.h"

#include <functional>

#include "support/disk_world.h"
#include "support/opaque_leaves.h"
#include "support/paced_tier.h"
#include "tier/coded/coded_core.h"

namespace kvbm::test::coded_tier_test {
namespace {

using tier::coded::CodedTier;
using tier::coded::CodedTierOptions;
using tier::coded::FamilyTerms;

std::shared_ptr<const codec::KeyRing> ring(const std::string& text) {
  auto made = codec::KeyRing::parse(text);
  EXPECT_TRUE(made.ok());
  return made.ok() ? made.value() : nullptr;
}
const std::string kKeyOne = "1 " + std::string(64, 'a');
const std::string kKeyTwo = "2 " + std::string(64, 'b');

// A record with bytes that follow from its number and that code well: bf16 values around one, most of them alike.
struct KvRecord {
  tier::disk::AlignedBuffer head_memory{8192};
  tier::disk::AlignedBuffer memory;
  uint64_t bytes;
  size_t head_bytes = 0;
  Key key;
  KvRecord(uint64_t n, uint64_t payload_bytes, const Family& family, bool noise = false,
           uint16_t flags = codec::kOpaque)
      : memory(payload_bytes), bytes(payload_bytes), key(key_of(n)) {
    SeededRandom random(n ^ 0x5EED);
    random.fill(memory.span());
    for (uint64_t at = 1; !noise && at < bytes; at += 2)
      memory.data()[at] = static_cast<std::byte>(0x3F - (at / 2 % 7 == 0));
    codec::Header h;
    h.flags = flags;
    h.ns = family.ns;
    h.key = key;
    h.component = family.component;
    h.shard = family.shard;
    h.geometry = family.geometry;
    auto leaves = test::opaque_leaves(bytes);
    for (auto& leaf : leaves) leaf.hash = codec::leaf_hash(payload().subspan(leaf.offset, leaf.stored_bytes));
    h.leaf_count = static_cast<uint32_t>(leaves.size());
    h.raw_bytes = h.stored_bytes = bytes;
    const auto written = codec::encode_head(h, leaves, {}, head_memory.span());
    EXPECT_TRUE(written.ok());
    head_bytes = written.ok() ? written.value() : 0;
  }
  [[nodiscard]] ConstBytes payload() const { return ConstBytes(memory.span()).first(bytes); }
  [[nodiscard]] ConstBytes head() const { return ConstBytes(head_memory.span()).first(head_bytes); }
};

class CodedTierTest : public ::testing::Test {
 protected:
  CodedTierTest() : world_(1, uint64_t{64} << 20, 4 << 20) {
    terms_.form.element = codec::Element::bf16;
    terms_.form.row = 64;
    terms_.form.rows = 16;
    options_.mode = codec::Mode::standard;
    options_.most_payload_bytes = 1 << 20;
    options_.terms = [this](FamilyId) { return known_ ? std::make_shared<const FamilyTerms>(terms_) : nullptr; };
  }
  ~CodedTierTest() override { close(); }

  void open() {
    auto opened = tier::disk::DiskTier::open(world_.options, world_.disk, world_.sim, world_.families,
                                             world_.sim.random(), &world_.removals, 1);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    auto disk = std::move(opened).value();
    disk_ = disk.get();
    tier_ = std::make_unique<CodedTier>(options_, std::move(disk), world_.sim, world_.sim.random());
  }
  void close() {
    if (tier_ == nullptr) return;
    bool done = false;
    tier_->shutdown([&] { done = true; });
    EXPECT_TRUE(world_.sim.run_until([&] { return done; }));
    tier_.reset();
  }
  Family family() { return family_of(1); }
  Identity id(uint64_t n) { return {key_of(n), world_.families.intern(family()).value()}; }

  void submit(std::vector<uint64_t> numbers, uint64_t bytes, std::vector<Code>* out, bool noise = false,
              uint16_t flags = codec::kOpaque, uint64_t deadline = kNever) {
    auto records = std::make_shared<std::vector<KvRecord>>();
    auto batch = std::make_unique<tier::PutBatch>();
    for (const uint64_t n : numbers) records->emplace_back(n, bytes, family(), noise, flags);
    for (size_t i = 0; i < numbers.size(); ++i) {
      tier::PutItem item;
      item.id = id(numbers[i]);
      item.head = (*records)[i].head();
      item.payload = (*records)[i].payload();
      batch->items.push_back(item);
    }
    batch->deadline_ns = deadline;
    batch->done = [records, out](tier::PutBatch& b) { *out = b.status; };
    tier_->put(std::move(batch));
  }
  Code put(uint64_t n, uint64_t bytes, bool noise = false, uint16_t flags = codec::kOpaque) {
    std::vector<Code> codes;
    submit({n}, bytes, &codes, noise, flags);
    world_.sim.run_until([&] { return !codes.empty(); });
    return codes.empty() ? Code::internal : codes[0];
  }
  struct Got {
    Code code = Code::internal;
    bool right = false;
    uint16_t flags = 0;
  };
  // Reads records into targets of `bytes`; right: head and payload equal the stored ones, byte for byte.
  void ask(const std::vector<uint64_t>& numbers, uint64_t bytes, std::vector<Got>* out, uint64_t deadline = kNever,
           bool checks = false, bool noise = false) {
    struct Targets {
      std::vector<tier::disk::AlignedBuffer> heads, payloads;
    };
    auto targets = std::make_shared<Targets>();
    auto batch = std::make_unique<tier::GetBatch>();
    for (const uint64_t n : numbers) {
      targets->heads.emplace_back(8192);
      targets->payloads.emplace_back(bytes);
      tier::GetItem item;
      item.id = id(n);
      item.head = targets->heads.back().span();
      item.payload = targets->payloads.back().span();
      batch->items.push_back(item);
    }
    batch->deadline_ns = deadline;
    batch->accepts.verifies = checks;
    batch->done = [this, targets, numbers, bytes, out, noise](tier::GetBatch& b) {
      for (size_t i = 0; i < numbers.size(); ++i) {
        Got got;
        got.code = b.status[i];
        const KvRecord want(numbers[i], bytes, family(), noise);
        const auto head = codec::HeadView::parse(ConstBytes(b.items[i].head).first(b.items[i].head_bytes));
        if (got.code == Code::ok && head.ok()) {
          const auto wanted = codec::HeadView::parse(want.head());
          got.flags = head.value().header().flags;
          got.right = b.items[i].payload_bytes == bytes && !codec::is_coded(head.value()) &&
                      head.value().head_bytes() == want.head_bytes &&
                      std::memcmp(targets->payloads[i].data(), want.memory.data(), bytes) == 0;
          for (uint32_t l = 0; l < head.value().header().leaf_count; ++l) {
            got.right = got.right && head.value().leaf(l) == wanted.value().leaf(l);
          }
        }
        out->push_back(got);
      }
    };
    tier_->get(std::move(batch));
  }
  Got get(uint64_t n, uint64_t bytes, bool noise = false) {
    std::vector<Got> got;
    ask({n}, bytes, &got, kNever, false, noise);
    world_.sim.run_until([&] { return !got.empty(); });
    return got.empty() ? Got{} : got[0];
  }
  uint64_t stored_bytes(uint64_t n) {
    tier::Found found;
    const Identity i = id(n);
    tier_->find({&i, 1}, {&found, 1}, false);
    return found.present ? found.payload_bytes : 0;
  }

  static constexpr uint64_t kBytes = 256 << 10;
  DiskWorld world_;
  CodedTierOptions options_;
  FamilyTerms terms_;
  bool known_ = true;
  tier::disk::DiskTier* disk_ = nullptr;
  std::unique_ptr<CodedTier> tier_;
};

TEST_F(CodedTierTest, gives_back_what_was_put_and_stores_less) {
  open();
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{5000}, uint64_t{65536}, kBytes}) {
    ASSERT_EQ(put(bytes, bytes), Code::ok) << bytes;
    EXPECT_TRUE(get(bytes, bytes).right) << bytes;
  }
  EXPECT_LT(stored_bytes(kBytes), kBytes * 9 / 10);
  const tier::CodecStats stats = tier_->stats().codec;
  EXPECT_GE(stats.coded, 1U);
  EXPECT_LT(stats.stored_bytes, stats.plain_bytes);
  EXPECT_EQ(get(99, 4096).code, Code::miss);
}

TEST_F(CodedTierTest, codes_nothing_where_it_is_off_and_nothing_of_families_that_it_does_not_know) {
  options_.mode = codec::Mode::off;
  open();
  ASSERT_EQ(put(1, kBytes), Code::ok);
  EXPECT_EQ(stored_bytes(1), kBytes);
  EXPECT_TRUE(get(1, kBytes).right);
  close();
  options_.mode = codec::Mode::standard;
  known_ = false;
  open();
  ASSERT_EQ(put(2, kBytes), Code::ok);
  EXPECT_EQ(stored_bytes(2), kBytes);
  EXPECT_TRUE(get(2, kBytes).right);
}

TEST_F(CodedTierTest, leaves_what_coding_does_not_shorten_as_it_is) {
  open();
  ASSERT_EQ(put(1, kBytes, true), Code::ok);
  EXPECT_TRUE(get(1, kBytes, true).right);
  EXPECT_LE(stored_bytes(1), kBytes);
}

TEST_F(CodedTierTest, reads_what_was_coded_before_it_was_turned_off) {
  open();
  for (uint64_t n = 1; n <= 5; ++n) ASSERT_EQ(put(n, kBytes), Code::ok);
  close();
  options_.mode = codec::Mode::off;
  known_ = false;  // and the length of a plain record is unknown
  open();
  for (uint64_t n = 1; n <= 5; ++n) EXPECT_TRUE(get(n, kBytes).right) << n;
  EXPECT_EQ(tier_->stats().codec.decoded, 5U);
}

TEST_F(CodedTierTest, seals_everything_and_opens_it_with_an_older_key_too) {
  options_.keys = ring(kKeyOne);
  options_.mode = codec::Mode::off;
  open();
  ASSERT_EQ(put(1, kBytes), Code::ok);
  EXPECT_TRUE(get(1, kBytes).right);
  close();
  options_.keys = ring(kKeyTwo + "\n" + kKeyOne);
  options_.mode = codec::Mode::standard;
  known_ = false;
  open();
  ASSERT_EQ(put(2, kBytes), Code::ok);
  EXPECT_TRUE(get(1, kBytes).right);
  EXPECT_TRUE(get(2, kBytes).right);
  EXPECT_EQ(tier_->stats().codec.sealed, 1U);
}

TEST_F(CodedTierTest, a_key_that_is_not_here_is_a_miss_that_deletes_nothing) {
  options_.keys = ring(kKeyOne);
  open();
  ASSERT_EQ(put(1, kBytes), Code::ok);
  close();
  options_.keys = ring(kKeyTwo);
  open();
  EXPECT_EQ(get(1, kBytes).code, Code::miss);
  EXPECT_EQ(get(1, kBytes).code, Code::miss);
  EXPECT_EQ(tier_->stats().codec.missing_keys, 2U);
  close();
  options_.keys = nullptr;
  open();
  EXPECT_EQ(get(1, kBytes).code, Code::miss);
  close();
  options_.keys = ring(kKeyTwo + "\n" + kKeyOne);
  open();
  EXPECT_TRUE(get(1, kBytes).right);
}

// Otherwise an attacker with write access to the disk could replace a sealed record with a plain one.
TEST_F(CodedTierTest, a_record_without_a_seal_is_a_miss_where_all_are_sealed) {
  options_.mode = codec::Mode::off;
  open();
  ASSERT_EQ(put(1, kBytes), Code::ok);
  close();
  options_.mode = codec::Mode::standard;
  open();
  ASSERT_EQ(put(2, kBytes), Code::ok);
  close();
  options_.keys = ring(kKeyOne);
  open();
  EXPECT_EQ(get(1, kBytes).code, Code::miss);
  EXPECT_EQ(get(2, kBytes).code, Code::miss);
  EXPECT_EQ(tier_->stats().codec.missing_keys, 2U);
}

TEST_F(CodedTierTest, nothing_goes_without_its_seal_at_the_end) {
  options_.keys = ring(kKeyOne);
  open();
  bool done = false;
  tier_->shutdown([&] { done = true; });
  std::vector<Code> codes;
  submit({1}, kBytes, &codes);
  ASSERT_TRUE(world_.sim.run_until([&] { return done && !codes.empty(); }));
  EXPECT_EQ(codes[0], Code::closed);
  tier_.reset();
  options_.keys = nullptr;
  open();
  EXPECT_EQ(get(1, kBytes).code, Code::miss);
}

TEST_F(CodedTierTest, a_lossy_record_is_for_readers_that_allow_it) {
  terms_.recipe = codec::Recipe::parse("int8").value();
  open();
  ASSERT_EQ(put(1, kBytes), Code::ok);
  const auto stored = tier_->stats().codec;
  EXPECT_GT(stored.difference, 0);
  EXPECT_LT(stored.difference, 1e-3 * stored.value) << "int8 is nearer than that";
  EXPECT_EQ(get(1, kBytes).code, Code::miss);
  EXPECT_EQ(tier_->stats().codec.refused_lossy, 1U);
  terms_.allow_lossy = true;
  const Got got = get(1, kBytes);
  EXPECT_EQ(got.code, Code::ok);
  EXPECT_NE(got.flags & codec::kLossy, 0);
}

// The layer and plane of an opaque record's leaf are unknown.
TEST_F(CodedTierTest, a_recipe_of_layers_loses_nothing_of_opaque_records) {
  terms_.form.planes = 2;
  terms_.form.leaves_per_plane = 1;
  terms_.allow_lossy = true;
  terms_.recipe = codec::Recipe::parse("k:0=int8,default").value();
  for (const bool sealed : {false, true}) {
    options_.keys = sealed ? ring(kKeyOne) : nullptr;
    open();
    const uint64_t n = sealed ? 2 : 1;
    ASSERT_EQ(put(n, kBytes), Code::ok);
    EXPECT_LT(stored_bytes(n), kBytes);
    const Got got = get(n, kBytes);
    EXPECT_TRUE(got.right) << sealed;
    EXPECT_EQ(got.flags & codec::kLossy, 0);
    EXPECT_EQ(tier_->stats().codec.difference, 0);
    EXPECT_EQ(tier_->stats().codec.mode, static_cast<uint32_t>(codec::Mode::standard));
    ASSERT_EQ(put(10 + n, kBytes, false, 0), Code::ok);  // the leaves of this one are what the form says
    EXPECT_NE(get(10 + n, kBytes).flags & codec::kLossy, 0);
    EXPECT_GT(tier_->stats().codec.difference, 0);
    EXPECT_EQ(tier_->stats().codec.mode, static_cast<uint32_t>(codec::Mode::int8));
    close();
  }
}

TEST_F(CodedTierTest, says_what_mode_was_stored_last) {
  const auto mode = [this] { return static_cast<codec::Mode>(tier_->stats().codec.mode); };
  terms_.allow_lossy = true;
  for (const bool automatic : {false, true}) {
    options_.automatic = automatic;
    options_.link = [](uint64_t) { return 1.0; };
    terms_.recipe = codec::Recipe::parse("int6").value();
    open();
    const uint64_t first = automatic ? 100 : 1;
    for (uint64_t n = first; n < first + 6; ++n) ASSERT_EQ(put(n, kBytes), Code::ok);
    EXPECT_EQ(mode(), codec::Mode::int6) << automatic;
    terms_.recipe = codec::Recipe::parse("max").value();
    for (uint64_t n = first + 10; n < first + 12; ++n) ASSERT_EQ(put(n, kBytes), Code::ok);
    EXPECT_EQ(mode(), codec::Mode::max) << automatic;
    terms_.recipe = codec::Recipe::parse("off").value();
    ASSERT_EQ(put(first + 20, kBytes), Code::ok);
    EXPECT_EQ(mode(), codec::Mode::off) << automatic;
    EXPECT_EQ(stored_bytes(first + 20), kBytes);
    close();
  }
}

TEST_F(CodedTierTest, damage_is_told_and_forgotten) {
  open();
  ASSERT_EQ(put(1, kBytes), Code::ok);
  world_.disk.faults.flip_on_read = 1;
  // The receiver checks the leaves, so the disk does not notice the damage.
  std::vector<Got> got;
  ask({1}, kBytes, &got, kNever, true);
  world_.sim.run_until([&] { return !got.empty(); });
  EXPECT_EQ(got.at(0).code, Code::damaged);
  world_.disk.faults = {};
  EXPECT_EQ(get(1, kBytes).code, Code::miss);
  EXPECT_EQ(world_.removals.damages, 1U);
}

TEST_F(CodedTierTest, batches_larger_than_their_memory_pass_in_order) {
  options_.read_budget_bytes = options_.write_budget_bytes = 512 << 10;
  open();
  std::vector<uint64_t> numbers;
  for (uint64_t n = 1; n <= 40; ++n) numbers.push_back(n);
  std::vector<Code> codes;
  submit(numbers, kBytes, &codes);
  ASSERT_TRUE(world_.sim.run_until([&] { return !codes.empty(); }));
  for (const Code code : codes) EXPECT_EQ(code, Code::ok);
  std::vector<Got> got;
  ask(numbers, kBytes, &got);
  ASSERT_TRUE(world_.sim.run_until([&] { return !got.empty(); }));
  for (const Got& one : got) EXPECT_TRUE(one.right);
  EXPECT_LE(tier_->stats().staging_bytes, uint64_t{2} << 20);
  // Records that were neighbours are neighbours in the inner tier too.
  uint64_t last = 0;
  for (const uint64_t n : numbers) {
    tier::Found found;
    const Identity i = id(n);
    tier_->find({&i, 1}, {&found, 1}, false);
    EXPECT_GT(found.location, last);
    last = found.location;
  }
}

TEST_F(CodedTierTest, what_waits_for_memory_ends_at_its_deadline) {
  options_.read_budget_bytes = 256 << 10;
  open();
  std::vector<uint64_t> numbers;
  for (uint64_t n = 1; n <= 20; ++n) numbers.push_back(n);
  std::vector<Code> codes;
  submit(numbers, kBytes, &codes);
  ASSERT_TRUE(world_.sim.run_until([&] { return !codes.empty(); }));
  std::vector<Got> first, second;
  const uint64_t now = world_.sim.clock().now_ns();
  ask(numbers, kBytes, &first);
  ask(numbers, kBytes, &second, now + 1);
  ASSERT_TRUE(world_.sim.run_until([&] { return !second.empty(); }));
  for (const Got& one : second) EXPECT_EQ(one.code, Code::deadline);
  ASSERT_TRUE(world_.sim.run_until([&] { return !first.empty(); }));
  for (const Got& one : first) EXPECT_TRUE(one.right);
}

// An earlier batch has the memory, and the tier below does not answer.
TEST_F(CodedTierTest, a_put_that_waits_for_memory_ends_at_its_deadline) {
  options_.write_budget_bytes = 256 << 10;
  const auto pace = std::make_shared<Pace>();
  pace->keeps_puts = true;
  tier_ = std::make_unique<CodedTier>(options_, std::make_unique<PacedTier>(world_.sim, pace), world_.sim,
                                      world_.sim.random());
  std::vector<Code> first, second, third;
  submit({1}, kBytes, &first);
  ASSERT_TRUE(world_.sim.run_until([&] { return pace->kept.size() == 1; }));
  const uint64_t deadline = world_.sim.clock().now_ns() + 1'000'000;
  submit({2, 3}, kBytes, &second, false, codec::kOpaque, deadline);
  submit({4}, kBytes, &third);
  const Identity gone = id(3);
  tier_->erase({&gone, 1});
  ASSERT_TRUE(world_.sim.run_until([&] { return !second.empty(); }));
  EXPECT_EQ(world_.sim.clock().now_ns(), deadline);
  EXPECT_EQ(second, (std::vector<Code>{Code::deadline, Code::ok}));
  EXPECT_TRUE(first.empty());
  pace->keeps_puts = false;
  pace->answer_put();
  ASSERT_TRUE(world_.sim.run_until([&] { return !third.empty(); }));
  EXPECT_EQ(first, std::vector<Code>{Code::ok});
  EXPECT_EQ(third, std::vector<Code>{Code::ok});
  EXPECT_EQ(stored_bytes(2), 0U);
  EXPECT_NE(stored_bytes(4), 0U);
}

TEST_F(CodedTierTest, what_is_forgotten_on_its_way_down_does_not_appear) {
  open();
  std::vector<Code> codes;
  submit({1, 2, 3}, kBytes, &codes);
  const Identity gone[] = {id(1), id(3)};
  tier_->erase(gone);
  ASSERT_TRUE(world_.sim.run_until([&] { return !codes.empty(); }));
  EXPECT_EQ(stored_bytes(1), 0U);
  EXPECT_NE(stored_bytes(2), 0U);
  EXPECT_EQ(stored_bytes(3), 0U);
  codes.clear();
  submit({4, 5}, kBytes, &codes);
  ASSERT_TRUE(tier_->erase_family(id(4).family).ok());
  ASSERT_TRUE(world_.sim.run_until([&] { return !codes.empty(); }));
  for (const uint64_t n : {2, 4, 5}) EXPECT_EQ(stored_bytes(n), 0U) << n;
}

// There is memory for one record at a time. Nothing of the first record is written, and the others waited for its
// memory.
TEST_F(CodedTierTest, what_is_forgotten_on_its_way_down_leaves_its_memory_to_what_waits) {
  options_.write_budget_bytes = 256 << 10;
  open();
  std::vector<Code> first, second;
  submit({1}, kBytes, &first);
  submit({2, 3}, kBytes, &second);
  const Identity gone = id(1);
  tier_->erase({&gone, 1});
  ASSERT_TRUE(world_.sim.run_until([&] { return !first.empty() && !second.empty(); }));
  EXPECT_EQ(second, std::vector<Code>(2, Code::ok));
  EXPECT_EQ(stored_bytes(1), 0U);
  EXPECT_TRUE(get(2, kBytes).right);
  EXPECT_TRUE(get(3, kBytes).right);
}

TEST_F(CodedTierTest, a_tier_that_is_destroyed_ends_every_batch_once) {
  options_.read_budget_bytes = options_.write_budget_bytes = 256 << 10;
  open();
  std::vector<Code> stored;
  submit({1, 2, 3, 4}, kBytes, &stored);
  ASSERT_TRUE(world_.sim.run_until([&] { return !stored.empty(); }));
  std::vector<Code> first, second;
  std::vector<Got> got;
  submit({5, 6, 7}, kBytes, &first);
  submit({8}, kBytes, &second);
  ask({1, 2, 3, 4}, kBytes, &got);
  tier_.reset();
  world_.sim.run();
  ASSERT_EQ(first.size(), 3U);
  ASSERT_EQ(second.size(), 1U);
  ASSERT_EQ(got.size(), 4U);
  EXPECT_EQ(second[0], Code::closed);
  for (const Got& one : got) EXPECT_TRUE(one.right || one.code == Code::closed);
  EXPECT_EQ(got[3].code, Code::closed) << "it had waited for memory";
}

TEST_F(CodedTierTest, what_comes_after_the_inner_tier_has_gone_ends_as_closed) {
  open();
  const auto core = std::make_shared<tier::coded::CodedCore>(options_, *disk_, world_.sim, world_.sim.random());
  core->leave();
  std::vector<Code> stored, read;
  const KvRecord record(1, kBytes, family());
  auto put = std::make_unique<tier::PutBatch>();
  put->items.resize(1);
  put->items[0].id = id(1);
  put->items[0].head = record.head();
  put->items[0].payload = record.payload();
  put->done = [&](tier::PutBatch& b) { stored.insert(stored.end(), b.status.begin(), b.status.end()); };
  core->put(std::move(put));
  auto get = std::make_unique<tier::GetBatch>();
  get->items.resize(1);
  get->items[0].id = id(1);
  get->done = [&](tier::GetBatch& b) { read.insert(read.end(), b.status.begin(), b.status.end()); };
  core->get(std::move(get));
  world_.sim.run();
  EXPECT_EQ(stored, std::vector<Code>{Code::closed});
  EXPECT_EQ(read, std::vector<Code>{Code::closed});
}

TEST_F(CodedTierTest, a_shutdown_ends_what_is_under_way) {
  options_.read_budget_bytes = 256 << 10;
  open();
  std::vector<uint64_t> numbers;
  for (uint64_t n = 1; n <= 20; ++n) numbers.push_back(n);
  std::vector<Code> codes;
  submit(numbers, kBytes, &codes);
  ASSERT_TRUE(world_.sim.run_until([&] { return !codes.empty(); }));
  std::vector<Got> got;
  ask(numbers, kBytes, &got);
  close();
  ASSERT_EQ(got.size(), numbers.size());
  for (const Got& one : got) EXPECT_TRUE(one.right || one.code == Code::closed);
}

TEST_F(CodedTierTest, auto_codes_for_a_slow_link_and_leaves_a_fast_one_plain) {
  double link = 1;  // ns a byte; on the simulation coding takes no time
  options_.automatic = true;
  options_.link = [&](uint64_t) { return link; };
  open();
  for (uint64_t n = 1; n <= 6; ++n) ASSERT_EQ(put(n, kBytes), Code::ok);
  EXPECT_LT(stored_bytes(6), kBytes);
  EXPECT_EQ(stored_bytes(1), kBytes) << "the first is measured, not believed";
  EXPECT_GE(tier_->stats().codec.probes, 2U);
  for (uint64_t n = 1; n <= 6; ++n) EXPECT_TRUE(get(n, kBytes).right) << n;
  for (uint64_t n = 11; n <= 16; ++n) ASSERT_EQ(put(n, kBytes, true), Code::ok);
  EXPECT_TRUE(get(16, kBytes, true).right);
}

TEST_F(CodedTierTest, auto_with_keys_measures_seals_too_and_stores_nothing_without_one) {
  options_.automatic = true;
  options_.link = [](uint64_t) { return 1.0; };
  options_.keys = ring(kKeyOne);
  open();
  for (uint64_t n = 1; n <= 6; ++n) ASSERT_EQ(put(n, kBytes), Code::ok);
  EXPECT_GE(stored_bytes(1), kBytes);
  EXPECT_LT(stored_bytes(6), kBytes);
  EXPECT_EQ(tier_->stats().codec.sealed, 6U);
  EXPECT_GE(tier_->stats().codec.probes, 3U) << "plain, fast and default";
  for (uint64_t n = 1; n <= 6; ++n) EXPECT_TRUE(get(n, kBytes).right) << n;
}

// Reading takes no time here, so coding saves time of writing only, which the choice must measure first.
TEST_F(CodedTierTest, auto_learns_what_writing_takes) {
  options_.automatic = true;
  options_.link = [](uint64_t) { return 0.0; };
  open();
  for (uint64_t n = 1; n <= 6; ++n) ASSERT_EQ(put(n, kBytes), Code::ok);
  EXPECT_EQ(stored_bytes(1), kBytes);
  EXPECT_LT(stored_bytes(6), kBytes);
  for (uint64_t n = 1; n <= 6; ++n) EXPECT_TRUE(get(n, kBytes).right) << n;
}

}  // namespace
}  // namespace kvbm::test::coded_tier_test
