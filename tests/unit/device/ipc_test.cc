// Memory described to another process and mapped there: exports, the number of opens, and refusals.
#include "device/memory/ipc.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/cuda_emulation/fake_kernels.h"

namespace kvbm::test::ipc_test {
namespace {

using namespace device;

class Ipc : public ::testing::Test {
 protected:
  void open(FakeCudaOptions options = {}) {
    options.devices.resize(2);
    fake_ = std::make_unique<FakeCuda>(options);
    add_emulated_kernels(*fake_);
    device_ = Device::open(fake_->driver(), 0, &log_).value();
    mappings_ = std::make_unique<IpcMappings>(device_);
  }
  void TearDown() override {
    mappings_.reset();
    device_.reset();
    fake_.reset();
  }
  void expect_refused(const Status& status, Code code, const std::string& words) {
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  }

  Log log_;
  std::unique_ptr<FakeCuda> fake_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<IpcMappings> mappings_;
};

std::byte* at(CuPointer pointer) { return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(pointer)); }

TEST_F(Ipc, a_piece_of_an_allocation_is_the_same_bytes_at_the_other_side) {
  open();
  const CuPointer memory = fake_->allocate(0, 1 << 20);
  std::memset(at(memory) + 5000, 42, 300);
  const auto said = export_memory(*device_, memory + 5000, 300);
  ASSERT_TRUE(said.ok()) << said.status().message();
  EXPECT_EQ(said.value().offset, 5000U);
  std::byte wire[kIpcMemoryBytes];
  encode(said.value(), wire);
  const auto mapped = mappings_->open(decode_ipc_memory(wire));
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  EXPECT_NE(mapped.value()->pointer(), memory + 5000) << "a mapping of its own";
  EXPECT_EQ(mapped.value()->bytes(), 300U);
  EXPECT_EQ(std::memcmp(at(mapped.value()->pointer()), at(memory) + 5000, 300), 0);
  at(memory)[5001] = std::byte{7};
  EXPECT_EQ(at(mapped.value()->pointer())[1], std::byte{7});
}

TEST_F(Ipc, an_allocation_is_opened_once_and_closed_with_the_last_that_holds_it) {
  open();
  const CuPointer memory = fake_->allocate(0, 1 << 20);
  auto first = mappings_->open(export_memory(*device_, memory, 100).value()).value();
  auto second = mappings_->open(export_memory(*device_, memory + 4096, 100).value()).value();
  EXPECT_EQ(second->pointer(), first->pointer() + 4096);
  EXPECT_EQ(fake_->calls("cuIpcOpenMemHandle"), 1U);
  EXPECT_EQ(mappings_->allocations(), 1U);
  first.reset();
  EXPECT_EQ(fake_->left(0).ipc_mappings, 1U);
  mappings_.reset();  // a mapping does not need the object that made it
  second.reset();
  EXPECT_EQ(fake_->left(0).ipc_mappings, 0U);
  EXPECT_EQ(fake_->calls("cuIpcCloseMemHandle"), 1U);
}

TEST_F(Ipc, what_cannot_be_exported_is_refused_with_the_reason) {
  open();
  const CuPointer memory = fake_->allocate(0, 4096);
  expect_refused(export_memory(*device_, memory + 1, 4096).status(), Code::invalid_argument, "go beyond");
  expect_refused(export_memory(*device_, memory, 0).status(), Code::invalid_argument, "go beyond");
  expect_refused(export_memory(*device_, fake_->allocate(1, 4096), 10).status(), Code::invalid_argument,
                 "not memory of device 0");
  int host = 0;
  expect_refused(export_memory(*device_, reinterpret_cast<uintptr_t>(&host), 4).status(), Code::invalid_argument,
                 "not memory of device 0");
  fake_->fail("cuIpcGetMemHandle", 1, kCuInvalidValue);
  expect_refused(export_memory(*device_, memory, 10).status(), Code::unsupported, "expandable segments");
  fake_->fail("cuIpcGetMemHandle", 1, kCuNotSupported);
  expect_refused(export_memory(*device_, memory, 10).status(), Code::unsupported, "no CUDA IPC");
  EXPECT_FALSE(device_->is_lost());
  fake_->lose(0);
  EXPECT_EQ(export_memory(*device_, memory, 10).status().code(), Code::tier_disabled);
}

TEST_F(Ipc, what_cannot_be_mapped_is_refused_with_the_reason_and_nothing_stays_open) {
  open();
  const CuPointer memory = fake_->allocate(0, 4096);
  IpcMemory said = export_memory(*device_, memory, 4096).value();
  const auto refuse_next = [&](CuResult result, Code code, const std::string& words) {
    fake_->fail("cuIpcOpenMemHandle", 1, result);
    expect_refused(mappings_->open(said).status(), code, words);
  };
  refuse_next(217, Code::unsupported, "device 0 cannot reach");
  refuse_next(kCuInvalidContext, Code::unsupported, "this process's own");
  refuse_next(kCuInvalidDevice, Code::unsupported, "not visible");
  refuse_next(kCuInvalidHandle, Code::stale_handle, "not allocated any more");
  refuse_next(205, Code::unsupported, "container");
  said.bytes = 4097;
  expect_refused(mappings_->open(said).status(), Code::invalid_argument, "its allocation has 4096");
  said.bytes = 4096;
  said.offset = ~0ULL;
  expect_refused(mappings_->open(said).status(), Code::invalid_argument, "its allocation has 4096");
  EXPECT_EQ(mappings_->allocations(), 0U);
  EXPECT_EQ(fake_->left(0).ipc_mappings, 0U);
  EXPECT_FALSE(device_->is_lost());
}

TEST_F(Ipc, a_process_does_not_open_its_own_memory) {
  FakeCudaOptions options;
  options.refuse_own_ipc = true;
  open(options);
  const auto mapped = mappings_->open(export_memory(*device_, fake_->allocate(0, 4096), 4096).value());
  expect_refused(mapped.status(), Code::unsupported, "this process's own");
}

TEST_F(Ipc, mappings_of_a_device_that_is_lost_are_dropped_without_the_driver) {
  open();
  const CuPointer memory = fake_->allocate(0, 4096);
  auto mapped = mappings_->open(export_memory(*device_, memory, 4096).value()).value();
  fake_->lose(0);
  EXPECT_EQ(mappings_->open(IpcMemory{}).status().code(), Code::tier_disabled);
  EXPECT_TRUE(device_->is_lost());
  mapped.reset();
  EXPECT_EQ(fake_->calls("cuIpcCloseMemHandle"), 0U);
}

}  // namespace
}  // namespace kvbm::test::ipc_test
