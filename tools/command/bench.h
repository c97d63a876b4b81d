// `kvbm bench codec|copy|cost|disk|index|keys|node|session|transport`: measured rows, each beside its limit.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_bench(Registry& registry);

}  // namespace kvbm::command
