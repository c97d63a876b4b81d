// An owner of a pool and its readers as real processes, killed, stopped and restarted at bad moments. The parent of
// each test forks before it makes any thread. What is read is compared with what its number says it has to be, so a
// wrong byte is seen whatever the hashes say. Waits are bounded by kPatience and end when something happens.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>

#include "copy/local/fetch.h"
#include "copy/local/unix_transport.h"
#include "support/child_signal.h"
#include "support/pool_records.h"
#include "support/temp_dir.h"

namespace kvbm::copy::local::same_host_test {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);
constexpr uint32_t kSlots = 8;
constexpr uint64_t kBytes = 96 * 1024;  // one whole leaf and a half

// Lives in memory that survives a child's death.
struct Ledger {
  std::atomic<uint64_t> newest;  // the last record that the owner finished; it is in slot newest % kSlots
  std::atomic<uint64_t> good, refused, wrong, after_death;
  std::atomic<uint64_t> ready;
};

class SharedLedger {
 public:
  SharedLedger() {
    void* p = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ledger_ = new (p) Ledger{};
  }
  ~SharedLedger() { munmap(ledger_, sizeof(Ledger)); }
  SharedLedger(const SharedLedger&) = delete;
  SharedLedger& operator=(const SharedLedger&) = delete;
  Ledger* operator->() const { return ledger_; }
  Ledger& operator*() const { return *ledger_; }

 private:
  Ledger* ledger_;
};

// A child, ended with the object whatever happens.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(body());
  }
  ~Child() { (void)end(SIGKILL); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const { test::signal_child(pid_, number); }
  // Ends the child with a signal. Returns its status, as waitpid does.
  int end(int number) {
    if (pid_ <= 0) return status_;
    if (number != 0) ::kill(pid_, number);
    waitpid(pid_, &status_, 0);
    pid_ = -1;
    return status_;
  }
  int wait() { return end(0); }
  // Returns whether the child has ended by itself; sets `status`.
  bool ended(int& status) {
    if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
    status = status_;
    return pid_ <= 0;
  }

 private:
  pid_t pid_;
  int status_ = -1;
};

// One end of the link. An owner admits every caller, and sends "here" after its pools.
struct End {
  explicit End(bool owner = false) {
    kvbm_transport_host_t host{};
    host.struct_size = sizeof host;
    host.context = this;
    host.log = [](void*, int32_t, const char*) {};
    host.accepted = owner ? welcome : note_accepted;
    host.connected = [](void*, uint64_t) {};
    host.message = [](void* self, uint64_t peer, const void* bytes, size_t size) {
      static_cast<End*>(self)->messages[peer].emplace_back(static_cast<const char*>(bytes), size);
    };
    host.writable = [](void*, uint64_t) {};
    host.pushed = [](void*, uint64_t, uint64_t, int32_t) {};
    host.received = [](void*, uint64_t, uint64_t, int32_t, uint64_t) {};
    host.closed = [](void* self, uint64_t peer, int32_t, const char* why) {
      static_cast<End*>(self)->closed[peer] = why;
    };
    kvbm_transport_options_t options{};
    options.struct_size = sizeof options;
    link = std::move(UnixTransport::open(options, host)).value();
  }
  static void note_accepted(void* self, uint64_t peer, const char*) {
    static_cast<End*>(self)->accepted.push_back(peer);
  }
  static void welcome(void* self, uint64_t peer, const char* address) {
    note_accepted(self, peer, address);
    UnixTransport& link = *static_cast<End*>(self)->link;
    (void)link.admit(peer);
    const std::byte here[1] = {std::byte{'h'}};
    (void)link.send(peer, here);
  }
  bool run_until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      if (link->progress() != 0 || done()) continue;
      uint64_t within = 0;
      if (link->arm(&within) != 0) continue;
      pollfd readable{link->fd(), POLLIN, 0};
      poll(&readable, 1, static_cast<int>(std::min<uint64_t>(within / 1'000'000 + 1, 50)));
    }
    return true;
  }
  // Connects and waits for the pool of the owner at the path. Returns null when there is none.
  std::shared_ptr<RemotePool> pool_at(const std::string& path) {
    const auto connected = link->connect(path);
    if (!connected.ok()) return nullptr;
    owner_peer = connected.value();
    (void)link->admit(owner_peer);
    if (!run_until([&] { return !messages[owner_peer].empty() || closed.count(owner_peer) != 0; })) return nullptr;
    const auto pools = link->pools(owner_peer);
    return pools.empty() ? nullptr : pools.front();
  }

  std::unique_ptr<UnixTransport> link;
  uint64_t owner_peer = 0;  // of pool_at()
  std::vector<uint64_t> accepted;
  std::map<uint64_t, std::vector<std::string>> messages;
  std::map<uint64_t, std::string> closed;
};

