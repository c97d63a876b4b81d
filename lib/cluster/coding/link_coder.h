// Coding and sealing of records on links: the coding that this node requests from others, the coding of what it
// sends, and the figures.
//
// Lossless coding is requested if it makes transfers shorter (copy/codec_choice.h, one choice for each node), or
// always, in one mode. With keys everything sent is sealed, and unsealed records are refused: otherwise an attacker
// able to change bytes on the network could pass off a record as a plain one. Pure work over the caller's spans, on
// the caller's thread. Thread: any. Lock: mutex_, a leaf, taken a few times a batch or record.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/crypto/random.h"
#include "base/telemetry/log.h"
#include "base/thread/mutex.h"
#include "base/thread/spares.h"
#include "cluster/node.h"
#include "cluster/wire/wire.h"
#include "codec/coded/coded_record.h"
#include "copy/codec_choice.h"
#include "tier/coded/coded_tier.h"

namespace kvbm::cluster {

struct LinkCoding {
  bool automatic = false;                      // `mode` is chosen by measurement
  codec::Mode mode = codec::Mode::off;         // lossless
  std::shared_ptr<const codec::KeyRing> keys;  // null: nothing is sealed
  uint64_t buffer_bytes = 64ULL << 20;         // for coded records until they have been sent
  [[nodiscard]] bool codes() const noexcept { return automatic || mode != codec::Mode::off; }
  [[nodiscard]] bool in_use() const noexcept { return codes() || keys != nullptr; }
};

struct CodingCounts {
  struct Direction {
    uint64_t coded = 0, plain = 0;            // records
    uint64_t raw_bytes = 0, coded_bytes = 0;  // payloads of the coded ones, before and after
    uint64_t ns = 0;                          // of coding or decoding them
    uint64_t refused = 0;                     // of `given`: the peer cannot open them; of `taken`: unusable
    void operator+=(const Direction& more) noexcept;
  };
  Direction given, taken;
  uint64_t declined = 0;  // sent plain though coding was requested: no buffer was free
  uint64_t useless = 0;   // sent plain: coding did not make them smaller
};

class LinkCoder {
 public:
  // Randomness, clock and log outlive this object.
  LinkCoder(LinkCoding options, Random& random, const Clock& clock, const Log* log);

  [[nodiscard]] const LinkCoding& options() const noexcept { return options_; }
  // Lookup of families' coding parameters, as for coded tiers; thread: any. Set before the links begin.
  using Terms = std::function<std::shared_ptr<const tier::coded::FamilyTerms>(FamilyId)>;
  void use_terms(Terms terms) { terms_ = std::move(terms); }
  // Measures the coders' speed with a made-up leaf: about a millisecond.
  void measure();

  // ---- Requests ----
  //
  // Notes whether a node is on this machine, where coders and both ends of a link share the processors. Until that is
  // known it counts as on another machine.
  void is_on_this_machine(const NodeId& node, bool here);
  // Chosen separately: the rest of the work for a record and for a slice of a session differs.
  enum class Use : uint8_t { records = 0, slices = 1 };
  struct Asked {
    wire::Coding coding;
    copy::CodecChoice::Ticket ticket;
    copy::CodecChoice* choice = nullptr;  // gets the outcome; lives as long as the coder
  };
  // Returns how to request a batch of `bytes` plain bytes. takes_lossy: every family of it accepts lossy records.
  // deadline_ns: the nearest one of the batch.
  [[nodiscard]] Asked ask(const NodeId& node, uint64_t bytes, bool takes_lossy, Use use = Use::records,
                          uint64_t deadline_ns = kNever);
  // Returns the request for records that must not be coded: at most sealed. Its outcome is not measured.
  [[nodiscard]] Asked ask_as_it_is() const;
  // Reports the outcome of a request, every one; got: plain bytes.
  void answered(const Asked& asked, bool came_coded, uint64_t got) const;
  [[nodiscard]] bool takes_lossy(FamilyId family) const {
    const auto known = terms(family);
    return known != nullptr && known->allow_lossy;
  }
  // Returns the most space that a record takes on arrival.
  [[nodiscard]] uint64_t room(uint32_t head_bytes, uint64_t payload_bytes) const noexcept;
  // Checks a record that arrived from a node: false if it is not sealed and only sealed records are accepted.
  [[nodiscard]] bool take(const NodeId& node, bool coded, bool sealed);
  // Decodes a record and checks all of it. head and payload: as large as the plain ones. Codes: decode_record().
  Code decode(const NodeId& node, FamilyId family, const codec::HeadView& coded, ConstBytes stored, MutableBytes head,
              MutableBytes payload) {
    return decode_record(node, takes_lossy(family), coded, stored, head, payload);
  }
  Code decode_record(const NodeId& node, bool allow_lossy, const codec::HeadView& coded, ConstBytes stored,
                     MutableBytes head, MutableBytes payload);

