// Actions of the process of a simulated world: one random action at a time.
#include <algorithm>
#include <cstring>

#include "codec/record/key.h"
#include "manager/host/host_record.h"
#include "manager/operation/load.h"
#include "manager/operation/lookup.h"
#include "manager/operation/move.h"
#include "manager/operation/store.h"
#include "support/manager_world.h"
#include "support/refused_memory.h"

namespace kvbm::test {

using namespace manager;  // NOLINT: the subject of this file

namespace {

constexpr int32_t kNotSaid = 12345;  // no status has this value
constexpr auto kUntouched = std::byte{0xEE};

// The first four blocks are the same in every conversation: a shared prompt.
uint64_t owner(uint64_t conversation, size_t index) { return index < 4 ? 999 : conversation; }

// Contents of a unit of a block. They follow from its identity, with the namespace's epoch and the shard. So a block of
// an ended epoch, or of another rank, would be detected.
void fill(std::span<std::byte> out, const NamespaceId& ns, uint64_t tag, uint64_t conversation, size_t index,
          size_t unit) {
  uint64_t name;
  std::memcpy(&name, ns.bytes.data(), sizeof name);
  const uint64_t block = (owner(conversation, index) * 1009 + index) * 64 + unit * 8 + tag;
  SeededRandom random(name ^ block * 0x9E3779B97F4A7C15ULL);
  random.fill(out);
  // Every second conversation has similar values, as those of a model are.
  for (size_t i = 1; owner(conversation, index) % 2 != 0 && i < out.size(); i += 2)
    out[i] = static_cast<std::byte>(0x3E + i % 3 / 2);
}

// Contents of a unit in a cache of both heads, if ranks have one each: their contents, token by token.
void fill_both(std::span<std::byte> out, const NamespaceId& ns, uint64_t conversation, size_t index, size_t unit) {
  constexpr size_t kRow = 64;  // of a head of a token
  std::vector<std::byte> head(out.size() / 2);
  for (uint64_t tag : {1U, 2U}) {
    fill(head, ns, tag, conversation, index, unit);
    for (size_t row = 0; row < head.size() / kRow; ++row) {
      std::copy_n(head.begin() + static_cast<ptrdiff_t>(row * kRow), kRow,
                  out.begin() + static_cast<ptrdiff_t>((2 * row + tag - 1) * kRow));
    }
  }
}

constexpr uint64_t kBothRanks = 3;  // a tag
static_assert(kBothRanks < 8);

void fill_as(std::span<std::byte> out, const NamespaceId& ns, uint64_t tag, uint64_t conversation, size_t index,
             size_t unit) {
  if (tag == kBothRanks) return fill_both(out, ns, conversation, index, unit);
  fill(out, ns, tag, conversation, index, unit);
}

bool filled(ConstBytes bytes, const NamespaceId& ns, uint64_t tag, uint64_t conversation, size_t index, size_t unit) {
  std::vector<std::byte> expected(bytes.size());
  fill_as(expected, ns, tag, conversation, index, unit);
  return std::equal(bytes.begin(), bytes.end(), expected.begin());
}

}  // namespace

void World::act() {
  const uint64_t what = random_.below(100);
  if (what < 30)
    store();
  else if (what < 62)
    load();
  else if (what < 68)
    move(random_.below(2) == 0);
  else if (what < 76)
    pool();
  else if (what < 79)
    watch();
  else if (what < 82)
    forget();
  else if (what < 85)
    pin();
  else if (what < 88)
    cancel();
  else if (what < 90)
    invalidate();
  else if (what < 92)
    change_quota();
  else if (what < 94)
    take();
}

World::Engine* World::idle_engine() {
  Engine& engine = engines_[random_.below(kEngines)];
  return engine.busy ? nullptr : &engine;
}

uint64_t World::deadline() { return random_.below(4) == 0 ? sim_.clock().now_ns() + random_.below(3'000'000) : kNever; }

uint64_t World::tag_of(const Shape& shape, size_t which, size_t ns) {
  if (ns != 0 || !shape.ranks) return 0;
  return which < 2 ? which + 1 : kBothRanks;
}

// Blocks in order from the first, or any, some twice.
World::Plan World::plan_for(const Engine& engine, size_t which, size_t ns, size_t count, bool scattered) {
  Plan plan;
  plan.ns = ns;
  plan.id = ns_[ns]->id();
  plan.tag = tag_of(shape_, which, ns);
  plan.conversation = random_.below(kConversations);
  plan.units = engine.cache[ns]->units();
  plan.unit_bytes = engine.cache[ns]->parts()[0].payload_bytes() / plan.units;
  for (size_t i = 0; i < count; ++i) plan.index.push_back(scattered ? random_.below(kKeys) : i);
  return plan;
}

std::vector<Key> World::chain(size_t ns, uint64_t conversation, size_t count) const {
  std::vector<uint32_t> tokens(count * 4);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i < 16 ? i : conversation * 977 + i);
  std::vector<Key> out(count);
  EXPECT_TRUE(codec::chained_keys(ns_[ns]->id(), nullptr, tokens, 4, {}, out).ok());
  return out;
}

