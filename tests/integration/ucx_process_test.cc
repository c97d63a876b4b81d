// The UCX module between two real processes: data, death, freezing, and what it may not do to its host.
#include <gtest/gtest.h>

#ifndef KVBM_UCX_MODULE

#ifndef KVBM_UCX_SKIPPED
#define KVBM_UCX_SKIPPED "UCX was not found when this was configured: no module to test"
#endif

TEST(UcxProcess, is_skipped_here) { GTEST_SKIP() << KVBM_UCX_SKIPPED; }

#else

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "base/process/signal_keeper.h"
#include "copy/transport_module.h"
#include "support/transport_process.h"
#include "support/transport_side.h"

namespace kvbm::test::ucx_process_test {
namespace {

using What = Ask::What;

const kvbm_transport_ops_t& ucx() {
  static const auto loaded = copy::load_transport_module(KVBM_UCX_MODULE);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return *Result(loaded).value();
}

double seconds_of(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; }

class UcxProcess : public testing::Test {
 protected:
  void connect(uint32_t flags = 0) {
    address_ = node_.start(KVBM_UCX_MODULE);
    ASSERT_FALSE(address_.empty());
    ASSERT_EQ(end_.open(ucx(), flags), "");
    dial();
  }
  void dial() {
    char error[256] = "";
    ASSERT_EQ(end_.ops->connect(end_.transport, address_.c_str(), &end_.peer, error, sizeof error), 0) << error;
    const int before = end_.connected;
    ASSERT_TRUE(end_.run_until([&] { return end_.connected > before || end_.closed; }));
    ASSERT_FALSE(end_.closed) << end_.reason;
  }
  int32_t send(const std::string& text) { return end_.ops->send(end_.transport, end_.peer, text.data(), text.size()); }
  void ask(What what, uint64_t tag, uint64_t bytes, uint64_t seed) {
    const Ask ask{Ask::kMark, what, tag, bytes, seed};
    ASSERT_EQ(send(std::string(reinterpret_cast<const char*>(&ask), sizeof ask)), 0);
  }
  int32_t post(uint64_t tag, std::vector<std::byte>& to) {
    return end_.ops->post(end_.transport, end_.peer, tag, to.data(), to.size(), tag);
  }
  bool heard(const std::string& text) {
    return end_.run_until([&] {
      return end_.closed || std::find(end_.messages.begin(), end_.messages.end(), text) != end_.messages.end();
    }) && !end_.closed;
  }

