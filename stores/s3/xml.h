// What is needed of XML to read a store's answers: elements and their text, within bounds.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvbm_s3 {

// Tells of each element at its end, with the names of the elements around it and its own, as "Error/Code", and the text
// that stands directly in it, decoded. Attributes are passed over. False: not well-formed, or a document type, an
// unknown entity, more than 16 levels, or names of more than 64 bytes: none of which an answer of S3 has.
using OnElement = std::function<void(std::string_view path, std::string_view text)>;
bool read_xml(std::string_view xml, const OnElement& on_element);

// HTML is what proxies and captive portals answer.
bool looks_like_html(std::string_view body);

struct ErrorAnswer {
  std::string code;
  std::string message;
  std::string region;    // where the bucket is, if the server says so
  std::string endpoint;  // likewise
};
// Nothing where the body is no error of S3's.
std::optional<ErrorAnswer> parse_error(std::string_view body);

struct ListAnswer {
  std::vector<std::string> keys;
  bool truncated = false;
};
std::optional<ListAnswer> parse_list(std::string_view body);

// %XX decoded; nothing where a % is not followed by two hexadecimal digits. '+' is a blank.
std::optional<std::string> uri_decode(std::string_view text);

}  // namespace kvbm_s3
