#include "copy/codec_choice.h"

#include <algorithm>

namespace kvbm::copy {

namespace {

// Of what was known before, so much stays when another batch ends: the last eight count.
constexpr double kKept = 7.0 / 8;
// Of the way that is tried only now and then, the last try counts as much as all before it, or alone if it says that
// the edge has changed.
constexpr double kKeptOfTries = 1.0 / 2;
// A batch that took longer than so many times what was thought counts as that: a stall says little of the way.
constexpr double kMostTimes = 4;
// Batches of a way that must have been measured before it is judged.
constexpr uint32_t kEnough = 3;
// Pauses between tries of the other way, in time and in batches: a try that takes half as long again costs less than 1
// %.
constexpr uint64_t kPauseNs = 1'000'000'000;
// The first tries pay for memory that is touched for the first time; so there are as many again, soon after.
constexpr uint64_t kFirstPauseNs = 125'000'000;
constexpr uint32_t kFirstTries = 2 * kEnough;
constexpr uint64_t kMostPauseNs = 32'000'000'000;
constexpr uint64_t kBatchesBetween = 64;
// An edge that became so much slower is another one: what was found out about coding holds no longer.
constexpr double kChanged = 1.5;
// Batches in a row, all longer or all shorter: of batches that end together one took all of the time and one none.
constexpr int32_t kChangedFor = 3;

// A batch whose deadline leaves less than so many times what it takes is not the one to try something with.
constexpr double kLeastTimes = 4;

constexpr uint64_t kSmallBytes = 256ULL << 10;
constexpr uint64_t kMiddleBytes = 2ULL << 20;

}  // namespace

size_t CodecChoice::class_of(uint64_t bytes) noexcept { return bytes < kSmallBytes ? 0 : bytes < kMiddleBytes ? 1 : 2; }

// Which way now, and whether the other one is due for a try. tight: its deadline is too near for one.
Way CodecChoice::choose(Class& of, uint64_t now_ns, const CodingSpeeds& speeds, bool tight) noexcept {
  const Taken& plain = of.taken[0];
  const Taken& coded = of.taken[1];
  if (plain.samples < kEnough) return Way::plain;
  const double plain_ns = plain.ns_per_byte();
  const bool judged = coded.samples >= kEnough;
  if (of.way == Way::plain && judged && worth_coding(plain_ns, coded.ns_per_byte())) {
    of.way = Way::coded;
    of.probe_ns = now_ns + kPauseNs;
    ++of.switches;
  } else if (of.way == Way::coded && coded.ns_per_byte() > plain_ns) {
    of.way = Way::plain;
    of.pause_ns = std::clamp(of.pause_ns * 2, kPauseNs, kMostPauseNs);
    of.probe_ns = now_ns + of.pause_ns;
    ++of.switches;
  }
  if (of.way == Way::coded) {
    if (tight || now_ns < of.probe_ns) return Way::coded;
    ++of.probes;
    of.probe_ns = now_ns + kPauseNs;
    return Way::plain;
  }
  if (!worth_coding(plain_ns, coded_ns_per_byte(plain_ns, speeds))) return Way::plain;
  if (plain_ns > kChanged * of.probed_at) {
    of.pause_ns = of.probe_ns = 0;
    of.tries = 0;
    of.probed_at = plain_ns;
    of.taken[1] = {};
  }
  if (tight || now_ns < of.probe_ns) return Way::plain;
  ++of.probes;
  // The first tries follow each other; then, as long as coding loses, they become rare.
  ++of.tries;
  if (of.tries >= kFirstTries) of.pause_ns = std::clamp(of.pause_ns * 2, kPauseNs, kMostPauseNs);
  of.probe_ns = now_ns + (of.tries == kEnough ? kFirstPauseNs : of.pause_ns);
  return Way::coded;
}

CodecChoice::Ticket CodecChoice::next(uint64_t now_ns, uint64_t bytes, const CodingSpeeds& speeds,
                                      uint64_t deadline_ns) noexcept {
  MutexLock lock(mutex_);
  Class& of = classes_[class_of(bytes)];
  const double takes = of.taken[static_cast<size_t>(of.way)].ns_per_byte() * static_cast<double>(bytes);
  const auto left = static_cast<double>(deadline_ns - std::min(now_ns, deadline_ns));
  return {now_ns, bytes, choose(of, now_ns, speeds, deadline_ns != kNever && left < kLeastTimes * takes)};
}

// Of batches that stand in a line, each took the time since the one before it ended.
void CodecChoice::ended(uint64_t now_ns, const Ticket& ticket, Way way, uint64_t got) noexcept {
  MutexLock lock(mutex_);
  const uint64_t from = std::max(ticket.asked_ns, last_end_ns_);
  const uint64_t took = now_ns > from ? now_ns - from : 0;
  last_end_ns_ = std::max(last_end_ns_, now_ns);
  if (got == 0) return;
  Class& of = classes_[class_of(ticket.bytes)];
  Taken& taken = of.taken[static_cast<size_t>(way)];
  auto ns = static_cast<double>(took);
  const auto bytes = static_cast<double>(got);
  if (taken.samples >= kEnough) ns = std::min(ns, kMostTimes * taken.ns_per_byte() * bytes);
  const bool tried = way != of.way;
  double kept = kKept;
  if (taken.samples >= kEnough) {
    const double thought = taken.ns_per_byte() * bytes;
    const bool longer = ns > kChanged * thought;
    const bool shorter = thought > kChanged * ns;
    taken.off = longer ? std::max(taken.off, 0) + 1 : shorter ? std::min(taken.off, 0) - 1 : 0;
    if (tried) kept = taken.off != 0 ? 0 : kKeptOfTries;
    if (taken.off >= kChangedFor || taken.off <= -kChangedFor) kept = 0;
  }
  taken.ns = taken.ns * kept + ns;
  taken.bytes = taken.bytes * kept + bytes;
  if (taken.samples < UINT32_MAX) ++taken.samples;
  // Of coding, once its first tries are over; of plain always: a second is few of the batches of a slow edge.
  if (tried && (of.way == Way::coded || of.tries >= kFirstTries)) {
    of.probe_ns = std::max(of.probe_ns, now_ns + kBatchesBetween * took);
  }
}

CodecChoice::State CodecChoice::state(uint64_t bytes) const noexcept {
  MutexLock lock(mutex_);
  const Class& of = classes_[class_of(bytes)];
  return {of.way, of.taken[0].ns_per_byte(), of.taken[1].ns_per_byte(), of.probes, of.switches};
}

}  // namespace kvbm::copy
