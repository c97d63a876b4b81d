// `kvbm inspect DIR` and `kvbm stats DIR`: show the content of a tier directory, without changing it.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_inspect(Registry& registry);
void add_stats(Registry& registry);

}  // namespace kvbm::command
