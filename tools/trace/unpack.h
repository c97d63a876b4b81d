// Detects compressed files by their first bytes: gzip and zstd are unpacked, others are refused by name.
#pragma once

#include <string>

#include "base/status.h"

namespace kvbm::trace {

// Returns `text` unchanged, or unpacked. Fails with io_error, with `name` in it, if the text is damaged, ends early,
// is longer than `most` bytes or this build cannot read it.
[[nodiscard]] Result<std::string> unpacked(std::string text, size_t most, const std::string& name);

}  // namespace kvbm::trace
