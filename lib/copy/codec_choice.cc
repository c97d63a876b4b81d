#include "copy/codec_choice.h"

#include <algorithm>
#include <limits>

namespace kvbm::copy {

namespace {

// A sample has kSampleBatches batches, or fewer once they have kSampleBytes bytes. Batches that end together with the
// last one belong to it, because the first of them seems to have taken all of the time.
constexpr uint32_t kSampleBatches = 8;
constexpr double kSampleBytes = 8 << 20;
// Older samples that count beside the three of the last try, on the way that is only tried.
constexpr uint32_t kKeptOfTries = 2;
// Samples that a way needs before it is judged.
constexpr uint32_t kEnough = 3;
// A try ends after kMostOfTry batches, or after kMostDeclined batches that arrived plain, even if it has too few
// samples.
constexpr uint32_t kMostOfTry = 256;
constexpr uint32_t kMostDeclined = 2;
// Pauses between tries of the other way, in time and in durations of the last try: a try that takes half as long again
// then costs less than 1 %.
constexpr uint64_t kPauseNs = 1'000'000'000;
// The first batches of either way touch new memory, the plain ones more so, since they are the first. So each way is
// measured twice, in turns, and the second time counts.
constexpr uint32_t kFirstTries = 2;
constexpr uint64_t kMostPauseNs = 32'000'000'000;
constexpr uint64_t kTriesBetween = 64;
// Shorter pause, doubled each time, after a try in which this many samples won and older ones outvoted them: those were
// stalls.
constexpr uint64_t kFirstDoubt = 4;
constexpr uint32_t kWonOfTry = 2;
// If coders are this many times faster than the edge, only the size of coded batches must be found out. One sample of
// either way tells it, so that a short visit over a slow link does not end before. If that sample says otherwise, as
// many are needed as elsewhere: the first coded batch touches new memory. (So does the first plain one, which makes a
// link of memory's speed look four times slower; and the coder's best is twice its usual speed.)
constexpr double kClear = 8;
// After coding was chosen, plain is retried sooner: the measurement may have been noise of other programs.
constexpr uint64_t kTriesToDoubt = 8;
// An edge that became slower by this factor is treated as another one: results about coding no longer hold.
constexpr double kChanged = 1.5;
// Consecutive samples, all longer or all shorter.
constexpr int32_t kChangedFor = 3;

// A batch is used for a try only if its deadline leaves this many times its expected time.
constexpr double kLeastTimes = 4;

constexpr uint64_t kSmallBytes = 256ULL << 10;
constexpr uint64_t kMiddleBytes = 2ULL << 20;

bool is_clear(double edge_ns_per_byte, const CodingSpeeds& speeds) noexcept {
  return kClear * std::max(speeds.encode_ns_per_byte, speeds.decode_ns_per_byte) < edge_ns_per_byte;
}

constexpr size_t index(Way way) noexcept { return static_cast<size_t>(way); }
constexpr Way other(Way way) noexcept { return way == Way::plain ? Way::coded : Way::plain; }

}  // namespace

void CodecChoice::Taken::add(double ns_per_byte) noexcept {
  samples_ = std::min(samples_ + 1, static_cast<uint32_t>(last_.size()));
  std::copy_backward(last_.begin(), last_.begin() + samples_ - 1, last_.begin() + samples_);
  last_[0] = ns_per_byte;
}

void CodecChoice::Taken::forget_but(uint32_t samples) noexcept { samples_ = std::min(samples_, samples); }

double CodecChoice::Taken::ns_per_byte() const noexcept {
  if (samples_ == 0) return 0;
  auto sorted = last_;
  std::fill(sorted.begin() + samples_, sorted.end(), std::numeric_limits<double>::infinity());
  std::sort(sorted.begin(), sorted.end());
  return sorted[(samples_ - 1) / 2];
}

bool CodecChoice::Sample::full() const noexcept { return batches >= kSampleBatches || bytes >= kSampleBytes; }

size_t CodecChoice::class_of(uint64_t bytes) noexcept { return bytes < kSmallBytes ? 0 : bytes < kMiddleBytes ? 1 : 2; }

void CodecChoice::switch_to(Class& of, Way way, uint64_t now_ns) noexcept {
  of.way = way;
  ++of.switches;
  if (way == Way::coded) {
    of.try_ns = now_ns + kTriesToDoubt * of.trying.ns;
    return;
  }
  of.pause_ns = std::clamp(of.pause_ns * 2, kPauseNs, kMostPauseNs);
  of.try_ns = now_ns + of.pause_ns;
}

Way CodecChoice::begin_try(Class& of, bool clear) noexcept {
  of.trying = {};
  of.trying.on = true;
  of.trying.clear = clear;
  of.trying.asked = 1;
  ++of.probes;
  of.taken[index(other(of.way))].forget_but(kKeptOfTries);
  return other(of.way);
}

bool CodecChoice::is_whole(const Class& of) noexcept {
  if (of.trying.samples >= kEnough) return true;
  return of.trying.clear && of.trying.samples > 0 &&
         worth_coding(of.taken[index(Way::plain)].ns_per_byte(), of.taken[index(Way::coded)].ns_per_byte());
}

// Compares the ways right after a try: measurements of the other way at other times do not compare. The first two tries
// of coding only bracket measured plain batches; after that, tries become rarer as long as coding loses.
void CodecChoice::end_try(Class& of, uint64_t now_ns) noexcept {
  of.trying.on = false;
  const bool whole = is_whole(of);
  if (of.way == Way::plain && whole && !of.trying.clear && ++of.tries < kFirstTries) {
    of.taken = {};
    return;
  }
  const double plain_ns = of.taken[index(Way::plain)].ns_per_byte();
  const double coded_ns = of.taken[index(Way::coded)].ns_per_byte();
  if (of.way == Way::coded) {
    of.try_ns = now_ns + std::max(kPauseNs, kTriesBetween * of.trying.ns);
    if (whole && coded_ns > plain_ns) switch_to(of, Way::plain, now_ns);
  } else if (whole && worth_coding(plain_ns, coded_ns)) {
    switch_to(of, Way::coded, now_ns);
  } else if (of.trying.won >= kWonOfTry) {
    of.doubt = std::clamp(2 * of.doubt, kFirstDoubt, kTriesBetween);
    of.try_ns = now_ns + of.doubt * of.trying.ns;
  } else {
    of.pause_ns = std::clamp(of.pause_ns * 2, kPauseNs, kMostPauseNs);
    of.try_ns = now_ns + std::max(of.pause_ns, kTriesBetween * of.trying.ns);
  }
}

// Chooses the way for a batch, and begins a try if it is due. tight: the deadline is too near for a try.
Way CodecChoice::choose(Class& of, uint64_t now_ns, const CodingSpeeds& speeds, bool tight) noexcept {
  if (of.trying.on) {
    if (tight) return of.way;
    if (of.trying.asked < kMostOfTry) {
      ++of.trying.asked;
      return other(of.way);
    }
    end_try(of, now_ns);
  }
  const Taken& plain = of.taken[index(Way::plain)];
  const double plain_ns = plain.ns_per_byte();
  const bool clear = is_clear(plain_ns, speeds);
  if (of.way == Way::coded) return tight || now_ns < of.try_ns ? Way::coded : begin_try(of, clear);
  if (plain.samples() < (clear ? 1 : kEnough)) return Way::plain;
  if (!worth_coding(plain_ns, coded_ns_per_byte(plain_ns, speeds))) return Way::plain;
  if (plain_ns > kChanged * of.tried_at) {
    of.pause_ns = of.try_ns = of.doubt = 0;
    of.tries = 0;
    of.tried_at = plain_ns;
    of.taken[1] = {};
  }
  return tight || now_ns < of.try_ns ? Way::plain : begin_try(of, clear);
}

CodecChoice::Ticket CodecChoice::next(uint64_t now_ns, uint64_t bytes, const CodingSpeeds& speeds,
                                      uint64_t deadline_ns) noexcept {
  Class& of = classes_[class_of(bytes)];
  const double takes = of.taken[index(of.way)].ns_per_byte() * static_cast<double>(bytes);
  const auto left = static_cast<double>(deadline_ns - std::min(now_ns, deadline_ns));
  const Way way = choose(of, now_ns, speeds, deadline_ns != kNever && left < kLeastTimes * takes);
  ++of.under_way[index(way)];
  return {now_ns, bytes, way};
}

// Evaluates the sample.
void CodecChoice::learn(Class& of, uint64_t now_ns) noexcept {
  const Way way = of.sample.way;
  const double took = of.sample.ns / of.sample.bytes;
  of.sample = {way, 0, 0, 0};
  Taken& taken = of.taken[index(way)];
  const double thought = taken.ns_per_byte();
  const bool known = taken.samples() >= kEnough;
  taken.add(took);
  if (of.trying.on && way != of.way) {
    ++of.trying.samples;
    if (way == Way::coded && worth_coding(of.taken[index(Way::plain)].ns_per_byte(), took)) ++of.trying.won;
    return;
  }
  const bool longer = known && took > kChanged * thought;
  const bool shorter = known && thought > kChanged * took;
  taken.off = longer ? std::max(taken.off, 0) + 1 : shorter ? std::min(taken.off, 0) - 1 : 0;
  if (taken.off < kChangedFor && taken.off > -kChangedFor) return;
  taken.forget_but(kChangedFor);
  // A faster edge may need no coding any more, and coders may have become slower.
  if (way == Way::coded) of.try_ns = std::min(of.try_ns, now_ns);
}

// Batches that queue up one behind another each count from the end of the one before.
void CodecChoice::ended(uint64_t now_ns, const Ticket& ticket, Way way, uint64_t got) noexcept {
  const uint64_t from = std::max(ticket.asked_ns, last_end_ns_);
  const uint64_t took = now_ns > from ? now_ns - from : 0;
  last_end_ns_ = std::max(last_end_ns_, now_ns);
  Class& of = classes_[class_of(ticket.bytes)];
  const size_t mine = index(ticket.way);
  const size_t beside = index(other(ticket.way));
  --of.under_way[mine];
  of.last_end_ns[mine] = now_ns;
  const bool alone = of.under_way[beside] == 0 && ticket.asked_ns >= of.last_end_ns[beside];
  const bool tried = of.trying.on && ticket.way != of.way;
  if (of.trying.on) of.trying.ns += took;
  if (tried && got > 0 && way != ticket.way) ++of.trying.declined;
  if (got > 0 && alone && way == ticket.way) {
    Sample& sample = of.sample;
    if (sample.way != way) sample = {way, 0, 0, 0};
    // This batch did not end together with those before it.
    if (sample.full() && 2 * static_cast<double>(took) * sample.batches >= sample.ns) learn(of, now_ns);
    sample.ns += static_cast<double>(took);
    sample.bytes += static_cast<double>(got);
    ++sample.batches;
    if (sample.full() && of.under_way[mine] == 0) learn(of, now_ns);
  }
  if (tried && (is_whole(of) || of.trying.declined >= kMostDeclined)) end_try(of, now_ns);
}

CodecChoice::State CodecChoice::state(uint64_t bytes) const noexcept {
  const Class& of = classes_[class_of(bytes)];
  return {of.way, of.taken[0].ns_per_byte(), of.taken[1].ns_per_byte(), of.probes, of.switches};
}

}  // namespace kvbm::copy
