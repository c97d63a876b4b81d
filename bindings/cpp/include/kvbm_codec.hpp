// kvbm_codec.hpp - encodes and decodes KV in the caller's own buffers; a part of kvbm.hpp.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef KVBM_CODEC_HPP
#define KVBM_CODEC_HPP

#include <kvbm.hpp>

namespace kvbm {

// Coding in the caller's own buffers, without a context or manager. A changed buffer is KVBM_ERR_DAMAGED, never wrong
// bytes. A lossy buffer is KVBM_ERR_PERMISSION without KVBM_CODEC_ALLOW_LOSSY.
namespace codec {

// All zero: opaque bytes.
inline auto options() { return detail::options(kvbm_codec_options_init); }

// KVBM_CODEC_* of a name, as "default".
inline uint32_t mode(const std::string& name) {
  kvbm_error_t err{};
  uint32_t out = 0;
  check(kvbm_codec_mode_by_name(name.c_str(), &out, &err), err);
  return out;
}
inline std::size_t room(uint64_t raw_bytes, const kvbm_codec_options_t& form = options()) {
  kvbm_error_t err{};
  uint64_t out = 0;
  check(kvbm_codec_room(raw_bytes, &form, &out, &err), err);
  return static_cast<std::size_t>(out);
}
// Into the caller's memory, which has room(); how much of it is used. The buffers must not overlap.
inline std::size_t encode(Span<const uint8_t> raw, Span<uint8_t> into, uint32_t mode = KVBM_CODEC_DEFAULT,
                          const kvbm_codec_options_t& form = options()) {
  kvbm_error_t err{};
  std::size_t n = 0;
  check(kvbm_codec_encode(raw.data(), raw.size(), mode, &form, into.data(), into.size(), &n, &err), err);
  return n;
}
inline std::vector<uint8_t> encode(Span<const uint8_t> raw, uint32_t mode = KVBM_CODEC_DEFAULT,
                                   const kvbm_codec_options_t& form = options()) {
  std::vector<uint8_t> out(room(raw.size(), form));
  out.resize(encode(raw, out, mode, form));
  return out;
}
// Look before room is taken for what comes from elsewhere.
inline kvbm_codec_info_t inspect(Span<const uint8_t> coded) {
  kvbm_error_t err{};
  kvbm_codec_info_t out{};
  out.struct_size = sizeof out;
  check(kvbm_codec_inspect(coded.data(), coded.size(), &out, &err), err);
  return out;
}
// Into the caller's memory; how many bytes were written.
inline std::size_t decode(Span<const uint8_t> coded, Span<uint8_t> into, uint32_t flags = 0) {
  kvbm_error_t err{};
  std::size_t n = 0;
  check(kvbm_codec_decode(coded.data(), coded.size(), flags, into.data(), into.size(), &n, &err), err);
  return n;
}
inline std::vector<uint8_t> decode(Span<const uint8_t> coded, uint32_t flags = 0) {
  std::vector<uint8_t> out(static_cast<std::size_t>(inspect(coded).raw_bytes));
  out.resize(decode(coded, out, flags));
  return out;
}

}  // namespace codec

}  // namespace kvbm

#endif  // KVBM_CODEC_HPP
