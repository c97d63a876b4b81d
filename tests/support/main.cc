// The main function of every test program. A program holds the suites of a folder, one a file:
//   unit.block --suite=slot_pool_test   runs the tests of slot_pool_test.cc; --gtest_filter chooses among them. The
//   name of
//                                       the folder may stand before it: unit/block/slot_pool_test
//   unit.block                          runs all of them
// A test that needs another process runs its own program again as that process.
#include <fnmatch.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "support/member_process.h"
#include "support/simulated_kills.h"
#include "support/suite_file.h"
#include "support/transport_process.h"

namespace {

constexpr std::string_view kSuite = "--suite=";

// Takes --suite off the command line and returns its value; empty if there is none.
std::string take_suite(int& argc, char** argv) {
  std::string suite;
  int kept = 0;
  for (int i = 0; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with(kSuite)) {
      suite = argv[i] + kSuite.size();
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return suite;
}

bool is_file_of(std::string_view path, const std::string& suite) { return path.ends_with("/" + suite + ".cc"); }

// Returns whether a name matches one of the patterns, which may have * and ?, and are separated by colons.
bool matches(std::string_view patterns, const std::string& name) {
  while (!patterns.empty()) {
    const std::string pattern(patterns.substr(0, patterns.find(':')));
    if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
    patterns.remove_prefix(std::min(patterns.size(), pattern.size() + 1));
  }
  return false;
}

// Returns whether GoogleTest's --gtest_filter selects the test. Patterns after the first `-` exclude tests.
bool taken(std::string_view filter, const std::string& name) {
  const size_t refused = std::min(filter.find('-'), filter.size());
  const std::string_view wanted = filter.substr(0, refused);
  return (wanted.empty() || matches(wanted, name)) &&
         (refused == filter.size() || !matches(filter.substr(refused + 1), name));
}

// Calls f with every test of the program, and the file that the test belongs to.
template <class F>
void for_each_test(F f) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& cases = *all.GetTestSuite(i);
    for (int j = 0; j < cases.total_test_count(); ++j) {
      const testing::TestInfo& test = *cases.GetTestInfo(j);
      f(test, kvbm::test::suite_file(test.test_suite_name(), test.file()));
    }
  }
}

// Reports tests that belong to no suite's file: they would never run.
bool all_belong_to_suites() {
  bool all = true;
  for_each_test([&](const testing::TestInfo& test, std::string_view file) {
    if (file.ends_with("_test.cc")) return;
    std::fprintf(stderr, "%s.%s, of %s, belongs to no suite\n", test.test_suite_name(), test.name(), test.file());
    all = false;
  });
  return all;
}

// Narrows the filter to the tests of one file. Returns false if the program has no such file.
bool choose(const std::string& suite) {
  const std::string filter = testing::GTEST_FLAG(filter);
  std::string chosen;
  bool found = false;
  for_each_test([&](const testing::TestInfo& test, std::string_view file) {
    if (!is_file_of(file, suite)) return;
    found = true;
    const std::string name = std::string(test.test_suite_name()) + "." + test.name();
    if (taken(filter, name)) chosen += (chosen.empty() ? "" : ":") + name;
  });
  // A pattern that no test has: an empty one would take all.
  testing::GTEST_FLAG(filter) = chosen.empty() ? "-*" : chosen;
  return found;
}

// Freed memory is kept for the next case. Returned to the system it would have to be faulted in again, which takes
// longer than many cases on a virtual machine.
void keep_freed_memory() {
  (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
  (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto status = kvbm::test::run_member_if_asked(argc, argv)) return *status;
  if (const auto status = kvbm::test::run_node_if_asked(argc, argv)) return *status;
  keep_freed_memory();
  const std::string suite = take_suite(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  if (!all_belong_to_suites()) return 2;
  if (!suite.empty() && !choose(suite)) {
    std::fprintf(stderr, "%s: there is no suite %s\n", argv[0], suite.c_str());
    return 2;
  }
  const int status = RUN_ALL_TESTS();
  for_each_test([](const testing::TestInfo& test, std::string_view file) {
    if (test.should_run()) kvbm::test::SimulatedKills::ran(file);
  });
  return status;
}
