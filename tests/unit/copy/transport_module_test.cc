#include "copy/transport_module.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "base/process/signal_keeper.h"
#include "support/temp_dir.h"

namespace kvbm::copy::transport_module_test {
namespace {

// Modules that tests/CMakeLists.txt makes of tests/support/modules/transport.c.
std::string module(const char* name) { return std::string(KVBM_TEST_MODULES "/libtest_transport_") + name + ".so"; }

void expect_refused(const std::string& path, Code code, const char* word) {
  const auto loaded = load_transport_module(path);
  ASSERT_FALSE(loaded.ok()) << path;
  EXPECT_EQ(loaded.status().code(), code) << loaded.status().message();
  EXPECT_EQ(loaded.status().message().rfind("transport unavailable: ", 0), 0U) << loaded.status().message();
  EXPECT_NE(loaded.status().message().find(word), std::string::npos) << loaded.status().message();
}

TEST(TransportModule, gives_the_table_of_a_good_module_also_twice) {
  const auto loaded = load_transport_module(module("good"));
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_STREQ(loaded.value()->name, "test");
  const auto again = load_transport_module(module("good"));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again.value(), loaded.value());
}

TEST(TransportModule, says_where_it_looked_when_there_is_no_module) {
  expect_refused("/nonexistent/module.so", Code::unsupported, "/nonexistent/module.so");
}

TEST(TransportModule, a_place_named_in_the_environment_has_to_be_there) {
  ASSERT_EQ(::setenv("KVBM_UCX_PATH", "/nonexistent", 1), 0);
  expect_refused("", Code::unsupported, "KVBM_UCX_PATH");
  ::unsetenv("KVBM_UCX_PATH");
}

TEST(TransportModule, refuses_a_file_that_is_no_library) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/libkvbm_ucx.so";
  std::ofstream(path) << "not a library";
  expect_refused(path, Code::unsupported, "libkvbm_ucx.so");
  expect_refused(dir.path(), Code::unsupported, "libkvbm_ucx.so");
}

TEST(TransportModule, refuses_a_library_that_is_no_module) {
  expect_refused(module("no_entry"), Code::unsupported, "kvbm_transport_entry");
}

TEST(TransportModule, refuses_another_version_of_the_boundary) {
  expect_refused(module("older_version"), Code::newer_version, "version");
}

TEST(TransportModule, refuses_a_table_that_is_too_small) {
  expect_refused(module("small_table"), Code::damaged, "bytes");
}

TEST(TransportModule, refuses_a_table_with_holes) { expect_refused(module("holes"), Code::damaged, "holes"); }

TEST(TransportModule, passes_on_why_a_module_refuses) {
  expect_refused(module("refuses"), Code::unsupported, "not on this machine");
}

TEST(TransportModule, a_module_that_installs_handlers_changes_nothing) {
  std::array<SignalAction, SignalAction::kSignals + 1> before;
  for (int i = 1; i <= SignalAction::kSignals; ++i) ASSERT_TRUE(before[static_cast<size_t>(i)].read(i));
  stack_t stack{};
  ::sigaltstack(nullptr, &stack);
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  ASSERT_TRUE(load_transport_module(module("handlers")).ok());
  for (int i = 1; i <= 64; ++i) {
    SignalAction now;
    ASSERT_TRUE(now.read(i));
    EXPECT_TRUE(now == before[static_cast<size_t>(i)]) << "signal " << i;
  }
  stack_t stack_now{};
  ::sigaltstack(nullptr, &stack_now);
  EXPECT_EQ(stack_now.ss_sp, stack.ss_sp);
  EXPECT_EQ(stack_now.ss_flags, stack.ss_flags);
  sigset_t mask_now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_now);
  for (int i = 1; i <= 64; ++i) EXPECT_EQ(sigismember(&mask, i), sigismember(&mask_now, i)) << "signal " << i;
}

TEST(TransportModule, an_option_is_looked_at_alone_and_the_environment_before_the_rest) {
  const test::TempDir dir;
  EXPECT_EQ(transport_module_places("/a/module.so"), std::vector<std::string>{"/a/module.so"});
  EXPECT_EQ(transport_module_places(dir.path()), std::vector<std::string>{dir.path() + "/libkvbm_ucx.so"});
  ASSERT_EQ(::setenv("KVBM_UCX_PATH", dir.path().c_str(), 1), 0);
  const auto places = transport_module_places("");
  ::unsetenv("KVBM_UCX_PATH");
  ASSERT_GE(places.size(), 3U);
  EXPECT_EQ(places[0], dir.path() + "/libkvbm_ucx.so");
  const auto self = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  EXPECT_EQ(places[1], self + "/libkvbm_ucx.so");
}

}  // namespace
}  // namespace kvbm::copy::transport_module_test
