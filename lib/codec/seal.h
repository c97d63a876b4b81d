// Sealing: AES-256-GCM over each leaf, for records that leave the host's memory. Format and reasons: README.md.
//
// A key ring holds master keys by id; each namespace has its own key (HKDF-SHA256 of a master key and the namespace id),
// each record a key of its own (HKDF of that and the record id, which is random and new for each sealed record), and the
// nonce is the leaf's index: no nonce is ever used twice with a key. The record's identity and the leaf's place are
// associated data, so a leaf moved to another place, record, key or namespace does not open.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/record.h"

namespace kvbm::codec {

// Master keys. Immutable; shared between threads. Keys are wiped when it goes.
class KeyRing {
 public:
  // Text of a key file: a line "<id> <64 hex digits>" a key, '#' comments; ids 1 to 2^32 - 1, each once; the first is the
  // one that seals, the others open what was sealed before. invalid_argument names the line, never a key.
  static Result<std::shared_ptr<const KeyRing>> parse(std::string_view text);
  ~KeyRing();
  [[nodiscard]] uint32_t sealing_key() const noexcept;
  [[nodiscard]] bool has(uint32_t key_id) const noexcept;

 private:
  friend class Sealer;
  KeyRing();
  struct Keys;
  std::unique_ptr<Keys> keys_;
};

// Seals or opens the leaves of one record. Thread: one at a time.
class Sealer {
 public:
  // `header`: of the sealed record: flags, identity, record id and key id are taken from it. mismatch: the ring lacks the
  // key id (the text names it).
  static Result<Sealer> make(const KeyRing& ring, const Header& header);
  Sealer(Sealer&&) noexcept;
  ~Sealer();
  // out = ciphertext of plain, then the tag: plain.size() + kSealTagBytes. May be in place (out.data() == plain.data()).
  // `codec` and `raw_bytes` are those of the leaf table.
  Status seal(uint32_t leaf, LeafCodec codec, uint32_t raw_bytes, ConstBytes plain, MutableBytes out);
  // damaged: the tag does not agree; out is zeroed then.
  Status open(uint32_t leaf, LeafCodec codec, uint32_t raw_bytes, ConstBytes sealed, MutableBytes out);

 private:
  struct State;
  explicit Sealer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvbm::codec
