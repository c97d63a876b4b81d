#include "codec/seal/seal.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace kvbm::codec {
namespace {

static_assert(AesGcm::kTagBytes == kSealTagBytes);
// First word of a nonce, so that a head's nonce never equals a leaf's.
enum class Domain : uint32_t { leaf = 1, head = 2 };

using Nonce = AesGcm::Nonce;

template <size_t N>
Mac derive(const Mac& from, std::string_view what, const std::array<uint8_t, N>& whose) noexcept {
  std::array<std::byte, 16 + N> info{};
  std::memcpy(info.data(), what.data(), what.size());
  std::memcpy(info.data() + what.size(), whose.data(), N);
  Mac out;
  (void)hkdf_expand(from, ConstBytes(info).first(what.size() + N), std::as_writable_bytes(std::span(out)));
  return out;
}

Nonce nonce_of(Domain domain, uint64_t index) noexcept {
  Nonce nonce;
  const auto word = static_cast<uint32_t>(domain);
  std::memcpy(nonce.data(), &word, sizeof word);
  std::memcpy(nonce.data() + sizeof word, &index, sizeof index);
  return nonce;
}

Status refused() { return {Code::internal, "libcrypto refuses to seal"}; }

}  // namespace

void Sealer::place(const SealedLeaf& leaf) noexcept {
  std::byte* const at = associated_.data() + kIdentityBytes;
  store_le(at, leaf.index);
  store_le(at + 4, leaf.raw_bytes);
  store_le(at + 8, leaf.raw_offset);
  store_le(at + 12, static_cast<uint16_t>(leaf.codec));
}

// Begins one message.
bool Sealer::begin(const Nonce& nonce, AesGcm::Use use, ConstBytes first, ConstBytes second) noexcept {
  return gcm_.begin(nonce, use) && gcm_.associate(first) && gcm_.associate(second);
}

bool Sealer::encipher(const Nonce& nonce, ConstBytes first, ConstBytes second, ConstBytes body, ConstBytes more,
                      std::byte* out) noexcept {
  return begin(nonce, AesGcm::Use::seal, first, second) && gcm_.pass(body, out) && gcm_.pass(more, out + body.size()) &&
         gcm_.finish(out + body.size() + more.size());
}

bool Sealer::decipher(const Nonce& nonce, ConstBytes first, ConstBytes second, ConstBytes sealed, MutableBytes body,
                      MutableBytes more) noexcept {
  const bool good = begin(nonce, AesGcm::Use::open, first, second) &&
                    gcm_.pass(sealed.first(body.size()), body.data()) &&
                    gcm_.pass(sealed.subspan(body.size(), more.size()), more.data()) &&
                    gcm_.verify(sealed.data() + body.size() + more.size());
  if (good) return true;
  std::fill(body.begin(), body.end(), std::byte{0});
  std::fill(more.begin(), more.end(), std::byte{0});
  return false;
}

Status unknown_key(uint32_t key_id) {
  return {Code::mismatch, "a record sealed with a key that the key file lacks", "key id " + std::to_string(key_id)};
}

Status Sealer::start(const KeyRing& ring, const Header& header) {
  if ((header.flags & kSealed) == 0) return {Code::invalid_argument, "a sealer for a record that is not sealed"};
  const Mac* const master = ring.key(header.key_id);
  if (master == nullptr) return unknown_key(header.key_id);
  if (Status opened = gcm_.open(); !opened.ok()) return opened;
  Mac of_namespace = derive(*master, "namespace", header.ns.bytes);
  Mac of_record = derive(of_namespace, "record", header.record_id);
  const bool set = gcm_.set_key(of_record.data());
  wipe(of_namespace.data(), of_namespace.size());
  wipe(of_record.data(), of_record.size());
  if (!set) return refused();
  // Zeroes the two fields that are not known before the last leaf is coded. The head's own tag covers both.
  Header known = header;
  known.stored_bytes = 0;
  known.flags = static_cast<uint16_t>(known.flags & ~kLossy);
  const auto fields = header_fields(known);
  std::copy_n(fields.begin(), kIdentityBytes, associated_.begin());
  return {};
}

Status Sealer::seal(const SealedLeaf& leaf, ConstBytes body, ConstBytes more, MutableBytes out) noexcept {
  if (!gcm_.is_open()) return {Code::wrong_state, "a sealer that was not started"};
  if (body.size() > kMaxLeafBytes || more.size() > kMaxLeafBytes ||
      out.size() != body.size() + more.size() + kSealTagBytes) {
    return {Code::invalid_argument, "a leaf to seal of the wrong length"};
  }
  place(leaf);
  if (!encipher(nonce_of(Domain::leaf, leaf.index), associated_, {}, body, more, out.data())) {
    return refused();
  }
  return {};
}

Status Sealer::open(const SealedLeaf& leaf, ConstBytes sealed, MutableBytes body, MutableBytes more) noexcept {
  if (!gcm_.is_open()) return {Code::wrong_state, "a sealer that was not started"};
  if (body.size() > kMaxLeafBytes || more.size() > kMaxLeafBytes ||
      sealed.size() != body.size() + more.size() + kSealTagBytes) {
    return {Code::damaged, "a sealed leaf of the wrong length"};
  }
  place(leaf);
  if (!decipher(nonce_of(Domain::leaf, leaf.index), associated_, {}, sealed, body, more)) {
    return {Code::damaged, "a sealed leaf that its tag does not fit"};
  }
  return {};
}

Status Sealer::seal_head(ConstBytes head, ConstBytes table, ConstBytes attributes, MutableBytes out) noexcept {
  if (!gcm_.is_open()) return {Code::wrong_state, "a sealer that was not started"};
  if (attributes.size() > kMaxAttributeBytes || out.size() != attributes.size() + kSealTagBytes) {
    return {Code::invalid_argument, "a head to seal: wrong length"};
  }
  if (!encipher(nonce_of(Domain::head, 0), head, table, attributes, {}, out.data())) return refused();
  return {};
}

Status Sealer::open_head(ConstBytes head, ConstBytes table, ConstBytes sealed, MutableBytes attributes) noexcept {
  if (!gcm_.is_open()) return {Code::wrong_state, "a sealer that was not started"};
  if (attributes.size() > kMaxAttributeBytes || sealed.size() != attributes.size() + kSealTagBytes) {
    return {Code::damaged, "a sealed head of the wrong length"};
  }
  if (!decipher(nonce_of(Domain::head, 0), head, table, sealed, attributes, {})) {
    return {Code::damaged, "a sealed head that its tag does not fit"};
  }
  return {};
}

}  // namespace kvbm::codec
