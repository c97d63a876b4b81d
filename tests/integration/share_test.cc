// Processes of one host that share a tier set (share=on): what one stored the others find, the owner dies at any moment
// and a client takes over, with everything that a flush acknowledged and no wrong byte. KVBMTEST_KILLS says how often
// owners are killed (default 5).
#include <gtest/gtest.h>

#include <cinttypes>
#include <random>

#include "support/promise.h"
#include "support/share_member.h"
#include "support/temp_dir.h"

namespace kvbm::test::share_test {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

// Waits until one of them is the owner and the others are its clients. Returns the time that took; 0 after a minute.
uint64_t settle(std::vector<ShareMember*> members, size_t& owner) {
  const uint64_t began = now_ns();
  while (now_ns() - began < 60 * kSecond) {
    size_t owners = 0;
    size_t clients = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      const ShareReply r = members[i]->role();
      if (r.role == KVBM_SHARE_OWNER) {
        ++owners;
        owner = i;
      }
      clients += r.role == KVBM_SHARE_CLIENT ? 1 : 0;
    }
    EXPECT_LE(owners, 1U);
    if (owners == 1 && clients + 1 == members.size()) return now_ns() - began;
    usleep(2000);
  }
  return 0;
}

// An owner with a client.
class ShareOfTwo : public testing::Test {
 protected:
  void SetUp() override {
    for (ShareMember* member : {&owner, &client}) {
      const ShareReply r = member->open(dir.path());
      ASSERT_EQ(r.status, KVBM_OK) << r.message;
    }
  }
  const TempDir dir;
  ShareMember owner;
  ShareMember client;
};

TEST(Share, a_client_finds_what_another_stored) {
  const TempDir dir;
  ShareMember owner;
  ShareMember worker;
  ShareMember scheduler;
  ShareReply r = owner.open(dir.path());
  ASSERT_EQ(r.status, KVBM_OK) << r.message;
  EXPECT_EQ(r.role, static_cast<uint32_t>(KVBM_SHARE_OWNER));
  for (ShareMember* member : {&worker, &scheduler}) {
    r = member->open(dir.path());
    ASSERT_EQ(r.status, KVBM_OK) << r.message;
    EXPECT_EQ(r.role, static_cast<uint32_t>(KVBM_SHARE_CLIENT));
    EXPECT_EQ(r.pid, static_cast<uint64_t>(owner.pid()));
  }
  EXPECT_EQ(scheduler.look(0, 32).done, 0U);
  r = worker.store(0, 32);
  ASSERT_EQ(r.status, KVBM_OK);
  std::printf("32 blocks of 8 KiB stored by a client in %.2f ms\n", static_cast<double>(r.took_ns) / 1e6);
  r = scheduler.look(0, 32);
  std::printf("and loaded by another one in %.2f ms\n", static_cast<double>(r.took_ns) / 1e6);
  EXPECT_EQ(r.done, 32U);
  EXPECT_EQ(r.wrong, 0U);
  EXPECT_EQ(owner.look(0, 32).done, 32U);
  ASSERT_EQ(owner.store(100, 8).status, KVBM_OK);
  EXPECT_EQ(worker.look(100, 8).done, 8U);
  EXPECT_EQ(worker.store(100, 8).status, KVBM_OK);  // there already
  EXPECT_EQ(worker.flush().status, KVBM_OK);
  EXPECT_EQ(owner.role().clients, 2U);
  EXPECT_EQ(scheduler.leave(), 0);
  EXPECT_EQ(worker.leave(), 0);
  EXPECT_EQ(owner.leave(), 0);
}

