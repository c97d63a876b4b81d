// Compares the build's embedded kernels with their sources: every kernel, for every architecture.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "device/kernels/kernel_image.h"
#include "support/fatbin.h"

namespace kvbm::device::embedded_kernels_test {
namespace {

using test::Fatbin;
using test::FatbinEntry;

#ifdef KVBM_TEST_ARCHITECTURES
constexpr const char* kArchitectures = KVBM_TEST_ARCHITECTURES;  // "80 86"
#else
constexpr const char* kArchitectures = "";
#endif
constexpr uint32_t kPtx = 80;

// Returns the names of the kernels that the sources define.
std::vector<std::string> kernels_of_sources() {
  std::set<std::string> names;
  const std::regex kernel("__global__[^;{]*?\\b(kvbm_[a-z0-9_]+)\\s*\\(");
  for (const auto& file : std::filesystem::directory_iterator(KVBM_TEST_DATA "/../../lib/device/kernels")) {
    if (file.path().extension() != ".cu") continue;
    std::ifstream stream(file.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    for (std::sregex_iterator at(text.begin(), text.end(), kernel), end; at != end; ++at) names.insert((*at)[1]);
  }
  return {names.begin(), names.end()};
}

std::set<uint32_t> architectures() {
  std::istringstream words(kArchitectures);
  return {std::istream_iterator<uint32_t>(words), {}};
}

TEST(EmbeddedKernels, are_all_there_for_every_architecture_and_as_ptx) {
  if (embedded_kernels().empty()) GTEST_SKIP() << "built without nvcc: no kernels are embedded";
  const Fatbin image = test::read_fatbin(embedded_kernels());
#ifndef KVBM_WITH_ZSTD
  if (!image.refused.empty()) GTEST_SKIP() << "built without zstd, by which the image is compressed: " << image.refused;
#endif
  ASSERT_EQ(image.refused, "");
  const std::vector<std::string> names = kernels_of_sources();
  ASSERT_FALSE(names.empty());
  std::set<uint32_t> machine_code;
  std::set<uint32_t> ptx;
  for (const FatbinEntry& entry : image.entries) {
    (entry.kind == FatbinEntry::Kind::ptx ? ptx : machine_code).insert(entry.architecture);
    EXPECT_EQ(entry.kernels, names) << entry.architecture;
  }
  EXPECT_EQ(machine_code, architectures());
#ifdef KVBM_TEST_KNOWS_ALL
  EXPECT_EQ(machine_code, (std::set<uint32_t>{80, 86, 89, 90, 100, 120}));  // docs/gpu.md
#endif
  EXPECT_EQ(ptx, std::set<uint32_t>{kPtx});
}

// Short of registers, the compiler computes a thread's constants of the leaf hash again for each of its eight vectors.
// A kernel that should be bound by a link or by memory is then bound by instructions. Each constant uses the multiplier
// in two instructions. The constants are two keys before the loop; behind it a lane's start, its scramble and its merge
// constant.
TEST(EmbeddedKernels, compute_the_constants_of_the_leaf_hash_once) {
  if (embedded_kernels().empty()) GTEST_SKIP() << "built without nvcc: no kernels are embedded";
  constexpr uint32_t kMultiplier = 0x1CE4E5B9;  // low word of SplitMix64's first: hash_constant (leaf_hash.cuh)
  const Fatbin image = test::read_fatbin(embedded_kernels(), kMultiplier);
#ifndef KVBM_WITH_ZSTD
  if (!image.refused.empty()) GTEST_SKIP() << "built without zstd, by which the image is compressed: " << image.refused;
#endif
  ASSERT_EQ(image.refused, "");
  constexpr size_t kMost = 12;  // one constant more than needed: the first stripe may have a path of its own
  size_t looked = 0;
  for (const FatbinEntry& entry : image.entries) {
    if (entry.kind != FatbinEntry::Kind::machine_code) continue;
    for (const char* name : {"kvbm_gather_leaves", "kvbm_hash_leaves", "kvbm_scatter_leaves", "kvbm_check_leaves"}) {
      const auto found = entry.immediates.find(name);
      ASSERT_NE(found, entry.immediates.end()) << name << " sm_" << entry.architecture;
      EXPECT_GE(found->second, 4U) << name << " sm_" << entry.architecture;  // else it is encoded in another way
      EXPECT_LE(found->second, kMost) << name << " sm_" << entry.architecture;
      ++looked;
    }
  }
  EXPECT_EQ(looked, 4 * architectures().size());
}

TEST(EmbeddedKernels, an_image_that_is_cut_or_changed_is_not_read_as_whole) {
  const std::byte nothing[16] = {};
  EXPECT_NE(test::read_fatbin({}).refused, "");
  EXPECT_NE(test::read_fatbin(nothing).refused, "");
  if (embedded_kernels().empty()) GTEST_SKIP() << "built without nvcc: no kernels are embedded";
  for (const size_t cut :
       {size_t{1}, size_t{15}, size_t{17}, embedded_kernels().size() / 2, embedded_kernels().size() - 1}) {
    EXPECT_NE(test::read_fatbin(embedded_kernels().first(cut)).refused, "") << cut;
  }
}

}  // namespace
}  // namespace kvbm::device::embedded_kernels_test
