// Decides whether records are coded on their way into a tier, and at which level. The choice is made when a record is
// written, for the time when it is read.
//
// Goal speed: code where the way down and up again takes less time that way. A plain byte takes `way` ns, written and
// read. Coded it takes way * stored share, plus encoding and decoding as if nothing ever overlapped and one thread did
// it all. So the choice is no slower on a machine that codes while it writes and reads.
// Goal space: the best ratio with reading at most a quarter longer than reading plain.
//
// All inputs are measured: ratio and speeds per family and level, `way` by reads and writes. A level that is not in use
// is measured by coding single records for the measurement alone (probes), a level in use by its own records. Where
// records are sealed, plain ones are too: sealing is measured in the same ways, as if plain were a level, and every
// level is measured with its seal.
//
// Between entering and leaving a level lies a gap, so that noise does not make the choice flap. A level that reads
// slower than plain is left out if loads have less than twice its reading time until their deadlines. (The nearest of
// the last loads counts, older ones fade.) So a load that plain records would serve in time is not late because they
// are coded. Encoding that holds writing up lowers a ceiling, which rises again after a pause that doubles each time.
//
// copy/codec_choice times batches of both ways over one edge against each other. That is impossible here: a record is
// read long after it is written, if ever. So the cost of coding is put together from its parts.
// Pure: time comes from the caller; no lock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "base/ids.h"
#include "codec/coded/leaf_codec.h"

namespace kvbm::tier::coded {

enum class Goal : uint8_t { speed = 0, space = 1 };

class TierChoice {
 public:
  enum class Level : int8_t { off = -1, fast = 0, standard = 1, max = 2 };
  static constexpr size_t kLevels = 3;
  [[nodiscard]] static codec::Mode mode_of(Level level) noexcept;

  struct Plan {
    Level level = Level::off;
    std::optional<Level> probe;  // measure this one too; the record is stored as `level` says
  };

  // `seals`: every record is sealed, whatever its level.
  explicit TierChoice(Goal goal, bool seals = false) noexcept : goal_(goal), seals_(seals) {}

  // Plans one record of a family that is about to be written. `own`: the namespace configures its coding, so there is
  // one level (standard). Way: ns that one stored byte takes; 0: not known, and taken as nothing.
  struct Way {
    double read_ns = 0;
    double write_ns = 0;
  };
  Plan plan(uint64_t now_ns, FamilyId family, bool own, const Way& way);
  // Adds a measurement of coding one record, its seal included. decode_ns: 0 if it was not decoded. Level `off`:
  // sealing a plain one.
  void encoded(FamilyId family, Level level, uint64_t plain_bytes, uint64_t stored_bytes, uint64_t encode_ns,
               uint64_t decode_ns);
  // Adds a measurement of reading a record that was coded at that level.
  void decoded(FamilyId family, Level level, uint64_t plain_bytes, uint64_t ns);
  // A load asks for `stored_bytes` and has `left_ns` until its deadline.
  void asked(uint64_t stored_bytes, uint64_t left_ns);
  // Lowers the ceiling because writing waits for encoding. Returns false if nothing is left to lower.
  bool held_up(uint64_t now_ns);
  [[nodiscard]] Level level(FamilyId family) const noexcept;
  void forget(FamilyId family) noexcept { families_.erase(family); }
  [[nodiscard]] size_t families() const noexcept { return families_.size(); }

 private:
  // Measurements per plain byte; the last few records count.
  struct Seen {
    uint32_t records = 0;
    double stored = 1;
    double encode_ns = 0;
    double decode_ns = 0;
    [[nodiscard]] double read_ns(const Way& way) const noexcept { return way.read_ns * stored + decode_ns; }
    [[nodiscard]] double both_ns(const Way& way) const noexcept {
      return read_ns(way) + way.write_ns * stored + encode_ns;
    }
  };
  struct Of {
    std::array<Seen, kLevels + 1> seen;
    std::array<uint64_t, kLevels + 1> probed_ns{};  // when last asked for; 0: never
    Level level = Level::off;
    [[nodiscard]] const Seen& at(Level l) const noexcept { return seen[index_of(l)]; }
  };
  static constexpr size_t index_of(Level level) noexcept { return static_cast<size_t>(static_cast<int>(level) + 1); }
  [[nodiscard]] Level best_for_speed(const Of& of, const Way& way) const noexcept;
  [[nodiscard]] Level best_for_space(const Of& of, const Way& way) const noexcept;
  [[nodiscard]] bool allowed(const Of& of, Level level) const noexcept;
  [[nodiscard]] bool in_time(const Of& of, Level level, const Way& way) const noexcept;
  [[nodiscard]] bool measures(Level level, bool own) const noexcept;

  const Goal goal_;
  const bool seals_;
  std::map<FamilyId, Of> families_;
  double left_ns_per_byte_ = 0;  // until deadlines; 0: no load had one
  Level ceiling_ = Level::max;
  uint64_t raise_ns_ = 0;
  uint64_t pause_ns_ = 0;
};

}  // namespace kvbm::tier::coded