// Serves a pool for ever. reuse: also writes new records into its slots all the time.
int own(const std::string& path, Ledger& ledger, bool reuse, uint64_t first = 0) {
  auto arena = test::make_pool(kSlots, kBytes);
  if (arena == nullptr) return 1;
  uint64_t next = first;
  for (; next < first + kSlots; ++next) test::put_pool_record(*arena, next % kSlots, next, kBytes);
  ledger.newest.store(next - 1);
  End end(true);
  if (!end.link->offer_pool(arena->fd(), arena->shape()).ok() || !end.link->listen(path).ok()) return 2;
  ledger.ready.fetch_add(1);
  for (;;) {
    end.link->progress();
    if (reuse) {
      test::put_pool_record(*arena, next % kSlots, next, kBytes);
      ledger.newest.store(next++);
    } else {
      pollfd readable{end.link->fd(), POLLIN, 0};
      poll(&readable, 1, 100);
    }
  }
}

bool wait_for(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    poll(nullptr, 0, 1);
  }
  return true;
}

// Fetches one record, and compares it byte by byte.
Code fetch_and_check(const RemotePool& pool, uint64_t number, Ledger& ledger) {
  static std::vector<std::byte> room(64 * 1024);
  static std::vector<std::byte> to(kBytes);
  std::optional<codec::HeadView> head;
  const auto slot = static_cast<SlotId>(number % kSlots);
  const RecordPlace place = place_of(pool, slot);
  Code code = read_head(place, test::pool_family(), test::pool_key(number), room, head);
  if (code == Code::ok) code = fetch_record(place, *head, to, codec::CopyHint::automatic);
  if (code != Code::ok) {
    ledger.refused.fetch_add(1);
    return code;
  }
  (to == test::pool_payload(number, kBytes) ? ledger.good : ledger.wrong).fetch_add(1);
  return code;
}

class SameHost : public testing::Test {
 protected:
  // The parent's directory; every child of the test finds the owner there.
  [[nodiscard]] std::string path() const { return temp_.path() + "/sock"; }
  test::TempDir temp_;
  SharedLedger ledger_;
};

TEST_F(SameHost, an_owner_killed_while_it_reuses_slots_leaves_right_bytes_or_none) {
  for (int round = 0; round < 5; ++round) {
    ledger_->ready.store(0);
    Child owner([&] { return own(path(), *ledger_, true); });
    ASSERT_TRUE(wait_for([&] { return ledger_->ready.load() == 1; }));
    const uint64_t before = ledger_->good.load();
    Child reader([&] {
      End end;
      const auto pool = end.pool_at(path());
      if (pool == nullptr) return 1;
      while (pool->alive()) fetch_and_check(*pool, ledger_->newest.load(), *ledger_);
      // The mapping outlives the owner: records that were whole at its death can still be read.
      for (uint64_t slot = 0; slot < kSlots; ++slot) {
        for (uint64_t n = ledger_->newest.load() + 2; n-- > 0 && n + 2 * kSlots > ledger_->newest.load();) {
          if (n % kSlots == slot && fetch_and_check(*pool, n, *ledger_) == Code::ok) ledger_->after_death.fetch_add(1);
        }
      }
      if (!end.run_until([&] { return end.closed.count(end.owner_peer) == 1; })) return 2;
      return pool->gone() ? 0 : 3;
    });
    ASSERT_TRUE(wait_for([&] { return ledger_->good.load() > before + 20; })) << ledger_->refused.load();
    owner.end(SIGKILL);
    EXPECT_EQ(reader.wait(), 0) << "round " << round;  // and no signal: never a SIGBUS
  }
  EXPECT_EQ(ledger_->wrong.load(), 0U);
  EXPECT_GE(ledger_->after_death.load(), 5 * (kSlots - 1));  // all but the one that it was at
}

