// The part of XML that a store's answers need: elements and their text, within bounds.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvbm_s3 {

// Calls back for each element at its end. The path names the elements around it and itself, as "Error/Code". The text
// is what stands directly in it, decoded. Attributes are skipped. Returns false if the text is not well-formed, or
// has a document type, an unknown entity, more than 16 levels, or names of more than 64 bytes. No answer of S3 has
// any of these.
using OnElement = std::function<void(std::string_view path, std::string_view text)>;
bool read_xml(std::string_view xml, const OnElement& on_element);

// Returns whether the body is HTML, which proxies and captive portals answer.
bool looks_like_html(std::string_view body);

struct ErrorAnswer {
  std::string code;
  std::string message;
  std::string region;    // region of the bucket, if the server reports it
  std::string endpoint;  // endpoint of the bucket, if the server reports it
};
// Returns nothing if the body is no error of S3.
std::optional<ErrorAnswer> parse_error(std::string_view body);

struct ListAnswer {
  std::vector<std::string> keys;
  bool truncated = false;
};
std::optional<ListAnswer> parse_list(std::string_view body);

// Returns whether the body says that an upload in parts was completed.
bool is_completed(std::string_view body);

// Decodes %XX. Returns nothing if a % is not followed by two hexadecimal digits. '+' is a blank.
std::optional<std::string> uri_decode(std::string_view text);

}  // namespace kvbm_s3
