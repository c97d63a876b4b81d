// Defaults on a machine, or in a control group, that is too small for them.
#include <gtest/gtest.h>

#include "manager/common/options.h"

namespace kvbm::manager::options_fit_test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

OptionSet resolved(std::vector<NamedText> options = {}) {
  ConfigSources sources;
  sources.options = options;
  return std::move(resolve_config(option_schema(), sources)).value();
}

MachineLimits limits_of(uint64_t memory, double processors) {
  MachineLimits out;
  out.machine_memory = uint64_t{1} << 40;
  out.memory_limit = memory;
  out.machine_processors = 64;
  out.processor_limit = processors;
  return out;
}

TEST(OptionsFit, a_large_machine_changes_no_default) {
  OptionSet set = resolved();
  fit_defaults(set, limits_of(MachineLimits::kNone, 0));
  EXPECT_EQ(set.values.at("host.capacity").number, 256 * kMiB);
  EXPECT_EQ(set.values.at("host.capacity").origin, "default");
  EXPECT_EQ(set.values.at("threads").number, 2U);
  fit_defaults(set, limits_of(1024 * kMiB, 2));
  EXPECT_EQ(set.values.at("host.capacity").number, 256 * kMiB);
  EXPECT_EQ(set.values.at("threads").number, 2U);
}

TEST(OptionsFit, a_small_group_makes_defaults_smaller_and_says_so) {
  OptionSet set = resolved();
  fit_defaults(set, limits_of(160 * kMiB + 5, 0.5));
  EXPECT_EQ(set.values.at("host.capacity").number, 40 * kMiB);
  EXPECT_EQ(set.values.at("host.capacity").origin, "default, a quarter of the memory of this process");
  EXPECT_EQ(set.values.at("threads").number, 1U);
  EXPECT_EQ(set.values.at("threads").origin, "default, the processors of this process");
  EXPECT_TRUE(options_from(set).ok());
}

TEST(OptionsFit, what_was_asked_for_stays) {
  OptionSet set = resolved({{"host.capacity", "1GiB"}, {"threads", "8"}});
  fit_defaults(set, limits_of(160 * kMiB, 1));
  EXPECT_EQ(set.values.at("host.capacity").number, 1024 * kMiB);
  EXPECT_EQ(set.values.at("threads").number, 8U);
}

}  // namespace
}  // namespace kvbm::manager::options_fit_test
