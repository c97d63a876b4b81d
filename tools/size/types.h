// What a model's `model_type` says that its fields need not: how its layers differ where no field says it, what stands
// for a field that a config leaves out, and which types keep something that is not counted here. Facts of the types'
// own definitions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvbm::size {

struct TypeFacts {
  std::string_view name;
  // Where no field says which layers attend to all: one in so many does, the last of each such run, and the others
  // slide
  // (`linear` false) or are recurrent. 0: all layers are alike, or a field has to say it.
  uint64_t full_every = 0;
  uint64_t window = 0;  // 0 here and below: the config has to say it, or it follows from other fields
  uint64_t heads = 0;
  uint64_t kv_heads = 0;
  uint64_t head_dim = 0;
  bool linear = false;
};

// Null for a type that is not known.
const TypeFacts* find_type(std::string_view name);
// Whether the type is one of an object around a text model: it holds its images' or sounds' part, and no cache of its
// own.
bool is_wrapper_type(std::string_view name);
// Why no size is given for this type; empty where one is.
std::string refusal_of_type(std::string_view name);

}  // namespace kvbm::size
