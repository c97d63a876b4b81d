// A whole record coded and sealed, and back. The coded record has the identity, attributes and number of leaves of the
// plain one; its leaves are smaller, and its flags say lossy and sealed. Its head is as long as the plain one's, and
// kSealedHeadBytes longer if it is sealed. Format and reasons: README.md, "Coded and sealed records".
//
// End to end: a coded leaf carries the leaf hash of its raw bytes, taken over from the plain record's table (lossy: of
// what decoding gives). decode_record() puts it into the table of the record that it gives back, after comparing: what
// was stored once is what comes back, whatever coding, sealing and links did on the way.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/random.h"
#include "base/status.h"
#include "codec/leaf_codec.h"
#include "codec/leaf_form.h"
#include "codec/opened_leaf.h"
#include "codec/recipe.h"
#include "codec/record.h"
#include "codec/seal.h"

namespace kvbm::codec {

// By how much the head of a sealed record is longer: attributes are content, so they are sealed too, as one attribute.
inline constexpr size_t kSealedHeadBytes = 4 + kSealTagBytes;

struct CodedSizes {
  size_t head_bytes = 0;
  uint64_t payload_bytes = 0;
  bool lossy = false;
  double difference = 0;  // as in Encoded, over all leaves
  double value = 0;
  Mode mode = Mode::off;  // of most of the bytes that were coded; of those that lost something, if any did; off: none were
};

// Room for the coded head of a plain one, sealed or not.
[[nodiscard]] constexpr size_t coded_head_room(size_t head_bytes) noexcept { return head_bytes + kSealedHeadBytes; }
// Room for the coded payload of a plain one, whatever is in it: a multiple of 4 KiB, a little more than the payload.
[[nodiscard]] uint64_t coded_room(uint64_t payload_bytes, uint32_t leaves) noexcept;

// Writes a coded and, with `keys`, sealed record. Of an opaque one nobody knows which leaf is of which layer and plane: a
// recipe that names any codes all of it without loss (Recipe::mode_of_all()). `head` and `payload` are a plain record (no leaf coded, not sealed).
// `out_head` has coded_head_room() of room at least, `out_payload` coded_room(), 64-byte aligned; bytes behind what is
// returned may be written. A new record id comes from `random` if the record is sealed or lossy: it is another record
// then. Nothing gained and not sealed: code `again`, and the plain record is to be used as it is.
// damaged: the payload is not what the head says (found where it is copied, or coded with loss; else decoding finds
// it). invalid_argument: sealing attributes above 4076 bytes, or a payload of 4 GiB.
Result<CodedSizes> encode_record(const HeadView& head, ConstBytes payload, const RecordForm& form, const Recipe& recipe,
                                 const KeyRing* keys, Random& random, MutableBytes out_head, MutableBytes out_payload,
                                 Workspace& workspace);

// Coded or sealed: must be decoded before it is used.
[[nodiscard]] bool is_coded(const HeadView& head) noexcept;
// Bytes of the plain head that decoding gives.
[[nodiscard]] size_t plain_head_bytes(const HeadView& coded) noexcept;

struct DecodeRules {
  // With keys, what is not sealed is refused: else whoever can write to the disk would leave the seal off.
  const KeyRing* keys = nullptr;
  bool allow_lossy = false;
  // The stored bytes have been compared with the hashes of the coded head already. Seals are checked all the same, and
  // what comes out is compared with the hash of what went in.
  bool stored_checked = false;
};

// Whether a record from a disk or a link may be used at all, plain ones included: decode_record() asks first, and
// whoever takes a plain record as it is must ask too. not_permitted: lossy and not allowed (also what was decoded
// once), or not sealed where there are keys; mismatch: sealed with a key id that the ring lacks (the text names it), or
// no ring.
[[nodiscard]] Status permitted(const HeadView& head, const DecodeRules& rules);

// From a coded record to a plain one: head into out_head (plain_head_bytes()), leaves [first, first + n) (n = 0: all
// from first on) into out_payload at their place in the plain payload; out_payload.size() is the whole plain payload,
// known from header().raw_bytes. `stored` holds the coded bytes of those leaves alone, at any alignment. Every leaf is
// checked; nothing of out_payload may be used if the call fails.
// The head is whole and right each time but for the hashes of leaves that were coded and not in the range, which this
// call cannot know: they stay as they are in out_head, so zero it before the first of several calls. An empty out_head
// is not written.
// Accepts a plain record too: its leaves are checked and copied.
// damaged: wrong bytes or tag; not_permitted, mismatch: as permitted() says; newer_version, unsupported: a codec that
// is not known or not built here.
// out_mode: what those leaves were coded with, as CodedSizes::mode; nullopt: their bytes do not tell.
Status decode_record(const HeadView& coded, ConstBytes stored, const DecodeRules& rules, uint32_t first, uint32_t n,
                     MutableBytes out_head, MutableBytes out_payload, Workspace& workspace,
                     std::optional<Mode>* out_mode = nullptr);

// ---- In two steps: opened here, decoded leaf by leaf, by this library or elsewhere ----

// Payload bytes of a coded record once its seal is open; of one that is not sealed those that are stored.
[[nodiscard]] uint64_t opened_bytes(const HeadView& coded) noexcept;

// Opens a coded record, whole, and decodes nothing: the head of the plain one into out_head, and where each leaf's coded
// bytes are. A sealed record's are deciphered, one after the other, into `opened` (opened_bytes()), and verified by that;
// `opened` of another is empty, and its leaves stay where they are. Offsets are from the beginning of `opened`, or of
// `stored`.
// The hashes in out_head are what the leaves' frames say. Whoever decodes a leaf must compare what came out with them,
// and, unless OpenedLeaf::verified, the leaf's bytes with OpenedLeaf::hash: a frame alone does not say whose it is.
// Codes as of decode_record().
Status open_record(const HeadView& coded, ConstBytes stored, const DecodeRules& rules, MutableBytes out_head,
                   MutableBytes opened, std::span<OpenedLeaf> out_leaves, Workspace& workspace);

// Decodes what open_record() gave where it lies: the leaves are at their offsets in `room`, in order and without gaps,
// and may end where it ends; when this returns `room` begins with the plain payload. `plain`: the head that was opened.
// Every leaf is checked; nothing of `room` may be used if the call fails.
Status decode_opened(const HeadView& plain, std::span<const OpenedLeaf> leaves, MutableBytes room, Workspace& workspace);

}  // namespace kvbm::codec
