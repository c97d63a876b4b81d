#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/family/family_table.h"
#include "base/process/process.h"
#include "base/telemetry/log.h"
#include "base/telemetry/metrics.h"

namespace kvbm::observe_test {
namespace {

TEST(FamilyTable, gives_dense_ids_in_order_and_the_same_id_again) {
  FamilyTable table;
  for (uint16_t i = 0; i < 1000; ++i) {
    Family f;
    f.component = i;
    FamilyId found = 0;
    EXPECT_FALSE(table.find(f, found));
    EXPECT_EQ(table.intern(f).value(), i);
    EXPECT_EQ(table.intern(f).value(), i);
    EXPECT_EQ(table.get(i).component, i);
  }
  EXPECT_EQ(table.size(), 1000u);
}

TEST(FamilyTable, is_bounded) {
  FamilyTable table;
  Family f;
  for (f.geometry = 0; f.geometry < FamilyTable::kMaxFamilies; ++f.geometry) ASSERT_TRUE(table.intern(f).ok());
  EXPECT_EQ(table.intern(f).status().code(), Code::at_limit);
}

TEST(FamilyTable, readers_see_whole_rows_while_others_intern) {
  FamilyTable table;
  std::thread writer([&] {
    Family f;
    for (f.geometry = 1; f.geometry <= 5000; ++f.geometry) (void)table.intern(f).ok();
  });
  while (table.size() < 5000) {
    const uint32_t n = table.size();
    if (n > 0) {
      EXPECT_EQ(table.get(n - 1).geometry, n);
    }
  }
  writer.join();
}

TEST(ForkGuard, tells_a_child_from_its_parent) {
  ForkGuard guard;
  EXPECT_FALSE(guard.forked());
  const pid_t pid = fork();
  if (pid == 0) _exit(guard.forked() ? 0 : 1);
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(guard.forked());
}

TEST(Histogram, every_value_is_in_the_bucket_whose_edges_hold_it) {
  for (uint32_t i = 0; i + 1 < Histogram::kBuckets; ++i) {
    EXPECT_EQ(Histogram::bucket(Histogram::upper(i)), i);
    EXPECT_EQ(Histogram::bucket(Histogram::upper(i) + 1), i + 1);
  }
  EXPECT_EQ(Histogram::bucket(UINT64_MAX), Histogram::kBuckets - 1);
  EXPECT_EQ(Histogram::upper(Histogram::kBuckets - 1), UINT64_MAX);
}

TEST(Histogram, counts_and_adds_up_what_was_recorded) {
  Histogram h;
  for (uint64_t v = 1; v <= 1000; ++v) h.record(v);
  EXPECT_EQ(h.count(), 1000u);
  EXPECT_EQ(h.sum(), 500500u);
  EXPECT_EQ(h.at_most(Histogram::bucket(1)), 1u);
  EXPECT_EQ(h.at_most(Histogram::bucket(1000)), 1000u);
}

TEST(MetricsRegistry, renders_one_head_for_each_name_and_escapes_labels) {
  MetricsRegistry registry;
  registry.counter("kvbm_hits_total", "Hits.", {{"tier", "host"}}).add(3);
  registry.gauge("kvbm_free", "Free.").set(-2);
  registry.counter("kvbm_hits_total", "Hits.", {{"tier", "a\"b"}}).add(1);
  registry.histogram("kvbm_load_seconds", "Loads.").record(5000);
  const std::string text = registry.text();
  EXPECT_EQ(text.find("# HELP kvbm_hits_total Hits.\n# TYPE kvbm_hits_total counter\n"
                      "kvbm_hits_total{tier=\"host\"} 3\nkvbm_hits_total{tier=\"a\\\"b\"} 1\n"),
            0u)
      << text;
  EXPECT_NE(text.find("kvbm_free -2\n"), std::string::npos);
  EXPECT_NE(text.find("kvbm_load_seconds_bucket{le=\"4.096e-06\"} 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("kvbm_load_seconds_bucket{le=\"8.192e-06\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("kvbm_load_seconds_sum 5e-06\nkvbm_load_seconds_count 1\n"), std::string::npos);
}

TEST(Log, is_off_by_default_and_passes_only_wanted_levels) {
  Log log;
  EXPECT_FALSE(log.wants(LogLevel::error));
  std::string got;
  log.set_sink(
      [](void* user, const LogMessage& m) {
        auto& out = *static_cast<std::string*>(user);
        out.append(m.component).append(" ").append(m.text);
        for (size_t i = 0; i < m.n_fields; ++i)
          out.append(" ").append(m.fields[i].key).append("=").append(m.fields[i].value);
      },
      &got, LogLevel::info);
  log.write(LogLevel::debug, "disk", "no");
  log.write(LogLevel::info, "disk", "opened", {{"path", "/x"}});
  EXPECT_EQ(got, "disk opened path=/x");
}

}  // namespace
}  // namespace kvbm::observe_test
