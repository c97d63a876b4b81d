// The reference protocol in every order: two threads with three operations each on one hold. The code of lib/block
// itself runs, with atomics and locks that are steps here (support/interleavings.h). No ended hold is revived, no
// slot has two owners, and every reference is released once.
//
// By default operations are left out that add orders rather than kinds of them; KVBMTEST_LONG takes all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/prefetch.h"
#include "base/status.h"
#include "base/thread/batch_lock.h"
#include "base/thread/mutex.h"
#include "base/thread/thread_number.h"
#include "policy/eviction.h"
#include "policy/hinted.h"
#include "policy/hints.h"
#include "support/counts.h"
#include "support/interleavings.h"

// The sources once more, in a namespace in which `std::atomic`, locks and thread numbers are those of the steps. This
// file is compiled apart from others that include the same headers.
#define block stepped_block
namespace kvbm::block {
namespace std {
using namespace ::std;
template <class T>
using atomic = ::kvbm::test::SteppedAtomic<T>;
}  // namespace std

class KVBM_CAPABILITY Mutex {
 public:
  void lock() KVBM_ACQUIRE() KVBM_NO_TSA { test::Interleavings::step(this, test::Interleavings::Access::lock); }
  void unlock() KVBM_RELEASE() KVBM_NO_TSA { test::Interleavings::step(this, test::Interleavings::Access::unlock); }
};
class KVBM_SCOPED_CAPABILITY BatchLock {
 public:
  explicit BatchLock(Mutex& mutex) KVBM_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~BatchLock() KVBM_RELEASE() { mutex_.unlock(); }
  BatchLock(const BatchLock&) = delete;
  BatchLock& operator=(const BatchLock&) = delete;
  static bool lock(Mutex& mutex) KVBM_ACQUIRE(mutex) {
    mutex.lock();
    return true;
  }
  [[nodiscard]] static bool waited() noexcept { return false; }

 private:
  Mutex& mutex_;
};
using MutexLock = BatchLock;
// Puts all threads into one lane of the table of holds, where they interfere most.
inline uint32_t thread_number() noexcept { return 0; }
}  // namespace kvbm::block

#include "../unit/block/block_fixture.h"
#include "block/block_table.cc"
#include "block/block_table_pool.cc"
#include "block/block_table_publish.cc"
#include "block/block_table_scan.cc"
#include "block/held.cc"
#include "block/hold_table.cc"
#include "block/prefix_index.cc"
#include "block/slot_pool.cc"

namespace kvbm::block::hold_interleavings_test {
namespace {

using test::Interleavings;

constexpr uint64_t kOriginal = 1;   // the label of the block that there is at first
constexpr uint64_t kPayload = 100;  // its length; that of block n is n * kPayload

struct Held {
  HoldValue value = kNoHold;
  uint64_t label = 0;
  SlotId slot = kNoSlot;
};

// A table, one block in it, and one hold on that, which both threads use; and what each thread has made of it.
struct World {
  explicit World(uint32_t slots) : table(make_table(slots)), holds(HoldTable::Options{.max_holds = 1}), labels(slots) {}

  std::unique_ptr<BlockTable> table;
  HoldTable holds;
  std::vector<uint64_t> labels;  // number written to each slot: its bytes
  Held shared;
  HoldValue weak = kNoHold;
  uint64_t shared_key = 0;
  std::vector<Held> own[2];
  std::vector<Held> own_weak[2];
  bool released[2] = {false, false};  // by this thread
  bool ending = false;                // a call that may end the shared hold has begun
  int ends = 0;                       // calls that ended it
  std::string wrong;

