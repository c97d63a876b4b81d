// The known fields of a model's configuration: fields that decide the cache's size and are read, fields of a cache
// which is not counted here, and fields that have no part in it. A field in none of these lists is named, because an
// unknown design must not be counted as plain attention.
#pragma once

#include <string>

#include "size/reader.h"

namespace kvbm::size {

// Refuses by name fields that are known not to be counted, and unknown ones that may change the size of the cache.
// Notes the other unknown fields. `type_known`: the model's type is known too, and a field beside those of its type
// is more likely to be harmless.
void check_fields(Reader& in, bool type_known, uint64_t layers);

}  // namespace kvbm::size
