// Sealing: AES-256-GCM over each leaf and over the head, for records that leave the host's memory. Format and reasons:
// codec/README.md, "Coded and sealed records".
//
// A key ring holds master keys by id. Each namespace has its own key (HKDF-SHA256 of a master key and the namespace
// id), each record a key of its own. That is HKDF of the namespace's key and the record id, which is random and new for
// each sealed record. The nonce is the leaf's index or says that it is the head's: no nonce is ever used twice with a
// key. The record's identity and a leaf's place in it are associated data. So a leaf moved to another place, record,
// key or namespace does not open.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/crypto/hmac.h"
#include "base/status.h"
#include "codec/record/record.h"
#include "codec/seal/aes_gcm.h"

namespace kvbm::codec {

// Master keys. Immutable; shared between threads. Keys are wiped at the end.
class KeyRing {
 public:
  // Parses the text of a key file: a line "<id> <64 hex digits>" a key, '#' to the end of a line is a comment; ids 1 to
  // 2^32 - 1, each once. The first key seals, the others open older records. invalid_argument names the line, never a
  // key.
  static Result<std::shared_ptr<const KeyRing>> parse(std::string_view text);
  ~KeyRing();
  [[nodiscard]] uint32_t sealing_key() const noexcept;
  [[nodiscard]] bool has(uint32_t key_id) const noexcept;

 private:
  friend class Sealer;
  // HKDF-Extract of each master key; nothing else of it is stored.
  struct Key {
    uint32_t id = 0;
    Mac extracted{};
  };
  KeyRing() = default;
  Status add(std::string_view line, size_t number);
  [[nodiscard]] const Mac* key(uint32_t key_id) const noexcept;
  std::vector<Key> keys_;
};

// Returns mismatch, naming the id.
[[nodiscard]] Status unknown_key(uint32_t key_id);

// A leaf, as in the leaf table.
struct SealedLeaf {
  uint32_t index = 0;
  uint32_t raw_bytes = 0;
  uint32_t raw_offset = 0;  // in the plain payload
  LeafCodec codec = LeafCodec::raw;
};

// Seals or opens one record after another. Thread: one at a time. Allocates at its first use only.
class Sealer {
 public:
  // `header`: of the sealed record; stored_bytes and kLossy may still be unknown. mismatch: the ring lacks the key id
  // (the text names it).
  Status start(const KeyRing& ring, const Header& header);
  // out = body and `more`, enciphered, then the tag: body.size() + more.size() + kSealTagBytes. `body` may be at its
  // place in `out`, or not overlap it.
  Status seal(const SealedLeaf& leaf, ConstBytes body, ConstBytes more, MutableBytes out) noexcept;
  // Reverses seal(); the sizes of body and `more` give the place of the tag. damaged: the tag does not agree; both are
  // zeroed then.
  Status open(const SealedLeaf& leaf, ConstBytes sealed, MutableBytes body, MutableBytes more) noexcept;
  // Seal and open the attributes, with a tag over the rest of the head too: `head` is the header up to the root hash,
  // `table` the leaf table.
  Status seal_head(ConstBytes head, ConstBytes table, ConstBytes attributes, MutableBytes out) noexcept;
  Status open_head(ConstBytes head, ConstBytes table, ConstBytes sealed, MutableBytes attributes) noexcept;

 private:
  // Header fields 0 to 127, then the leaf's place: codec/README.md has the table.
  static constexpr size_t kIdentityBytes = 128;
  static constexpr size_t kPlaceBytes = 16;

  void place(const SealedLeaf& leaf) noexcept;
  [[nodiscard]] bool begin(const AesGcm::Nonce& nonce, AesGcm::Use use, ConstBytes first, ConstBytes second) noexcept;
  [[nodiscard]] bool encipher(const AesGcm::Nonce& nonce, ConstBytes first, ConstBytes second, ConstBytes body,
                              ConstBytes more, std::byte* out) noexcept;
  [[nodiscard]] bool decipher(const AesGcm::Nonce& nonce, ConstBytes first, ConstBytes second, ConstBytes sealed,
                              MutableBytes body, MutableBytes more) noexcept;

  AesGcm gcm_;
  std::array<std::byte, kIdentityBytes + kPlaceBytes> associated_{};
};

}  // namespace kvbm::codec
