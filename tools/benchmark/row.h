// One line of a benchmark, which `kvbm bench` prints as text or JSON.
#pragma once

#include <optional>
#include <string>

namespace kvbm::benchmark {

struct Row {
  std::string name;
  double value = 0;
  std::string unit;
  std::optional<double> limit;  // measured in the same run, alternately
  std::string limit_name;
  // value / limit for speeds, limit / value for times: 1 is the limit, higher is better.
  std::optional<double> ratio;
  // Highest possible ratio, by arithmetic, and its reason.
  std::optional<double> bound = std::nullopt;
  std::string bound_name = {};
};

}  // namespace kvbm::benchmark
