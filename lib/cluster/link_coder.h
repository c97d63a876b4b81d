// Coding and sealing of records on links: what this node asks of others, what it does to what it gives, and the
// figures.
//
// Lossless coding is asked for where it makes transfers shorter (copy/codec_choice.h, one choice for each node), or
// always, in one mode. With keys everything that is given is sealed, and nothing is taken that is not: whoever can
// change bytes on the network could otherwise have a record of his own taken for a plain one.
// Pure work over spans of the caller's; the caller says on which thread. Thread: any. Locks: nodes_mutex_,
// speeds_mutex_, workspaces_mutex_, leaves, each taken once or twice a batch or record, never two at once.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "cluster/node.h"
#include "cluster/wire.h"
#include "codec/coded_record.h"
#include "copy/codec_choice.h"
#include "tier/coded/coded_tier.h"

namespace kvbm::cluster {

struct LinkCoding {
  bool automatic = false;                      // `mode` is chosen
  codec::Mode mode = codec::Mode::off;         // lossless
  std::shared_ptr<const codec::KeyRing> keys;  // null: nothing is sealed
  uint64_t buffer_bytes = 64ULL << 20;         // that coded records lie in until they have been sent
  [[nodiscard]] bool codes() const noexcept { return automatic || mode != codec::Mode::off; }
  [[nodiscard]] bool in_use() const noexcept { return codes() || keys != nullptr; }
};

struct CodingCounts {
  struct Direction {
    uint64_t coded = 0, plain = 0;            // records
    uint64_t raw_bytes = 0, coded_bytes = 0;  // payloads of the coded ones, before and after
    uint64_t ns = 0;                          // of coding or decoding them
    uint64_t refused = 0;                     // given: to who cannot open them. taken: that could not be used
  };
  Direction given, taken;
  uint64_t declined = 0;  // given plain though coding was asked for: no buffer was left
  uint64_t useless = 0;   // given plain: coding made them no smaller
};

class LinkCoder {
 public:
  // Randomness, clock and log outlive it.
  LinkCoder(LinkCoding options, Random& random, const Clock& clock, const Log* log);

  [[nodiscard]] const LinkCoding& options() const noexcept { return options_; }
  // What is known of families, as tiers that code ask it; thread: any. Before the links begin.
  using Terms = std::function<std::shared_ptr<const tier::coded::FamilyTerms>(FamilyId)>;
  void use_terms(Terms terms) { terms_ = std::move(terms); }
  // Learns the coders' speed from a made-up leaf: about a millisecond.
  void measure();

  // ---- Asking ----
  // Whether a node is of this machine, where coders and both ends of a link share the processors; until that is known it
  // is taken for another machine's.
  void is_on_this_machine(const NodeId& node, bool here);
  // Chosen by themselves: what else happens to a record and to a slice of a session differs.
  enum class Use : uint8_t { records = 0, slices = 1 };
  struct Asked {
    wire::Coding coding;
    copy::CodecChoice::Ticket ticket;
    copy::CodecChoice* choice = nullptr;  // that hears what came of it; stays for as long as the coder
  };
  // How a batch of so many plain bytes is to be asked for. takes_lossy: every family of it does. deadline_ns: the
  // nearest one of it.
  [[nodiscard]] Asked ask(const NodeId& node, uint64_t bytes, bool takes_lossy, Use use = Use::records,
                          uint64_t deadline_ns = kNever);
  // What must go as it is: at most sealed. Nothing is learned of it.
  [[nodiscard]] Asked ask_as_it_is() const;
  // What came of it, of every ask; got: plain bytes.
  void answered(const Asked& asked, bool came_coded, uint64_t got) const;
  [[nodiscard]] bool takes_lossy(FamilyId family) const {
    const auto known = terms(family);
    return known != nullptr && known->allow_lossy;
  }
  // Room that a record takes at most as it comes.
  [[nodiscard]] uint64_t room(uint32_t head_bytes, uint64_t payload_bytes) const noexcept;
  // What came of a node: false where it is plain and only sealed records are taken.
  [[nodiscard]] bool take(const NodeId& node, bool coded, bool sealed);
  // Decodes and checks it whole. head and payload: as large as the plain ones. Codes: decode_record().
  Code decode(const NodeId& node, FamilyId family, const codec::HeadView& coded, ConstBytes stored, MutableBytes head,
              MutableBytes payload) {
    return decode_record(node, takes_lossy(family), coded, stored, head, payload);
  }
  Code decode_record(const NodeId& node, bool allow_lossy, const codec::HeadView& coded, ConstBytes stored,
                     MutableBytes head, MutableBytes payload);

