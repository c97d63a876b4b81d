#include "capi/plugin/store_module.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "support/temp_dir.h"

namespace kvbm::capi::store_module_test {
namespace {

// Libraries that tests/CMakeLists.txt makes of tests/support/modules/store.c.
std::string library(const char* name) { return std::string(KVBM_TEST_MODULES "/libtest_store_") + name + ".so"; }

StoreUrl url_of(const std::string& text) {
  auto url = parse_store_url(text);
  EXPECT_TRUE(url.ok()) << text << ": " << url.status().message();
  return url.ok() ? std::move(url).value() : StoreUrl{};
}

void expect_refused(const StoreUrl& url, const std::string& folder, Code code, const std::string& word) {
  const auto loaded = load_store_module(url, folder);
  ASSERT_FALSE(loaded.ok()) << url.scheme << " " << url.path;
  EXPECT_EQ(loaded.status().code(), code) << loaded.status().message();
  EXPECT_EQ(loaded.status().message().rfind("store unavailable: ", 0), 0U) << loaded.status().message();
  EXPECT_NE(loaded.status().message().find(word), std::string::npos) << loaded.status().message();
}

void expect_plugin_refused(const char* name, Code code, const std::string& word) {
  expect_refused(url_of("plugin:" + library(name)), "", code, word);
}

TEST(StoreModule, gives_the_table_of_a_file_also_twice) {
  const StoreUrl url = url_of("plugin:" + library("good"));
  const auto loaded = load_store_module(url);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_STREQ(loaded.value()->name, "test");
  const auto again = load_store_module(url);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again.value(), loaded.value());
}

TEST(StoreModule, finds_a_scheme_in_the_folder_that_is_named) {
  const test::TempDir dir;
  std::filesystem::copy_file(library("good"), dir.path() + "/libkvbm_store_mine.so");
  const auto loaded = load_store_module(url_of("mine://x"), dir.path());
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_EQ(::setenv("KVBM_STORE_PATH", dir.path().c_str(), 1), 0);
  EXPECT_TRUE(load_store_module(url_of("mine://x")).ok());
  const test::TempDir empty;
  EXPECT_FALSE(load_store_module(url_of("mine://x"), empty.path()).ok()) << "the option, and then nowhere else";
  ::unsetenv("KVBM_STORE_PATH");
  EXPECT_FALSE(load_store_module(url_of("mine://x")).ok());
}

TEST(StoreModule, says_where_it_looked_and_which_stores_there_are) {
  const test::TempDir dir;
  std::ofstream(dir.path() + "/libkvbm_store_s3.so") << "x";
  std::ofstream(dir.path() + "/libkvbm_store_file.so") << "x";
  std::ofstream(dir.path() + "/libkvbm_store_.so") << "x";
  expect_refused(url_of("redis://x"), dir.path(), Code::unsupported, dir.path() + "/libkvbm_store_redis.so");
  expect_refused(url_of("redis://x"), dir.path(), Code::unsupported, "there are stores for file, s3;");
  const test::TempDir empty;
  expect_refused(url_of("redis://x"), empty.path(), Code::unsupported, "no store is here");
}

TEST(StoreModule, the_folder_has_to_be_one) {
  expect_refused(url_of("mine://x"), library("good"), Code::bad_config, "no directory");
  ASSERT_EQ(::setenv("KVBM_STORE_PATH", "/nonexistent", 1), 0);
  expect_refused(url_of("mine://x"), "", Code::bad_config, "KVBM_STORE_PATH");
  ::unsetenv("KVBM_STORE_PATH");
}

TEST(StoreModule, refuses_a_library_that_everyone_may_write) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/store.so";
  std::filesystem::copy_file(library("good"), path);
  std::filesystem::permissions(path, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
  expect_refused(url_of("plugin:" + path), "", Code::not_permitted, "chmod o-w");
  std::filesystem::permissions(path, std::filesystem::perms::others_write, std::filesystem::perm_options::remove);
  EXPECT_TRUE(load_store_module(url_of("plugin:" + path)).ok());
}

TEST(StoreModule, refuses_what_is_no_store) {
  expect_refused(url_of("plugin:/nonexistent/store.so"), "", Code::unsupported, "/nonexistent/store.so is no file");
  expect_refused(url_of("plugin:/tmp"), "", Code::unsupported, "is no file");
  const test::TempDir dir;
  std::ofstream(dir.path() + "/libkvbm_store_text.so") << "not a library";
  expect_refused(url_of("text://x"), dir.path(), Code::unsupported, "does not load");
  expect_plugin_refused("no_symbol", Code::unsupported, "kvbm_store_table");
  expect_plugin_refused("short_symbol", Code::damaged, "8 bytes");
}

TEST(StoreModule, refuses_a_table_that_is_not_whole) {
  expect_plugin_refused("other_abi", Code::newer_version, "version 2");
  expect_plugin_refused("small_table", Code::damaged, "struct_size");
  expect_plugin_refused("holes", Code::damaged, "start");
  expect_plugin_refused("bad_name", Code::damaged, "name");
  expect_plugin_refused("bad_option", Code::damaged, "option 1");
  EXPECT_EQ(check_store_table(nullptr).code(), Code::damaged);
}

TEST(StoreModule, sorts_options_into_the_callers_and_the_stores) {
  const auto table = load_store_module(url_of("plugin:" + library("good")));
  ASSERT_TRUE(table.ok()) << table.status().message();
  constexpr std::array<std::string_view, 2> kOwn = {"ttl", "threads"};
  const StoreUrl url = url_of("mine://x?region=a&ttl=1h&threads=3");
  const auto options = split_store_options(url, *table.value(), kOwn);
  ASSERT_TRUE(options.ok()) << options.status().message();
  ASSERT_EQ(options.value().own.size(), 2U);
  EXPECT_EQ(options.value().own[0].name, "ttl");
  EXPECT_EQ(options.value().own[1].text, "3");
  ASSERT_EQ(options.value().of_store.size(), 1U);
  EXPECT_STREQ(options.value().of_store[0].name, "region");
  EXPECT_STREQ(options.value().of_store[0].value, "a");
}

TEST(StoreModule, names_the_option_that_was_probably_meant) {
  const auto table = load_store_module(url_of("plugin:" + library("good")));
  ASSERT_TRUE(table.ok()) << table.status().message();
  constexpr std::array<std::string_view, 1> kOwn = {"ttl"};
  const Status of_store = split_store_options(url_of("mine://x?regoin=a"), *table.value(), kOwn).status();
  EXPECT_EQ(of_store.code(), Code::bad_config);
  EXPECT_NE(of_store.message().find("no option regoin; did you mean region?"), std::string::npos) << of_store.message();
  const Status own = split_store_options(url_of("mine://x?tll=a"), *table.value(), kOwn).status();
  EXPECT_NE(own.message().find("did you mean ttl?"), std::string::npos) << own.message();
}

}  // namespace
}  // namespace kvbm::capi::store_module_test
