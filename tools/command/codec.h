// `kvbm codec compress|decompress|bench FILE`: codes and decodes tensor files, and compares the modes on them.
#pragma once

#include "command/registry.h"

namespace kvbm::command {

void add_codec(Registry& registry);

}  // namespace kvbm::command
