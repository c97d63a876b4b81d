// Sessions with blocks in the memory of fake devices, copied by the kernels' own source on the CPU: every mixture of
// host and device, parallel shapes that differ, staging that is registered with the device or not, and devices that are
// lost meanwhile.
#include "manager/session/session_mover.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>

#include "base/thread/thread_executor.h"
#include "support/cuda_emulation/fake_kernels.h"
#include "support/session_world.h"

namespace kvbm::test::session_mover_test {
namespace {

using cluster::session::Facts;
using cluster::session::OpenRequest;

constexpr uint64_t kTokens = 150;

// Tasks that other threads post to the session's thread, which runs them between steps of the simulation.
class Inbox final : public Executor {
 public:
  explicit Inbox(SimExecutor& sim) : sim_(sim) {}
  void post(UniqueFunction<void()> task) override {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    came_.notify_all();
  }
  void post_at(uint64_t, UniqueFunction<void()> task) override { post(std::move(task)); }
  [[nodiscard]] const Clock& clock() const noexcept override { return sim_.clock(); }
  bool run_one() {
    UniqueFunction<void()> task;
    {
      MutexLock lock(mutex_);
      if (tasks_.empty()) return false;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
    return true;
  }
  void wait() {
    MutexLock lock(mutex_);
    while (tasks_.empty()) came_.wait(mutex_);
  }

 private:
  SimExecutor& sim_;
  Mutex mutex_;
  std::condition_variable_any came_;
  std::deque<UniqueFunction<void()>> tasks_ KVBM_GUARDED_BY(mutex_);
};

// Counts a mover's copies, and the leaves that the CPU worked on.
class Counted final : public cluster::session::SliceMover {
 public:
  explicit Counted(std::unique_ptr<manager::SessionMover> mover) : mover_(std::move(mover)) {}
  void gather(std::unique_ptr<cluster::session::SliceMove> move, Done done) override {
    count(*move);
    ++gathers;
    mover_->gather(std::move(move), ended(std::move(done)));
  }
  void scatter(std::unique_ptr<cluster::session::SliceMove> move, Done done) override {
    count(*move);
    ++scatters;
    mover_->scatter(std::move(move), ended(std::move(done)));
  }
  [[nodiscard]] std::vector<std::byte> place() const override { return mover_->place(); }
  [[nodiscard]] Status near(ConstBytes place) const override { return mover_->near(place); }
  void share(uint64_t bytes, MemoryDone done) override { mover_->share(bytes, std::move(done)); }
  void map(ConstBytes said, uint64_t bytes, MemoryDone done) override { mover_->map(said, bytes, std::move(done)); }
  void direct(uint64_t bytes, bool written, MemoryDone done) override {
    mover_->direct(bytes, written, std::move(done));
  }
  uint64_t under_way = 0, gathers = 0, scatters = 0, shared = 0, runs = 0, leaves = 0, leaves_of_many_runs = 0;

 private:
  void count(const cluster::session::SliceMove& move) {
    ++under_way;
    shared += move.shared ? 1 : 0;
    runs += move.runs.size();
    for (const auto& leaf : move.leaves) ++leaves, leaves_of_many_runs += leaf.runs > 1 ? 1 : 0;
  }
  Done ended(Done done) {
    return [this, done = std::move(done)](const cluster::session::SliceMove& move, const Status& status) mutable {
      --under_way;
      done(move, status);
    };
  }
  std::unique_ptr<manager::SessionMover> mover_;
};

// Memory of a fake device for engines.
class DeviceMemory final : public std::pmr::memory_resource {
 public:
  DeviceMemory(FakeCuda& fake, int ordinal) : fake_(fake), ordinal_(ordinal) {}

