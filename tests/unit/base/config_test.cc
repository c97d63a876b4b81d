#include "base/config/config.h"

#include <gtest/gtest.h>

namespace kvbm::config_test {
namespace {

std::vector<OptionRow> schema() {
  std::vector<OptionRow> rows;
  rows.push_back({"host.capacity", OptionType::bytes, "256MiB", "Bytes of the host tier.", 4096, UINT64_MAX, {}, {}});
  rows.push_back({"host.huge_pages", OptionType::boolean, "true", "Ask for huge pages.", 0, 1, {}, {}});
  rows.push_back({"threads", OptionType::count, "2", "Progress threads.", 0, 64, {}, {}});
  rows.push_back({"deadline", OptionType::duration, "5s", "Of one load.", 0, INT64_MAX, {}, {}});
  rows.push_back({"policy", OptionType::choice, "prefix", "Eviction.", 0, 0, {"prefix", "lru"}, {}});
  rows.push_back({"tier",
                  OptionType::table_list,
                  "",
                  "Lower tiers in order.",
                  0,
                  0,
                  {},
                  {{"kind", OptionType::choice, "disk", "Kind.", 0, 0, {"disk"}, {}},
                   {"path", OptionType::string, "", "Directory.", 0, 0, {}, {}},
                   {"capacity", OptionType::bytes, "1GiB", "Bytes.", 0, UINT64_MAX, {}, {}}}});
  return rows;
}

Result<OptionSet> resolve(std::string_view file, std::vector<NamedText> environment = {},
                          std::vector<NamedText> options = {}) {
  ConfigSources s{"x.toml", file, environment, {}, options};
  return resolve_config(schema(), s);
}

// Variables that Kubernetes sets in a pod for services named kvbm, kvbm-node and kvbm-a-b, and Docker in a linked
// container.
TEST(Config, what_describes_a_service_is_passed_over) {
  const std::vector<NamedText> given = {
      {"KVBM_SERVICE_HOST", "10.0.0.1"},           {"KVBM_SERVICE_PORT", "7000"},
      {"KVBM_SERVICE_PORT_DATA", "7000"},          {"KVBM_SERVICE_PORT_HTTP_METRICS", "9090"},
      {"KVBM_PORT", "tcp://10.0.0.1:7000"},        {"KVBM_PORT_7000_TCP", "tcp://10.0.0.1:7000"},
      {"KVBM_PORT_7000_TCP_PROTO", "tcp"},         {"KVBM_PORT_7000_TCP_PORT", "7000"},
      {"KVBM_PORT_7000_TCP_ADDR", "10.0.0.1"},     {"KVBM_PORT_53_UDP", "udp://10.0.0.1:53"},
      {"KVBM_PORT_9_SCTP_ADDR", "fd00::1"},        {"KVBM_NODE_SERVICE_HOST", "fd00::1"},
      {"KVBM_NODE_SERVICE_PORT", "7000"},          {"KVBM_NODE_PORT", "tcp://[fd00::1]:7000"},
      {"KVBM_NODE_PORT_7000_TCP_ADDR", "fd00::1"}, {"KVBM_A_B_PORT_1_TCP", "tcp://10.0.0.1:1"},
      {"KVBM_A_PORT_1_PORT_2_TCP_PORT", "2"}};
  for (const NamedText& variable : given) {
    const auto got = resolve("", {variable});
    EXPECT_TRUE(got.ok()) << variable.name << ": " << got.status().message();
  }
  EXPECT_TRUE(resolve("", given).ok());
}

TEST(Config, what_only_looks_like_a_service_is_refused) {
  const std::vector<NamedText> given = {{"KVBM_NODE_PORT", "7000"},   {"KVBM_PORT", ""},
                                        {"KVBM_SERVICE", "x"},        {"KVBM_SERVICE_PORT_", "1"},
                                        {"KVBM_SERVICE_HOSTS", "x"},  {"KVBM_PORT_7000", "1"},
                                        {"KVBM_PORT_TCP", "1"},       {"KVBM_PORT_x_TCP", "1"},
                                        {"KVBM_PORT_7000_TCP_", "1"}, {"KVBM_PORT_7000_TCP_NAME", "1"},
                                        {"KVBM_PORT_7000_TCPS", "1"}, {"KVBM_PORTS", "tcp://10.0.0.1:7000"}};
  for (const NamedText& variable : given) {
    const Status s = resolve("", {variable}).status();
    EXPECT_EQ(s.code(), Code::bad_config) << variable.name;
    EXPECT_NE(s.message().find(variable.name), std::string::npos) << s.message();
  }
}

TEST(Config, an_option_that_is_named_like_a_service_is_that_option) {
  const std::vector<OptionRow> rows = {{"metrics.port", OptionType::count, "1", "", 0, 65535, {}, {}},
                                       {"node.service_host", OptionType::string, "", "", 0, 0, {}, {}}};
  const std::vector<NamedText> given = {
      {"KVBM_METRICS_PORT", "9"}, {"KVBM_NODE_SERVICE_HOST", "a"}, {"KVBM_SERVICE_HOST", "b"}};
  ConfigSources s{"", "", given, {}, {}};
  auto got = resolve_config(rows, s);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got.value().values["metrics.port"].number, 9U);
  EXPECT_EQ(got.value().values["node.service_host"].text, "a");
  const std::vector<NamedText> wrong = {{"KVBM_METRICS_PORT", "tcp://10.0.0.1:7000"}};
  s.environment = wrong;
  EXPECT_EQ(resolve_config(rows, s).status().code(), Code::bad_config);
}

TEST(Config, later_sources_win_and_each_value_knows_its_origin) {
  auto got = resolve("threads = 3\n[host]\ncapacity = \"1GiB\"\n", {{"KVBM_THREADS", "4"}, {"HOME", "/"}},
                     {{"deadline", "250ms"}});
  ASSERT_TRUE(got.ok()) << got.status().message();
  auto& v = got.value().values;
  EXPECT_EQ(v["host.capacity"].number, uint64_t{1} << 30);
  EXPECT_EQ(v["host.capacity"].origin, "file x.toml:3");
  EXPECT_EQ(v["threads"].number, 4u);
  EXPECT_EQ(v["threads"].origin, "environment KVBM_THREADS");
  EXPECT_EQ(v["deadline"].number, 250'000'000u);
  EXPECT_EQ(v["deadline"].origin, "options");
  EXPECT_EQ(v["policy"].text, "prefix");
  EXPECT_EQ(v["policy"].origin, "default");
}

TEST(Config, lists_of_tables_keep_their_order_and_have_defaults) {
  auto got = resolve("[[tier]]\npath = \"/a\"\n[[tier]]\npath = \"/b\"\ncapacity = \"10GB\"\n");
  ASSERT_TRUE(got.ok()) << got.status().message();
  auto& tiers = got.value().lists["tier"];
  ASSERT_EQ(tiers.size(), 2u);
  EXPECT_EQ(tiers[0].values["path"].text, "/a");
  EXPECT_EQ(tiers[0].values["capacity"].number, uint64_t{1} << 30);
  EXPECT_EQ(tiers[1].values["capacity"].number, 10'000'000'000u);
}

TEST(Config, errors_name_the_key_its_origin_and_the_nearest_known_key) {
  struct Row {
    const char* file;
    std::vector<NamedText> environment;
    const char* says;
  };
  const Row rows[] = {
      {"[host]\ncapcity = 1\n", {}, "host.capcity (file x.toml:2); did you mean host.capacity?"},
      {"", {{"KVBM_THREAD", "1"}}, "KVBM_THREAD (environment); did you mean KVBM_THREADS?"},
      {"[[tier]]\npth = \"/\"\n", {}, "tier[].pth (file x.toml:2); did you mean tier[].path?"},
      {"[[tier]]\ncapacity = \"much\"\n", {}, "tier[].capacity (file x.toml:2): "},
      {"[[tier]]\ncapacity = [1]\n", {}, "tier[].capacity (file x.toml:2): a single value is needed"},
      {"threads = 65\n", {}, "not between 0 and 64"},
      {"policy = \"mru\"\n", {}, "is not one of prefix, lru"},
      {"deadline = \"5 parsecs\"\n", {}, "allowed is a whole number with ns"},
      {"threads = [1]\n", {}, "a single value is needed"},
      {"threads = 1.5\n", {}, "threads (file x.toml:1): a whole number is needed"},
      {"host = 5\n", {}, "host (file x.toml:1): a table, written as [host]"},
      {"tier = 1\n", {}, "write it as [[tier]]"},
      {"threads = \n", {}, "x.toml:1"},
      {"threads = -1\n", {}, "allowed is a whole number"},
  };
  for (const Row& row : rows) {
    const Status s = resolve(row.file, row.environment).status();
    EXPECT_EQ(s.code(), Code::bad_config) << row.file;
    EXPECT_NE(s.message().find(row.says), std::string::npos) << s.message();
  }
}

TEST(Config, sizes_parse_with_their_units_and_refuse_overflow) {
  EXPECT_EQ(parse_bytes("4096").value(), 4096u);
  EXPECT_EQ(parse_bytes("256MiB").value(), 268435456u);
  EXPECT_EQ(parse_bytes("10 GB").value(), 10'000'000'000u);
  for (const char* bad : {"", "MiB", "-1", "1.5GiB", "1QiB", "18446744073709551616", "17000000TiB", "1GiB "}) {
    EXPECT_EQ(parse_bytes(bad).status().code(), Code::bad_config) << bad;
  }
}

TEST(Config, what_is_printed_resolves_to_the_same_values) {
  auto first = resolve("threads = 7\n[[tier]]\npath = \"/a\\\"\\t\"\n");
  ASSERT_TRUE(first.ok()) << first.status().message();
  const std::string text = print_config(schema(), first.value());
  EXPECT_NE(text.find("threads = 7  # file x.toml:1\n"), std::string::npos) << text;
  auto again = resolve(text);
  ASSERT_TRUE(again.ok()) << again.status().message() << text;
  for (const auto& [name, value] : first.value().values) {
    EXPECT_EQ(again.value().values[name].number, value.number) << name;
    EXPECT_EQ(again.value().values[name].text, value.text) << name;
  }
  EXPECT_EQ(again.value().lists["tier"][0].values["path"].text, "/a\"\t");
  EXPECT_NE(document_config(schema()).find("| `tier[].path` | string |"), std::string::npos);
}

}  // namespace
}  // namespace kvbm::config_test
