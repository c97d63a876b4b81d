#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstdio>
#include <vector>

#include "policy/ghosts.h"
#include "policy/policies.h"

namespace kvbm::policy {
namespace {
double P(const char*n,double d){const char*v=getenv(n);return v?atof(v):d;}

constexpr size_t kClasses = 16;
constexpr uint8_t kTail = 15;
constexpr size_t kEpochs = 512;
constexpr size_t kAges = 64;  // 4 an octave

uint8_t age_bucket(uint32_t age) {  // quarter octaves from 4 ticks on
  if (age < 4) return static_cast<uint8_t>(age);
  const int top = std::bit_width(age) - 1;
  const uint32_t b = static_cast<uint32_t>((top - 1) * 4) + ((age >> (top - 2)) & 3);
  return static_cast<uint8_t>(std::min<uint32_t>(b, kAges - 1));
}
uint32_t bucket_start(size_t b) {
  if (b < 4) return static_cast<uint32_t>(b);
  const size_t top = b / 4 + 1;
  return static_cast<uint32_t>((4 + b % 4) << (top - 2));
}

class Prefix final : public EvictionPolicy {
 public:
  Prefix(std::span<Facts> facts, const Residents& residents)
      : facts_(facts), residents_(residents), ghosts_(facts.size()), heads_(kClasses * kEpochs + 0) {
    for (uint32_t i = 0; i < heads_.size(); ++i) heads_[i] = {head_id(i), head_id(i)};
    for (auto& c : index_) for (size_t b = 0; b < kAges; ++b) c[b] = static_cast<float>(1.0 / (1.0 + bucket_start(b)));
    m_ = P("M", 200); decay_ = P("DECAY", 0.8); every_ = static_cast<uint32_t>(P("EVERY", 4096)); run_=static_cast<int>(P("RUN",16));
    e_ = static_cast<uint32_t>(P("E", 8)); dump_ = P("DUMP",0); feat_=static_cast<int>(P("FEAT",1));
  }
  ~Prefix() override { if (dump_>0) dump(); }
  std::string_view name() const noexcept override { return "prefix"; }

  void inserted(std::span<const SlotId> slots, uint32_t tick) override {
    now_ = tick;
    uint8_t inherit = facts_[slots[0]].depth >= 2 ? 1 : 0;
    uint32_t end = facts_[slots.back()].depth + 1;
    for (const SlotId slot : slots) {
      Facts& f = facts_[slot];
      const Ghost g = ghosts_.take(residents_.name(slot));
      uint8_t c;
      if (g.fingerprint != 0) {
        hits_[g.kind][age_bucket(tick - g.last_use)] += 1;
        c = next_class(g.kind, 1);
        inherit = 1;
      } else {
        c = inherit;
        if (slot == slots.back() && feat_ >= 1) c = kTail;
        else if (feat_ >= 2 && c == 0) c = end < 4 ? 12 : end < 16 ? 0 : end < 64 ? 13 : 14;
      }
      f.aux = pack(c, 0, tick);
    }
    for (size_t i = slots.size(); i > 0; --i) enqueue(slots[i - 1]);
    cached_ = 0;
  }
  void available(SlotId slot, uint32_t tick) override { now_ = tick; look(slot); enqueue(slot); }

  SlotId evict(uint32_t tick) override {
    now_ = tick;
    if (++evictions_ % every_ == 0) learn();
    for (;;) {
      if (cached_ == 0 || empty(cur_)) { if (!choose()) return kNoSlot; cached_ = run_; }
      --cached_;
      const SlotId slot = heads_[cur_].next;
      unlink(slot);
      Facts& f = facts_[slot];
      const bool changed = look(slot);
      if (!residents_.evictable(slot)) continue;
      if (changed) { enqueue(slot); cached_ = 0; continue; }
      const uint32_t last = f.last_use.load(std::memory_order_relaxed);
      const Ghost gone = ghosts_.put(residents_.name(slot), last, static_cast<uint8_t>(f.aux), tick);
      if (gone.fingerprint != 0) lost_[gone.kind][age_bucket(tick - gone.last_use)] += 1;
      f.aux = 0;
      return slot;
    }
  }
  void erased(SlotId slot) override { if (facts_[slot].queue) unlink(slot); facts_[slot].aux = 0; }
  size_t bytes() const noexcept override { return ghosts_.bytes(); }