TEST(Share, a_set_without_a_disk_is_shared_in_a_directory) {
  const TempDir dir;
  ShareMember owner;
  ShareMember client;
  ASSERT_EQ(owner.open(dir.path(), true).status, KVBM_OK);
  ASSERT_EQ(client.open(dir.path(), true).status, KVBM_OK);
  ASSERT_EQ(client.store(0, 16).status, KVBM_OK);
  ASSERT_EQ(client.flush().status, KVBM_OK);
  EXPECT_EQ(owner.look(0, 16).done, 16U);
  // Only blocks in the successor's own host are left, and it serves them to the next process.
  owner.kill(SIGKILL);
  size_t at = 0;
  ASSERT_NE(settle({&client}, at), 0U);
  ShareMember next;
  ASSERT_EQ(next.open(dir.path(), true).status, KVBM_OK);
  const ShareReply r = next.look(0, 16);
  EXPECT_EQ(r.done, 16U);
  EXPECT_EQ(r.wrong, 0U);
}

TEST_F(ShareOfTwo, an_owner_that_closes_has_a_successor) {
  ASSERT_EQ(owner.store(0, 16).status, KVBM_OK);
  EXPECT_EQ(owner.leave(), 0);
  size_t at = 0;
  ASSERT_NE(settle({&client}, at), 0U);
  const ShareReply r = client.look(0, 16);
  EXPECT_EQ(r.done, 16U);
  EXPECT_EQ(r.wrong, 0U);
}

// The owner is killed while its clients store; one of them takes over, and finds what was acknowledged before.
TEST(Share, a_killed_owner_loses_nothing_that_was_acknowledged) {
  const char* text = std::getenv("KVBMTEST_KILLS");
  const int kills = text != nullptr ? std::atoi(text) : 5;
  const uint64_t seed = std::random_device{}();
  std::printf("seed %" PRIu64 ", %d kills\n", seed, kills);
  std::mt19937_64 random(seed);
  const TempDir dir;
  std::vector<std::unique_ptr<ShareMember>> members;
  for (int i = 0; i < 3; ++i) {
    members.push_back(std::make_unique<ShareMember>());
    const ShareReply r = members.back()->open(dir.path());
    ASSERT_EQ(r.status, KVBM_OK) << r.message;
  }
  constexpr uint64_t kStored = 24;
  constexpr size_t kLookBack = 16;
  uint64_t next = 0;
  Promise soon("a client takes over, and the others find it", std::chrono::milliseconds(1000));
  uint64_t lost = 0;
  uint64_t looked_for = 0;
  std::vector<uint64_t> acknowledged;  // first of each kStored
  std::vector<size_t> by_kill;         // how many were when
  size_t owner = 0;
  for (int kill = 0; kill < kills; ++kill) {
    ASSERT_NE(settle({members[0].get(), members[1].get(), members[2].get()}, owner), 0U);
    // Some rounds are acknowledged by a flush. A last one is in progress when the owner dies.
    const size_t a = (owner + 1) % 3;
    const size_t b = (owner + 2) % 3;
    for (uint64_t round = random() % 3; round != 0; --round) {
      ASSERT_EQ(members[a]->store(next, kStored).status, KVBM_OK);
      ASSERT_EQ(members[a]->flush().status, KVBM_OK);
      acknowledged.push_back(next);
      next += kStored;
    }
    const uint64_t under_way = next;
    members[a]->send(ShareMember::of(ShareCommand::store, under_way, kStored));
    // Half of the time, loads read the memory of the process that is about to die.
    members[b]->send(random() % 2 == 0 ? ShareMember::of(ShareCommand::look, under_way, kStored)
                                       : ShareMember::look_in_place_command(under_way, kStored));
    next += kStored;
    usleep(static_cast<useconds_t>(random() % 6000));
    const Witness witness;
    const auto dead = Witness::Clock::now();
    members[owner]->kill(SIGKILL);
    ShareReply stored;
    ShareReply looked;
    ASSERT_TRUE(members[a]->receive(stored));
    ASSERT_TRUE(members[b]->receive(looked));
    EXPECT_EQ(looked.wrong, 0U);
    EXPECT_EQ(stored.done + stored.gone, kStored) << stored.status;
    size_t successor = 0;
    ASSERT_NE(settle({members[a].get(), members[b].get()}, successor), 0U);
    soon.came(witness, dead);
    // A process that stored none of the blocks finds all of them, including those that were in flight before the
    // flush. Blocks older than some kills may be evicted, since each owner begins new segments of the disk's 64.
    by_kill.push_back(acknowledged.size());
    const size_t from = by_kill.size() > kLookBack ? by_kill[by_kill.size() - kLookBack - 1] : 0;
    for (size_t i = from; i < acknowledged.size(); ++i) {
      const ShareReply r = members[b]->look(acknowledged[i], kStored);
      EXPECT_EQ(r.wrong, 0U);
      lost += kStored - r.done;
      looked_for += kStored;
    }
    const ShareReply flushed = members[a]->flush();
    ASSERT_EQ(flushed.status, KVBM_OK) << flushed.status;
    acknowledged.push_back(under_way);
    EXPECT_EQ(members[b]->look(under_way, kStored).done, kStored);
    members[owner] = std::make_unique<ShareMember>();
    const ShareReply r = members[owner]->open(dir.path());
    ASSERT_EQ(r.status, KVBM_OK) << r.message;
    EXPECT_EQ(r.role, static_cast<uint32_t>(KVBM_SHARE_CLIENT));
  }
  std::printf("%" PRIu64 " looked for that were acknowledged, %" PRIu64 " lost\n", looked_for, lost);
  soon.expect_kept();
  EXPECT_EQ(lost, 0U);
}

