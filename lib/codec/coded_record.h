// A whole record coded and sealed, and back. The coded record has the identity, attributes and number of leaves of the
// plain one, so its head is as long; its leaves are smaller, and its flags say lossy and sealed.
//
// End to end: a coded leaf carries the leaf hash of its raw bytes, taken over from the plain record's table (lossy: of
// what decoding gives). decode_record() puts it into the table of the record that it gives back, after comparing: what
// was stored once is what comes back, whatever coding, sealing and links did on the way.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "base/status.h"
#include "codec/leaf_codec.h"
#include "codec/leaf_form.h"
#include "codec/record.h"
#include "codec/seal.h"

namespace kvbm::codec {

// Which mode for which layers: the first rule that holds decides; none: off.
struct Recipe {
  struct Rule {
    uint32_t first_layer = 0;
    uint32_t end_layer = UINT32_MAX;
    uint8_t planes = 3;  // bit 0: K, bit 1: V
    Mode mode = Mode::off;
    bool operator==(const Rule&) const = default;
  };
  std::vector<Rule> rules;
  // "default", "int8", or rules with layers and planes: "k:0-3=int8,v:0-3=int6,default". The text of the error names
  // the rule.
  static Result<Recipe> parse(std::string_view text);
  [[nodiscard]] Mode mode(uint32_t layer, uint32_t plane) const noexcept;
  [[nodiscard]] bool lossy() const noexcept;
  bool operator==(const Recipe&) const = default;
};

struct CodedSizes {
  size_t head_bytes = 0;
  uint64_t payload_bytes = 0;
  bool lossy = false;
  double difference = 0;  // as in Encoded, over all leaves
  double value = 0;
};

// Room for the coded payload of a plain one, whatever is in it.
[[nodiscard]] uint64_t coded_room(uint64_t payload_bytes, uint32_t leaves) noexcept;

// Writes a coded and, with `keys`, sealed record. `head` and `payload` are a plain record (no leaf coded, not sealed).
// `out_head` has head.head_bytes() of room at least, `out_payload` coded_room(), 64-byte aligned. A new record id comes
// from `random` if it is sealed. Nothing gained and not sealed: code `again`, and the plain record is to be used as it is.
Result<CodedSizes> encode_record(const HeadView& head, ConstBytes payload, const RecordForm& form, const Recipe& recipe,
                                 const KeyRing* keys, Random& random, MutableBytes out_head, MutableBytes out_payload,
                                 Workspace& workspace);

[[nodiscard]] bool is_coded(const HeadView& head) noexcept;  // or sealed: must be decoded before it is used

struct DecodeRules {
  const KeyRing* keys = nullptr;
  bool allow_lossy = false;
};

// From a coded record to a plain one: head into out_head (the same length), leaves [first, first + n) (n = 0: all from
// first on) into out_payload at their place in the plain payload; out_payload.size() is the whole plain payload, known
// from header().raw_bytes. `stored` holds the coded bytes of those leaves alone. Every leaf is checked.
// damaged: wrong bytes or tag; not_permitted: lossy and not allowed; mismatch: a key id that the ring lacks, or no ring.
Status decode_record(const HeadView& coded, ConstBytes stored, const DecodeRules& rules, uint32_t first, uint32_t n,
                     MutableBytes out_head, MutableBytes out_payload, Workspace& workspace);

}  // namespace kvbm::codec