  // ---- Giving ----
  enum class Plan : uint8_t { plain, coded, refused };
  // What is given to who asks so. refused: it could not open it.
  [[nodiscard]] Plan plan(const wire::Coding& coding);
  [[nodiscard]] bool seals() const noexcept { return options_.keys != nullptr; }
  // The lossless coding that is asked for; no rules: none.
  [[nodiscard]] codec::Recipe lossless(const wire::Coding& coding) const;
  // Codes and seals a plain record; as encode_record().
  Result<codec::CodedSizes> encode(FamilyId family, const codec::HeadView& head, ConstBytes payload,
                                   const wire::Coding& coding, MutableBytes out_head, MutableBytes out_payload);
  // The same by a form and a recipe of the caller's.
  Result<codec::CodedSizes> encode_record(const codec::HeadView& head, ConstBytes payload,
                                          const codec::RecordForm& form, const codec::Recipe& recipe,
                                          MutableBytes out_head, MutableBytes out_payload);
  void count_declined() noexcept { declined_.fetch_add(1, std::memory_order_relaxed); }
  void count_plain_given() noexcept { given_.plain.fetch_add(1, std::memory_order_relaxed); }

  [[nodiscard]] CodingCounts counts() const noexcept;
  // How a node is asked for large batches of records now, and what came from it, slices too.
  struct NodeState {
    bool automatic = false;  // `mode` was chosen by measuring
    bool sealed = false;     // nothing else is taken from it
    codec::Mode mode = codec::Mode::off;
    copy::CodecChoice::State choice;  // where automatic
    CodingCounts::Direction taken;
  };
  [[nodiscard]] NodeState state(const NodeId& node) const;
  // What was found out, of each kind of request that was made; none where nothing is chosen.
  struct Choice {
    NodeId node;
    Use use = Use::records;
    const char* size = "";  // of CodecChoice::kSizes
    copy::CodecChoice::State state;
  };
  [[nodiscard]] std::vector<Choice> choices() const;

 private:
  // Counters of one direction; relaxed, for figures alone.
  struct Direction {
    std::atomic<uint64_t> coded{0}, plain{0}, raw_bytes{0}, coded_bytes{0}, ns{0}, refused{0};
    [[nodiscard]] CodingCounts::Direction now() const noexcept;
    void add(uint64_t raw, uint64_t stored, uint64_t took) noexcept;
  };
  // What is known of a node; kept for good.
  struct Known {
    std::array<copy::CodecChoice, 2> choices;  // by Use
    Direction taken;
    std::atomic<bool> on_this_machine{false};
    [[nodiscard]] copy::CodecChoice& choice(Use use) noexcept { return choices[static_cast<size_t>(use)]; }
  };
  class Borrowed;  // a workspace

  [[nodiscard]] std::shared_ptr<const tier::coded::FamilyTerms> terms(FamilyId family) const {
    return terms_ ? terms_(family) : nullptr;
  }
  [[nodiscard]] Known& known(const NodeId& node);
  [[nodiscard]] copy::CodingSpeeds speeds(const Known& of) const;
  void coded_so_fast(double copy::CodingSpeeds::*which, uint64_t took, uint64_t raw);
  void warn_once(Code why, const std::string& text);

  const LinkCoding options_;
  Random& random_;
  const Clock& clock_;
  const Log* const log_;
  Terms terms_;
  Direction given_, taken_;
  std::atomic<uint64_t> declined_{0}, useless_{0};
  mutable Mutex nodes_mutex_;
  std::map<NodeId, std::unique_ptr<Known>> nodes_ KVBM_GUARDED_BY(nodes_mutex_);
  std::set<std::string> warned_ KVBM_GUARDED_BY(nodes_mutex_);
  mutable Mutex speeds_mutex_;
  // The fastest that was seen: it decides only whether coding is tried at all, and one slow minute must not end that.
  copy::CodingSpeeds speeds_ KVBM_GUARDED_BY(speeds_mutex_);
  Mutex workspaces_mutex_;
  std::vector<std::unique_ptr<codec::Workspace>> workspaces_ KVBM_GUARDED_BY(workspaces_mutex_);
};

}  // namespace kvbm::cluster
