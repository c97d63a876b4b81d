#include "tier/coded/tier_choice.h"

#include <algorithm>

namespace kvbm::tier::coded {

namespace {

// A level is entered if coding takes at most this share of the plain time, and left above the second share.
constexpr double kEnter = 0.94;
constexpr double kLeave = 0.98;
// Share at which one level replaces another.
constexpr double kBetter = 0.95;
// Goal space: reading time relative to plain, to enter a level and to stay in it.
constexpr double kBears = 1.25;
constexpr double kBearsOn = 1.4;
// A stored share above this is not worth a decoder's time.
constexpr double kSavesSpace = 0.98;
// A level that is not in use is measured again after this time: about one record in ten seconds.
constexpr uint64_t kProbeNs = 10'000'000'000;
constexpr uint64_t kPauseNs = 30'000'000'000;
constexpr uint64_t kMostPauseNs = 480'000'000'000;
// Weight of the earlier measurements when a record adds one.
constexpr double kKeptOfChoice = 0.75;

// Share of the time until its deadline that a load may spend on reading and decoding.
constexpr double kOfDeadline = 0.5;
// Rate at which a near deadline fades while later ones arrive.
constexpr double kForgets = 1.0 / 16;

constexpr TierChoice::Level kCoding[] = {TierChoice::Level::fast, TierChoice::Level::standard, TierChoice::Level::max};

void mix(double& known, double now, bool first) noexcept {
  known = first ? now : known * kKeptOfChoice + now * (1 - kKeptOfChoice);
}

}  // namespace

codec::Mode TierChoice::mode_of(Level level) noexcept {
  switch (level) {
    case Level::fast:
      return codec::Mode::fast;
    case Level::standard:
      return codec::Mode::standard;
    case Level::max:
      return codec::Mode::max;
    case Level::off:
      break;
  }
  return codec::Mode::off;
}

// A level is allowed only after it was measured, and after plain was where plain is sealed.
bool TierChoice::allowed(const Of& of, Level level) const noexcept {
  return static_cast<int>(level) <= static_cast<int>(ceiling_) && of.at(level).records != 0 &&
         (!seals_ || of.at(Level::off).records != 0);
}

bool TierChoice::in_time(const Of& of, Level level, const Way& way) const noexcept {
  const double takes = of.at(level).read_ns(way);
  return left_ns_per_byte_ == 0 || takes <= of.at(Level::off).read_ns(way) || takes <= kOfDeadline * left_ns_per_byte_;
}

void TierChoice::asked(uint64_t stored_bytes, uint64_t left_ns) {
  if (stored_bytes == 0) return;
  const double left = std::max(static_cast<double>(left_ns) / static_cast<double>(stored_bytes), 1e-6);
  const bool nearer = left_ns_per_byte_ == 0 || left < left_ns_per_byte_;
  left_ns_per_byte_ = nearer ? left : left_ns_per_byte_ + (left - left_ns_per_byte_) * kForgets;
}

TierChoice::Level TierChoice::best_for_speed(const Of& of, const Way& way) const noexcept {
  const bool on = of.level != Level::off && allowed(of, of.level);
  const double plain = of.at(Level::off).both_ns(way);
  double bar = on ? of.at(of.level).both_ns(way) : plain * kEnter;
  Level best = on ? of.level : Level::off;
  if (on && (bar > plain * kLeave || !in_time(of, of.level, way))) {
    best = Level::off;
    bar = plain * kEnter;
  } else if (on) {
    bar *= kBetter;
  }
  for (const Level l : kCoding) {
    if (!allowed(of, l) || of.at(l).both_ns(way) >= bar || !in_time(of, l, way)) continue;
    best = l;
    bar = of.at(l).both_ns(way);
  }
  return best;
}

TierChoice::Level TierChoice::best_for_space(const Of& of, const Way& way) const noexcept {
  Level best = Level::off;
  double least = kSavesSpace;
  const double plain = of.at(Level::off).read_ns(way);
  for (const Level l : kCoding) {
    const double bears = l == of.level ? kBearsOn : kBears;
    if (!allowed(of, l) || of.at(l).stored >= least || of.at(l).read_ns(way) > bears * plain) continue;
    if (!in_time(of, l, way)) continue;
    best = l;
    least = of.at(l).stored;
  }
  return best;
}

// The largest level is slow to encode and gains little: only goal space uses it.
bool TierChoice::measures(Level level, bool own) const noexcept {
  if (level == Level::off) return seals_;
  if (own) return level == Level::standard;
  return level != Level::max || goal_ == Goal::space;
}

TierChoice::Plan TierChoice::plan(uint64_t now_ns, FamilyId family, bool own, const Way& way) {
  if (ceiling_ != Level::max && now_ns >= raise_ns_) {
    ceiling_ = static_cast<Level>(static_cast<int>(ceiling_) + 1);
    raise_ns_ = now_ns + pause_ns_;
  }
  Of& of = families_[family];
  of.level = goal_ == Goal::speed ? best_for_speed(of, way) : best_for_space(of, way);
  Plan plan{of.level, {}};
  for (const Level l : {Level::off, Level::fast, Level::standard, Level::max}) {
    if (!measures(l, own)) continue;
    const uint64_t probed = of.probed_ns[index_of(l)];
    // Plain counts as in use before anything was read.
    const bool in_use = l == of.level && (l != Level::off || probed != 0);
    if (in_use || (probed != 0 && now_ns < probed + kProbeNs)) continue;
    of.probed_ns[index_of(l)] = std::max<uint64_t>(now_ns, 1);
    plan.probe = l;
    break;
  }
  return plan;
}

void TierChoice::encoded(FamilyId family, Level level, uint64_t plain_bytes, uint64_t stored_bytes, uint64_t encode_ns,
                         uint64_t decode_ns) {
  if (plain_bytes == 0) return;
  Seen& seen = families_[family].seen[index_of(level)];
  const auto bytes = static_cast<double>(plain_bytes);
  const bool first = seen.records == 0;
  mix(seen.stored, static_cast<double>(stored_bytes) / bytes, first);
  mix(seen.encode_ns, static_cast<double>(encode_ns) / bytes, first);
  if (decode_ns != 0) mix(seen.decode_ns, static_cast<double>(decode_ns) / bytes, seen.decode_ns == 0);
  if (seen.records != UINT32_MAX) ++seen.records;
}

void TierChoice::decoded(FamilyId family, Level level, uint64_t plain_bytes, uint64_t ns) {
  const auto found = families_.find(family);
  if (found == families_.end() || plain_bytes == 0) return;
  Seen& seen = found->second.seen[index_of(level)];
  mix(seen.decode_ns, static_cast<double>(ns) / static_cast<double>(plain_bytes), seen.decode_ns == 0);
}

bool TierChoice::held_up(uint64_t now_ns) {
  int highest = -1;
  for (const auto& [family, of] : families_) highest = std::max(highest, static_cast<int>(of.level));
  if (highest < 0) return false;
  ceiling_ = static_cast<Level>(highest - 1);
  pause_ns_ = std::min(std::max(kPauseNs, pause_ns_ * 2), kMostPauseNs);
  raise_ns_ = now_ns + pause_ns_;
  return true;
}

TierChoice::Level TierChoice::level(FamilyId family) const noexcept {
  const auto found = families_.find(family);
  return found == families_.end() ? Level::off : found->second.level;
}

}  // namespace kvbm::tier::coded