 private:
  void* do_allocate(size_t bytes, size_t) override {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(fake_.allocate(ordinal_, bytes)));
  }
  void do_deallocate(void* p, size_t, size_t) override { fake_.free(reinterpret_cast<uintptr_t>(p)); }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  FakeCuda& fake_;
  const int ordinal_;
};

FakeCudaOptions two_devices(int ordering = device::kCuOrderingOwner) {
  FakeCudaOptions options;
  options.devices.resize(2);
  for (FakeDevice& d : options.devices) d.direct_ordering = ordering;
  return options;
}

// Prefill on device 0 and decode on device 1, if they are on devices. shared: both on device 0, and one side maps its
// memory as another process would. direct: transports reach both devices, and `ordering` is the devices' ordering of
// direct writes.
struct World {
  explicit World(bool shared = false, bool direct = false, int ordering = device::kCuOrderingOwner)
      : direct_(direct), cuda(two_devices(ordering)) {
    add_emulated_kernels(cuda);
    work = std::move(ThreadExecutor::create("test", 2)).value();
    for (int i = 0; i < 2; ++i) {
      device::TransferOptions options;
      options.staging_bytes = 4 << 20;
      options.part_bytes = 256 << 10;
      const int ordinal = shared ? 0 : i;
      devices.push_back(device::Device::open(cuda.driver(), ordinal, &log).value());
      const auto boot = manager::DeviceShare::BootId{static_cast<uint8_t>(shared ? 1 : 0)};
      auto share = std::make_unique<manager::DeviceShare>(devices.back(), boot, links_executor);
      transfers.push_back(device::Transfers::create(devices.back(), options, *work).value());
      movers.push_back(std::make_unique<Counted>(std::make_unique<manager::SessionMover>(
          *transfers.back(), "device " + std::to_string(i), *work, inbox, std::move(share),
          std::make_unique<manager::DeviceDirect>(devices.back(), false, links_executor))));
      memory.push_back(std::make_unique<DeviceMemory>(cuda, ordinal));
    }
  }
  ~World() {
    cuda.hold_all(false);
    while (movers[0]->under_way + movers[1]->under_way > 0) {
      if (!inbox.run_one()) inbox.wait();
    }
    links_executor->close();
    for (auto& d : decode) d->receiver.reset();
    for (auto& s : senders) s->sender.reset();
    transfers.clear();
    movers.clear();
    devices.clear();
    work.reset();
    decode.clear();
    senders.clear();
    sources.clear();
    targets.clear();
  }

  void make(bool from_device, bool to_device, const SideShape& from, const SideShape& to) {
    facts.components.push_back(layout::attention(3, 4, 64, layout::Element::bf16));
    facts.components.push_back(layout::latent(2, 96, layout::Element::fp8_e4m3));
    facts.components.push_back(layout::state(1, 1000));
    auto* host = std::pmr::get_default_resource();
    sources = make_side(facts, from, kTokens, sim.random(), from_device ? memory[0].get() : host);
    targets = make_side(facts, to, kTokens, sim.random(), to_device ? memory[1].get() : host);
    SessionNode::Options options;
    for (size_t i = 0; i < sources.size(); ++i) {
      options.rank = static_cast<uint16_t>(i);
      senders.push_back(std::make_unique<SessionNode>(sim, net, options));
      net.direct(senders.back()->id).takes = direct_;
      sources[i].fill_all(7);
      if (from_device) sources[i].mover = movers[0].get();
    }
    for (auto& target : targets) {
      decode.push_back(std::make_unique<SessionNode>(sim, net, options));
      net.direct(decode.back()->id).takes = direct_;
      decode.back()->seed = 7;
      decode.back()->target = &target;
      if (to_device) target.mover = movers[1].get();
    }
  }

  // Offers, publishes and opens all requests.
  void start(bool publish = true) {
    for (size_t i = 0; i < senders.size(); ++i) {
      auto& sender = *senders[i]->sender;
      ASSERT_TRUE(sender.offer({request_id(1), facts, sources[i].locals(), kNever}, now()).ok());
      if (publish) {
        ASSERT_TRUE(sender.publish_all(request_id(1)).ok());
      }
      senders[i]->drain();
    }
    for (size_t d = 0; d < decode.size(); ++d) {
      OpenRequest r;
      r.request = request_id(1);
      r.facts = facts;
      r.targets = targets[d].locals();
      for (size_t i = 0; i < senders.size(); ++i) {
        const uint64_t peer = net.connect(decode[d]->id, senders[i]->id).first;
        r.sources.push_back({peer, static_cast<uint16_t>(i), "prefill"});
      }
      r.sink_rank = static_cast<uint16_t>(d);
      r.sink_count = static_cast<uint16_t>(decode.size());
      r.deadline_ns = kNever;
      const auto session = decode[d]->receiver->open(std::move(r), now());
      ASSERT_TRUE(session.ok()) << session.status().message();
      opened.push_back(session.value());
      decode[d]->drain();
    }
  }

