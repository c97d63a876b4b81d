#include "benchmark/statistics.h"

#include <time.h>

#include <algorithm>
#include <utility>

namespace kvbm::benchmark {

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

namespace {

Row make(std::string name, double value, std::string unit, double limit, std::string limit_name, double ratio) {
  Row row;
  row.name = std::move(name);
  row.value = value;
  row.unit = std::move(unit);
  row.limit = limit;
  row.limit_name = std::move(limit_name);
  row.ratio = ratio;
  return row;
}

}  // namespace

Row less_is_better(std::string name, double value, std::string unit, double limit, std::string limit_name) {
  const double ratio = value > 0 ? limit / value : 0;
  return make(std::move(name), value, std::move(unit), limit, std::move(limit_name), ratio);
}

Row more_is_better(std::string name, double value, std::string unit, double limit, std::string limit_name) {
  const double ratio = limit > 0 ? value / limit : 0;
  return make(std::move(name), value, std::move(unit), limit, std::move(limit_name), ratio);
}

namespace {

double seconds_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

double ThreadStopwatch::now() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }
double ProcessStopwatch::now() { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace kvbm::benchmark
