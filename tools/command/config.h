// `kvbm config`: the effective configuration, each value with its origin.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_config(Registry& registry);

}  // namespace kvbm::command