TEST_F(SameHost, an_owner_cannot_take_the_memory_away_from_under_a_reader) {
  Child owner([&] {
    auto arena = test::make_pool(kSlots, kBytes);
    if (arena == nullptr) return 1;
    for (uint64_t n = 0; n < kSlots; ++n) test::put_pool_record(*arena, static_cast<SlotId>(n), n, kBytes);
    ledger_->newest.store(kSlots - 1);
    End end(true);
    if (!end.link->offer_pool(arena->fd(), arena->shape()).ok() || !end.link->listen(path()).ok()) return 2;
    ledger_->ready.store(1);
    for (;;) {
      end.link->progress();
      // Tries every change that a faulty owner could make to the memory, other than writing into it.
      const auto bytes = static_cast<off_t>(arena->shape().bytes);
      const bool done = ftruncate(arena->fd(), 0) == 0 || ftruncate(arena->fd(), bytes / 2) == 0 ||
                        fallocate(arena->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes) == 0 ||
                        madvise(arena->payload(0).data(), 1 << 20, MADV_REMOVE) == 0;
      if (done) return 3;
    }
  });
  ASSERT_TRUE(wait_for([&] { return ledger_->ready.load() == 1; }));
  Child reader([&] {
    End end;
    const auto pool = end.pool_at(path());
    if (pool == nullptr) return 1;
    auto* data = const_cast<std::byte*>(pool->payload(0).data());
    auto* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) & ~uintptr_t{4095});
    if (mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0) return 2;
    for (uint64_t n = 0; n < 2000; ++n) {
      if (fetch_and_check(*pool, n % kSlots, *ledger_) != Code::ok) return 3;
    }
    // All bytes of the pool are readable, not the records alone.
    uint64_t sum = 0;
    for (SlotId slot = 0; slot < kSlots; ++slot) {
      for (const std::byte b : pool->payload(slot)) sum += static_cast<uint64_t>(b);
    }
    return sum != 0 ? 0 : 4;
  });
  EXPECT_EQ(reader.wait(), 0);
  owner.signal(0);
  EXPECT_EQ(WTERMSIG(owner.end(SIGKILL)), SIGKILL);  // none of the owner's calls could shrink the memory
  EXPECT_EQ(ledger_->wrong.load(), 0U);
}

// The owner is the test's process. The reader holds only the leases that its messages requested.
TEST_F(SameHost, a_killed_reader_gives_back_what_it_held) {
  auto arena = test::make_pool(kSlots, kBytes);
  End end;
  ASSERT_TRUE(end.link->offer_pool(arena->fd(), arena->shape()).ok());
  ASSERT_TRUE(end.link->listen(path()).ok());
  for (const bool with_heir : {false, true}) {
    end.closed.clear();
    end.accepted.clear();
    int heir_lives[2];
    int heir_ends[2];
    ASSERT_EQ(pipe(heir_lives), 0);
    ASSERT_EQ(pipe(heir_ends), 0);
    Child reader([&] {
      ::close(heir_ends[1]);
      End mine;
      const auto connected = mine.link->connect(path());
      if (!connected.ok()) return 1;
      (void)mine.link->admit(connected.value());
      // A child of the reader keeps its socket open. The owner sees the reader's death only through the pidfd.
      if (with_heir && fork() == 0) {
        char word = 'h';
        (void)!write(heir_lives[1], &word, 1);
        (void)!read(heir_ends[0], &word, 1);  // ends when the test closes the other end
        _exit(0);
      }
      for (uint8_t lease = 0; lease < 5; ++lease) {
        const std::byte message[1] = {std::byte{lease}};
        (void)mine.link->send(connected.value(), message);
      }
      (void)mine.run_until([] { return false; });
      return 2;
    });
    ASSERT_TRUE(end.run_until([&] { return end.accepted.size() == 1; }));
    const uint64_t peer = end.accepted.front();
    ASSERT_EQ(end.link->admit(peer), Code::ok);
    ASSERT_TRUE(end.run_until([&] { return end.messages[peer].size() == 5; }));
    if (with_heir) {
      char word = 0;
      ASSERT_EQ(read(heir_lives[0], &word, 1), 1);
    }
    EXPECT_TRUE(end.closed.empty());
    reader.end(SIGKILL);
    ASSERT_TRUE(end.run_until([&] { return end.closed.count(peer) == 1; })) << "heir: " << with_heir;
    // After closed() no message about these leases can arrive.
    EXPECT_EQ(end.messages[peer].size(), 5U);
    EXPECT_EQ(end.link->send(peer, {}), Code::stale_handle);
    for (const int fd : {heir_lives[0], heir_lives[1], heir_ends[0], heir_ends[1]}) ::close(fd);
  }
}

