// Every scenario of bindings/conformance as one test, and what a runner must refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fake_driver.h"
#include "run.h"

namespace conformance {
namespace {

namespace fs = std::filesystem;

Json read_json(const fs::path& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

// A directory that is gone at the end.
struct Directory {
  Directory() {
    std::string name = (fs::temp_directory_path() / "kvbm-conformance-XXXXXX").string();
    path = mkdtemp(name.data()) != nullptr ? name : "";
  }
  ~Directory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string path;
};

const Json& constants() {
  static const Json all = read_json(fs::path(CONFORMANCE) / "constants.json");
  return all;
}

class Scenario : public testing::Test {
 public:
  explicit Scenario(fs::path path) : path_(std::move(path)) {}
  void TestBody() override {
    const Directory directory;
    const Json scenario = read_json(path_);
    const std::string driver = FakeDriver::file();
    if (scenario.contains("needs") && driver.empty())
      GTEST_SKIP() << "the fake CUDA driver is not built (test_cuda_driver, or KVBMTEST_CUDA_DRIVER)";
    try {
      run_scenario(scenario, constants(), directory.path, driver);
    } catch (const std::exception& error) {
      FAIL() << path_.filename().string() << ": " << error.what();
    }
  }

 private:
  fs::path path_;
};

void expect_refused(const char* step, const char* said) {
  const Json scenario = {{"name", "n"}, {"purpose", "p"}, {"steps", {Json::parse(step)}}};
  try {
    run_scenario(scenario, constants(), "/nonexistent");
    ADD_FAILURE() << step << " passed";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
  }
}

TEST(Runner, refuses_what_it_does_not_know) {
  expect_refused(R"({"do": "block.invent"})", "no step kind block.invent");
  expect_refused(R"({"do": "version", "loud": 1})", "no argument of this step kind: loud");
  expect_refused(R"({"do": "version", "expect": {"number": {"min": 1, "about": 2}}})", "no matcher about");
  expect_refused(R"({"do": "version", "expect": {"nothing": 1}})", "has no nothing");
  expect_refused(R"({"do": "version", "as": {"nothing": "x"}})", "no result nothing");
  expect_refused(R"({"do": "release", "it": "$x"})", "no variable x");
}

TEST(Runner, fails_where_a_result_or_an_error_is_another) {
  expect_refused(R"({"do": "version", "expect": {"number": 7}})", "is not 7");
  expect_refused(R"({"do": "version", "expect": {"text": {"length": 99}}})", "is not length");
  expect_refused(R"({"do": "version", "error": "KVBM_ERR_STALE"})", "did not fail");
  expect_refused(R"({"do": "context.create", "settings": {"nonsense": "1"}})", "KVBM_ERR_CONFIG");
  expect_refused(R"({"do": "context.create", "settings": {"nonsense": "1"}, "error": "KVBM_ERR_STALE"})",
                 "KVBM_ERR_CONFIG");
  expect_refused(
      R"({"do": "context.create", "settings": {"nonsense": "1"}, "error": "KVBM_ERR_CONFIG", "message": "purple"})",
      "purple");
}

TEST(Runner, has_the_step_kinds_of_the_schema) {
  Steps steps;
  for (const auto add :
       {add_own_steps, add_manager_steps, add_block_steps, add_cache_steps, add_session_steps, add_codec_steps,
        add_device_steps}) {
    add(steps);
  }
  const Json schema = read_json(fs::path(CONFORMANCE) / "schema.json");
  const Json& described = schema.at("$defs").at("step");
  EXPECT_EQ(described.size(), steps.size());
  for (const auto& [kind, step] : steps) EXPECT_TRUE(described.contains(kind)) << kind;
}

TEST(Runner, makes_the_patterns_of_the_format) {
  const uint8_t first[] = {0x9a, 0x50, 0xa8, 0x22, 0x77, 0xf7, 0x1a, 0x5c};
  EXPECT_EQ(pattern_differs(first, sizeof first, 1), sizeof first);
  EXPECT_EQ(pattern_differs(first, sizeof first, 2), 0u);
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(CONFORMANCE) / "scenarios")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    testing::RegisterTest("Scenario", file.stem().c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [file]() -> testing::Test* { return new conformance::Scenario(file); });
  }
  return files.empty() ? 1 : RUN_ALL_TESTS();
}
