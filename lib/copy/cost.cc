#include "copy/cost.h"

#include <algorithm>

namespace kvbm::copy {

namespace {

// Weight of a batch after the next one: the last five count.
constexpr double kKeep = 0.8;
// A batch that is slower or faster than expected by more than this factor is a surprise.
constexpr double kSurprise = 2;
// The whole estimate then moves by the fourth root of its ratio: four in a row are believed, one is not. The first
// batches, and those after a silence, count more: by the square root, and the very first one fully.
constexpr int kFollowRoots = 2;
constexpr int kFollowRootsStale = 1;
// Limits of the factor by which a batch counts as slower or faster than expected; the last one applies after such a
// move.
constexpr double kClip = 8;
constexpr double kClipStale = 64;
constexpr double kClipRest = 4;
constexpr uint64_t kFirst = 4;
// Weight of the earlier estimate beside the batches.
constexpr double kPrior = 0.02;
// Lower limits of an estimate: a microsecond, and 1 TB/s.
constexpr double kLeastStart = 1'000;
constexpr double kLeastNsPerByte = 0.001;
// An idle cap saves up at most this, as in tier/disk/bandwidth.h.
constexpr uint64_t kBurstNs = 10'000'000;

// Newton's square root, of a ratio between 1 / kClipStale and kClipStale: libkvbm loads no libm.
double root(double ratio) noexcept {
  double root = std::max(ratio, 1.0);
  for (int step = 0; step < 8; ++step) root = (root + ratio / root) / 2;
  return root;
}

}  // namespace

void SourceCost::seed(const Expectation& first, uint64_t cap_bytes_per_s) noexcept {
  MutexLock lock(mutex_);
  start_ns_ = static_cast<double>(first.start_ns);
  ns_per_byte_ = first.ns_per_byte;
  cap_ns_per_byte_ = cap_bytes_per_s == 0 ? 0 : 1e9 / static_cast<double>(cap_bytes_per_s);
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
  // The bytes in front of it were served first: at the cap, or at the earlier speed.
  const double cap_wait = static_cast<double>(ticket.cap_wait_ns);
  const double front = std::max(0.0, cap_wait - static_cast<double>(ticket.front_bytes) * ns_per_byte_);
  const double took = static_cast<double>(now_ns - std::min(now_ns, ticket.asked_ns)) - front;
  const auto moved = static_cast<double>(bytes + ticket.front_bytes);
  if (how == Answer::late && took <= start_ns_ + moved * ns_per_byte_) return;
  learn(ticket.asked_ns, took, moved);
  last_ns_ = now_ns;
}

void SourceCost::took(uint64_t now_ns, uint64_t bytes, uint64_t ns) noexcept {
  MutexLock lock(mutex_);
  if (bytes == 0) return;
  learn(now_ns - std::min(now_ns, ns), static_cast<double>(ns), static_cast<double>(bytes));
  last_ns_ = now_ns;
}

void SourceCost::learn(uint64_t began_ns, double took_ns, double bytes) noexcept {
  const bool stale = learned_ < kFirst || began_ns - std::min(began_ns, last_ns_) >= kStaleNs;
  const double clip = stale ? kClipStale : kClip;
  double expected = start_ns_ + bytes * ns_per_byte_;
  double ratio = std::clamp(std::max(took_ns, 1.0) / expected, 1 / clip, clip);
  if (ratio > kSurprise || ratio < 1 / kSurprise) {
    double factor = ratio;
    for (int n = learned_ == 0 ? 0 : stale ? kFollowRootsStale : kFollowRoots; n > 0; --n) factor = root(factor);
    follow(factor);
    expected *= factor;
    ratio /= factor;
    if (!stale) ratio = std::clamp(ratio, 1 / kClipRest, kClipRest);
  }
  const double time = expected * ratio;
  // Relative errors, weighted equally by the expected and the measured time: neither slow nor fast batches dominate.
  const double weight = 1 / (time * expected);
  sum_one_ = sum_one_ * kKeep + weight;
  sum_b_ = sum_b_ * kKeep + weight * bytes;
  sum_bb_ = sum_bb_ * kKeep + weight * bytes * bytes;
  sum_t_ = sum_t_ * kKeep + weight * time;
  sum_bt_ = sum_bt_ * kKeep + weight * bytes * time;
  solve();
  ++learned_;
}

// Scales the whole estimate by `factor`.
void SourceCost::follow(double factor) noexcept {
  start_ns_ *= factor;
  ns_per_byte_ *= factor;
  sum_one_ /= factor * factor;
  sum_b_ /= factor * factor;
  sum_bb_ /= factor * factor;
  sum_t_ /= factor;
  sum_bt_ /= factor;
}

void SourceCost::solve() noexcept {
  const double one = sum_one_ + kPrior / (start_ns_ * start_ns_);
  const double bb = sum_bb_ + kPrior / (ns_per_byte_ * ns_per_byte_);
  const double t = sum_t_ + kPrior / start_ns_;
  const double bt = sum_bt_ + kPrior / ns_per_byte_;
  const double determinant = one * bb - sum_b_ * sum_b_;
  start_ns_ = (t * bb - bt * sum_b_) / determinant;
  ns_per_byte_ = (one * bt - t * sum_b_) / determinant;
  // If the line begins or leads below zero, takes the nearest one that does not.
  if (start_ns_ < kLeastStart) {
    start_ns_ = kLeastStart;
    ns_per_byte_ = std::max(kLeastNsPerByte, (bt - sum_b_ * start_ns_) / bb);
  } else if (ns_per_byte_ < kLeastNsPerByte) {
    ns_per_byte_ = kLeastNsPerByte;
    start_ns_ = std::max(kLeastStart, (t - sum_b_ * ns_per_byte_) / one);
  }
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