  NodeProcess node_;
  TransportEnd end_;
  std::string address_;
};

TEST_F(UcxProcess, signal_handling_and_allocator_are_the_hosts_after_load_open_and_traffic) {
  std::array<SignalAction, SignalAction::kSignals + 1> before;
  struct sigaction own {};
  own.sa_handler = [](int) {};
  ::sigaction(SIGBUS, &own, nullptr);
  for (int i = 1; i <= SignalAction::kSignals; ++i) ASSERT_TRUE(before[static_cast<size_t>(i)].read(i));
  // UCX installs its memory hooks by patching the first bytes of these functions.
  const std::array<const void*, 4> functions = {
      reinterpret_cast<const void*>(&::mmap), reinterpret_cast<const void*>(&::munmap),
      reinterpret_cast<const void*>(&::mremap), reinterpret_cast<const void*>(&::madvise)};
  std::array<std::array<unsigned char, 16>, 4> code{};
  for (size_t i = 0; i < functions.size(); ++i) std::memcpy(code[i].data(), functions[i], code[i].size());

  connect();
  ask(What::push, 1, 5'000'000, 3);
  std::vector<std::byte> to(5'000'000);
  ASSERT_EQ(post(1, to), 0);
  ASSERT_TRUE(end_.run_until([&] { return end_.received.count(1) != 0; }));
  EXPECT_EQ(end_.received[1].status, 0);
  end_.close();

  for (int i = 1; i <= SignalAction::kSignals; ++i) {
    SignalAction now;
    ASSERT_TRUE(now.read(i));
    EXPECT_TRUE(now == before[static_cast<size_t>(i)]) << "signal " << i;
  }
  for (size_t i = 0; i < functions.size(); ++i) {
    EXPECT_EQ(std::memcmp(code[i].data(), functions[i], code[i].size()), 0)
        << "memory function " << i << " was patched";
  }
  own.sa_handler = SIG_DFL;
  ::sigaction(SIGBUS, &own, nullptr);
}

TEST_F(UcxProcess, bulk_of_any_size_arrives_in_both_directions) {
  connect();
  uint64_t tag = 0;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{7}, uint64_t{4096}, uint64_t{8191}, uint64_t{65536},
                               uint64_t{(1 << 20) - 1}, uint64_t{3'333'333}, uint64_t{16} << 20, uint64_t{64} << 20}) {
    SCOPED_TRACE(bytes);
    ++tag;
    std::vector<std::byte> to(bytes);
    ASSERT_EQ(post(tag, to), 0);
    ask(What::push, tag, bytes, tag);
    ASSERT_TRUE(end_.run_until([&] { return end_.received.count(tag) != 0; }));
    ASSERT_EQ(end_.received[tag].status, 0);
    EXPECT_EQ(end_.received[tag].bytes, bytes);
    EXPECT_EQ(to, content(tag, bytes));

    end_.messages.clear();
    ask(What::post, 1000 + tag, bytes, tag + 7);
    ASSERT_TRUE(heard("posted"));
    const auto from = content(tag + 7, bytes);
    // Pushes three pieces, one of them empty.
    const kvbm_transport_piece_t pieces[3] = {
        {from.data(), bytes / 2}, {from.data(), 0}, {from.data() + bytes / 2, bytes - bytes / 2}};
    ASSERT_EQ(end_.ops->push(end_.transport, end_.peer, 1000 + tag, pieces, 3, 1000 + tag), 0);
    ASSERT_TRUE(heard("right " + std::to_string(1000 + tag))) << end_.messages.back();
    ASSERT_TRUE(end_.run_until([&] { return end_.pushed.count(1000 + tag) != 0; }));
    EXPECT_EQ(end_.pushed[1000 + tag].status, 0);
  }
}

TEST_F(UcxProcess, thousands_of_messages_come_back_in_order_and_a_full_queue_says_again) {
  connect();
  constexpr size_t kN = 5000;
  int refused = 0;
  for (size_t i = 0; i < kN;) {
    const int32_t status = send("message " + std::to_string(i) + std::string(i % 3000, 'x'));
    ASSERT_TRUE(status == 0 || status == static_cast<int32_t>(Code::again)) << status;
    if (status == 0) {
      ++i;
      continue;
    }
    ++refused;
    const int before = end_.writable;
    ASSERT_TRUE(end_.run_until([&] { return end_.writable > before; }));
  }
  ASSERT_TRUE(end_.run_until([&] { return end_.messages.size() == kN; }))
      << end_.messages.size() << " came, refused " << refused;
  for (size_t i = 0; i < kN; ++i) {
    ASSERT_EQ(end_.messages[i], "message " + std::to_string(i) + std::string(i % 3000, 'x'));
  }
  EXPECT_EQ(end_.writable, refused);
}

TEST_F(UcxProcess, a_killed_peer_closes_and_the_memory_of_posts_stays_quiet) {
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    end_.closed.reset();
    end_.received.clear();
    if (round == 0) {
      connect();
    } else {
      address_ = node_.start(KVBM_UCX_MODULE);
      dial();
    }
    if (HasFatalFailure()) return;
    constexpr uint64_t kBytes = 16 << 20;
    std::vector<std::vector<std::byte> > to(4, std::vector<std::byte>(kBytes));
    for (uint64_t i = 0; i < 4; ++i) {
      ASSERT_EQ(post(i + 1, to[i]), 0);
      ask(What::push, i + 1, kBytes, i);
    }
    // In the other direction parts are also in flight when the peer dies.
    const auto from = content(1, kBytes);
    const kvbm_transport_piece_t piece{from.data(), kBytes};
    for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(end_.ops->push(end_.transport, end_.peer, 50 + i, &piece, 1, 50 + i), 0);
    for (int i = 0; i < round * 10; ++i) end_.step(1);
    node_.signal(SIGKILL);
    ASSERT_TRUE(end_.run_until([&] { return end_.closed.has_value(); }));
    EXPECT_LT(*end_.closed, 0);
    ASSERT_EQ(end_.received.size(), 4U);
    for (uint64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(end_.pushed.count(50 + i), 1U);
      EXPECT_TRUE(end_.received[i + 1].status != 0 || to[i] == content(i, kBytes));
      std::fill(to[i].begin(), to[i].end(), std::byte{0x5A});
    }
    for (int i = 0; i < 20; ++i) end_.step(1);
    for (const auto& memory : to) {
      EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0x5A}; }));
    }
    node_.end();
    end_.pushed.clear();
  }
}

