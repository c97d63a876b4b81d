// Reads any known trace, from memory or from a file, which may be compressed.
#pragma once

#include <string>
#include <string_view>

#include "trace/trace.h"

namespace kvbm::trace {

// Parses the names of forms: auto, mooncake, bailian, azure, burstgpt. Returns false for any other.
bool form_named(std::string_view name, Form* form);
std::string_view name_of(Form form);
inline constexpr std::string_view kFormNames = "auto, mooncake, bailian, azure, burstgpt";

[[nodiscard]] Result<Parsed> parse(std::string_view text, const ParseOptions& options);
// Fails with io_error when the file cannot be read or unpacked.
[[nodiscard]] Result<Parsed> read(const std::string& path, const ParseOptions& options);

}  // namespace kvbm::trace