std::vector<Key> World::keys(const Plan& plan) const {
  const std::vector<Key> all = chain(plan.ns, plan.conversation, kKeys);
  std::vector<Key> out;
  for (const size_t index : plan.index) out.push_back(all[index]);
  return out;
}

template <class Op, class Done>
void World::start(Engine& engine, std::shared_ptr<Op> operation, Done done) {
  engine.busy = true;
  engine.operation = operation;
  ++seen.submitted;
  Operation* const mine = operation.get();
  auto ended = [this, &engine, done, mine,
                is_over = std::make_shared<bool>(false)](const copy::Completion& completion) {
    const InPlace test(Place::nowhere);
    EXPECT_FALSE(*is_over) << "an operation completed twice";
    *is_over = true;
    ++seen.completed;
    if (completion.status == Code::no_memory) ++seen.no_memory;
    engine.busy = false;
    std::erase_if(waited_, [mine](const auto& one) { return one.get() == mine; });
    sim_.note("completed", completion.items_done);
    done(completion);
  };
  if (!crowded_) return operation->start(std::move(ended));
  waited_.push_back(operation);
  operation->start_waited(std::move(ended), [] {});
}

void World::store() {
  Engine* engine = idle_engine();
  if (engine == nullptr) return;
  const auto which = static_cast<size_t>(engine - engines_);
  const size_t n = random_.below(2);
  const size_t count = 1 + random_.below(kKeys);
  StoreRequest request;
  request.unchained = random_.below(8) == 0;
  const Plan plan = plan_for(*engine, which, n, count, request.unchained);
  request.cache = engine->cache[n];
  request.keys = keys(plan);
  for (size_t i = 0; i < count * plan.units; ++i) {
    const auto id = static_cast<uint32_t>(kKeys * plan.units - 1 - i);
    request.block_ids.push_back(id);
    fill_as({engine->memory.data() + id * plan.unit_bytes, plan.unit_bytes}, plan.id, plan.tag, plan.conversation,
            plan.index[i / plan.units], i % plan.units);
  }
  request.deadline_ns = deadline();
  if (request.unchained) ++seen.repeats;
  engine->status.assign(kKeys, kNotSaid);
  request.item_status = {engine->status.data(), count};
  start(*engine, std::make_shared<StoreOperation>(std::move(request)), [engine, count](const copy::Completion&) {
    for (size_t i = 0; i < count; ++i) EXPECT_NE(engine->status[i], kNotSaid);
  });
}

void World::load() {
  Engine* engine = idle_engine();
  if (engine == nullptr) return;
  const auto which = static_cast<size_t>(engine - engines_);
  const bool scattered = random_.below(4) == 0;
  Plan plan = plan_for(*engine, which, random_.below(2), 1 + random_.below(kKeys), scattered);
  LookupRequest how;
  how.mode = scattered ? LookupMode::each : LookupMode::prefix;
  how.no_use = random_.below(8) == 0;
  auto match =
      look_up(manager_->stack().keep(), ns_[plan.ns], engine->cache[plan.ns]->plans().value(), keys(plan), how);
  if (match == nullptr) return;
  LoadRequest request;
  request.cache = engine->cache[plan.ns];
  const size_t found = scattered ? plan.index.size() : match->hits();
  request.first_key = random_.below(4) == 0 ? random_.below(found) : 0;
  plan.index.resize(found);
  plan.index.erase(plan.index.begin(), plan.index.begin() + static_cast<ptrdiff_t>(request.first_key));
  const size_t count = plan.index.size();
  // The last key may have fewer ids than a stored block has units, and any id may be none.
  request.n_ids = count * plan.units - random_.below(plan.units);
  if (request.n_ids != count * plan.units) ++seen.partial_loads;
  for (size_t i = 0; i < request.n_ids; ++i) {
    plan.ids.push_back(random_.below(16) == 0 ? kNoBlock : static_cast<uint32_t>(i));
  }
  request.block_ids = plan.ids;
  std::vector<bool> there;
  for (size_t i = 0; i < count; ++i) there.push_back(match->tier_of(0, request.first_key + i) != kNoTier);
  std::fill(engine->memory.begin(), engine->memory.end(), kUntouched);
  request.deadline_ns = deadline();
  request.keep_below = random_.below(4) == 0;
  if (random_.below(4) == 0) request.compute_block_ns = uint64_t{1} << random_.below(26);
  engine->status.assign(kKeys, kNotSaid);
  request.item_status = {engine->status.data(), count};
  request.match = std::move(match);
  start(*engine, std::make_shared<LoadOperation>(std::move(request)),
        [this, engine, plan = std::move(plan), there = std::move(there)](const copy::Completion&) {
          check_loaded(*engine, plan, there);
        });
}