TEST_F(UcxProcess, a_frozen_peer_is_dropped_by_force_and_everything_ends) {
  connect();
  constexpr uint64_t kBytes = 64 << 20;
  std::vector<std::byte> to(kBytes);
  ASSERT_EQ(post(1, to), 0);
  ask(What::push, 1, kBytes, 1);
  const auto from = content(1, kBytes);
  const kvbm_transport_piece_t piece{from.data(), kBytes};
  ASSERT_EQ(end_.ops->push(end_.transport, end_.peer, 2, &piece, 1, 2), 0);
  for (int i = 0; i < 10; ++i) end_.step(1);
  node_.signal(SIGSTOP);
  for (int i = 0; i < 50; ++i) end_.step(1);
  ASSERT_FALSE(end_.closed);
  EXPECT_EQ(end_.ops->cancel(end_.transport, end_.peer, 1), 0);
  EXPECT_EQ(end_.ops->disconnect(end_.transport, end_.peer, 1), 0);
  for (int i = 0; i < 5; ++i) end_.step(1);
  EXPECT_EQ(end_.ops->disconnect(end_.transport, end_.peer, 0), 0);
  ASSERT_TRUE(end_.run_until([&] { return end_.closed.has_value(); }));
  ASSERT_EQ(end_.received.count(1), 1U);
  ASSERT_EQ(end_.pushed.count(2), 1U);
  EXPECT_LT(end_.received[1].status, 0);
  EXPECT_LT(end_.pushed[2].status, 0);
  std::fill(to.begin(), to.end(), std::byte{0x5A});
  node_.signal(SIGCONT);
  for (int i = 0; i < 50; ++i) end_.step(1);
  EXPECT_TRUE(std::all_of(to.begin(), to.end(), [](std::byte b) { return b == std::byte{0x5A}; }));
}

TEST_F(UcxProcess, closing_a_transport_to_a_frozen_peer_comes_back) {
  connect();
  constexpr uint64_t kBytes = 64 << 20;
  const auto from = content(1, kBytes);
  const kvbm_transport_piece_t piece{from.data(), kBytes};
  node_.signal(SIGSTOP);
  ASSERT_EQ(end_.ops->push(end_.transport, end_.peer, 2, &piece, 1, 2), 0);
  for (int i = 0; i < 20; ++i) end_.step(1);
  end_.close();
  node_.signal(SIGCONT);
}

TEST_F(UcxProcess, a_node_that_starts_again_takes_its_port_back_and_serves) {
  connect();
  ask(What::echo, 1, 2, 3);
  ASSERT_TRUE(end_.run_until([&] { return !end_.messages.empty(); }));
  node_.signal(SIGKILL);
  ASSERT_TRUE(end_.run_until([&] { return end_.closed.has_value(); }));
  node_.end();
  end_.closed.reset();
  const std::string again = node_.start(KVBM_UCX_MODULE, {}, address_);
  ASSERT_EQ(again, address_);
  dial();
  send("are you there");
  EXPECT_TRUE(heard("are you there"));
}

TEST_F(UcxProcess, a_peer_that_leaves_is_told_after_its_last_words) {
  connect();
  std::vector<std::byte> to(2'000'000);
  ASSERT_EQ(post(1, to), 0);
  ask(What::push, 1, to.size(), 9);
  ask(What::echo, 5, 5, 5);
  ask(What::leave, 0, 0, 0);
  ASSERT_TRUE(end_.run_until([&] { return end_.closed.has_value(); }));
  EXPECT_EQ(end_.messages.size(), 1U);
  EXPECT_EQ(end_.received[1].status, 0);
  EXPECT_EQ(to, content(9, to.size()));
  EXPECT_NE(end_.reason.find("disconnected"), std::string::npos) << end_.reason;
}

