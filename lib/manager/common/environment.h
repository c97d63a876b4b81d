// Dependencies that a manager takes from outside: everything that a simulation must be able to own.
#pragma once

#include "base/clock.h"
#include "base/crypto/random.h"
#include "base/io/file.h"
#include "base/telemetry/log.h"
#include "base/thread/executor.h"

namespace kvbm::manager {

struct Environment {
  Executor* executor = nullptr;  // where operations, tiers and timers run
  FileSystem* files = nullptr;
  Random* random = nullptr;
  Log* log = nullptr;
  [[nodiscard]] const Clock& clock() const noexcept { return executor->clock(); }
};

}  // namespace kvbm::manager
