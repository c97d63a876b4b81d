// Codes and seals a whole record, and decodes it. The coded record has the identity, attributes and number of leaves of
// the plain one. Its leaves are smaller, and its flags say lossy and sealed. Its head is as long as the plain one's,
// and kSealedHeadBytes longer if it is sealed. Format and reasons: codec/README.md, "Coded and sealed records".
//
// End to end: a coded leaf carries the leaf hash of its raw bytes, copied from the plain record's table (lossy: the
// hash of the decoded bytes). decode_record() compares it, and puts it into the table of the record that it returns. So
// the bytes stored once are the bytes returned, whatever coding, sealing and links do in between.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/crypto/random.h"
#include "base/status.h"
#include "codec/coded/leaf_codec.h"
#include "codec/coded/recipe.h"
#include "codec/leaf/leaf_form.h"
#include "codec/record/opened_leaf.h"
#include "codec/record/record.h"
#include "codec/seal/seal.h"

namespace kvbm::codec {

// Extra length of a sealed record's head: attributes are content, so they are sealed too, as one attribute.
inline constexpr size_t kSealedHeadBytes = 4 + kSealTagBytes;

struct CodedSizes {
  size_t head_bytes = 0;
  uint64_t payload_bytes = 0;
  bool lossy = false;
  double difference = 0;  // as in Encoded, over all leaves
  double value = 0;
  Mode mode = Mode::off;  // of most of the coded bytes; of the lossy ones, if there are any; off: none were coded
};

// Room for the coded head of a plain record, sealed or not.
[[nodiscard]] constexpr size_t coded_head_room(size_t head_bytes) noexcept { return head_bytes + kSealedHeadBytes; }
// Room for the coded payload of any plain one: a multiple of 4 KiB, a little more than the payload.
[[nodiscard]] uint64_t coded_room(uint64_t payload_bytes, uint32_t leaves) noexcept;

// Writes a coded and, with `keys`, sealed record. For an opaque record, layer and plane of its leaves are unknown: a
// recipe with any coding codes all of it without loss (Recipe::mode_of_all()). `head` and `payload` are a plain record
// (no leaf coded, not sealed). `out_head` has coded_head_room() of room at least, `out_payload` coded_room(), 64-byte
// aligned; bytes behind those returned may be written. A sealed or lossy record is a new record, so it gets a new
// record id from `random`. If nothing is gained and it is not sealed: code `again`, and the plain record is to be used.
// damaged: the payload is not what the head says (found if it is copied, or coded with loss; else decoding finds it).
// invalid_argument: sealing attributes above 4076 bytes, or a payload of 4 GiB.
Result<CodedSizes> encode_record(const HeadView& head, ConstBytes payload, const RecordForm& form, const Recipe& recipe,
                                 const KeyRing* keys, Random& random, MutableBytes out_head, MutableBytes out_payload,
                                 Workspace& workspace);

// Size of the plain head that decoding gives.
[[nodiscard]] size_t plain_head_bytes(const HeadView& coded) noexcept;

struct DecodeRules {
  // With keys, unsealed records are refused: otherwise a writer on the disk could leave the seal off.
  const KeyRing* keys = nullptr;
  bool allow_lossy = false;
  // The stored bytes have already been compared with the hashes of the coded head. Seals are checked all the same, and
  // decoded bytes are compared with the hash of the original ones.
  bool stored_checked = false;
};

// Checks whether a record from a disk or a link may be used at all, plain ones included. decode_record() calls it
// first; a caller that uses a plain record as it is must call it too. not_permitted: lossy and not allowed (also if
// already decoded), or not sealed although there are keys. mismatch: sealed with a key id that the ring lacks (the text
// names it), or no ring.
[[nodiscard]] Status permitted(const HeadView& head, const DecodeRules& rules);

// Decodes a coded record to a plain one: head into out_head (plain_head_bytes()), leaves [first, first + n) (n = 0: all
// from first on) into out_payload at their place in the plain payload. out_payload.size() is the whole plain payload,
// known from header().raw_bytes. `stored` holds the coded bytes of those leaves only, at any alignment. Every leaf is
// checked; out_payload must not be used if the call fails.
// The head is whole and right each time, except for the hashes of coded leaves outside the range, which this call
// cannot know: they keep their value in out_head, so zero it before the first of several calls. An empty out_head is
// not written.
// A plain record is accepted too: its leaves are checked and copied.
// damaged: wrong bytes or tag; not_permitted, mismatch: as in permitted(); newer_version, unsupported: the codec is
// unknown or not built in.
// out_mode: mode of those leaves, as CodedSizes::mode; nullopt: their bytes do not tell.
Status decode_record(const HeadView& coded, ConstBytes stored, const DecodeRules& rules, uint32_t first, uint32_t n,
                     MutableBytes out_head, MutableBytes out_payload, Workspace& workspace,
                     std::optional<Mode>* out_mode = nullptr);

// ---- In two steps: opened here, decoded leaf by leaf, by this library or elsewhere ----

// Payload size of a coded record once its seal is open; without a seal, the stored size.
[[nodiscard]] uint64_t opened_bytes(const HeadView& coded) noexcept;

// Opens a whole coded record without decoding it. Writes the plain record's head into out_head, and returns the place
// of each leaf's coded bytes. A sealed record is deciphered, leaf by leaf, into `opened` (opened_bytes()), and thereby
// verified. For others `opened` is empty, and the leaves stay where they are. Offsets are from the beginning of
// `opened`, or of `stored`.
// The hashes in out_head are those in the leaves' frames. A decoder must compare the decoded leaf with its hash. Unless
// OpenedLeaf::verified is set, it must also compare the leaf's bytes with OpenedLeaf::hash: a frame alone does not
// prove which leaf it is.
// Returns codes as decode_record() does.
Status open_record(const HeadView& coded, ConstBytes stored, const DecodeRules& rules, MutableBytes out_head,
                   MutableBytes opened, std::span<OpenedLeaf> out_leaves, Workspace& workspace);

// Decodes an opened record in place: the leaves are at their offsets in `room`, in order and without gaps, and may
// reach its end. Afterwards `room` begins with the plain payload. `plain`: the head that open_record() wrote. Every
// leaf is checked; `room` must not be used if the call fails.
Status decode_opened(const HeadView& plain, std::span<const OpenedLeaf> leaves, MutableBytes room,
                     Workspace& workspace);

}  // namespace kvbm::codec
