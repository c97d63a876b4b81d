// Device memory that one process shares and another one maps, also when the first is killed, and what is refused.
#include "manager/session/device_share.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <future>
#include <thread>

#include "base/thread/thread_executor.h"
#include "codec/hash/leaf_hash.h"
#include "device/driver/driver_thread.h"
#include "device/transfer/transfers.h"
#include "support/cuda_emulation/fake_kernels.h"

namespace kvbm::test::device_share_test {
namespace {

using cluster::session::SharedMemory;
using manager::DeviceShare;

constexpr uint64_t kBytes = 64 << 10;
constexpr DeviceShare::BootId kBoot{1, 2, 3};

// A process's device, and the object that shares its memory.
struct Side {
  explicit Side(const DeviceShare::BootId& boot = kBoot, const FakeCudaOptions& options = {}) : cuda(options) {
    add_emulated_kernels(cuda);
    work = std::move(ThreadExecutor::create("test", 1)).value();
    links_executor = std::make_shared<WeakExecutor>(*work);
    device = device::Device::open(cuda.driver(), 0, nullptr).value();
    share = std::make_unique<DeviceShare>(device, boot, links_executor);
  }
  // Memory holds the device while its release waits for the device's thread.
  ~Side() {
    if (device != nullptr) (void)device::has_run(*device->thread(), kNever);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  Result<SharedMemory> made(uint64_t bytes) {
    return wait(device, [&](DeviceShare::Done done) { share->share(bytes, std::move(done)); });
  }
  Result<SharedMemory> mapped(ConstBytes said, uint64_t bytes) {
    return wait(device, [&](DeviceShare::Done done) { share->map(said, bytes, std::move(done)); });
  }
  // Waits also for the end of the task on the device's thread, which holds the device.
  template <class Call>
  static Result<SharedMemory> wait(const std::shared_ptr<device::Device>& on, Call&& call) {
    std::promise<Result<SharedMemory>> promise;
    auto future = promise.get_future();
    call([&promise](Result<SharedMemory> result) { promise.set_value(std::move(result)); });
    Result<SharedMemory> result = future.get();
    (void)device::has_run(*on->thread(), kNever);
    return result;
  }

  FakeCuda cuda;
  std::unique_ptr<ThreadExecutor> work;  // of the links
  std::shared_ptr<WeakExecutor> links_executor;
  std::shared_ptr<device::Device> device;
  std::unique_ptr<DeviceShare> share;
};

std::byte pattern(uint64_t i) { return static_cast<std::byte>(i * 131 >> 3); }

// Shares memory, writes its name, and waits to be killed.
[[noreturn]] void run_child(int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Side side;
  const auto memory = side.made(kBytes);
  if (!memory.ok()) ::_exit(2);
  for (uint64_t i = 0; i < kBytes; ++i) memory.value().data[i] = pattern(i);
  const auto& said = memory.value().said;
  const auto size = static_cast<uint8_t>(said.size());
  if (::write(out, &size, 1) != 1 || ::write(out, said.data(), size) != static_cast<ssize_t>(size)) ::_exit(3);
  for (;;) ::pause();
}

bool is_right(const std::byte* data) {
  for (uint64_t i = 0; i < kBytes; ++i) {
    if (data[i] != pattern(i)) return false;
  }
  return true;
}

struct Outcome {
  Code code = Code::internal;
  bool good = false;
};

// Scatters the memory, as the record of one leaf, into a page of the device, compared with `hash`.
Outcome scatter(Side& side, std::byte* record, std::byte* page, uint64_t hash) {
  auto transfers = std::move(device::Transfers::create(side.device, {}, *side.work)).value();
  device::TransferBatch batch;
  batch.leaves.resize(1);
  batch.leaves[0].device.data = page;
  batch.leaves[0].device.bytes = kBytes;
  batch.leaves[0].device.count0 = batch.leaves[0].device.count1 = 1;
  batch.leaves[0].record = record;
  batch.leaves[0].on_device = true;
  batch.leaves[0].expected = hash;
  std::promise<Outcome> promise;
  auto future = promise.get_future();
  batch.done = [&promise](device::TransferBatch& moved, Code code) {
    promise.set_value({code, code == Code::ok && moved.good[0] != 0});
  };
  transfers->scatter(std::move(batch));
  return future.get();
}

TEST(DeviceShare, what_a_process_shares_is_there_for_another_one_and_stays_when_it_is_killed) {
  int up[2];
  ASSERT_EQ(::pipe(up), 0);
  const pid_t child = ::fork();  // before this process has a driver or a thread
  ASSERT_GE(child, 0);
  if (child == 0) run_child(up[1]);
  ::close(up[1]);
  uint8_t size = 0;
  ASSERT_EQ(::read(up[0], &size, 1), 1);
  std::vector<std::byte> said(size);
  ASSERT_EQ(::read(up[0], said.data(), size), static_cast<ssize_t>(size));
  Side side;
  auto mapped = side.mapped(said, kBytes);
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  std::byte* data = mapped.value().data;
  EXPECT_TRUE(is_right(data));
  const uint64_t hash = codec::leaf_hash({data, kBytes});
  auto* const page = reinterpret_cast<std::byte*>(side.cuda.allocate(0, kBytes));
  EXPECT_TRUE(scatter(side, data, page, hash).good);
  EXPECT_TRUE(is_right(page));

  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  std::memset(page, 0, kBytes);
  EXPECT_TRUE(scatter(side, data, page, hash).good);
  EXPECT_TRUE(is_right(page));
  // A later change of the memory is found, and the changed bytes are never read as KV.
  data[kBytes / 2] ^= std::byte{1};
  const Outcome wrong = scatter(side, data, page, hash);
  EXPECT_EQ(wrong.code, Code::ok);
  EXPECT_FALSE(wrong.good);
  EXPECT_EQ(page[0], std::byte{0xFF});
  EXPECT_EQ(page[kBytes - 1], std::byte{0xFF});
  EXPECT_FALSE(side.device->is_lost());
  ::close(up[0]);
}

TEST(DeviceShare, what_is_not_of_this_machine_or_no_name_is_refused_in_words) {
  Side side;
  const auto memory = side.made(kBytes);
  ASSERT_TRUE(memory.ok());
  const auto refused = [&](std::vector<std::byte> said, uint64_t bytes, Code code, const std::string& words) {
    const auto mapped = side.mapped(said, bytes);
    EXPECT_EQ(mapped.status().code(), code) << mapped.status().message();
    EXPECT_NE(mapped.status().message().find(words), std::string::npos) << mapped.status().message();
  };
  const std::vector<std::byte> said = memory.value().said;
  auto other = said;
  other[0] ^= std::byte{1};
  refused(other, kBytes, Code::unsupported, "another machine");
  refused({said.begin(), said.end() - 1}, kBytes, Code::invalid_argument, "no name of memory");
  refused({}, kBytes, Code::invalid_argument, "no name of memory");
  refused(said, kBytes + 1, Code::invalid_argument, "65536 bytes");
  other = said;  // a size above that of the allocation
  store_le<uint64_t>(other.data() + other.size() - 8, kBytes * 2);
  refused(other, kBytes * 2, Code::invalid_argument, "its allocation has");
  other = said;
  store_le<uint64_t>(other.data() + other.size() - 16, ~uint64_t{0});
  refused(other, kBytes, Code::invalid_argument, "its allocation has");
  other = said;  // a handle that no driver gave
  std::memset(other.data() + 16, 0xAB, 64);
  refused(other, kBytes, Code::stale_handle, "not allocated any more");
  EXPECT_FALSE(side.device->is_lost());
  EXPECT_TRUE(side.mapped(said, kBytes).ok());
}

TEST(DeviceShare, only_places_of_this_machine_are_near) {
  Side side;
  EXPECT_TRUE(side.share->near(side.share->place()).ok());
  std::vector<std::byte> there = side.share->place();
  there[15] ^= std::byte{1};
  EXPECT_EQ(side.share->near(there).code(), Code::unsupported);
  EXPECT_EQ(side.share->near({}).code(), Code::invalid_argument);
  side.cuda.lose(0);
  EXPECT_FALSE(side.made(kBytes).ok());
  EXPECT_TRUE(side.share->place().empty()) << "a lost device shares nothing";
}

TEST(DeviceShare, a_machine_that_is_not_known_is_nowhere) {
  Side side{DeviceShare::BootId{}};
  EXPECT_TRUE(side.share->place().empty());
  EXPECT_FALSE(side.share->near(std::vector<std::byte>(16)).ok());
}

// A process has two managers. The driver does not open its own handles, so the second manager finds the memory
// directly.
TEST(DeviceShare, another_manager_of_this_process_has_the_memory_itself_and_keeps_it) {
  FakeCudaOptions options;
  options.devices.resize(2);
  options.refuse_own_ipc = true;
  Side prefill{kBoot, options};
  auto work = std::move(ThreadExecutor::create("test", 1)).value();
  const auto links_executor = std::make_shared<WeakExecutor>(*work);
  auto device = device::Device::open(prefill.cuda.driver(), 0, nullptr).value();
  DeviceShare decode(device, kBoot, links_executor);
  const auto map = [&](DeviceShare& share, const std::vector<std::byte>& said) {
    return Side::wait(device, [&](DeviceShare::Done done) { share.map(said, kBytes, std::move(done)); });
  };
  {
    auto memory = prefill.made(kBytes);
    ASSERT_TRUE(memory.ok());
    const std::vector<std::byte> said = memory.value().said;
    auto mapped = map(decode, said);
    ASSERT_TRUE(mapped.ok()) << mapped.status().message();
    EXPECT_EQ(mapped.value().data, memory.value().data);
    const auto other_device = device::Device::open(prefill.cuda.driver(), 1, nullptr).value();
    DeviceShare elsewhere(other_device, kBoot, links_executor);
    const auto refused = Side::wait(other_device, [&](auto done) { elsewhere.map(said, kBytes, std::move(done)); });
    EXPECT_EQ(refused.status().code(), Code::unsupported) << "another device does not reach it";
    auto other = said;  // nothing was ever said by that name
    store_le<uint64_t>(other.data() + other.size() - 16, 4096);
    EXPECT_EQ(map(decode, other).status().code(), Code::unsupported);
    for (uint64_t i = 0; i < kBytes; ++i) memory.value().data[i] = pattern(i);
    // The manager that allocated the memory ends before the one that reads it.
    memory = Status(Code::internal, "let go");
    EXPECT_TRUE(device::has_run(*prefill.device->thread(), kNever));
    prefill.share.reset();
    prefill.device.reset();
    EXPECT_TRUE(is_right(mapped.value().data));
    EXPECT_TRUE(map(decode, said).ok()) << "somebody holds it";
    EXPECT_EQ(prefill.cuda.left(0).device_bytes, kBytes);
    mapped = Status(Code::internal, "let go");
    EXPECT_TRUE(device::has_run(*device->thread(), kNever));
    EXPECT_EQ(prefill.cuda.left(0).device_bytes, 0U);
    EXPECT_EQ(map(decode, said).status().code(), Code::unsupported) << "a name does not outlive its memory";
  }
  EXPECT_EQ(prefill.cuda.left(0).ipc_mappings, 0U);
}

TEST(DeviceShare, memory_is_given_back_when_nobody_holds_it) {
  Side side;
  {
    auto memory = side.made(kBytes);
    auto mapped = side.mapped(memory.value().said, kBytes);
    ASSERT_TRUE(mapped.ok());
    EXPECT_EQ(side.cuda.left(0).ipc_mappings, 1U);
  }
  ASSERT_TRUE(device::has_run(*side.device->thread(), kNever));
  EXPECT_EQ(side.cuda.left(0).ipc_mappings, 0U);
  EXPECT_EQ(side.cuda.left(0).device_bytes, 0U);
}

}  // namespace
}  // namespace kvbm::test::device_share_test