  std::vector<Held>& mine() { return own[me()]; }
  static size_t me() { return static_cast<size_t>(std::max(Interleavings::thread(), 0)); }
  void expect(bool good, const char* what) {
    if (!good && wrong.empty()) wrong = what;
  }
  void keep(HoldKind kind, SlotId slot, uint64_t label) {
    Held held{kNoHold, label, slot};
    if (holds.create(kind, {&slot, 1}, {}, {&held.value, 1}) == Code::ok) {
      mine().push_back(held);
    } else {
      table->release({&slot, 1});
    }
  }
  Code end(HoldValue value) {
    Hold was;
    Code code = Code::ok;
    if (holds.end({&value, 1}, {&was, 1}, {&code, 1}) == 1 && was.kind != HoldKind::weak)
      table->release({&was.slot, 1});
    return code;
  }
  // The slot belongs to this thread alone: no other hold is on it.
  void write(SlotId slot, uint64_t label) {
    for (const auto& some : own) {
      for (const Held& held : some) expect(held.slot != slot, "a slot was given away that is held");
    }
    expect(ending || shared.slot != slot, "a slot was given away that is held");
    labels[slot] = label;
    table->set_payload_bytes(slot, static_cast<uint32_t>(label * kPayload));
  }
  Publication one(const Key& key) const {
    Publication what;
    what.keys = {&key, 1};
    return what;
  }
};

// ---- the operations, as the C interface makes them; each may find that the hold has ended ----

using Operation = void (*)(World&);

void clone(World& w) {
  const size_t me = World::me();
  SlotId slot = kNoSlot;
  const Code code = retain_held(w.holds, *w.table, {&w.shared.value, 1}, {&slot, 1});
  if (code != Code::ok) return w.expect(code == Code::stale_handle || code == Code::wrong_state, "clone");
  w.expect(!w.released[me], "a hold was revived that had ended before");
  w.keep(HoldKind::reading, slot, w.shared.label);
}
void downgrade(World& w) {
  SlotId slot = kNoSlot;
  uint32_t generation = 0;
  const Code code = name_held(w.holds, *w.table, {&w.shared.value, 1}, {&slot, 1}, {&generation, 1});
  if (code != Code::ok) return w.expect(code == Code::stale_handle || code == Code::wrong_state, "downgrade");
  Held weak{kNoHold, w.shared.label};
  if (w.holds.create(HoldKind::weak, {&slot, 1}, {&generation, 1}, {&weak.value, 1}) == Code::ok) {
    w.own_weak[World::me()].push_back(weak);
  }
}
void upgrade_one(World& w, HoldValue weak, uint64_t label) {
  Hold hold;
  const Code code = w.holds.resolve(weak, &hold);
  if (code != Code::ok) return w.expect(code == Code::stale_handle, "upgrade");
  if (!w.table->acquire_weak(hold.slot, hold.slot_generation)) return;
  w.expect(w.labels[hold.slot] == label, "a weak hold gave another block");
  w.keep(HoldKind::reading, hold.slot, label);
}
void upgrade(World& w) {
  auto& mine = w.own_weak[World::me()];
  if (mine.empty()) {
    if (w.weak != kNoHold) upgrade_one(w, w.weak, kOriginal);
  } else {
    upgrade_one(w, mine.back().value, mine.back().label);
  }
}
void view(World& w) {
  Seen seen;
  const Code code = look_at(w.holds, *w.table, w.shared.value, &seen);
  if (code != Code::ok) return w.expect(code == Code::stale_handle, "view");
  w.expect(!w.released[World::me()], "an ended hold was viewed");
  w.expect(seen.partial || seen.payload_bytes == w.shared.label * kPayload, "a hold was viewed on another block");
}
void release(World& w) {
  w.ending = true;
  const Code code = w.end(w.shared.value);
  w.expect(code == Code::ok || code == Code::stale_handle, "release");
  if (code == Code::ok) ++w.ends;
  w.released[World::me()] = true;
}
void release_weak(World& w) {
  const Code code = w.end(w.weak);
  w.expect(code == Code::ok || code == Code::stale_handle, "release");
}
// Releases the last hold that the thread has made.
void release_own(World& w) {
  auto& mine = w.mine();
  if (mine.empty()) return;
  const Held held = mine.back();
  mine.pop_back();
  w.expect(w.end(held.value) == Code::ok, "a hold that nobody ended has ended");
}
// Stores another block if there is a slot: writes, completes and registers it.
void bring(World& w) {
  SlotId slot = kNoSlot;
  if (w.table->allocate(kSharedAccount, {&slot, 1}, nullptr) != Code::ok) return;
  const uint64_t label = 10 + 10 * World::me() + w.mine().size();
  w.write(slot, label);
  w.expect(w.table->complete({&slot, 1}) == Code::ok, "its own block cannot be completed");
  const Key key = key_of(label);
  w.expect(w.table->publish({&slot, 1}, w.one(key), {}) == Code::ok, "its own block cannot be registered");
  w.keep(HoldKind::reading, slot, w.labels[slot]);
}
// Allocates a slot and writes to it; it stays held.
void allocate(World& w) {
  SlotId slot = kNoSlot;
  if (w.table->allocate(kSharedAccount, {&slot, 1}, nullptr) != Code::ok) return;
  const uint64_t label = 50 + 10 * World::me() + w.mine().size();
  w.write(slot, label);
  w.keep(HoldKind::writable, slot, label);
}
void complete(World& w) {
  SlotId slot = kNoSlot;
  const uint64_t bytes = w.shared.label * kPayload;
  const Code code = complete_held(w.holds, *w.table, {&w.shared.value, 1}, {&slot, 1}, {&bytes, 1}, 0);
  if (code != Code::ok) return w.expect(code == Code::stale_handle || code == Code::wrong_state, "complete");
  w.expect(!w.released[World::me()], "an ended hold was completed");
}
void enroll(World& w) {
  SlotId slot = kNoSlot;
  HoldValue value = w.shared.value;
  w.ending = true;
  const Code taken = take_held(w.holds, *w.table, {&value, 1}, {&slot, 1});
  if (taken != Code::ok) return w.expect(taken == Code::stale_handle || taken == Code::wrong_state, "register");
  ++w.ends;
  w.expect(!w.released[World::me()], "an ended hold was registered");
  w.released[World::me()] = true;
  const Key key = key_of(w.shared_key);
  Code code = Code::ok;
  (void)w.table->publish({&slot, 1}, w.one(key), {&code, 1});
  w.expect(code == Code::ok || code == Code::exists, "a block that was taken cannot be registered");
  w.holds.settle({&value, 1}, HoldKind::reading, {&slot, 1});
  w.mine().push_back({value, code == Code::ok ? w.shared.label : w.labels[slot], slot});
}

// ---- at the end of a run ----

void check_hold(World& w, const Held& held, std::vector<uint32_t>& references) {
  Hold on;
  const bool live = w.holds.resolve(held.value, &on) == Code::ok;
  w.expect(live, "a hold that nobody ended has ended");
  if (!live) return;
  w.expect(w.labels[on.slot] == held.label, "a hold is on another block");
  if (on.kind == HoldKind::writable) w.expect(references[on.slot] == 0, "a slot has two owners");
  ++references[on.slot];
}

bool check(World& w) {
  std::vector<uint32_t> references(w.table->slots());
  w.expect(w.ends <= 1, "a hold ended twice");
  if (w.ends == 0 && w.shared.value != kNoHold) check_hold(w, w.shared, references);
  for (const auto& some : w.own) {
    for (const Held& held : some) check_hold(w, held, references);
  }
  for (SlotId slot = 0; slot < w.table->slots(); ++slot) {
    const SlotInfo info = w.table->info(slot);
    w.expect(info.references == references[slot], "references are not as many as holds");
    w.expect(info.children == 0 && info.pins == 0, "a count has run into the next");
  }
  w.expect(w.table->underflows() == 0, "a reference was given back that nobody had");
  if (!w.wrong.empty()) return false;
  if (w.ends == 0 && w.shared.value != kNoHold) w.expect(w.end(w.shared.value) == Code::ok, "release");
  for (const auto* lists : {&w.own, &w.own_weak}) {
    for (const auto& some : *lists) {
      for (const Held& held : some) w.expect(w.end(held.value) == Code::ok, "release");
    }
  }
  // Every slot can be allocated once afterwards.
  std::vector<SlotId> all(w.table->slots());
  w.expect(w.table->allocate(kSharedAccount, all, nullptr) == Code::ok, "a slot was lost");
  std::sort(all.begin(), all.end());
  w.expect(std::adjacent_find(all.begin(), all.end()) == all.end(), "a slot is there twice");
  return w.wrong.empty();
}

// ---- what is tried ----

struct Named {
  const char* name;
  Operation run;
};
using Script = std::vector<Named>;

std::string text(const Script& script) {
  std::string out;
  for (const Named& one : script) out.append(out.empty() ? "" : ", ").append(one.name);
  return out;
}

// Returns the first error found in any order, or an empty text. Adds the runs to `runs`.
template <class Make>
std::string try_all(const Make& make, const Script& first, const Script& second, uint64_t& runs) {
  Interleavings orders;
  std::unique_ptr<World> world;
  const auto play = [&world](const Script& script) {
    return [&world, &script] {
      for (const Named& one : script) one.run(*world);
    };
  };
  runs += orders.explore([&] { world = make(); }, play(first), play(second), [&] { return check(*world); });
  if (orders.stuck()) return "both threads wait";
  if (world->wrong.empty()) return {};
  return world->wrong + "; 1: " + text(first) + "; 2: " + text(second) + "; steps " + orders.order();
}

bool has(const Script& script, Operation what) {
  return std::any_of(script.begin(), script.end(), [what](const Named& one) { return one.run == what; });
}

// Makes every script of the given number of operations in which each has an effect.
std::vector<Script> scripts(const std::vector<Named>& of, size_t length) {
  std::vector<Script> out{{}};
  for (size_t i = 0; i < length; ++i) {
    std::vector<Script> longer;
    for (const Script& script : out) {
      for (const Named& one : of) {
        if (one.run == &release_own && !has(script, &clone) && !has(script, &bring) && !has(script, &allocate))
          continue;
        longer.push_back(script);
        longer.back().push_back(one);
      }
    }
    out = std::move(longer);
  }
  return out;
}

// Runs every two scripts beside each other, of which at least one ends the hold.
template <class Make>
void try_pairs(const Make& make, const std::vector<Named>& of, size_t length, std::initializer_list<Operation> ends) {
  const std::vector<Script> all = scripts(of, length);
  const auto ending = [&](const Script& script) {
    return std::any_of(ends.begin(), ends.end(), [&](Operation end) { return has(script, end); });
  };
  uint64_t runs = 0;
  uint64_t pairs = 0;
  for (size_t a = 0; a < all.size(); ++a) {
    for (size_t b = a; b < all.size(); ++b) {
      if (!ending(all[a]) && !ending(all[b])) continue;
      ++pairs;
      const std::string wrong = try_all(make, all[a], all[b], runs);
      ASSERT_EQ(wrong, "");
    }
  }
  std::printf("%llu pairs of scripts\n", static_cast<unsigned long long>(pairs));
  test::counted(runs, "orders of steps");
}

bool all_of_them() { return std::getenv("KVBMTEST_LONG") != nullptr; }

#define SKIP_UNDER_THREAD_SANITIZER() \
  if (test::kThreadSanitizer) GTEST_SKIP() << "coroutines are not threads, and there is nothing to find between them"

// The table has one slot, so that the released block and the next one share it.
std::unique_ptr<World> registered_world() {
  auto w = std::make_unique<World>(1);
  const auto slots = store(*w->table, keys_of(kOriginal, 1), 0);
  w->labels[slots[0]] = kOriginal;
  w->table->set_payload_bytes(slots[0], kPayload);
  w->shared = {kNoHold, kOriginal, slots[0]};
  EXPECT_EQ(w->holds.create(HoldKind::reading, slots, {}, {&w->shared.value, 1}), Code::ok);
  const uint32_t generation = w->table->generation(slots[0]);
  EXPECT_EQ(w->holds.create(HoldKind::weak, slots, {&generation, 1}, {&w->weak, 1}), Code::ok);
  return w;
}

std::unique_ptr<World> writable_world(SlotState state, uint32_t slots) {
  auto w = std::make_unique<World>(slots);
  SlotId slot = kNoSlot;
  EXPECT_EQ(w->table->allocate(kSharedAccount, {&slot, 1}, nullptr), Code::ok);
  w->labels[slot] = kOriginal;
  w->table->set_payload_bytes(slot, kPayload);
  if (state == SlotState::complete) {
    EXPECT_EQ(w->table->complete({&slot, 1}), Code::ok);
  }
  w->shared = {kNoHold, kOriginal, slot};
  w->shared_key = kOriginal;
  EXPECT_EQ(w->holds.create(HoldKind::writable, {&slot, 1}, {}, {&w->shared.value, 1}), Code::ok);
  return w;
}

constexpr Named kClone{"clone", &clone}, kDowngrade{"downgrade", &downgrade}, kUpgrade{"upgrade", &upgrade},
    kView{"view", &view}, kRelease{"release", &release}, kReleaseOwn{"release own", &release_own},
    kBring{"bring", &bring}, kAllocate{"allocate", &allocate}, kComplete{"complete", &complete},
    kEnroll{"register", &enroll}, kReleaseWeak{"release weak", &release_weak};

TEST(HoldInterleavings, a_registered_block_in_every_order_of_three_operations_each) {
  SKIP_UNDER_THREAD_SANITIZER();
  std::vector<Named> of{kClone, kDowngrade, kRelease, kReleaseOwn, kBring};
  if (all_of_them()) of.insert(of.end(), {kUpgrade, kView});
  try_pairs(&registered_world, of, 3, {&release});
}

TEST(HoldInterleavings, a_registered_block_in_every_order_of_two_of_all_operations_each) {
  SKIP_UNDER_THREAD_SANITIZER();
  try_pairs(
      &registered_world,
      {kClone, kDowngrade, kUpgrade, kView, kRelease, kReleaseOwn, kReleaseWeak, kBring, kAllocate, kComplete, kEnroll},
      2, {&release, &release_weak});
}

TEST(HoldInterleavings, a_block_that_is_written_in_every_order_of_three_operations_each) {
  SKIP_UNDER_THREAD_SANITIZER();
  std::vector<Named> of{kComplete, kEnroll, kRelease, kAllocate};
  if (all_of_them()) of.insert(of.end(), {kView, kReleaseOwn, kClone});
  for (const SlotState state : {SlotState::partial, SlotState::complete}) {
    try_pairs([state] { return writable_world(state, 1); }, of, 3, {&release, &enroll});
  }
}

// The hold of a duplicate names the existing block; there is a slot for each of the two.
TEST(HoldInterleavings, a_block_that_is_there_already_is_registered_beside_releases) {
  SKIP_UNDER_THREAD_SANITIZER();
  const auto make = [] {
    auto w = writable_world(SlotState::complete, 2);
    const auto there = store(*w->table, keys_of(kOriginal, 1), 0);
    w->labels[there[0]] = 5;
    w->table->release(there);
    return w;
  };
  try_pairs(make, {kEnroll, kRelease, kBring, kView}, all_of_them() ? 3 : 2, {&release, &enroll});
}

// The table entry of an ended weak hold is reused by the next weak hold. A reader must not combine the slot of one
// with the generation of the other.
TEST(HoldInterleavings, a_weak_hold_is_of_one_slot_and_its_own_generation) {
  SKIP_UNDER_THREAD_SANITIZER();
  const auto make = [] {
    auto w = std::make_unique<World>(2);
    // The weak hold is on an evicted block. Its slot now holds another block, at the same generation as the shared
    // hold's.
    const auto first = store(*w->table, keys_of(kOriginal, 1), 0);
    const uint32_t generation = w->table->generation(first[0]);
    w->table->release(first);
    EXPECT_EQ(w->table->erase_all(), 1U);
    std::vector<SlotId> both = store(*w->table, keys_of(2, 2), 0);
    for (size_t i = 0; i < 2; ++i) w->labels[both[i]] = 2 + i;
    if (both[0] != first[0]) std::swap(both[0], both[1]);
    EXPECT_EQ(w->table->generation(both[0]), generation + 1);
    // The other slot reaches that generation as well.
    w->table->release({&both[1], 1});
    const Key key = w->table->identity(both[1]).key;
    EXPECT_EQ(w->table->erase(0, {&key, 1}), 1U);
    EXPECT_EQ(store(*w->table, keys_of(4, 1), 0)[0], both[1]);
    w->labels[both[1]] = 4;
    EXPECT_EQ(w->table->generation(both[1]), generation + 1);
    w->shared = {kNoHold, 4, both[1]};
    EXPECT_EQ(w->holds.create(HoldKind::weak, first, {&generation, 1}, {&w->weak, 1}), Code::ok);
    EXPECT_EQ(w->holds.create(HoldKind::reading, {&both[1], 1}, {}, {&w->shared.value, 1}), Code::ok);
    w->table->release({&both[0], 1});
    // Uses up all other entries of the page.
    std::vector<SlotId> slots(HoldTable::kPageHolds - 2, both[1]);
    std::vector<HoldValue> values(slots.size());
    EXPECT_EQ(w->holds.create(HoldKind::weak, slots, std::vector<uint32_t>(slots.size()), values), Code::ok);
    return w;
  };
  uint64_t runs = 0;
  EXPECT_EQ(try_all(make, {kUpgrade}, {kReleaseWeak, kDowngrade, kUpgrade}, runs), "");
  EXPECT_GT(runs, 3U);
}

// ---- Proof that the check finds faults: operations that resolve a hold first and use its slot in a second step ----

void clone_in_two_steps(World& w) {
  SlotId slot = kNoSlot;
  if (w.holds.resolve_all({&w.shared.value, 1}, HoldKind::reading, {&slot, 1}) != Code::ok) return;
  w.table->retain({&slot, 1});
  w.keep(HoldKind::reading, slot, w.shared.label);
}
void downgrade_in_two_steps(World& w) {
  SlotId slot = kNoSlot;
  if (w.holds.resolve_all({&w.shared.value, 1}, HoldKind::reading, {&slot, 1}) != Code::ok) return;
  const uint32_t generation = w.table->generation(slot);
  Held weak{kNoHold, w.shared.label};
  if (w.holds.create(HoldKind::weak, {&slot, 1}, {&generation, 1}, {&weak.value, 1}) == Code::ok) {
    w.own_weak[World::me()].push_back(weak);
  }
}
void view_in_two_steps(World& w) {
  Hold hold;
  if (w.holds.resolve(w.shared.value, &hold) != Code::ok) return;
  w.expect(w.table->payload_bytes(hold.slot) == w.shared.label * kPayload, "a hold was viewed on another block");
}
void complete_in_two_steps(World& w) {
  SlotId slot = kNoSlot;
  if (w.holds.resolve_all({&w.shared.value, 1}, HoldKind::writable, {&slot, 1}) != Code::ok) return;
  (void)w.table->complete({&slot, 1});
}

TEST(HoldInterleavings, what_takes_two_steps_is_found_out) {
  SKIP_UNDER_THREAD_SANITIZER();
  const Script replace{kRelease, kBring};
  uint64_t runs = 0;
  EXPECT_NE(try_all(&registered_world, {{"clone", &clone_in_two_steps}}, replace, runs), "");
  EXPECT_NE(try_all(&registered_world, {{"downgrade", &downgrade_in_two_steps}, kUpgrade}, replace, runs), "");
  EXPECT_NE(try_all(&registered_world, {{"view", &view_in_two_steps}}, replace, runs), "");
  const auto partial = [] { return writable_world(SlotState::partial, 1); };
  const Named two{"complete", &complete_in_two_steps};
  EXPECT_NE(try_all(partial, {two}, {kRelease, kAllocate, kReleaseOwn}, runs), "");
  EXPECT_NE(try_all(partial, {two}, {two}, runs), "");
}

}  // namespace
}  // namespace kvbm::block::hold_interleavings_test
#undef block
