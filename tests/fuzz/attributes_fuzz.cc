#include "codec/record/record.h"
#include "target.h"

namespace attributes_fuzz {

KVBM_FUZZ_TARGET(attributes) {
  using namespace kvbm;
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto attributes = codec::parse_attributes(bytes);
  if (!attributes.ok()) return 0;
  size_t total = 0;
  for (const codec::AttributeView& attribute : attributes.value()) {
    total += 4 + attribute.value.size();
    if (attribute.tag == codec::Attribute::position) (void)codec::parse_position(attribute.value);
  }
  if (total != size) __builtin_trap();
  return 0;
}

}  // namespace attributes_fuzz
