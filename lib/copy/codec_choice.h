// Whether it pays to code what goes over an edge: a link to a node, the way to a tier.
//
// Measured, not believed: what batches took is written down for the way that they went, plain or coded, and the way that
// took less goes on. Coding is tried where the speeds of the edge and of the coders say that it could pay at all, and
// taken only if it was shorter by more than 3 %; it is left when it is not shorter at all, so that noise between the
// two does not flap. The other way is tried again now and then, so rarely that it costs about 1 % of the time, and not
// with a batch whose deadline leaves less than four times what the way in use takes.
//
// Many batches are under way at once, and one is waited for while another one is coded. So a try is a run of batches, and
// only those count that had no batch of the other way beside them from their asking to their end: of mixed ones, the
// time that coding costs would be put down to whichever ends next. Several that end together are counted together.
//
// A stall makes a sample longer, and where many batches end together one sample gets time of the next: a way is worth what the
// one in the middle of its last samples says. A try whose samples won and were outvoted by older ones comes again soon.
//
// Batches of like size are compared with each other: small ones are mostly latency, which coding makes longer.
// Pure but for its lock: time comes from the caller. Lock: mutex_, a leaf, taken twice a batch.
#pragma once

#include <array>
#include <cstdint>

#include "base/clock.h"
#include "base/mutex.h"

namespace kvbm::copy {

enum class Way : uint8_t { plain = 0, coded = 1 };

// What is thought of the coders. Speeds are of plain bytes; 0: what takes no time (it lies there coded).
struct CodingSpeeds {
  double encode_ns_per_byte = 0;
  double decode_ns_per_byte = 0;
  double ratio = 1;  // plain bytes / coded ones
  // As much of what a coded byte takes on the edge is at most work of the processors that encoder and decoder need, as
  // between two nodes of one machine. 0: it is work of others.
  double shared_work_ns_per_byte = 0;
};

// What a plain byte takes where encoder, edge and decoder work at the same time: the slowest of them decides, or what
// they do with the same processors, one after the other.
[[nodiscard]] constexpr double coded_ns_per_byte(double edge_ns_per_byte, const CodingSpeeds& speeds) noexcept {
  const double edge = speeds.ratio > 0 ? edge_ns_per_byte / speeds.ratio : edge_ns_per_byte;
  const double coder =
      speeds.encode_ns_per_byte > speeds.decode_ns_per_byte ? speeds.encode_ns_per_byte : speeds.decode_ns_per_byte;
  const double alone = edge > coder ? edge : coder;
  if (speeds.shared_work_ns_per_byte <= 0) return alone;
  const double work = edge < speeds.shared_work_ns_per_byte ? edge : speeds.shared_work_ns_per_byte;
  const double shared = speeds.encode_ns_per_byte + work + speeds.decode_ns_per_byte;
  return shared > alone ? shared : alone;
}

// A way is worth taking if it is shorter than the other by so much.
inline constexpr double kWorthCoding = 0.97;
[[nodiscard]] constexpr bool worth_coding(double plain_ns, double coded_ns) noexcept {
  return coded_ns < kWorthCoding * plain_ns;
}

class CodecChoice {
 public:
  struct Ticket {
    uint64_t asked_ns = 0;
    uint64_t bytes = 0;  // plain
    Way way = Way::plain;
  };

  // The way for a batch of so many plain bytes, asked for at now_ns; ended() tells what came of it, of every one.
  // deadline_ns: when whoever waits for it gives up.
  [[nodiscard]] Ticket next(uint64_t now_ns, uint64_t bytes, const CodingSpeeds& speeds,
                            uint64_t deadline_ns = kNever) noexcept KVBM_EXCLUDES(mutex_);
  // `got`: plain bytes that came, less than were asked for; 0: nothing is learned. `way`: which way they came in fact.
  void ended(uint64_t now_ns, const Ticket& ticket, Way way, uint64_t got) noexcept KVBM_EXCLUDES(mutex_);

  struct State {
    Way way = Way::plain;
    double plain_ns_per_byte = 0;  // 0: not measured
    double coded_ns_per_byte = 0;
    uint64_t probes = 0;
    uint64_t switches = 0;
  };
  [[nodiscard]] State state(uint64_t bytes) const noexcept KVBM_EXCLUDES(mutex_);
  // A size of each kind that is judged by itself, for state().
  struct Size {
    const char* name;
    uint64_t bytes;
  };
  static constexpr std::array<Size, 3> kSizes{{{"small", 64ULL << 10}, {"middle", 1ULL << 20}, {"large", 8ULL << 20}}};

 private:
  // What a byte took one way, in the last samples.
  class Taken {
   public:
    void add(double ns_per_byte) noexcept;
    // Only the last so many count still.
    void forget_but(uint32_t samples) noexcept;
    // Of the sample in the middle.
    [[nodiscard]] double ns_per_byte() const noexcept;
    [[nodiscard]] uint32_t samples() const noexcept { return samples_; }
    int32_t off = 0;  // samples in a row that took far longer than thought; negative: far shorter

   private:
    std::array<double, 7> last_{};  // the newest one first
    uint32_t samples_ = 0;
  };
  // Batches that count, until there are enough of them for a sample.
  struct Sample {
    Way way = Way::plain;
    double ns = 0;
    double bytes = 0;
    uint32_t batches = 0;
    [[nodiscard]] bool full() const noexcept;
  };
  // A run of batches that go the other way.
  struct Try {
    bool on = false;
    bool clear = false;  // one sample is enough that says so, too
    uint32_t asked = 0;
    uint32_t samples = 0;
    uint32_t declined = 0;  // asked for coded, and came plain
    uint64_t ns = 0;        // that batches took meanwhile
    uint32_t won = 0;       // samples that alone would have chosen coding
  };
  struct Class {
    std::array<Taken, 2> taken;
    std::array<uint64_t, 2> under_way{};    // asked for, and not ended
    std::array<uint64_t, 2> last_end_ns{};  // of what was asked for so
    Sample sample;
    Way way = Way::plain;
    Try trying;
    uint64_t try_ns = 0;    // when the other way is tried next
    uint64_t pause_ns = 0;  // between two tries
    uint64_t doubt = 0;     // the same, in times of a try that was lost to a stall
    double tried_at = 0;    // what a plain byte took when the tries of coding began
    uint32_t tries = 0;     // since then
    uint64_t probes = 0;
    uint64_t switches = 0;
  };
  static constexpr size_t kClasses = kSizes.size();
  static size_t class_of(uint64_t bytes) noexcept;
  static Way choose(Class& of, uint64_t now_ns, const CodingSpeeds& speeds, bool tight) noexcept;
  static Way begin_try(Class& of, bool clear) noexcept;
  static bool is_whole(const Class& of) noexcept;
  static void end_try(Class& of, uint64_t now_ns) noexcept;
  static void switch_to(Class& of, Way way, uint64_t now_ns) noexcept;
  static void learn(Class& of, uint64_t now_ns) noexcept;

  mutable Mutex mutex_;
  std::array<Class, kClasses> classes_ KVBM_GUARDED_BY(mutex_);
  uint64_t last_end_ns_ KVBM_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvbm::copy
