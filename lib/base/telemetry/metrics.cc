#include "base/telemetry/metrics.h"

#include <cstdio>
#include <set>

namespace kvbm {

void Histogram::merge(const Histogram& other) noexcept {
  for (uint32_t i = 0; i < kBuckets; ++i) {
    counts_[i].fetch_add(other.counts_[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  sum_.fetch_add(other.sum(), std::memory_order_relaxed);
}

uint64_t Histogram::count() const noexcept { return at_most(kBuckets - 1); }

uint64_t Histogram::at_most(uint32_t i) const noexcept {
  uint64_t n = 0;
  for (uint32_t b = 0; b <= i; ++b) n += counts_[b].load(std::memory_order_relaxed);
  return n;
}

namespace {

std::string escaped(const std::string& text, bool quotes) {
  std::string out;
  for (char c : text) {
    if (c == '\\' || (quotes && c == '"')) out += '\\';
    if (c == '\n') {
      out.append("\\n");
    } else {
      out += c;
    }
  }
  return out;
}

void line(std::string& out, const std::string& name, const std::string& labels, const std::string& value) {
  out.append(name);
  if (!labels.empty()) out.append("{").append(labels).append("}");
  out.append(" ").append(value).append("\n");
}

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", v);
  return text;
}

}  // namespace

MetricsRegistry::Row& MetricsRegistry::add(Type type, std::string name, std::string help, const Labels& labels) {
  Row& row = rows_.emplace_back();
  row.type = type;
  row.name = std::move(name);
  row.help = std::move(help);
  for (const Label& label : labels) {
    if (!row.labels.empty()) row.labels += ',';
    row.labels.append(label.name).append("=\"").append(escaped(label.value, true)).append("\"");
  }
  return row;
}

Counter& MetricsRegistry::counter(std::string name, std::string help, const Labels& labels) {
  return add(Type::counter, std::move(name), std::move(help), labels).counter;
}

Gauge& MetricsRegistry::gauge(std::string name, std::string help, const Labels& labels) {
  return add(Type::gauge, std::move(name), std::move(help), labels).gauge;
}

Histogram& MetricsRegistry::histogram(std::string name, std::string help, const Labels& labels) {
  Row& row = add(Type::histogram, std::move(name), std::move(help), labels);
  row.histogram = &histograms_.emplace_back();
  return *row.histogram;
}

void MetricsRegistry::render(const Row& row, std::string& out) {
  if (row.type == Type::counter) return line(out, row.name, row.labels, std::to_string(row.counter.get()));
  if (row.type == Type::gauge) return line(out, row.name, row.labels, std::to_string(row.gauge.get()));
  const std::string before = row.labels.empty() ? "" : row.labels + ",";
  for (int power = 10; power <= 36; ++power) {
    const uint64_t edge = (uint64_t{1} << power) - 1;
    const uint64_t n = row.histogram->at_most(Histogram::bucket(edge));
    line(out, row.name + "_bucket", before + "le=\"" + number(static_cast<double>(edge + 1) * 1e-9) + "\"",
         std::to_string(n));
  }
  const std::string total = std::to_string(row.histogram->count());
  line(out, row.name + "_bucket", before + "le=\"+Inf\"", total);
  line(out, row.name + "_sum", row.labels, number(static_cast<double>(row.histogram->sum()) * 1e-9));
  line(out, row.name + "_count", row.labels, total);
}

// The format requires all lines of one name together, under one HELP and TYPE.
std::string MetricsRegistry::text() const {
  std::string out;
  std::set<std::string> done;
  for (const Row& head : rows_) {
    if (!done.insert(head.name).second) continue;
    const char* type = head.type == Type::counter ? "counter" : head.type == Type::gauge ? "gauge" : "histogram";
    out.append("# HELP ").append(head.name).append(" ").append(escaped(head.help, false)).append("\n");
    out.append("# TYPE ").append(head.name).append(" ").append(type).append("\n");
    for (const Row& row : rows_) {
      if (row.name == head.name) render(row, out);
    }
  }
  return out;
}

}  // namespace kvbm
