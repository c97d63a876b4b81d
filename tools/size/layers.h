// Which of a model's layers keep what.
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
  uint64_t kv_heads = 0;  // 0: as many as the other fields say
  bool mamba_beside = false;
};

// Empty, with a failure in `in`, where the fields do not say it. `layers`: from layer_count().
std::vector<Layer> layers_of(Reader& in, const TypeFacts& type, const std::string& type_name, uint64_t layers);
uint64_t layer_count(Reader& in, const std::string& type_name);

}  // namespace kvbm::size