  // Runs until every decode rank has mapped the memory of a prefill rank, then publishes. (Ranks without a part
  // announce none.)
  void publish_when_mapped() {
    const auto known = [&] {
      for (auto& d : decode) {
        const auto& stats = d->receiver->stats();
        if (stats.maps + stats.refused_maps == 0) return false;
      }
      return true;
    };
    while (!known()) {
      if (!inbox.run_one() && !sim.step()) inbox.wait();
    }
    for (auto& s : senders) {
      ASSERT_TRUE(s->sender->publish_all(request_id(1)).ok());
      s->drain();
    }
  }

  // Runs until every session and offer has ended and every block is released.
  void run() {
    const auto over = [&] {
      for (auto& d : decode) {
        if (d->finished.empty() || d->receiver->staging_taken() > 0) return false;
      }
      for (auto& s : senders) {
        if (s->offers_ended.empty() || !s->held.empty()) return false;
      }
      return true;
    };
    while (!over()) {
      if (inbox.run_one() || sim.step()) continue;
      if (movers[0]->under_way + movers[1]->under_way == 0) break;
      inbox.wait();
    }
    EXPECT_TRUE(over());
  }

  [[nodiscard]] uint64_t now() const { return sim.clock().now_ns(); }

  const bool direct_;
  FakeCuda cuda;
  Log log;
  SimExecutor sim{20261122};
  Inbox inbox{sim};
  std::shared_ptr<WeakExecutor> links_executor = std::make_shared<WeakExecutor>(inbox);
  SessionNetwork net{sim};
  Facts facts;
  std::unique_ptr<ThreadExecutor> work;
  std::vector<std::shared_ptr<device::Device>> devices;
  std::vector<std::unique_ptr<device::Transfers>> transfers;
  std::vector<std::unique_ptr<Counted>> movers;
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<RankEngine> sources, targets;
  std::vector<uint64_t> opened;  // sessions, by decode rank
  std::vector<std::unique_ptr<SessionNode>> senders, decode;
};

const SideShape kFour{4, 1, 16, layout::Form::nhd, false, 0};
const SideShape kTwo{2, 1, 32, layout::Form::blocks_hnd, false, 0};

TEST(SessionDevices, host_and_device_mix_and_ranks_differ) {
  for (const bool from : {false, true}) {
    for (const bool to : {false, true}) {
      for (const bool more : {false, true}) {
        SCOPED_TRACE(std::to_string(from) + std::to_string(to) + std::to_string(more));
        World w;
        w.make(from, to, more ? kTwo : kFour, more ? kFour : kTwo);
        w.start();
        w.run();
        for (auto& d : w.decode) EXPECT_TRUE(d->finished.begin()->second.ok()) << d->finished.begin()->second.message();
        for (auto& s : w.senders) EXPECT_TRUE(s->offers_ended.begin()->second.ok());
        for (auto& t : w.targets) EXPECT_EQ(t.check(7), "");
        EXPECT_EQ(w.movers[0]->gathers > 0, from);
        EXPECT_EQ(w.movers[1]->scatters > 0, to);
        // The latent's pages of 1,536 bytes are too little for leaves of their own; all else is hashed by devices
        // alone.
        for (const auto& mover : w.movers) EXPECT_LE(mover->leaves_of_many_runs, mover->leaves / 10);
        EXPECT_EQ(w.transfers[0]->gathers().leaves, w.movers[0]->runs);
        EXPECT_EQ(w.transfers[1]->scatters().leaves, w.movers[1]->runs);
        EXPECT_EQ(w.transfers[1]->scatters().bad_leaves, 0U);
      }
    }
  }
}

TEST(SessionDevices, with_an_older_node_leaves_are_many_runs_and_right_all_the_same) {
  for (const bool from : {false, true}) {
    World w;
    w.net.grains = false;
    w.make(from, true, kFour, kTwo);
    w.start();
    w.run();
    for (auto& d : w.decode) EXPECT_TRUE(d->finished.begin()->second.ok()) << d->finished.begin()->second.message();
    for (auto& t : w.targets) EXPECT_EQ(t.check(7), "");
    EXPECT_GT(w.movers[1]->leaves_of_many_runs, 0U);
  }
}

// Any shapes, forms and block sizes; also those that no grain fits.
TEST(SessionDevices, any_two_shapes) {
  SeededRandom random(3);
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    World w;
    SideShape a = random_side({{}, {layout::attention(3, 4, 64, layout::Element::bf16)}}, random, kTokens);
    SideShape b = random_side({{}, {layout::attention(3, 4, 64, layout::Element::bf16)}}, random, kTokens);
    a.tp = 1U << random.below(3), b.tp = 1U << random.below(3);
    a.pp = b.pp = 1;
    a.begin = b.begin = 0;
    w.net.grains = i % 2 == 0;
    w.make(true, true, a, b);
    w.start();
    w.run();
    for (auto& d : w.decode) EXPECT_TRUE(d->finished.begin()->second.ok()) << d->finished.begin()->second.message();
    for (auto& t : w.targets) EXPECT_EQ(t.check(7), "");
  }
}

// From device memory to device memory: the bytes equal those of the reference gather.
TEST(SessionDevices, any_two_shapes_in_shared_memory) {
  SeededRandom random(4);
  uint64_t shared = 0;
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    World w(true);
    SideShape a = random_side({{}, {layout::attention(3, 4, 64, layout::Element::bf16)}}, random, kTokens);
    SideShape b = random_side({{}, {layout::attention(3, 4, 64, layout::Element::bf16)}}, random, kTokens);
    a.tp = 1U << random.below(3), b.tp = 1U << random.below(3);
    a.pp = b.pp = 1;
    a.begin = b.begin = 0;
    a.block_tokens = 16U << random.below(2), b.block_tokens = 16U << random.below(3);  // that a grain fits
    w.make(true, true, a, b);
    w.start(false);
    w.publish_when_mapped();
    w.run();
    uint64_t taken = 0;
    for (auto& d : w.decode) {
      EXPECT_TRUE(d->finished.begin()->second.ok()) << d->finished.begin()->second.message();
      taken += d->receiver->stats().shared_slices;
      EXPECT_EQ(d->receiver->stats().refused_maps, 0U);
    }
    for (auto& t : w.targets) EXPECT_EQ(t.check(7), "");
    for (auto& s : w.senders) EXPECT_EQ(s->sender->shared_taken(), 0U);
    EXPECT_EQ(w.movers[1]->shared, taken);
    EXPECT_EQ(w.transfers[1]->scatters().inside_leaves > 0, taken > 0);
    EXPECT_EQ(w.transfers[1]->scatters().bad_leaves, 0U);
    shared += taken;
  }
  EXPECT_GT(shared, 20U);
}

