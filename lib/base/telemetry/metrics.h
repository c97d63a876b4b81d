// Counters, gauges and latency histograms, and their Prometheus text.
//
// All values are relaxed atomics: each is exact, a set of them is not one instant. Budget: one
// uncontended add, about 2-6 ns; no lock, no allocation. The registry allocates on registration.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace kvbm {

class Counter {
 public:
  void add(uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  [[nodiscard]] uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void set(int64_t v) noexcept { value_.store(v, std::memory_order_relaxed); }
  void add(int64_t n) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  [[nodiscard]] int64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// Logarithmic buckets, four to each power of two (a quantile is at most 25 % too high, as in HDR
// histograms with two significant bits), over the whole range of nanoseconds.
class Histogram {
 public:
  static constexpr uint32_t kBuckets = 4 + 62 * 4;
  // Index of the bucket that holds v, and the largest value in bucket i.
  static constexpr uint32_t bucket(uint64_t v) noexcept {
    if (v < 4) return static_cast<uint32_t>(v);
    const auto top = static_cast<uint32_t>(std::bit_width(v)) - 1;
    return (top - 1) * 4 + static_cast<uint32_t>((v >> (top - 2)) & 3);
  }
  static constexpr uint64_t upper(uint32_t i) noexcept {
    if (i < 4) return i;
    const uint32_t top = i / 4 + 1;
    return (((uint64_t{4} + i % 4) << (top - 2)) | ((uint64_t{1} << (top - 2)) - 1));
  }
  void record(uint64_t ns) noexcept {
    counts_[bucket(ns)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(ns, std::memory_order_relaxed);
  }
  // Adds the counts of `other`.
  void merge(const Histogram& other) noexcept;
  [[nodiscard]] uint64_t count() const noexcept;
  [[nodiscard]] uint64_t sum() const noexcept { return sum_.load(std::memory_order_relaxed); }
  // Number of values up to the largest of bucket i.
  [[nodiscard]] uint64_t at_most(uint32_t i) const noexcept;

 private:
  std::array<std::atomic<uint64_t>, kBuckets> counts_{};
  std::atomic<uint64_t> sum_{0};
};

// Owns the metrics; references stay valid as long as it exists. Thread: one at a time registers metrics or makes the
// text; values may be changed by any thread.
class MetricsRegistry {
 public:
  struct Label {
    std::string name;
    std::string value;
  };
  using Labels = std::vector<Label>;
  // Metrics of one name share help and type and differ in labels.
  Counter& counter(std::string name, std::string help, const Labels& labels = {});
  Gauge& gauge(std::string name, std::string help, const Labels& labels = {});
  // Values are nanoseconds; the text says seconds, and edges are powers of two from 1 us to 64 s.
  Histogram& histogram(std::string name, std::string help, const Labels& labels = {});

  // Prometheus text exposition format 0.0.4, in the order of registration.
  [[nodiscard]] std::string text() const;

 private:
  enum class Type { counter, gauge, histogram };
  struct Row {
    std::string name;
    std::string help;
    std::string labels;  // rendered, without braces
    Type type;
    Counter counter;
    Gauge gauge;
    Histogram* histogram = nullptr;
  };
  Row& add(Type type, std::string name, std::string help, const Labels& labels);
  static void render(const Row& row, std::string& out);

  std::deque<Row> rows_;
  std::deque<Histogram> histograms_;
};

}  // namespace kvbm
