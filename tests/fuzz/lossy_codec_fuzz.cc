// Every input is decoded as a coded leaf, by every kernel, which must agree; and coded as a leaf of values, which must
// come back as the coder said.
#include <algorithm>
#include <vector>

#include "codec/hash/leaf_hash.h"
#include "codec/leaf/frame.h"
#include "codec/lossy/delta.h"
#include "codec/lossy/quantize.h"
#include "target.h"

namespace lossy_codec_fuzz {

namespace {

using namespace kvbm;
using codec::LeafCodec;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

codec::Workspace workspace;

Code decode(LeafCodec codec, ConstBytes stored, MutableBytes raw) {
  const auto frame = codec::read_frame(codec, stored, raw.size());
  if (!frame.ok()) return frame.status().code();
  return (codec == LeafCodec::delta ? codec::delta_decode(frame.value(), stored, raw, workspace)
                                    : codec::quantize_decode(frame.value(), stored, raw, workspace))
      .code();
}

void decode_stored(ConstBytes bytes) {
  // Sets right lengths, because hardly any mutation would pass their check.
  std::vector<std::byte> stored(bytes.begin(), bytes.end());
  stored.resize(stored.size() / codec::kCodedLeafUnit * codec::kCodedLeafUnit);
  if (stored.size() < codec::kFrameBytes) return;
  store_le(stored.data(), codec::kFrameVersion);
  store_le(stored.data() + 8, static_cast<uint32_t>(stored.size()));
  const auto raw_bytes = std::min<size_t>(load_le<uint32_t>(stored.data() + 4), codec::kMaxLeafBytes);
  for (const LeafCodec codec : {LeafCodec::quantized, LeafCodec::delta}) {
    store_le(stored.data() + 1, static_cast<uint8_t>(codec));
    std::vector<std::byte> first(raw_bytes);
    std::vector<std::byte> second(raw_bytes);
    check(codec::force_quantize_kernel("portable"));
    const Code code = decode(codec, stored, first);
    check(codec::force_quantize_kernel(nullptr));
    check(decode(codec, stored, second) == code);
    if (code == Code::ok) check(first == second);
  }
}

void code_values(ConstBytes bytes) {
  if (bytes.size() < 4) return;
  const auto pick = [&](size_t i) { return static_cast<uint32_t>(bytes[i]); };
  constexpr codec::Element kElements[] = {codec::Element::bf16, codec::Element::fp16, codec::Element::fp32};
  const codec::LeafForm form{kElements[pick(0) % 3], pick(1), pick(2), static_cast<uint8_t>(pick(0) >> 4)};
  const auto mode = static_cast<codec::Mode>(16 + pick(3) % 9);
  ConstBytes raw = bytes.subspan(4, std::min<size_t>(bytes.size() - 4, codec::kMaxLeafBytes));
  if (raw.empty()) return;
  std::vector<std::byte> out(codec::encode_room(raw.size()));
  const auto coded = mode == codec::Mode::delta ? codec::delta_encode(form, raw, out, workspace)
                                                : codec::quantize_encode(form, mode, raw, out, workspace);
  check(coded.ok());
  if (coded.value().codec == LeafCodec::raw) return;
  check(coded.value().bytes < raw.size() && coded.value().bytes % codec::kCodedLeafUnit == 0);
  std::vector<std::byte> back(raw.size());
  check(decode(coded.value().codec, {out.data(), coded.value().bytes}, back) == Code::ok);
  check(codec::leaf_hash(back) == load_le<uint64_t>(out.data() + codec::kFrameRawHashAt));
}

}  // namespace

KVBM_FUZZ_TARGET(lossy_codec) {
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  decode_stored(bytes);
  code_values(bytes);
  return 0;
}

}  // namespace lossy_codec_fuzz