 private:
  struct Head { uint32_t next, prev; };
  uint32_t head_id(uint32_t i) const { return static_cast<uint32_t>(facts_.size()) + i; }
  uint32_t& next(uint32_t i) { return i < facts_.size() ? facts_[i].next : heads_[i - facts_.size()].next; }
  uint32_t& prev(uint32_t i) { return i < facts_.size() ? facts_[i].prev : heads_[i - facts_.size()].prev; }
  bool empty(uint32_t h) const { return heads_[h].next == head_id(h); }
  static uint32_t pack(uint8_t c, uint32_t uses, uint32_t tick) { return c | (uses & 255) << 8 | (tick & 65535) << 16; }
  uint8_t next_class(uint8_t c, uint32_t n) const {
    uint32_t r = (c == 1 ? 2 : c >= 12 ? 1 : c == 0 ? 1 : c) + n;
    return static_cast<uint8_t>(std::min<uint32_t>(r, 11));
  }
  // Notes the hits since the last look.
  bool look(SlotId slot) {
    Facts& f = facts_[slot];
    const uint32_t uses = f.uses.load(std::memory_order_relaxed);
    const uint32_t last = f.last_use.load(std::memory_order_relaxed);
    const uint32_t n = (uses - (f.aux >> 8)) & 255;
    if (n == 0) return false;
    const uint32_t age = ((last - (f.aux >> 16)) & 65535) / n;
    auto c = static_cast<uint8_t>(f.aux);
    for (uint32_t i = 0; i < n; ++i) { hits_[c][age_bucket(age)] += 1; c = next_class(c, 1); }
    f.aux = pack(c, uses, last);
    return true;
  }
  void enqueue(SlotId slot) {
    Facts& f = facts_[slot];
    const uint32_t age = now_ - f.last_use.load(std::memory_order_relaxed);
    uint32_t ep = now_ / e_;
    advance(ep);
    const uint32_t back = std::min<uint32_t>(now_ / e_ - (now_ - age) / e_, kEpochs - 1);
    const uint32_t h = static_cast<uint32_t>((f.aux & 255) * kEpochs + (ep - back) % kEpochs);
    // evicts from the front: push front
    const uint32_t hd = head_id(h), n = heads_[h].next;
    f.next = n; f.prev = hd; heads_[h].next = slot; prev(n) = slot;
    f.queue = 1;
  }
  void unlink(SlotId slot) {
    Facts& f = facts_[slot];
    next(f.prev) = f.next; prev(f.next) = f.prev; f.queue = 0;
  }
  void advance(uint32_t ep) {
    while (epoch_ < ep) {
      ++epoch_;
      // the recycled ring position holds the oldest; move it to the next oldest
      for (uint32_t c = 0; c < kClasses; ++c) {
        const uint32_t a = static_cast<uint32_t>(c * kEpochs + epoch_ % kEpochs), b = static_cast<uint32_t>(c * kEpochs + (epoch_ + 1) % kEpochs);
        if (empty(a)) continue;
        const uint32_t first = heads_[a].next, last = heads_[a].prev, n = heads_[b].next;
        heads_[b].next = first; prev(first) = head_id(b); next(last) = n; prev(n) = last;
        heads_[a] = {head_id(a), head_id(a)};
      }
    }
  }
  bool choose() {
    advance(now_ / e_);
    float best = 1e30f; bool any = false;
    for (uint32_t back = kEpochs; back > 0; --back) {
      const uint32_t b = age_bucket((back - 1) * e_ );
      for (uint32_t c = 0; c < kClasses; ++c) {
        const uint32_t h = static_cast<uint32_t>(c * kEpochs + (epoch_ - (back - 1)) % kEpochs);
        if (empty(h)) continue;
        if (index_[c][b] < best) { best = index_[c][b]; cur_ = h; any = true; }
      }
    }
    return any;
  }
  void learn() {
    std::array<std::array<float, kAges>, kClasses> pend{};
    for (const Ghost& g : ghosts_.entries()) if (g.fingerprint) pend[g.kind][age_bucket(now_ - g.last_use)] += 1;
    for (size_t i = 0; i < facts_.size(); ++i) if (facts_[i].aux >> 0) { // resident
      pend[facts_[i].aux & 255][age_bucket(now_ - facts_[i].last_use.load(std::memory_order_relaxed))] += 1; }
    std::array<double, kAges> pool{};
    { double r = 0, ph = 0; (void)ph;
      for (size_t b = kAges; b > 0; --b) { double h = 0; for (size_t c = 0; c < kClasses; ++c) { h += hits_[c][b-1]; r += hits_[c][b-1] + lost_[c][b-1] + pend[c][b-1]; }
        pool[b-1] = (h + 1e-4) / (r + 1); } }
    for (size_t c = 0; c < kClasses; ++c) {
      std::array<double, kAges> hz; double r = 0;
      for (size_t b = kAges; b > 0; --b) { r += hits_[c][b-1] + lost_[c][b-1] + pend[c][b-1];
        hz[b-1] = std::min(0.99, (hits_[c][b-1] + m_ * pool[b-1]) / (r + m_)); }
      for (size_t b = 0; b < kAges; ++b) {
        double s = 1, f = 0, t = 0, best = 0;
        for (size_t j = b; j < kAges; ++j) {
          const double w = j + 1 < kAges ? bucket_start(j+1) - bucket_start(j) : bucket_start(j)/4;
          f += s * hz[j]; t += s * w * (1 - hz[j]/2); s *= 1 - hz[j];
          best = std::max(best, f / t);
        }
        index_[c][b] = static_cast<float>(best);
      }
      for (size_t b = 0; b < kAges; ++b) { hits_[c][b] *= static_cast<float>(decay_); lost_[c][b] *= static_cast<float>(decay_); }
    }
  }
  void dump() {
    for (size_t b = 0; b < kAges; b += 2) { fprintf(stderr, "%6u", bucket_start(b)); for (size_t c = 0; c < kClasses; ++c) fprintf(stderr, " %7.1f", 1e6*static_cast<double>(index_[c][b])); fprintf(stderr, "\n"); }
  }
  std::span<Facts> facts_;
  const Residents& residents_;
  Ghosts ghosts_;
  std::vector<Head> heads_;
  std::array<std::array<float, kAges>, kClasses> hits_{}, lost_{}, index_{};
  uint32_t now_ = 0, epoch_ = 0, evictions_ = 0, every_, e_, cur_ = 0;
  int cached_ = 0, run_, feat_;
  double m_, decay_, dump_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_prefix(std::span<Facts> facts, const Residents& residents) {
  return std::make_unique<Prefix>(facts, residents);
}

}  // namespace kvbm::policy