TEST_F(UcxProcess, an_idle_connection_sleeps) {
  connect();
  send("once");
  ASSERT_TRUE(heard("once"));
  for (int i = 0; i < 5; ++i) end_.step(1);
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  timespec start{};
  ::clock_gettime(CLOCK_MONOTONIC, &start);
  end_.step(1000);
  timespec stop{};
  ::clock_gettime(CLOCK_MONOTONIC, &stop);
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  const double wall =
      static_cast<double>(stop.tv_sec - start.tv_sec) + static_cast<double>(stop.tv_nsec - start.tv_nsec) * 1e-9;
  const double used = seconds_of(after.ru_utime) + seconds_of(after.ru_stime) - seconds_of(before.ru_utime) -
                      seconds_of(before.ru_stime);
  std::printf("idle: %.3f %% of a processor over %.2f s\n", 100 * used / wall, wall);
  // Nothing is known of the machine's load: this only finds a loop.
  EXPECT_LT(used, 0.5 * std::max(wall, 0.1));
}

TEST_F(UcxProcess, device_memory_is_not_offered_over_tcp) {
  connect(KVBM_TRANSPORT_EMULATE_GET);
  EXPECT_EQ(end_.ops->features(end_.transport) & KVBM_TRANSPORT_DEVICE, 0U);
  uint64_t memory = 0;
  std::vector<std::byte> device(4096);
  EXPECT_EQ(end_.ops->add_device_memory(end_.transport, device.data(), device.size(), &memory),
            static_cast<int32_t>(Code::unsupported));
}

// Host memory that the module treats as device memory, so that any write by the CPU can be detected.
class UcxDevice : public UcxProcess {
 protected:
  static constexpr std::byte kUntouched{0x5A};
  // For the sender's environment: UCX copies all data if it may choose.
  static constexpr char kCopies[] = "UCX_RNDV_THRESH=inf";
  void connect_device(const std::vector<std::string>& environment, uint64_t bytes) {
    address_ = node_.start(KVBM_UCX_MODULE, environment);
    ASSERT_FALSE(address_.empty());
    ASSERT_EQ(end_.open(ucx(), KVBM_TRANSPORT_EMULATE_GET | KVBM_TRANSPORT_EMULATE_DEVICE), "");
    EXPECT_NE(end_.ops->features(end_.transport) & KVBM_TRANSPORT_DEVICE, 0U);
    dial();
    device_.assign(bytes, kUntouched);
    ASSERT_EQ(end_.ops->add_device_memory(end_.transport, device_.data(), device_.size(), &memory_), 0);
  }
  // Pushes the given number of bytes into `to`, and returns the completion.
  TransportEnd::Completion pushed_into(std::byte* to, uint64_t bytes) {
    const uint64_t tag = ++tag_;
    EXPECT_EQ(end_.ops->post(end_.transport, end_.peer, tag, to, bytes, tag), 0);
    ask(What::push, tag, bytes, tag);
    EXPECT_TRUE(end_.run_until([&] { return end_.received.count(tag) != 0; }));
    return end_.received[tag];
  }
  [[nodiscard]] bool untouched() const {
    return std::all_of(device_.begin(), device_.end(), [](std::byte b) { return b == kUntouched; });
  }
  // Expects that the connection lives, and that pushes reach host memory.
  void expect_alive() {
    std::vector<std::byte> host(100'000);
    EXPECT_EQ(pushed_into(host.data(), host.size()).status, 0);
    EXPECT_EQ(host, content(tag_, host.size()));
    EXPECT_FALSE(end_.closed) << end_.reason;
  }

  std::vector<std::byte> device_;
  uint64_t memory_ = 0;
  uint64_t tag_ = 0;
};

TEST_F(UcxDevice, a_part_that_came_by_copy_fails_its_post_and_is_not_written) {
  constexpr auto kRefused = static_cast<int32_t>(Code::unsupported);
  connect_device({kCopies}, 3'000'000);
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{1000}, uint64_t{8192}, uint64_t{2'500'000}}) {
    SCOPED_TRACE(bytes);
    const TransportEnd::Completion end = pushed_into(device_.data() + 64, bytes);
    EXPECT_EQ(end.status, kRefused);
    EXPECT_EQ(end.bytes, 0U);
    EXPECT_TRUE(untouched());
  }
  // One byte of device memory in the posted range is enough for a refusal.
  std::vector<std::byte> both(device_.size() + 1, kUntouched);
  uint64_t half = 0;
  ASSERT_EQ(end_.ops->add_device_memory(end_.transport, both.data() + 999, 1, &half), 0);
  EXPECT_EQ(pushed_into(both.data(), 1000).status, kRefused);
  EXPECT_EQ(pushed_into(both.data() + 1000, 1000).status, 0);
  EXPECT_EQ(both[0], kUntouched);
  expect_alive();
  // The memory counts as host memory again after it is removed.
  EXPECT_EQ(end_.ops->remove_memory(end_.transport, memory_), 0);
  EXPECT_EQ(pushed_into(device_.data(), 1000).status, 0);
  EXPECT_EQ(end_.ops->remove_memory(end_.transport, half), 0);
}