// Blocks in the owner's memory are copied from there, with no message: it may stand still meanwhile.
TEST_F(ShareOfTwo, what_lies_in_the_owners_memory_is_read_there) {
  ASSERT_EQ(owner.store(0, 32).status, KVBM_OK);
  // The owner may have to make heads for the first load, which then uses the link.
  ShareReply r;
  do {
    r = client.look_in_place(0, 32);
    ASSERT_EQ(r.done, 32U);
    ASSERT_EQ(r.wrong, 0U);
  } while (client.role().in_place_bytes < 32 * 8192);  // the test's own limit ends it otherwise
  const uint64_t before = client.role().in_place_bytes;
  owner.freeze();
  r = client.look_in_place(0, 32);
  EXPECT_EQ(r.done, 32U);
  EXPECT_EQ(r.wrong, 0U);
  EXPECT_EQ(client.role().in_place_bytes, before + 32 * 8192);
  // Blocks that are kept in the client's host are also copied from there, once.
  EXPECT_EQ(client.look(0, 32).wrong, 0U);
  EXPECT_EQ(client.role().in_place_bytes, before + 2 * 32 * 8192);
  owner.kill(SIGKILL);
  r = client.look(0, 32);
  EXPECT_EQ(r.done, 32U);
  EXPECT_EQ(r.wrong, 0U);
  EXPECT_EQ(client.role().in_place_bytes, before + 2 * 32 * 8192);
}

// The owner keeps reusing its slots and is killed in the end. A client that reads there gets the right bytes or none.
TEST_F(ShareOfTwo, slots_that_are_used_again_while_a_client_reads_them_give_nothing_wrong) {
  ASSERT_EQ(owner.store(0, 64).status, KVBM_OK);
  ASSERT_EQ(client.look_in_place(0, 64).done, 64U);
  uint64_t loaded = 0;
  for (uint64_t round = 1; round <= 60; ++round) {
    owner.send(ShareMember::of(ShareCommand::store, round * 64, 64));
    const ShareReply seen = client.look_in_place((round / 4) * 64, 64);  // an older round, soon overwritten
    EXPECT_EQ(seen.wrong, 0U) << round;
    loaded += seen.done;
    ShareReply stored;
    if (round < 60) {
      ASSERT_TRUE(owner.receive(stored));
    } else {
      owner.kill(SIGKILL);
    }
  }
  EXPECT_GT(loaded, 0U);
  EXPECT_EQ(client.look_in_place(0, 64).wrong, 0U);
  size_t at = 0;
  EXPECT_NE(settle({&client}, at), 0U);
  EXPECT_EQ(client.look_in_place(0, 64).wrong, 0U);
}

