// Files that are compressed, by their first bytes: gzip and zstd are unpacked, others are named.
#pragma once

#include <string>

#include "base/status.h"

namespace kvbm::trace {

// `text` as it is, or unpacked. io_error, with `name` in it, where it is damaged, ends early, is longer than `most`
// bytes or this build cannot read it.
[[nodiscard]] Result<std::string> unpacked(std::string text, size_t most, const std::string& name);

}  // namespace kvbm::trace
