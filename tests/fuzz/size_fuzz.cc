#include "size/model.h"
#include "target.h"

namespace size_fuzz {

KVBM_FUZZ_TARGET(size) {
  using namespace kvbm;
  const auto model = kvbm::size::parse_model(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!model.ok()) return 0;
  const auto one = kvbm::size::usage_of(model.value(), 1000, 1, 16);
  const auto more = kvbm::size::usage_of(model.value(), 1001, 1, 16);
  // A longer sequence is never smaller.
  if (one.ok() && more.ok() && more.value().total_bytes < one.value().total_bytes) __builtin_trap();
  return 0;
}

}  // namespace size_fuzz