  // ---- Serving ----
  enum class Plan : uint8_t { plain, coded, refused };
  // Decides how to answer a request with this coding. refused: records are sealed here and the peer cannot open them.
  [[nodiscard]] Plan plan(const wire::Coding& coding);
  [[nodiscard]] bool seals() const noexcept { return options_.keys != nullptr; }
  // Returns the lossless coding of a request; no rules: none.
  [[nodiscard]] codec::Recipe lossless(const wire::Coding& coding) const;
  // Codes and seals a plain record; as encode_record().
  Result<codec::CodedSizes> encode(FamilyId family, const codec::HeadView& head, ConstBytes payload,
                                   const wire::Coding& coding, MutableBytes out_head, MutableBytes out_payload);
  // Codes and seals a record by the caller's form and recipe.
  Result<codec::CodedSizes> encode_record(const codec::HeadView& head, ConstBytes payload,
                                          const codec::RecordForm& form, const codec::Recipe& recipe,
                                          MutableBytes out_head, MutableBytes out_payload);
  void count_declined() {
    MutexLock lock(mutex_);
    ++counts_.declined;
  }
  void count_plain_given() { count_given({.plain = 1}); }

  [[nodiscard]] CodingCounts counts() const {
    MutexLock lock(mutex_);
    return counts_;
  }
  // Coding of large batches that are requested from a node now, and counts of what arrived from it, slices included.
  struct NodeState {
    bool automatic = false;  // `mode` was chosen by measurement
    bool sealed = false;     // only sealed records are accepted from it
    codec::Mode mode = codec::Mode::off;
    copy::CodecChoice::State choice;  // if automatic
    CodingCounts::Direction taken;
  };
  [[nodiscard]] NodeState state(const NodeId& node) const;
  // Results of the measurements, for each kind of request that was made; none if nothing is chosen.
  struct Choice {
    NodeId node;
    Use use = Use::records;
    const char* size = "";  // one of CodecChoice::kSizes
    copy::CodecChoice::State state;
  };
  [[nodiscard]] std::vector<Choice> choices() const;

 private:
  // State of a node; never removed. Under mutex_.
  struct Known {
    std::array<copy::CodecChoice, 2> choices;  // by Use
    CodingCounts::Direction taken;
    bool on_this_machine = false;
    [[nodiscard]] copy::CodecChoice& choice(Use use) noexcept { return choices[static_cast<size_t>(use)]; }
  };

  [[nodiscard]] std::shared_ptr<const tier::coded::FamilyTerms> terms(FamilyId family) const {
    return terms_ ? terms_(family) : nullptr;
  }
  [[nodiscard]] std::unique_ptr<codec::Workspace> take_workspace();
  [[nodiscard]] Known& known(const NodeId& node) KVBM_REQUIRES(mutex_);
  void count_given(const CodingCounts::Direction& more);
  void count_taken(const NodeId& node, const CodingCounts::Direction& more);
  [[nodiscard]] copy::CodingSpeeds speeds(const Known& of) const KVBM_REQUIRES(mutex_);
  void coded_so_fast(double copy::CodingSpeeds::*which, uint64_t took, uint64_t raw);
  void warn_once(Code why, const std::string& text);

  const LinkCoding options_;
  Random& random_;
  const Clock& clock_;
  const Log* const log_;
  Terms terms_;
  mutable Mutex mutex_;
  CodingCounts counts_ KVBM_GUARDED_BY(mutex_);
  std::map<NodeId, std::unique_ptr<Known>> nodes_ KVBM_GUARDED_BY(mutex_);
  std::set<std::string> warned_ KVBM_GUARDED_BY(mutex_);
  // The fastest speed seen: it only decides whether coding is tried at all, and one slow minute must not end that.
  copy::CodingSpeeds speeds_ KVBM_GUARDED_BY(mutex_);
  // One for each thread that codes is enough.
  static constexpr size_t kSpareWorkspaces = 64;
  Spares<std::unique_ptr<codec::Workspace>> workspaces_{kSpareWorkspaces};
};

}  // namespace kvbm::cluster
