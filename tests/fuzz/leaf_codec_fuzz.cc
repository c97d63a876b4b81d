// The first byte chooses, the next four give the raw size; the rest is a leaf to decode, or bytes to code. A leaf to
// decode is also tried with the fields set that would else be refused at once.
#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/coded/leaf_codec.h"
#include "codec/leaf/frame.h"
#include "target.h"

namespace leaf_codec_fuzz {

namespace {

using namespace kvbm;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

codec::Workspace& workspace() {
  static codec::Workspace memory;
  return memory;
}

constexpr const char* kKernels[] = {"portable", "bmi2", "avx512"};

// Decodes with every kernel; all must give the same result.
void decode(codec::LeafCodec codec, ConstBytes stored, size_t raw_bytes) {
  std::vector<std::byte> first;
  Code said = Code::ok;
  bool any = false;
  for (const char* kernel : kKernels) {
    if (!codec::force_codec_kernel(kernel)) continue;
    std::vector<std::byte> raw(raw_bytes);
    const Code code = codec::decode_leaf(codec, stored, raw, workspace()).code();
    if (any) check(code == said && (code != Code::ok || raw == first));
    any = true;
    said = code;
    first = std::move(raw);
  }
}

void code(codec::Element element, codec::Mode mode, uint32_t row, ConstBytes raw) {
  std::vector<std::byte> out(codec::encode_room(raw.size()));
  const auto coded = codec::encode_leaf({element, row, 16}, mode, raw, 7, out, workspace());
  check(coded.ok());
  if (coded.value().codec == codec::LeafCodec::raw) return;
  check(coded.value().bytes < raw.size());
  std::vector<std::byte> back(raw.size());
  check(codec::decode_leaf(coded.value().codec, ConstBytes(out).first(coded.value().bytes), back, workspace()).ok());
  check(std::equal(raw.begin(), raw.end(), back.begin()));
}

}  // namespace

KVBM_FUZZ_TARGET(leaf_codec) {
  if (size < 6) return 0;
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const uint32_t choice = data[0];
  const size_t raw_bytes = load_le<uint32_t>(bytes.data() + 1) % (codec::kMaxLeafBytes + 2);
  const ConstBytes rest = bytes.subspan(5);
  if (choice % 4 == 3) {
    constexpr codec::Mode kModes[] = {codec::Mode::fast, codec::Mode::standard, codec::Mode::max, codec::Mode::zstd};
    code(static_cast<codec::Element>(choice / 4 % 7), kModes[choice / 32 % 4], load_le<uint8_t>(bytes.data() + 1),
         rest.first(std::min<size_t>(rest.size(), codec::kMaxLeafBytes)));
    return 0;
  }
  const auto codec = static_cast<codec::LeafCodec>(choice % 4 == 0 ? 1 : choice % 6);
  decode(codec, rest, raw_bytes);
  if (rest.size() < codec::kFrameBytes) return 0;
  std::vector<std::byte> whole(rest.begin(), rest.end() - static_cast<ptrdiff_t>(rest.size() % codec::kCodedLeafUnit));
  store_le(whole.data(), codec::kFrameVersion);
  store_le(whole.data() + 1, static_cast<uint8_t>(codec));
  store_le(whole.data() + 4, static_cast<uint32_t>(raw_bytes));
  store_le(whole.data() + 8, static_cast<uint32_t>(whole.size()));
  decode(codec, whole, raw_bytes);
  return 0;
}

}  // namespace leaf_codec_fuzz