TEST(Share, of_three_clients_one_takes_over) {
  const TempDir dir;
  ShareMember owner;
  ShareMember clients[3];
  ASSERT_EQ(owner.open(dir.path()).status, KVBM_OK);
  for (ShareMember& client : clients) ASSERT_EQ(client.open(dir.path()).status, KVBM_OK);
  owner.kill(SIGKILL);
  size_t at = 0;
  const uint64_t took = settle({&clients[0], &clients[1], &clients[2]}, at);
  ASSERT_NE(took, 0U);
  std::printf("after %.0f ms process %d owns it\n", static_cast<double>(took) / 1e6, clients[at].pid());
  for (const ShareMember& client : clients) EXPECT_EQ(client.role().pid, static_cast<uint64_t>(clients[at].pid()));
  EXPECT_EQ(clients[at].role().takeovers, 1U);
  EXPECT_EQ(clients[at].role().clients, 2U);
}

// Calls end by their deadlines while the owner does nothing, and go on when it does again.
TEST_F(ShareOfTwo, a_frozen_owner_is_not_waited_for) {
  ASSERT_EQ(owner.store(0, 16).status, KVBM_OK);
  owner.freeze();
  const ShareReply looked = client.look(0, 16);
  EXPECT_EQ(looked.done, 0U);
  EXPECT_EQ(looked.wrong, 0U);
  const ShareReply stored = client.ask(ShareMember::of(ShareCommand::store, 100, 16, 100'000'000));
  EXPECT_LT(stored.status, 0);
  EXPECT_EQ(client.look(100, 16).done, 16U);  // from its own host
  const ShareReply flushed = client.ask(ShareMember::of(ShareCommand::flush, 0, 0, 100'000'000));
  EXPECT_EQ(flushed.status, KVBM_ERR_DEADLINE);
  std::printf("owner frozen: lookup %.0f ms, store %.0f ms, flush %.0f ms\n", static_cast<double>(looked.took_ns) / 1e6,
              static_cast<double>(stored.took_ns) / 1e6, static_cast<double>(flushed.took_ns) / 1e6);
  // A client does not take over from a live process.
  EXPECT_NE(client.role().role, static_cast<uint32_t>(KVBM_SHARE_OWNER));
  owner.signal(SIGCONT);
  size_t at = 0;
  ASSERT_NE(settle({&owner, &client}, at), 0U);
  ASSERT_EQ(client.flush().status, KVBM_OK);
  EXPECT_EQ(owner.look(100, 16).done, 16U);
  for (int i = 0; i < 6000 && client.look(0, 16).done != 16; ++i) usleep(10'000);
  EXPECT_EQ(client.look(0, 16).done, 16U);
}

// The first blocks are in the client's memory, and the store waits for slots for the others. None has been offered to
// the owner yet.
TEST_F(ShareOfTwo, a_store_that_ends_before_it_reached_the_owner_has_stored_nothing) {
  ASSERT_GT(client.ask(ShareMember::of(ShareCommand::fill, 0, 16)).done, 0U);
  owner.freeze();
  const ShareReply stored = client.ask(ShareMember::of(ShareCommand::store, 100, 64, 300'000'000));
  owner.signal(SIGCONT);
  EXPECT_EQ(stored.done, 0U);
  EXPECT_LT(stored.status, 0);
  EXPECT_EQ(client.ask(ShareMember::of(ShareCommand::empty)).status, 0);
  size_t at = 0;
  ASSERT_NE(settle({&owner, &client}, at), 0U);
  EXPECT_EQ(client.store(100, 64).status, KVBM_OK);
  EXPECT_EQ(owner.look(100, 64).done, 64U);
}

TEST(Share, another_configuration_is_refused) {
  const TempDir dir;
  ShareMember owner;
  ShareMember stranger;
  ASSERT_EQ(owner.open(dir.path()).status, KVBM_OK);
  const ShareReply r = stranger.open(dir.path(), false, 4096);
  EXPECT_EQ(r.status, KVBM_ERR_CONFIG) << r.status;
  EXPECT_NE(std::string(r.message).find("4096"), std::string::npos) << r.message;
  EXPECT_NE(std::string(r.message).find("8192"), std::string::npos) << r.message;
}

TEST(Share, a_directory_that_others_may_enter_is_refused) {
  const TempDir dir;
  ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
  ShareMember owner;
  const ShareReply r = owner.open(dir.path());
  EXPECT_EQ(r.status, KVBM_ERR_PERMISSION) << r.status << r.message;
  EXPECT_NE(std::string(r.message).find("700"), std::string::npos) << r.message;
}

// A running owner does not change this: a user with write access could replace its socket.
TEST(Share, a_directory_that_was_opened_to_others_since_is_refused_to_a_client) {
  const TempDir dir;
  ShareMember owner;
  ShareMember client;
  ASSERT_EQ(owner.open(dir.path()).status, KVBM_OK);
  ASSERT_EQ(chmod(dir.path().c_str(), 0777), 0);
  const ShareReply r = client.open(dir.path());
  EXPECT_EQ(r.status, KVBM_ERR_PERMISSION) << r.status << r.message;
  EXPECT_NE(std::string(r.message).find("chmod go-w " + dir.path()), std::string::npos) << r.message;
  ASSERT_EQ(chmod(dir.path().c_str(), 0700), 0);
  ShareMember another;
  EXPECT_EQ(another.open(dir.path()).status, KVBM_OK);
}

// A forked child gets an error that says so, and the descriptors that it inherited do not delay a takeover.
TEST_F(ShareOfTwo, a_forked_child_is_no_part_of_the_set) {
  ASSERT_EQ(client.store(0, 8).status, KVBM_OK);
  ASSERT_EQ(client.flush().status, KVBM_OK);
  const ShareReply child = owner.ask(ShareMember::of(ShareCommand::in_child));
  EXPECT_EQ(child.status, KVBM_ERR_FORKED);
  owner.kill(SIGKILL);
  size_t at = 0;
  const uint64_t took = settle({&client}, at);
  EXPECT_NE(took, 0U);
  ShareMember third;
  ASSERT_EQ(third.open(dir.path()).status, KVBM_OK);
  EXPECT_EQ(third.look(0, 8).done, 8U);
  ::kill(static_cast<pid_t>(child.pid), SIGKILL);
}

// Other clients no longer find the blocks, nor does a process that opens the set later.
TEST(Share, an_invalidation_reaches_the_owner_and_the_other_clients) {
  const TempDir dir;
  ShareMember owner;
  ShareMember first;
  ShareMember second;
  ASSERT_EQ(owner.open(dir.path()).status, KVBM_OK);
  ASSERT_EQ(first.open(dir.path()).status, KVBM_OK);
  ASSERT_EQ(second.open(dir.path()).status, KVBM_OK);
  ASSERT_EQ(first.store(0, 16).status, KVBM_OK);
  ASSERT_EQ(second.look(0, 16).done, 16U);
  const ShareReply r = second.ask(ShareMember::of(ShareCommand::invalidate));
  ASSERT_EQ(r.status, KVBM_OK) << r.message;
  // Block names contain the epoch, so a process that knows the new one asks for other names.
  EXPECT_EQ(owner.look(0, 16).done, 0U);
  for (int i = 0; i < 12'000 && first.look(0, 16).done != 0; ++i) usleep(5000);
  EXPECT_EQ(first.look(0, 16).done, 0U);
  ASSERT_EQ(first.store(0, 16).status, KVBM_OK);
  EXPECT_EQ(second.look(0, 16).done, 16U);
  ShareMember late;
  ASSERT_EQ(late.open(dir.path()).status, KVBM_OK);
  EXPECT_EQ(late.look(0, 16).done, 16U);
}

TEST_F(ShareOfTwo, a_drop_by_a_client_is_one_of_the_owner) {
  ASSERT_EQ(client.store(0, 16).status, KVBM_OK);
  ASSERT_EQ(client.flush().status, KVBM_OK);
  ASSERT_EQ(client.ask(ShareMember::of(ShareCommand::drop, 0, 8)).status, KVBM_OK);
  EXPECT_EQ(owner.look(0, 16).done, 8U);
  EXPECT_EQ(client.look(0, 16).done, 8U);
}

// Each flush of a process reports such blocks, whatever its other flushes reported before or at the same time.
TEST_F(ShareOfTwo, every_flush_says_what_the_owner_had_no_room_for_until_it_has_it) {
  ASSERT_GT(owner.ask(ShareMember::of(ShareCommand::fill)).done, 0U);
  EXPECT_EQ(client.store(0, 8).done, 0U);
  EXPECT_EQ(client.flush().status, KVBM_PARTIAL);
  EXPECT_EQ(client.flush().status, KVBM_PARTIAL);
  EXPECT_EQ(client.ask(ShareMember::of(ShareCommand::flush, 0, 4)).done, 4U);
  EXPECT_EQ(owner.ask(ShareMember::of(ShareCommand::empty)).status, 0);
  EXPECT_EQ(client.flush().status, KVBM_OK);
  EXPECT_EQ(client.ask(ShareMember::of(ShareCommand::flush, 0, 4)).done, 0U);
  const ShareReply there = owner.look(0, 8);
  EXPECT_EQ(there.done, 8U);
  EXPECT_EQ(there.wrong, 0U);
}

constexpr uint64_t kLeastDisk = 64ULL << 20;
constexpr uint64_t kSlowDisk = 4ULL << 20;    // bytes a second
constexpr uint64_t kSlowerDisk = 1ULL << 20;  // writes next to nothing while kTooMany are stored
constexpr uint64_t kTooMany = 1536;           // blocks: 12 MiB, of 8 MiB of host memory

// Returns how many of the blocks are found by a process that has none of them.
uint64_t found_by_another(const std::string& directory, uint64_t disk_bytes, uint64_t first, uint64_t n) {
  ShareMember another;
  EXPECT_EQ(another.open_disk(directory, disk_bytes).status, KVBM_OK);
  const ShareReply r = another.look(first, n);
  EXPECT_EQ(r.wrong, 0U);
  return r.done;
}

// The owner evicts blocks before its disk has them, and so does the client.
TEST(Share, what_is_stored_faster_than_the_owners_disk_writes_waits_for_it) {
  const TempDir dir;
  ShareMember owner;
  ShareMember client;
  ASSERT_EQ(owner.open_disk(dir.path(), 256ULL << 20, kSlowDisk).status, KVBM_OK);
  ASSERT_EQ(client.open(dir.path()).status, KVBM_OK);
  ASSERT_EQ(client.store_many(0, kTooMany), kTooMany);
  EXPECT_EQ(client.flush().status, KVBM_OK);
  EXPECT_EQ(client.role().not_kept, 0U);
  ASSERT_EQ(client.store(10'000, 16).status, KVBM_OK);
  ShareReply said = client.flush();
  for (int i = 0; i < 3 && said.status == KVBM_PARTIAL; ++i) said = client.flush();
  ASSERT_EQ(said.status, KVBM_OK);
  const uint64_t told_of = client.role().not_kept;
  owner.kill(SIGKILL);
  client.kill(SIGKILL);
  EXPECT_EQ(found_by_another(dir.path(), 256ULL << 20, 10'000, 16), 16U);
  EXPECT_EQ(told_of, 0U);
  EXPECT_EQ(found_by_another(dir.path(), 256ULL << 20, 0, kTooMany), kTooMany);
}

// Blocks that reached the owner but not its disk are lost when it dies, so the next owner cannot have them.
TEST(Share, a_flush_after_a_takeover_tells_of_what_died_with_the_owner) {
  const TempDir dir;
  ShareMember owner;
  ShareMember client;
  ASSERT_EQ(owner.open_disk(dir.path(), 256ULL << 20, kSlowerDisk).status, KVBM_OK);
  ASSERT_EQ(client.open(dir.path()).status, KVBM_OK);
  ASSERT_EQ(client.store_many(0, kTooMany), kTooMany);
  owner.kill(SIGKILL);
  size_t at = 0;
  ASSERT_NE(settle({&client}, at), 0U);
  EXPECT_EQ(client.flush().status, KVBM_PARTIAL);
  EXPECT_EQ(client.flush().status, KVBM_OK) << "it has told of them";
  const uint64_t left = client.look(0, kTooMany).done;
  EXPECT_LT(left, kTooMany) << "nothing was lost: this shows nothing";
  client.kill(SIGKILL);
  EXPECT_GE(found_by_another(dir.path(), 256ULL << 20, 0, kTooMany) + 64, left);
}

// Of several flushes at least one must report it.
TEST(Share, a_flush_tells_of_blocks_that_a_small_disk_has_let_go) {
  const TempDir dir;
  ShareMember owner;
  ShareMember client;
  ASSERT_EQ(owner.open_disk(dir.path(), kLeastDisk).status, KVBM_OK);
  ASSERT_EQ(client.open_disk(dir.path(), kLeastDisk).status, KVBM_OK);
  constexpr uint64_t kMore = 8192;  // 64 MiB, with their heads 96
  ASSERT_EQ(client.store_many(0, kMore), kMore);
  // Every flush in flight when the loss is found reports it.
  EXPECT_GE(client.ask(ShareMember::of(ShareCommand::flush, 0, 4)).done, 1U);
  ASSERT_EQ(client.store(10'000, 64).status, KVBM_OK);
  ShareReply said = client.flush();
  for (int i = 0; i < 3 && said.status == KVBM_PARTIAL; ++i) said = client.flush();
  ASSERT_EQ(said.status, KVBM_OK);
  owner.kill(SIGKILL);
  client.kill(SIGKILL);
  EXPECT_EQ(found_by_another(dir.path(), kLeastDisk, 10'000, 64), 64U);
}

// A flush does not wait for blocks that were dropped.
TEST_F(ShareOfTwo, a_flush_does_not_answer_for_what_was_dropped_or_invalidated) {
  ASSERT_EQ(client.store(0, 16).status, KVBM_OK);
  ASSERT_EQ(client.ask(ShareMember::of(ShareCommand::drop, 0, 8)).status, KVBM_OK);
  EXPECT_EQ(client.flush().status, KVBM_OK);
  ASSERT_EQ(client.store(100, 16).status, KVBM_OK);
  ASSERT_EQ(client.ask(ShareMember::of(ShareCommand::invalidate)).status, KVBM_OK);
  EXPECT_EQ(client.flush().status, KVBM_OK);
  EXPECT_EQ(client.role().not_kept, 0U);
}

// Clients close while others store, and the owner while its clients do.
TEST(Share, whoever_closes_hangs_nobody) {
  const TempDir dir;
  ShareMember owner;
  auto leaving = std::make_unique<ShareMember>();
  ShareMember staying;
  ASSERT_EQ(owner.open(dir.path()).status, KVBM_OK);
  ASSERT_EQ(leaving->open(dir.path()).status, KVBM_OK);
  ASSERT_EQ(staying.open(dir.path()).status, KVBM_OK);
  staying.send(ShareMember::of(ShareCommand::store, 0, 64));
  leaving->send(ShareMember::of(ShareCommand::store, 0, 64));
  ShareReply r;
  ASSERT_TRUE(leaving->receive(r));
  EXPECT_EQ(leaving->leave(), 0);
  ASSERT_TRUE(staying.receive(r));
  EXPECT_EQ(r.done, 64U);
  staying.send(ShareMember::of(ShareCommand::store, 100, 64));
  EXPECT_EQ(owner.leave(), 0);
  ASSERT_TRUE(staying.receive(r));
  EXPECT_EQ(r.done + r.gone, 64U);
  size_t at = 0;
  ASSERT_NE(settle({&staying}, at), 0U);
  EXPECT_EQ(staying.flush().status, KVBM_OK);
  EXPECT_EQ(staying.look(0, 64).done, 64U);
}

}  // namespace
}  // namespace kvbm::test::share_test
