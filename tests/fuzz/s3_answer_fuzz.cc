// Answers of an S3 server: errors and listings. The text read never exceeds the body.
#include "s3/xml.h"
#include "target.h"

namespace s3_answer_fuzz {

KVBM_FUZZ_TARGET(s3_answer) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  size_t told = 0;
  kvbm_s3::read_xml(body, [&](std::string_view path, std::string_view text) {
    if (path.empty() || path.size() > 16 * 65) __builtin_trap();
    told += text.size();
  });
  if (told > size) __builtin_trap();
  if (const auto list = kvbm_s3::parse_list(body)) {
    size_t bytes = 0;
    for (const auto& key : list->keys) bytes += key.size();
    if (bytes > size) __builtin_trap();
  }
  if (const auto error = kvbm_s3::parse_error(body)) {
    if (error->code.empty() || error->code.size() + error->message.size() > size) __builtin_trap();
  }
  kvbm_s3::looks_like_html(body);
  return 0;
}

}  // namespace s3_answer_fuzz
