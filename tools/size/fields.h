// The fields of a model's configuration that are known: those that decide what is cached and are read, those that mean
// a cache which is not counted here, and those that have no part in it. What is in none of these lists is named: a
// design that nothing here has heard of must not be counted as plain attention.
#pragma once

#include <string>

#include "size/reader.h"

namespace kvbm::size {

// Refuses by name what is known not to be counted, and what is not known and may change what is cached; notes the rest
// of what is not known. `type_known`: so is the model's type, and a field beside those of its type is more likely to be
// harmless.
void check_fields(Reader& in, bool type_known, uint64_t layers);

}  // namespace kvbm::size
