// Files that are compressed, by their first bytes: gzip and zstd are unpacked, others are named.
#pragma once

#include <string>

#include "base/status.h"

namespace kvbm::trace {

// `text` as it is, or unpacked. io_error where it is damaged, ends early, is longer than `most` or this build cannot read it.
[[nodiscard]] Result<std::string> unpacked(std::string text, size_t most);

}  // namespace kvbm::trace