TEST_F(UcxDevice, a_sender_with_devices_pushes_so_that_it_can_land_there) {
  connect_device({std::string(kNodeOnDevice) + "=1", kCopies}, 3'000'000);
  // The last part of the push is shorter than the others.
  for (const uint64_t bytes : {uint64_t{KVBM_TRANSPORT_DEVICE_BYTES}, uint64_t{(1 << 20) + 100}, uint64_t{2'500'000}}) {
    SCOPED_TRACE(bytes);
    std::fill(device_.begin(), device_.end(), kUntouched);
    const TransportEnd::Completion end = pushed_into(device_.data(), bytes);
    ASSERT_EQ(end.status, 0);
    EXPECT_EQ(end.bytes, bytes);
    const auto wanted = content(tag_, bytes);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), device_.begin()));
    EXPECT_EQ(device_[bytes], kUntouched);
  }
  // A shorter push is copied on its way, so it is refused.
  EXPECT_EQ(pushed_into(device_.data(), 1000).status, static_cast<int32_t>(Code::unsupported));
  expect_alive();
}

TEST_F(UcxDevice, what_is_sent_out_of_a_device_arrives_in_memory_of_the_host) {
  connect_device({}, 300'000);
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{1000}, uint64_t{300'000}}) {
    SCOPED_TRACE(bytes);
    const uint64_t tag = ++tag_;
    const auto wanted = content(tag, bytes);
    std::copy(wanted.begin(), wanted.end(), device_.begin());
    end_.messages.clear();
    ask(What::post, tag, bytes, tag);
    ASSERT_TRUE(heard("posted"));
    const kvbm_transport_piece_t piece{device_.data(), bytes};
    ASSERT_EQ(end_.ops->push(end_.transport, end_.peer, tag, &piece, 1, tag), 0);
    ASSERT_TRUE(heard("right " + std::to_string(tag))) << end_.messages.back();
    ASSERT_TRUE(end_.run_until([&] { return end_.pushed.count(tag) != 0; }));
    EXPECT_EQ(end_.pushed[tag].status, 0);
  }
}

TEST_F(UcxProcess, one_sided_reads_over_the_emulation_check_their_range_and_key) {
  connect(KVBM_TRANSPORT_EMULATE_GET);
  EXPECT_NE(end_.ops->features(end_.transport) & KVBM_TRANSPORT_GET, 0U);
  constexpr uint64_t kBytes = 3'000'000;
  ask(What::offer, 1, kBytes, 4);
  ASSERT_TRUE(end_.run_until([&] { return !end_.messages.empty(); }));
  const std::string answer = end_.messages.back();
  ASSERT_GT(answer.size(), 8U) << answer;
  uint64_t address = 0;
  std::memcpy(&address, answer.data(), sizeof address);
  const std::string key = answer.substr(8);
  EXPECT_LE(key.size(), KVBM_TRANSPORT_KEY_BYTES);
  const auto wanted = content(4, kBytes);
  std::vector<std::byte> to(kBytes);
  const auto get = [&](uint64_t at, uint64_t bytes, uint64_t token, const std::string& with) {
    return end_.ops->get(end_.transport, end_.peer, to.data() + at, address + at, with.data(), with.size(), bytes,
                         token);
  };
  for (uint64_t i = 0; i < 30; ++i) ASSERT_EQ(get(i * 100'000, 100'000, 10 + i, key), 0);
  ASSERT_TRUE(end_.run_until([&] { return end_.received.size() == 30; }));
  EXPECT_EQ(to, wanted);
  const auto invalid = static_cast<int32_t>(Code::invalid_argument);
  EXPECT_EQ(get(1, kBytes, 99, key), invalid);
  EXPECT_EQ(end_.ops->get(end_.transport, end_.peer, to.data(), address - 1, key.data(), key.size(), 1, 99), invalid);
  EXPECT_EQ(get(0, 1, 99, key.substr(0, key.size() - 1)), invalid);
  EXPECT_EQ(get(0, 1, 99, std::string(8, 'k')), invalid);
  EXPECT_EQ(get(0, 1, 99, ""), invalid);
  // Reads directly into registered memory; then the peer dies.
  uint64_t memory = 0;
  char own_key[KVBM_TRANSPORT_KEY_BYTES];
  size_t size = sizeof own_key;
  ASSERT_EQ(end_.ops->add_memory(end_.transport, to.data(), to.size(), &memory, own_key, &size), 0);
  std::fill(to.begin(), to.end(), std::byte{0});
  ASSERT_EQ(get(0, kBytes, 200, key), 0);
  ASSERT_TRUE(end_.run_until([&] { return end_.received.count(200) != 0; }));
  EXPECT_EQ(to, wanted);
  node_.signal(SIGSTOP);
  ASSERT_EQ(get(0, kBytes, 201, key), 0);
  EXPECT_EQ(end_.ops->cancel(end_.transport, end_.peer, 201), 0);
  node_.signal(SIGKILL);
  ASSERT_TRUE(end_.run_until([&] { return end_.closed.has_value(); }));
  EXPECT_EQ(end_.received[201].status, static_cast<int32_t>(Code::cancelled));
  EXPECT_EQ(end_.ops->remove_memory(end_.transport, memory), 0);
  EXPECT_EQ(end_.ops->remove_memory(end_.transport, memory), static_cast<int32_t>(Code::stale_handle));
}

TEST_F(UcxProcess, without_one_sided_lanes_there_is_no_get) {
  ASSERT_EQ(end_.open(ucx()), "");
  EXPECT_EQ(end_.ops->features(end_.transport), 0U);
  uint64_t memory = 0;
  char key[KVBM_TRANSPORT_KEY_BYTES];
  size_t size = sizeof key;
  EXPECT_EQ(end_.ops->add_memory(end_.transport, key, sizeof key, &memory, key, &size),
            static_cast<int32_t>(Code::unsupported));
}

TEST_F(UcxProcess, loopback_alone_is_opened_unless_devices_are_named) {
  ASSERT_EQ(end_.open(ucx()), "");
  char text[256];
  EXPECT_GT(end_.ops->describe(end_.transport, text, sizeof text), 0U);
  EXPECT_NE(std::string(text).find("tcp/lo"), std::string::npos) << text;
  char bound[64];
  char error[256] = "";
  EXPECT_EQ(end_.ops->listen(end_.transport, "0.0.0.0:0", bound, sizeof bound, error, sizeof error),
            static_cast<int32_t>(Code::bad_config));
  EXPECT_NE(std::string(error).find("devices"), std::string::npos) << error;
  kvbm_transport_peer_t peer = 0;
  EXPECT_EQ(end_.ops->connect(end_.transport, "192.0.2.1:7000", &peer, error, sizeof error),
            static_cast<int32_t>(Code::bad_config));
}

TEST_F(UcxProcess, devices_that_do_not_exist_are_refused_in_words) {
  EXPECT_NE(end_.open(ucx(), 0, "nosuch0").find("nosuch0"), std::string::npos);
  EXPECT_EQ(end_.transport, nullptr);
}

}  // namespace
}  // namespace kvbm::test::ucx_process_test

#endif
