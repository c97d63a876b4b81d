// Facts that a model's `model_type` implies: how its layers differ if no field says it, values of fields that a
// config leaves out, and types with a cache that is not counted here. The facts come from the types' own definitions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvbm::size {

struct TypeFacts {
  std::string_view name;
  // Used if no field lists the layers that attend to all tokens. One in so many does, the last of each such run. The
  // others slide (`linear` false) or are recurrent. 0: all layers are alike, or a field must say it.
  uint64_t full_every = 0;
  uint64_t window = 0;  // 0 here and below: the config has it, or it follows from other fields
  uint64_t heads = 0;
  uint64_t kv_heads = 0;
  uint64_t head_dim = 0;
  bool linear = false;
};

// Returns null for an unknown type.
const TypeFacts* find_type(std::string_view name);
// Returns whether the type is one of an object around a text model. Such an object has an image or sound part, and no
// cache of its own.
bool is_wrapper_type(std::string_view name);
// Returns why no size is given for this type; empty if one is.
std::string refusal_of_type(std::string_view name);

}  // namespace kvbm::size
