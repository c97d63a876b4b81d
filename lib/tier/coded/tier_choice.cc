#include "tier/coded/tier_choice.h"

#include <algorithm>

namespace kvbm::tier::coded {

namespace {

// Coding is taken up where it saves so much of the time, and left where it saves less than that.
constexpr double kEnter = 0.94;
constexpr double kLeave = 0.98;
// From one level to another.
constexpr double kBetter = 0.95;
// Goal space: how much longer than plain reading may take, to begin and to go on.
constexpr double kBears = 1.25;
constexpr double kBearsOn = 1.4;
// Less is not worth a decoder's time.
constexpr double kSavesSpace = 0.98;
// A level that is not in use is measured again after so long: about one record in ten seconds.
constexpr uint64_t kProbeNs = 10'000'000'000;
constexpr uint64_t kPauseNs = 30'000'000'000;
constexpr uint64_t kMostPauseNs = 480'000'000'000;
// Of what was known before, so much stays with the next record.
constexpr double kKept = 0.75;

// Of the time until its deadline, so much of a load may be reading and decoding.
constexpr double kOfDeadline = 0.5;
// How fast a near deadline is forgotten while later ones come.
constexpr double kForgets = 1.0 / 16;

void mix(double& known, double now, bool first) noexcept { known = first ? now : known * kKept + now * (1 - kKept); }

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

bool TierChoice::allowed(const Of& of, size_t level) const noexcept {
  return static_cast<int>(level) <= static_cast<int>(ceiling_) && of.seen[level].records != 0;
}

bool TierChoice::in_time(const Seen& seen, const Way& way) const noexcept {
  const double takes = seen.read_ns(way);
  return left_ns_per_byte_ == 0 || takes <= way.read_ns || takes <= kOfDeadline * left_ns_per_byte_;
}

void TierChoice::asked(uint64_t stored_bytes, uint64_t left_ns) {
  if (stored_bytes == 0) return;
  const double left = std::max(static_cast<double>(left_ns) / static_cast<double>(stored_bytes), 1e-6);
  const bool nearer = left_ns_per_byte_ == 0 || left < left_ns_per_byte_;
  left_ns_per_byte_ = nearer ? left : left_ns_per_byte_ + (left - left_ns_per_byte_) * kForgets;
}

TierChoice::Level TierChoice::best_for_speed(const Of& of, const Way& way) const noexcept {
  const auto now = static_cast<size_t>(of.level);
  const bool on = of.level != Level::off && allowed(of, now);
  const double plain = way.read_ns + way.write_ns;
  double bar = on ? of.seen[now].both_ns(way) : plain * kEnter;
  Level best = on ? of.level : Level::off;
  if (on && (bar > plain * kLeave || !in_time(of.seen[now], way))) {
    best = Level::off;
    bar = plain * kEnter;
  } else if (on) {
    bar *= kBetter;
  }
  for (size_t l = 0; l < kLevels; ++l) {
    if (!allowed(of, l) || of.seen[l].both_ns(way) >= bar || !in_time(of.seen[l], way)) continue;
    best = static_cast<Level>(l);
    bar = of.seen[l].both_ns(way);
  }
  return best;
}

TierChoice::Level TierChoice::best_for_space(const Of& of, const Way& way) const noexcept {
  Level best = Level::off;
  double least = kSavesSpace;
  for (size_t l = 0; l < kLevels; ++l) {
    const double bears = static_cast<Level>(l) == of.level ? kBearsOn : kBears;
    if (!allowed(of, l) || of.seen[l].stored >= least || of.seen[l].read_ns(way) > bears * way.read_ns) continue;
    if (!in_time(of.seen[l], way)) continue;
    best = static_cast<Level>(l);
    least = of.seen[l].stored;
  }
  return best;
}

TierChoice::Plan TierChoice::plan(uint64_t now_ns, FamilyId family, bool own, const Way& way) {
  if (ceiling_ != Level::max && now_ns >= raise_ns_) {
    ceiling_ = static_cast<Level>(static_cast<int>(ceiling_) + 1);
    raise_ns_ = now_ns + pause_ns_;
  }
  Of& of = families_[family];
  of.level = goal_ == Goal::speed ? best_for_speed(of, way) : best_for_space(of, way);
  Plan plan{of.level, {}};
  // The largest level is slow to encode and gains little: only space asks for it.
  const size_t last = goal_ == Goal::space ? static_cast<size_t>(Level::max) : static_cast<size_t>(Level::standard);
  for (size_t l = own ? static_cast<size_t>(Level::standard) : 0; l <= (own ? static_cast<size_t>(Level::standard) : last); ++l) {
    if (static_cast<Level>(l) == of.level) continue;
    const uint64_t probed = of.probed_ns[l];
    if (probed != 0 && now_ns < probed + kProbeNs) continue;
    of.probed_ns[l] = std::max<uint64_t>(now_ns, 1);
    plan.probe = static_cast<Level>(l);
    break;
  }
  return plan;
}

void TierChoice::encoded(FamilyId family, Level level, uint64_t plain_bytes, uint64_t stored_bytes, uint64_t encode_ns,
                         uint64_t decode_ns) {
  if (level == Level::off || plain_bytes == 0) return;
  Seen& seen = families_[family].seen[static_cast<size_t>(level)];
  const auto bytes = static_cast<double>(plain_bytes);
  const bool first = seen.records == 0;
  mix(seen.stored, static_cast<double>(stored_bytes) / bytes, first);
  mix(seen.encode_ns, static_cast<double>(encode_ns) / bytes, first);
  if (decode_ns != 0) mix(seen.decode_ns, static_cast<double>(decode_ns) / bytes, seen.decode_ns == 0);
  if (seen.records != UINT32_MAX) ++seen.records;
}

void TierChoice::decoded(FamilyId family, uint64_t plain_bytes, uint64_t ns) {
  const auto found = families_.find(family);
  if (found == families_.end() || found->second.level == Level::off || plain_bytes == 0) return;
  Seen& seen = found->second.seen[static_cast<size_t>(found->second.level)];
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
