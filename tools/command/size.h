// `kvbm size`: computes how many bytes of KV a model needs.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_size(Registry& registry);

}  // namespace kvbm::command
