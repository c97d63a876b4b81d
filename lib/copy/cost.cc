#include "copy/cost.h"

#include <algorithm>
#include <cmath>

namespace kvbm::copy {

namespace {

// The share of a ratio that an estimate follows: enough that four batches at a new speed are believed, little enough
// that one of them is not. The first batches, and those after a silence, are followed more closely.
constexpr double kFollow = 0.25;
constexpr double kFollowStale = 0.5;
// A batch counts as at most so much slower or faster than expected.
constexpr double kClip = 8;
constexpr double kClipStale = 64;
constexpr uint64_t kFirst = 4;
// No source is expected to be faster: a microsecond, and 1 TB/s.
constexpr double kLeastStart = 1'000;
constexpr double kLeastNsPerByte = 0.001;
// As tier/disk/bandwidth.h: an idle cap saves up at most this.
constexpr uint64_t kBurstNs = 10'000'000;

}  // namespace

void SourceCost::seed(const Seed& seed) noexcept {
  MutexLock lock(mutex_);
  start_ns_ = static_cast<double>(seed.start_ns);
  ns_per_byte_ = seed.ns_per_byte;
  cap_ns_per_byte_ = seed.cap_bytes_per_s == 0 ? 0 : 1e9 / static_cast<double>(seed.cap_bytes_per_s);
}

SourceCost::Ticket SourceCost::asked(uint64_t now_ns, uint64_t bytes) noexcept {
  MutexLock lock(mutex_);
  Ticket ticket{now_ns, bytes, outstanding_, 0};
  outstanding_ += bytes;
  if (cap_ns_per_byte_ != 0) {
    ticket.cap_wait_ns = cap_free_ns_ > now_ns ? cap_free_ns_ - now_ns : 0;
    cap_free_ns_ = std::max(cap_free_ns_, now_ns - std::min(now_ns, kBurstNs)) +
                   static_cast<uint64_t>(static_cast<double>(bytes) * cap_ns_per_byte_);
  }
  return ticket;
}

void SourceCost::answered(uint64_t now_ns, const Ticket& ticket, Answer how, uint64_t got) noexcept {
  MutexLock lock(mutex_);
  outstanding_ -= std::min(outstanding_, ticket.bytes);
  if (how == Answer::nothing) return;
  const uint64_t bytes = how == Answer::late ? ticket.bytes : got;
  if (bytes == 0) return;
  const double front = std::max(static_cast<double>(ticket.cap_wait_ns),
                                static_cast<double>(ticket.front_bytes) * ns_per_byte_);
  const double moving = front + static_cast<double>(bytes) * ns_per_byte_;
  const auto took = static_cast<double>(now_ns - std::min(now_ns, ticket.asked_ns));
  if (how == Answer::late && took <= start_ns_ + moving) return;
  learn(now_ns, took, start_ns_, moving);
}

void SourceCost::took(uint64_t now_ns, uint64_t bytes, uint64_t ns) noexcept {
  MutexLock lock(mutex_);
  if (bytes != 0) learn(now_ns, static_cast<double>(ns), start_ns_, static_cast<double>(bytes) * ns_per_byte_);
}

// In the logarithm: moves the expected time a part of the way to the one that it took. Each term moves in proportion to
// its share of the time, so that large batches teach the speed and small ones the latency.
void SourceCost::learn(uint64_t now_ns, double took_ns, double start_ns, double moving_ns) noexcept {
  const bool stale = learned_ < kFirst || now_ns - std::min(now_ns, last_ns_) >= kStaleNs;
  const double clip = stale ? kClipStale : kClip;
  const double expected = start_ns + moving_ns;
  const double ratio = std::clamp(std::max(took_ns, 1.0) / std::max(expected, 1.0), 1 / clip, clip);
  double follow = learned_ < kFirst ? 1.0 / static_cast<double>(learned_ + 1) : kFollow;
  if (stale) follow = std::max(follow, kFollowStale);
  const double start_share = start_ns / std::max(expected, 1.0);
  const double rate_share = 1 - start_share;
  const double step = follow / (start_share * start_share + rate_share * rate_share);
  start_ns_ = std::max(kLeastStart, start_ns_ * std::pow(ratio, step * start_share));
  ns_per_byte_ = std::max(kLeastNsPerByte, ns_per_byte_ * std::pow(ratio, step * rate_share));
  ++learned_;
  last_ns_ = now_ns;
}

Expectation SourceCost::expect(uint64_t now_ns) const noexcept {
  MutexLock lock(mutex_);
  const double ns_per_byte = std::max(ns_per_byte_, cap_ns_per_byte_);
  const uint64_t cap_wait = cap_free_ns_ > now_ns ? cap_free_ns_ - now_ns : 0;
  const double front = std::max(static_cast<double>(cap_wait), static_cast<double>(outstanding_) * ns_per_byte);
  return {static_cast<uint64_t>(start_ns_ + front), ns_per_byte};
}

bool SourceCost::probe_due(uint64_t now_ns) noexcept {
  MutexLock lock(mutex_);
  const uint64_t since = std::max(last_ns_, probed_ns_);
  if (outstanding_ != 0 || (since != 0 && now_ns - std::min(now_ns, since) < kStaleNs)) return false;
  probed_ns_ = now_ns;
  return true;
}

LoadChoice choose_load(std::span<const uint64_t> arrival_ns, std::span<const uint64_t> compute_ns,
                       bool whole) noexcept {
  LoadChoice best;
  for (const uint64_t one : compute_ns) best.compute_ns += one;
  best.total_ns = best.compute_ns;
  uint64_t rest = best.compute_ns;
  for (size_t i = 0; i < arrival_ns.size(); ++i) {
    rest -= compute_ns[i];
    if (whole && i + 1 != arrival_ns.size()) continue;
    if (arrival_ns[i] + rest > best.total_ns) continue;
    best.keys = i + 1;
    best.load_ns = arrival_ns[i];
    best.total_ns = arrival_ns[i] + rest;
  }
  return best;
}

uint64_t latest_ns(std::span<const uint64_t> arrival_ns, size_t in_place, uint64_t last_ns, uint64_t worth_ns,
                   uint64_t slack_ns) noexcept {
  const size_t next = std::min(in_place, arrival_ns.size() - 1);
  const uint64_t before = next == 0 ? 0 : arrival_ns[next - 1];
  const uint64_t silence = last_ns + (arrival_ns[next] - std::min(arrival_ns[next], before));
  return std::min(silence, std::max(worth_ns, arrival_ns[next])) + slack_ns;
}

}  // namespace kvbm::copy