void World::check_loaded(const Engine& engine, const Plan& plan, const std::vector<bool>& there) {
  std::vector<bool> wanted(kKeys * plan.units, false);
  for (size_t i = 0; i < plan.index.size(); ++i) {
    EXPECT_NE(engine.status[i], kNotSaid);
    const bool ok = engine.status[i] == static_cast<int32_t>(Code::ok);
    // A load never fails for lack of a host slot: it reads past the host.
    EXPECT_NE(engine.status[i], static_cast<int32_t>(Code::no_room));
    EXPECT_NE(engine.status[i], static_cast<int32_t>(Code::over_quota));
    bool any = false;
    for (size_t u = 0; u < plan.units && i * plan.units + u < plan.ids.size(); ++u) {
      const uint32_t id = plan.ids[i * plan.units + u];
      if (id == kNoBlock) continue;
      any = true;
      wanted[id] = true;
      if (!ok) continue;
      const ConstBytes got{engine.memory.data() + id * plan.unit_bytes, plan.unit_bytes};
      ++seen.loaded;
      EXPECT_TRUE(filled(got, plan.id, plan.tag, plan.conversation, plan.index[i], u))
          << "a wrong block came back: conversation " << plan.conversation << " index " << plan.index[i] << " unit "
          << u;
    }
    EXPECT_TRUE(!any || !ok || there[i]) << "a key that was nowhere was loaded";
  }
  for (size_t id = 0; id < wanted.size(); ++id) {
    const std::byte* at = engine.memory.data() + id * plan.unit_bytes;
    if (!wanted[id]) {
      EXPECT_TRUE(std::all_of(at, at + plan.unit_bytes, [](std::byte b) { return b == kUntouched; }))
          << "engine block " << id << " was nobody's to write";
    }
  }
}

void World::move(bool up) {
  Engine* engine = idle_engine();
  if (engine == nullptr) return;
  const size_t n = random_.below(2);
  const std::vector<Key> some = chain(n, random_.below(kConversations), 1 + random_.below(kKeys));
  const PartPlan plan = engine->cache[n]->plans().value()[0];
  if (up) {
    LookupRequest each;
    each.mode = LookupMode::each;
    auto match = look_up(manager_->stack().keep(), ns_[n], {&plan, 1}, some, each);
    start(*engine,
          std::make_shared<PrefetchOperation>(manager_->stack().keep(), std::move(match), some.size(), deadline()),
          [](const copy::Completion&) {});
  } else {
    const auto tier = static_cast<TierIndex>(1 + random_.below(manager_->lower().count()));
    start(*engine, std::make_shared<OffloadOperation>(manager_->stack().keep(), tier, plan.family, some, deadline()),
          [](const copy::Completion&) {});
  }
}

// Acts as a user of managed blocks: allocates some, fills and registers them and releases them, or returns them unused.
void World::pool() {
  if (held_.size() < 2 && random_.below(2) == 0) {
    Held held;
    held.slots.resize(1 + random_.below(6));
    held.conversation = random_.below(kConversations);
    if (manager_->stack().allocate(ns_[1]->account(), held.slots, nullptr) == Code::ok)
      held_.push_back(std::move(held));
    return;
  }
  if (held_.empty()) return;
  const size_t at = random_.below(held_.size());
  if (!held_[at].registered && random_.below(4) != 0) return register_held(held_[at]);
  manager_->host().release(held_[at].slots);
  held_.erase(held_.begin() + static_cast<ptrdiff_t>(at));
}