// The transport reads and writes device memory itself. It does not know that memory before the first slices.
TEST(SessionDevices, any_two_shapes_through_device_memory) {
  SeededRandom random(5);
  uint64_t came = 0, sent = 0;
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    World w(false, true, i % 2 == 0 ? device::kCuOrderingOwner : device::kCuOrderingNone);
    SideShape a = random_side({{}, {layout::attention(3, 4, 64, layout::Element::bf16)}}, random, kTokens);
    SideShape b = random_side({{}, {layout::attention(3, 4, 64, layout::Element::bf16)}}, random, kTokens);
    a.tp = 1U << random.below(3), b.tp = 1U << random.below(3);
    a.pp = b.pp = 1;
    a.begin = b.begin = 0;
    a.block_tokens = 16U << random.below(2), b.block_tokens = 16U << random.below(3);  // that a grain fits
    w.make(true, true, a, b);
    w.start();
    w.run();
    uint64_t landed = 0;
    for (auto& d : w.decode) {
      EXPECT_TRUE(d->finished.begin()->second.ok()) << d->finished.begin()->second.message();
      landed += d->receiver->stats().direct_slices;
      EXPECT_EQ(d->receiver->direct_failures(), 0U);
      EXPECT_EQ(d->receiver->direct_taken(), 0U);
    }
    for (auto& t : w.targets) EXPECT_EQ(t.check(7), "");
    for (auto& s : w.senders) {
      EXPECT_EQ(s->sender->direct_taken(), 0U);
      sent += s->sender->stats().direct_slices;
    }
    EXPECT_EQ(w.transfers[1]->scatters().bad_leaves, 0U);
    EXPECT_EQ(w.cuda.calls("cuFlushGPUDirectRDMAWrites"), i % 2 == 0 ? 0 : landed) << "before each that is read";
    came += landed;
  }
  EXPECT_GT(came, 20U);
  EXPECT_GT(sent, 20U);
}

