// `kvbm inspect DIR` and `kvbm stats DIR`: what a tier directory holds, read without touching it.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_inspect(Registry& registry);
void add_stats(Registry& registry);

}  // namespace kvbm::command
