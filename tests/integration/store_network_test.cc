// The store of files on a real network file system: SFTP, mounted twice, as two hosts have it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "support/network_mount.h"
#include "support/run_command.h"
#include "support/store_contract.h"
#include "support/temp_dir.h"

namespace kvbm::test::store_network_test {
namespace {

double number(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\": ");
  return at == std::string::npos ? -1 : std::strtod(json.c_str() + at + name.size() + 4, nullptr);
}

class NetworkStore : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = NetworkMount::missing(); !why.empty()) GTEST_SKIP() << why;
    for (NetworkMount& host : hosts_) ASSERT_TRUE(host.start(folder_.path())) << host.log();
    ASSERT_EQ(run("trace generate --requests 200 --seed 3 -o " + trace()).exit_code, 0);
  }
  [[nodiscard]] std::string trace() const { return here_.path() + "/trace.jsonl"; }
  [[nodiscard]] static std::string url(const NetworkMount& host, const std::string& options) {
    return "file://" + host.path() + "/kv?shared=on" + options;
  }
  [[nodiscard]] Ran replay(const NetworkMount& host) const {
    return run("replay " + trace() + " --host 16MiB --block-bytes 16KiB --verify --json --settle --store '" +
                   url(host, "&linger=2ms&publish=20ms&poll=20ms&timeout=2s") + "'",
               "");
  }

  TempDir here_, folder_;
  NetworkMount hosts_[2];
};

// One rule does not hold for this client: an object may not be found during its replacement. kvbm replaces no object.
TEST_F(NetworkStore, keeps_the_rules_of_stores) {
  const plugin::Checked checked = check(KVBM_STORES, url(hosts_[0], ""), patient());
  EXPECT_GE(checked.findings.size(), 20U) << checked.message;
  for (const plugin::Finding& finding : checked.findings) {
    if (finding.rule == std::string("whole")) continue;
    EXPECT_NE(finding.verdict, plugin::Verdict::failed) << finding.rule << ": " << finding.seen;
  }
}

TEST_F(NetworkStore, one_host_finds_what_another_one_wrote) {
  for (const NetworkMount& host : hosts_) {
    const Ran ran = replay(host);
    ASSERT_EQ(ran.exit_code, 0) << ran.text;
    EXPECT_EQ(number(ran.text, "wrong_blocks"), 0);
    EXPECT_EQ(number(ran.text, "failed_blocks"), 0);
    const double least = &host == &hosts_[1] ? 1000 : 0;
    EXPECT_GE(number(ran.text, "found_again"), least) << ran.text;
  }
}

TEST_F(NetworkStore, a_server_that_is_frozen_meanwhile_costs_hits_and_nothing_else) {
  ASSERT_EQ(replay(hosts_[0]).exit_code, 0);
  hosts_[1].freeze();
  std::thread later([this] {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    hosts_[1].thaw();
  });
  const Ran ran = replay(hosts_[1]);
  later.join();
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_EQ(number(ran.text, "wrong_blocks"), 0) << ran.text;
  const Ran again = replay(hosts_[1]);
  EXPECT_GT(number(again.text, "found_again"), 1000) << again.text;
}

}  // namespace
}  // namespace kvbm::test::store_network_test