// The order of threads decides which slices are garbled, so the test repeats until one was.
TEST(SessionDevices, what_is_garbled_on_the_way_is_found_and_pulled_again) {
  for (const bool grains : {false, true}) {
    uint64_t garbled = 0;
    for (int round = 0; garbled == 0; ++round) {
      ASSERT_LT(round, 100);
      World w;
      w.net.grains = grains;
      w.net.faults.garble = 0.1;
      w.make(true, true, kFour, kTwo);
      w.start();
      w.run();
      uint64_t damaged = 0;
      for (size_t d = 0; d < w.decode.size(); ++d) {
        damaged += w.decode[d]->receiver->stats().damaged_slices;
        const Status& end = w.decode[d]->finished.begin()->second;
        EXPECT_TRUE(end.ok() || end.code() == Code::damaged) << end.message();
        if (end.ok()) {
          EXPECT_EQ(w.targets[d].check(7), "");
        }
      }
      garbled = w.net.garbled();
      EXPECT_EQ(garbled != 0, damaged != 0);
    }
  }
}

// Staging changes its bytes after they were read.
TEST(SessionDevices, what_was_not_read_as_the_device_says_is_read_again_and_then_fails) {
  for (const bool always : {false, true}) {
    SCOPED_TRACE(always);
    World w;
    std::atomic<int> gathers{0};
    add_emulated_kernels(w.cuda, [&](const std::string& name, const FakeLaunch& launch) {
      if (name == "kvbm_gather_leaves" && (gathers.fetch_add(1) == 1 || always)) spoil_first_record(launch);
    });
    w.make(true, true, kFour, kTwo);
    w.start();
    w.run();
    const device::TransferStats read = w.transfers[0]->gathers();
    if (always) {
      for (auto& d : w.decode) EXPECT_EQ(d->finished.begin()->second.code(), Code::damaged);
      continue;
    }
    EXPECT_EQ(read.bad_leaves, 1U);
    EXPECT_EQ(read.batches, w.movers[0]->gathers + 1);
    for (auto& d : w.decode) {
      EXPECT_TRUE(d->finished.begin()->second.ok()) << d->finished.begin()->second.message();
      EXPECT_EQ(d->receiver->stats().damaged_slices, 0U);
    }
    for (auto& t : w.targets) EXPECT_EQ(t.check(7), "");
  }
}

// Loses either the device that is read from or the one that is written to.
TEST(SessionDevices, a_device_that_is_lost_ends_every_session_and_every_offer_once) {
  for (const int lost : {0, 1}) {
    SCOPED_TRACE(lost);
    World w;
    w.make(true, true, kFour, kTwo);
    w.start();
    while (lost == 0 ? w.movers[0]->gathers < 3 : w.movers[1]->scatters < 3) {
      if (!w.inbox.run_one() && !w.sim.step()) w.inbox.wait();
    }
    w.cuda.lose(lost);
    w.run();
    uint64_t failed = 0;
    for (size_t d = 0; d < w.decode.size(); ++d) {
      const Status& end = w.decode[d]->finished.begin()->second;
      if (end.ok()) {
        EXPECT_EQ(w.targets[d].check(7), "");
        continue;
      }
      ++failed;
      EXPECT_EQ(end.code(), Code::tier_disabled) << end.message();
      EXPECT_NE(end.message().find("device " + std::to_string(lost)), std::string::npos) << end.message();
    }
    EXPECT_GT(failed, 0U);
    EXPECT_TRUE(w.devices[static_cast<size_t>(lost)]->is_lost());
    EXPECT_FALSE(w.devices[static_cast<size_t>(1 - lost)]->is_lost());
  }
}

TEST(SessionDevices, an_abort_waits_for_the_device_and_for_nothing_else) {
  World w;
  w.make(false, true, kFour, kTwo);
  w.start();
  w.cuda.hold_all(true);
  while (w.movers[1]->scatters < 2) {
    if (!w.inbox.run_one() && !w.sim.step()) w.inbox.wait();
  }
  for (size_t d = 0; d < w.decode.size(); ++d) {
    ASSERT_TRUE(w.decode[d]->receiver->abort(w.opened[d], Code::cancelled, "the client went away").ok());
    w.decode[d]->drain();
  }
  w.cuda.hold_all(false);
  w.run();
  for (auto& d : w.decode) EXPECT_EQ(d->finished.begin()->second.code(), Code::cancelled);
}

}  // namespace
}  // namespace kvbm::test::session_mover_test
