// Decides whether coding pays on an edge: a link to a node, or the way to a tier.
//
// The decision is measured. The time of each batch is recorded for its way, plain or coded, and the faster way is used.
// Coding is tried if the speeds of the edge and of the coders say that it could pay at all. It is chosen only if it
// saves more than 3 %, and left when it saves nothing, so that noise between the two does not make the choice flap. The
// other way is retried so rarely that this costs about 1 % of the time. It is never tried with a batch that has less
// than four times the time of the present way until its deadline.
//
// Many batches are in flight at once, and one is waited for while another one is coded. So a try is a run of batches.
// Only those count that had no batch of the other way in flight during their time: in a mix, the time of coding would
// be attributed to whichever batch ends next. Batches that end together are counted together.
//
// A stall makes a sample longer, and where many batches end together one sample gets time of the next. So a way is
// judged by the median of its last samples. A try with winning samples that older ones outvoted is repeated soon.
//
// Batches of similar size are compared with each other: small ones are mostly latency, which coding makes longer.
// Pure: time comes from the caller, which serialises calls.
#pragma once

#include <array>
#include <cstdint>

#include "base/clock.h"

namespace kvbm::copy {

enum class Way : uint8_t { plain = 0, coded = 1 };

// Expected speeds of the coders, in plain bytes. 0: takes no time (the bytes are stored coded).
struct CodingSpeeds {
  double encode_ns_per_byte = 0;
  double decode_ns_per_byte = 0;
  double ratio = 1;  // plain bytes / coded ones
  // Upper limit of the processor time that transporting a coded byte takes from the encoder and the decoder, for
  // example between two nodes of one machine. 0: other hardware transports the byte.
  double shared_work_ns_per_byte = 0;
};

// Time of a plain byte if encoder, edge and decoder work at the same time: that of the slowest of them. Or that of
// their work on shared processors, one after the other, if it is longer.
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

// A way is worth taking if its time is at most this share of the other's.
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

  // Chooses the way for a batch of `bytes` plain bytes, requested at now_ns. Each batch must be reported to ended().
  // deadline_ns: when the receiver gives up.
  [[nodiscard]] Ticket next(uint64_t now_ns, uint64_t bytes, const CodingSpeeds& speeds,
                            uint64_t deadline_ns = kNever) noexcept;
  // `got`: plain bytes that arrived, at most those requested; 0: nothing is learned. `way`: the way that they took in
  // fact.
  void ended(uint64_t now_ns, const Ticket& ticket, Way way, uint64_t got) noexcept;

  struct State {
    Way way = Way::plain;
    double plain_ns_per_byte = 0;  // 0: not measured
    double coded_ns_per_byte = 0;
    uint64_t probes = 0;
    uint64_t switches = 0;
  };
  [[nodiscard]] State state(uint64_t bytes) const noexcept;
  // The size classes that are judged separately, each with a size for state().
  struct Size {
    const char* name;
    uint64_t bytes;
  };
  static constexpr std::array<Size, 3> kSizes{{{"small", 64ULL << 10}, {"middle", 1ULL << 20}, {"large", 8ULL << 20}}};

 private:
  // Times of a byte on one way, in the last samples.
  class Taken {
   public:
    void add(double ns_per_byte) noexcept;
    // Keeps only the newest `samples` samples.
    void forget_but(uint32_t samples) noexcept;
    // Returns the median.
    [[nodiscard]] double ns_per_byte() const noexcept;
    [[nodiscard]] uint32_t samples() const noexcept { return samples_; }
    int32_t off = 0;  // consecutive samples far longer than expected; negative: far shorter

   private:
    std::array<double, 7> last_{};  // the newest one first
    uint32_t samples_ = 0;
  };
  // Batches that count, until they are enough for a sample.
  struct Sample {
    Way way = Way::plain;
    double ns = 0;
    double bytes = 0;
    uint32_t batches = 0;
    [[nodiscard]] bool full() const noexcept;
  };
  // A run of batches on the other way.
  struct Try {
    bool on = false;
    bool clear = false;  // one sample is enough if it says so, too
    uint32_t asked = 0;
    uint32_t samples = 0;
    uint32_t declined = 0;  // requested coded, but arrived plain
    uint64_t ns = 0;        // time that batches took meanwhile
    uint32_t won = 0;       // samples that would have chosen coding by themselves
  };
  struct Class {
    std::array<Taken, 2> taken;
    std::array<uint64_t, 2> under_way{};    // requested and not ended
    std::array<uint64_t, 2> last_end_ns{};  // of batches requested that way
    Sample sample;
    Way way = Way::plain;
    Try trying;
    uint64_t try_ns = 0;    // time of the next try
    uint64_t pause_ns = 0;  // between two tries
    uint64_t doubt = 0;     // pause after a try that a stall spoiled, in durations of a try
    double tried_at = 0;    // time of a plain byte when the tries of coding began
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

  std::array<Class, kClasses> classes_;
  uint64_t last_end_ns_ = 0;
};

}  // namespace kvbm::copy
