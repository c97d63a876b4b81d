// Dependencies that a manager takes from outside: everything that a simulation must be able to own.
#pragma once

#include "base/clock.h"
#include "base/executor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"

namespace kvbm::manager {

struct Environment {
  Executor* executor = nullptr;  // where operations, tiers and timers run
  FileSystem* files = nullptr;
  Random* random = nullptr;
  Log* log = nullptr;
  [[nodiscard]] const Clock& clock() const noexcept { return executor->clock(); }
};

}  // namespace kvbm::manager
