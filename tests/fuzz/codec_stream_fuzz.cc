// Coded streams. Their checksums keep a fuzzer out, so it also gets in behind them: the bytes of a head are taken as
// they are and the checksum is put right.
#include <vector>

#include "codec/coded/coded_stream.h"
#include "codec/hash/leaf_hash.h"
#include "target.h"

namespace codec_stream_fuzz {

namespace {

using namespace kvbm;

void decode(ConstBytes bytes) {
  const auto view = codec::StreamView::parse(bytes);
  if (!view.ok()) return;
  const codec::StreamInfo& info = view.value().info();
  // A leaf is at least a byte and at most 64 KiB, and each takes 24 bytes of the table.
  if (info.raw_bytes > bytes.size() * (uint64_t{codec::kMaxLeafBytes} / codec::kStreamLeafBytes)) __builtin_trap();
  constexpr std::byte kGuard{0xA5};
  std::vector<std::byte> out(info.raw_bytes + 64, kGuard);
  codec::Workspace workspace;
  (void)view.value().decode(true, MutableBytes(out).first(info.raw_bytes), workspace);
  for (size_t i = info.raw_bytes; i < out.size(); ++i) {
    if (out[i] != kGuard) __builtin_trap();
  }
  if (info.lossy &&
      view.value().decode(false, MutableBytes(out).first(info.raw_bytes), workspace).code() != Code::not_permitted) {
    __builtin_trap();
  }
}

}  // namespace

KVBM_FUZZ_TARGET(codec_stream) {
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  decode(bytes);
  if (size < codec::kStreamHeaderBytes + 8) return 0;
  std::vector<std::byte> mended(bytes.begin(), bytes.end());
  const uint64_t leaves = load_le<uint32_t>(mended.data() + 24);
  const uint64_t at = codec::kStreamHeaderBytes + leaves * codec::kStreamLeafBytes;
  if (at + 8 > size) return 0;
  store_le<uint32_t>(mended.data(), codec::kStreamMagic);
  store_le(mended.data() + 4, codec::kStreamVersion);
  store_le<uint64_t>(mended.data() + 16, size);
  store_le(mended.data() + at, codec::leaf_hash(ConstBytes(mended).first(at)));
  decode(mended);
  return 0;
}

}  // namespace codec_stream_fuzz
