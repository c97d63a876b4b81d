// `kvbm doctor`: shows what this machine offers.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_doctor(Registry& registry);

}  // namespace kvbm::command