void World::register_held(Held& held) {
  const std::vector<Key> all = chain(1, held.conversation, held.slots.size());
  const NamespaceId id = ns_[1]->id();
  for (size_t i = 0; i < held.slots.size(); ++i) {
    fill(manager_->host().arena().payload(held.slots[i]).first(kBlockBytes), id, 0, held.conversation, i, 0);
  }
  ASSERT_EQ(manager_->host().table().complete(held.slots), Code::ok);
  for (const SlotId slot : held.slots) {
    manager_->host().arena().clear_head(slot);
    note_payload_bytes(manager_->host(), slot, kBlockBytes);
  }
  block::Publication what;
  what.family = ns_[1]->plan({}).value().family;
  what.keys = all;
  what.lineage = block::Lineage::chain;
  what.tick = manager_->host().tick();
  std::vector<Code> codes(held.slots.size());
  EXPECT_EQ(manager_->stack().publish(held.slots, what, {}, codes), Code::ok);
  held.registered = true;
  for (size_t i = 0; i < held.slots.size(); ++i) {
    EXPECT_TRUE(codes[i] == Code::ok || codes[i] == Code::exists);
    EXPECT_TRUE(
        filled(manager_->host().arena().payload(held.slots[i]).first(kBlockBytes), id, 0, held.conversation, i, 0))
        << "a registered block has other bytes than were written";
    ++seen.registered;
  }
}

// Marks the host's blocks of a conversation as if another node had given them.
void World::take() {
  const size_t n = random_.below(2);
  const std::vector<Key> some = chain(n, random_.below(kConversations), 1 + random_.below(8));
  std::vector<SlotId> slots(some.size(), kNoSlot);
  slots.resize(
      manager_->host().table().acquire_prefix(ns_[n]->plan({}).value().family, some, slots, manager_->host().tick()));
  seen.taken += slots.size();
  if (!slots.empty()) manager_->stack().keep_received(slots);
}

// Holds a match for a while, which keeps its blocks where they are.
void World::watch() {
  if (watched_.size() == 2) watched_.pop_front();
  const Engine& engine = engines_[random_.below(kEngines)];
  const size_t n = random_.below(2);
  auto match = look_up(manager_->stack().keep(), ns_[n], engine.cache[n]->plans().value(),
                       chain(n, random_.below(kConversations), 1 + random_.below(kKeys)), {});
  if (match != nullptr) watched_.push_back(std::move(match));
}

void World::forget() {
  const size_t n = random_.below(2);
  const auto some = chain(n, random_.below(kConversations), 1 + random_.below(kKeys));
  const uint64_t what = random_.below(8);
  if (what == 0) {
    const bool done = manager_->stack().erase_all().ok();
    EXPECT_TRUE(done || faulty_);
    if (done && faulty_ && host_file_) die_having_forgotten({ns_[0]->id(), ns_[1]->id()});
  } else if (what < 3) {
    const bool done = manager_->namespaces().reset(*ns_[n]).ok();
    EXPECT_TRUE(done || faulty_);
    if (done && faulty_ && host_file_ && what == 1) die_having_forgotten({ns_[n]->id()});
  } else {
    manager_->stack().drop(engines_[random_.below(kEngines)].cache[n]->plans().value()[0].family, some);
  }
}

void World::pin() {
  const size_t n = random_.below(2);
  const auto some = chain(n, random_.below(kConversations), 6);
  block::PinId id = 0;
  size_t count = 0;
  const uint64_t until = random_.below(2) == 0 ? kNever : sim_.clock().now_ns() + random_.below(5'000'000);
  const FamilyId family = ns_[n]->plan({}).value().family;
  if (manager_->pins().pin(family, some, 7, until, id, count) == Code::ok && id != 0) pins_.push_back(id);
  if (pins_.size() > 2) {
    [[maybe_unused]] const Code ended = manager_->pins().unpin(pins_.front());
    pins_.erase(pins_.begin());
  }
}

void World::cancel() {
  if (const auto operation = engines_[random_.below(kEngines)].operation.lock()) operation->cancel();
}

void World::invalidate() {
  const size_t n = random_.below(2);
  const NamespaceId before = ns_[n]->id();
  const Status raised = manager_->namespaces().invalidate(*ns_[n]);
  EXPECT_TRUE(raised.ok() || faulty_ || shape_.full_disks) << raised.message();
  if (raised.ok()) {
    EXPECT_NE(before, ns_[n]->id());
    least_epoch_[n] = ns_[n]->epoch();
    if (faulty_ && host_file_ && random_.below(4) == 0) die_having_forgotten({before});
  }
}

void World::change_quota() {
  if (shape_.quota_slots == 0) return;
  const uint64_t slots = 2 + random_.below(host_slots_);
  const auto mode = random_.below(2) == 0 ? block::OverQuota::evict : block::OverQuota::reject;
  EXPECT_TRUE(manager_->namespaces().set_quota(*ns_[1], slots * manager_->host().arena().slot_bytes(), mode).ok());
}

}  // namespace kvbm::test
