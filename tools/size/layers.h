// Determines the kind of each of a model's layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "size/reader.h"
#include "size/types.h"

namespace kvbm::size {

enum class Kind { full, sliding, chunked, mamba, linear, short_conv, none };

struct Layer {
  Kind kind = Kind::full;
  uint64_t kv_heads = 0;  // 0: as the other fields say
  bool mamba_beside = false;
};

// Returns the layers, or an empty list with a failure in `in` if the fields do not define them. `layers`: from
// layer_count().
std::vector<Layer> layers_of(Reader& in, const TypeFacts& type, const std::string& type_name, uint64_t layers);
uint64_t layer_count(Reader& in, const std::string& type_name);

}  // namespace kvbm::size