TEST_F(SameHost, a_stopped_owner_costs_who_connects_a_deadline_and_who_reads_nothing) {
  Child owner([&] { return own(path(), *ledger_, false); });
  ASSERT_TRUE(wait_for([&] { return ledger_->ready.load() == 1; }));
  End end;
  const auto pool = end.pool_at(path());
  ASSERT_NE(pool, nullptr);
  owner.signal(SIGSTOP);
  for (uint64_t n = 0; n < 100; ++n) ASSERT_EQ(fetch_and_check(*pool, n % kSlots, *ledger_), Code::ok);
  EXPECT_TRUE(pool->alive());
  End late;
  const auto connected = late.link->connect(path());
  ASSERT_TRUE(connected.ok());
  ASSERT_TRUE(late.run_until([&] { return late.closed.count(connected.value()) == 1; }));
  EXPECT_NE(late.closed[connected.value()].find("may be stopped"), std::string::npos) << late.closed[connected.value()];
  owner.signal(SIGCONT);
  End after;
  EXPECT_NE(after.pool_at(path()), nullptr);  // the owner serves again
  EXPECT_EQ(ledger_->wrong.load(), 0U);
}

TEST_F(SameHost, many_readers_read_at_once) {
  Child owner([&] { return own(path(), *ledger_, true); });
  ASSERT_TRUE(wait_for([&] { return ledger_->ready.load() == 1; }));
  std::vector<std::unique_ptr<Child>> readers;
  for (int i = 0; i < 8; ++i) {
    readers.push_back(std::make_unique<Child>([&] {
      End end;
      const auto pool = end.pool_at(path());
      if (pool == nullptr) return 1;
      int good = 0;
      for (int tries = 0; good < 50 && tries < 1'000'000; ++tries) {
        if (fetch_and_check(*pool, ledger_->newest.load(), *ledger_) == Code::ok) ++good;
      }
      return good == 50 ? 0 : 2;
    }));
  }
  for (auto& reader : readers) EXPECT_EQ(reader->wait(), 0);
  EXPECT_EQ(ledger_->wrong.load(), 0U);
}

TEST_F(SameHost, a_restarted_owner_serves_on_the_same_path_and_its_old_pool_is_known_as_old) {
  auto owner = std::make_unique<Child>([&] { return own(path(), *ledger_, false); });
  ASSERT_TRUE(wait_for([&] { return ledger_->ready.load() == 1; }));
  End end;
  const auto old_pool = end.pool_at(path());
  ASSERT_NE(old_pool, nullptr);
  owner->end(SIGKILL);
  ASSERT_TRUE(end.run_until([&] { return end.closed.count(end.owner_peer) == 1; }));
  EXPECT_FALSE(old_pool->alive());
  owner = std::make_unique<Child>([&] { return own(path(), *ledger_, false, 100); });
  ASSERT_TRUE(wait_for([&] { return ledger_->ready.load() == 2; }));
  End again;
  const auto new_pool = again.pool_at(path());
  ASSERT_NE(new_pool, nullptr);
  EXPECT_NE(new_pool->id(), old_pool->id());
  EXPECT_TRUE(new_pool->alive());
  for (uint64_t n = 100; n < 100 + kSlots; ++n) EXPECT_EQ(fetch_and_check(*new_pool, n, *ledger_), Code::ok);
  EXPECT_EQ(fetch_and_check(*new_pool, 0, *ledger_), Code::miss);  // a location of the dead owner's
  EXPECT_EQ(fetch_and_check(*old_pool, 0, *ledger_), Code::ok);    // and its bytes, for as long as a process maps them
  EXPECT_EQ(ledger_->wrong.load(), 0U);
}

TEST_F(SameHost, of_two_owners_that_start_at_once_on_a_dead_ones_path_one_serves) {
  {
    Child dead([&] { return own(path(), *ledger_, false); });
    ASSERT_TRUE(wait_for([&] { return ledger_->ready.load() == 1; }));
  }
  for (int round = 0; round < 20; ++round) {
    ledger_->ready.store(0);
    std::vector<std::unique_ptr<Child>> starters;
    for (int i = 0; i < 4; ++i) {
      starters.push_back(std::make_unique<Child>([&] {
        auto socket = ListeningSocket::open(path());
        if (!socket.ok()) return socket.status().code() == Code::in_use ? 7 : 1;
        ledger_->ready.fetch_add(1);
        for (;;) pause();
        return 0;
      }));
    }
    // The three losing processes end by themselves, and the winner still has the path.
    const auto losers = [&] {
      int n = 0;
      for (auto& starter : starters) {
        int status = 0;
        if (!starter->ended(status)) continue;
        ++n;
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
      }
      return n;
    };
    ASSERT_TRUE(wait_for([&] { return losers() == 3; }));
    ASSERT_TRUE(wait_for([&] { return ledger_->ready.load() == 1; }));
    EXPECT_EQ(ListeningSocket::open(path()).status().code(), Code::in_use);
  }
}

}  // namespace
}  // namespace kvbm::copy::local::same_host_test
