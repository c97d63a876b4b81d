// `kvbm bench index|copy|disk|keys|transport`: measured rows, each beside its limit.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_bench(Registry& registry);

}  // namespace kvbm::command
