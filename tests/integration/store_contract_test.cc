// Every store of ours keeps the rules of kvbm_plugin.h, as `kvbm plugin check` looks for them; and each rule can fail.
//
// A store with a server of its own has its suite elsewhere and calls expect_kept() of support/store_contract.h
// likewise.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "plugin/store_check.h"
#include "support/run_command.h"
#include "support/store_contract.h"
#include "support/temp_dir.h"

namespace kvbm::test::store_contract_test {
namespace {

namespace fs = std::filesystem;

std::string files_left(const std::string& folder) {
  std::string out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) out += entry.path().string() + " ";
  return out;
}

TEST(StoreContract, files_that_are_not_made_durable) {
  const TempDir dir;
  expect_kept(KVBM_STORES, "file://" + dir.path() + "/kv?sync=off");
  EXPECT_EQ(files_left(dir.path() + "/kv"), "");
}

TEST(StoreContract, files_of_a_group_with_one_thread) {
  const TempDir dir;
  expect_kept(KVBM_STORES, "file://" + dir.path() + "/kv?sync=off&shared=on&threads=1");
  EXPECT_EQ(fs::status(dir.path() + "/kv").permissions(), fs::perms(02770));
}

TEST(StoreContract, files_that_are_made_durable) {
  const TempDir dir;
  plugin::CheckLimits limits = patient();
  limits.listed_objects = 300;  // each waits for a disk
  expect_kept(KVBM_STORES, "file://" + dir.path() + "/kv", limits);
}

TEST(StoreContract, the_example_in_c) { expect_kept("", "plugin:" KVBM_MEMORY_STORE "?most=512"); }

struct Broken {
  const char* how;   // option `breaks` of support/modules/hostile_store.c
  const char* rule;  // which finds it
};

class StoreContractBroken : public ::testing::TestWithParam<Broken> {};

TEST_P(StoreContractBroken, is_found) {
  plugin::CheckLimits limits;
  limits.operations = {1'000'000'000, 300'000'000};
  limits.strain_ns = 200'000'000;
  limits.rules = {GetParam().rule};
  // Rules that are checked during all operations need some operations to watch.
  for (const char* watched : {"finished_once", "untouched", "answers", "start"}) {
    if (limits.rules.front() != watched) continue;
    for (const char* rule : {"ranges", "replaced", "in_flight"}) limits.rules.emplace_back(rule);
  }
  const plugin::Checked checked =
      check("", std::string("plugin:" KVBM_HOSTILE_STORE "?breaks=") + GetParam().how, limits);
  ASSERT_FALSE(checked.findings.empty()) << checked.message;
  for (const plugin::Finding& finding : checked.findings) {
    if (finding.rule == GetParam().rule) {
      EXPECT_EQ(finding.verdict, plugin::Verdict::failed) << finding.rule << ": " << finding.seen;
    }
  }
}

// The store without a fault passes, so each reported violation is due to the fault.
TEST(StoreContract, the_store_that_is_broken_below) { expect_kept("", "plugin:" KVBM_HOSTILE_STORE "?breaks=no-rule"); }

constexpr Broken kBroken[] = {
    {"facts", "open"},
    {"over", "open"},
    {"silent", "wrong_options"},
    {"empty", "sizes"},
    {"short", "sizes"},
    {"large", "too_large"},
    {"offset", "ranges"},
    {"hit", "missing"},
    {"missing", "missing"},
    {"old", "replaced"},
    {"fold", "names"},
    {"alone", "two_hosts"},
    {"forgets", "listing"},
    {"unsorted", "listing"},
    {"repeats", "listing"},
    {"nomore", "listing"},
    {"prefix", "listing"},
    {"unended", "listing"},
    {"nothing", "listing_empty"},
    {"hidden", "visible"},
    {"stays", "removed"},
    {"torn", "whole"},
    {"lost", "in_flight"},
    {"slow", "short_times"},
    {"cancel", "cancel"},
    {"expires", "expires"},
    {"threads", "close"},
    {"fds", "close"},
    {"twice", "finished_once"},
    {"never", "finished_once"},
    {"foreign", "finished_once"},
    {"returns", "finished_once"},
    {"beside", "untouched"},
    {"late", "untouched"},
    {"field", "untouched"},
    {"done", "answers"},
    {"status", "answers"},
    {"blocks", "start"},
};

std::string name_of(const ::testing::TestParamInfo<Broken>& broken) {
  return std::string(broken.param.rule) + "_" + broken.param.how;
}
INSTANTIATE_TEST_SUITE_P(Rules, StoreContractBroken, ::testing::ValuesIn(kBroken), name_of);

TEST(PluginCheck, checks_a_store_and_leaves_nothing_behind) {
  const TempDir dir;
  const std::string stores = std::string("KVBM_STORE_PATH='") + KVBM_STORES + "'";
  const Ran ran =
      run("plugin check 'file://" + dir.path() + "/kv?sync=off' --json --grace 60 --timeout 60", " 2>&1", stores);
  ASSERT_EQ(ran.exit_code, 0) << ran.text;
  const auto json = nlohmann::json::parse(ran.text);
  EXPECT_EQ(json.at("name"), "file");
  EXPECT_EQ(json.at("failed"), 0);
  EXPECT_GT(json.at("rules").size(), 20U);
  EXPECT_EQ(files_left(dir.path() + "/kv"), "");
}

TEST(PluginCheck, says_which_rule_a_library_breaks) {
  const Ran ran = run("plugin check 'plugin:" KVBM_HOSTILE_STORE "?breaks=short' --grace 0.5 --timeout 2");
  EXPECT_EQ(ran.exit_code, 1) << ran.text;
  EXPECT_TRUE(contains(ran.text, "failed  ranges")) << ran.text;
  EXPECT_TRUE(contains(ran.text, "broken")) << ran.text;
}

TEST(PluginCheck, a_path_is_a_library) {
  const Ran ran = run("plugin check '" KVBM_MEMORY_STORE "' --grace 60 --timeout 60");
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_TRUE(contains(ran.text, "memory: 23 rules, 0 broken")) << ran.text;
}

TEST(PluginCheck, bad_input_is_named) {
  const auto expect_bad = [](const std::string& arguments, const char* word) {
    const Ran ran = run("plugin check " + arguments);
    EXPECT_EQ(ran.exit_code, 2) << ran.text;
    EXPECT_TRUE(contains(ran.text, word)) << ran.text;
  };
  expect_bad("/nonexistent.so", "is no file");
  expect_bad("'" KVBM_COMMAND "'", "does not load");
  expect_bad("nosuch://place --stores /tmp", "nosuch://");
  expect_bad("'file:/mnt'", "// has to follow file:");
  expect_bad("'file://mnt/kv' --stores '" KVBM_STORES "'", "file:///mnt/kv");
  expect_bad("'file:///nonexistent/folder/kv' --stores '" KVBM_STORES "'", "does not exist");
  expect_bad("'file:///tmp/kv?snyc=off' --stores '" KVBM_STORES "'", "did you mean sync?");
  expect_bad("'file:///tmp/kv?threads=0' --stores '" KVBM_STORES "'", "1 to 256");
}

}  // namespace
}  // namespace kvbm::test::store_contract_test
