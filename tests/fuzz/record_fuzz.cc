#include "codec/record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvbm;
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  if (size >= codec::kHeaderBytes) (void)codec::peek_header(bytes.first(codec::kHeaderBytes)).ok();
  const auto view = codec::HeadView::parse(bytes);
  if (!view.ok()) return 0;
  // What parses is in order and inside its payload, and encodes to the same bytes.
  uint64_t end = 0;
  std::vector<codec::Leaf> leaves;
  for (uint32_t i = 0; i < view.value().header().leaf_count; ++i) {
    leaves.push_back(view.value().leaf(i));
    if (leaves.back().offset != end) __builtin_trap();
    end += leaves.back().stored_bytes;
  }
  if (end != view.value().header().stored_bytes) __builtin_trap();
  (void)codec::parse_attributes(view.value().attributes()).ok();
  return 0;
}
