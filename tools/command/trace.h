// `kvbm trace generate` and `kvbm trace stat`.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_trace(Registry& registry);

}  // namespace kvbm::command
