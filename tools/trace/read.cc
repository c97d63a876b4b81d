#include "trace/read.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "trace/csv.h"
#include "trace/mooncake.h"
#include "trace/unpack.h"

namespace kvbm::trace {

namespace {

constexpr std::string_view kNames[] = {"auto", "mooncake", "bailian", "azure", "burstgpt"};

Result<std::string> text_of(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return Status(Code::io_error, "cannot open the trace", path + ": " + std::strerror(errno));
  std::string text;
  std::string chunk(size_t{1} << 16, '\0');
  size_t n = 0;
  while ((n = std::fread(chunk.data(), 1, chunk.size(), file)) > 0) text.append(chunk.data(), n);
  const bool failed = std::ferror(file) != 0;
  const int error = errno;
  std::fclose(file);
  if (failed) return Status(Code::io_error, "cannot read the trace", path + ": " + std::strerror(error));
  return text;
}

}  // namespace

bool form_named(std::string_view name, Form* form) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] != name) continue;
    *form = static_cast<Form>(i);
    return true;
  }
  return false;
}

std::string_view name_of(Form form) { return kNames[static_cast<size_t>(form)]; }

Result<Parsed> parse(std::string_view text, const ParseOptions& options) {
  if (text.rfind("\xef\xbb\xbf", 0) == 0) text.remove_prefix(3);
  Form form = options.form;
  if (form == Form::automatic) form = form_of_header(text.substr(0, text.find('\n')));
  return form == Form::azure || form == Form::burstgpt ? parse_csv(text, form, options)
                                                       : parse_json_lines(text, options);
}

Result<Parsed> read(const std::string& path, const ParseOptions& options) {
  Result<std::string> text = text_of(path);
  if (!text.ok()) return text.status();
  const Result<std::string> plain = unpacked(std::move(text).value(), options.limits.unpacked_bytes, path);
  if (!plain.ok()) return plain.status();
  return parse(plain.value(), options);
}

}  // namespace kvbm::trace
