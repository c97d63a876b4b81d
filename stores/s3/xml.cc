#include "xml.h"

#include <charconv>
#include <cstdint>
#include <cstring>

namespace kvbm_s3 {
namespace {

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxName = 64;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[more] | (code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
}

// Appends the character of an entity. `name` is the text between & and ;.
bool append_entity(std::string& out, std::string_view name) {
  static constexpr struct {
    std::string_view name;
    char c;
  } kNamed[] = {{"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
  for (const auto& known : kNamed) {
    if (known.name == name) {
      out += known.c;
      return true;
    }
  }
  if (name.size() < 2 || name[0] != '#') return false;
  const bool is_hex = name[1] == 'x' || name[1] == 'X';
  const char* begin = name.data() + (is_hex ? 2 : 1);
  const char* end = name.data() + name.size();
  uint32_t code = 0;
  const auto read = std::from_chars(begin, end, code, is_hex ? 16 : 10);
  if (read.ec != std::errc() || read.ptr != end || code == 0 || code > 0x10FFFF) return false;
  append_utf8(out, code);
  return true;
}

bool append_text(std::string& out, std::string_view raw) {
  for (size_t i = 0; i < raw.size();) {
    if (raw[i] != '&') {
      out += raw[i++];
      continue;
    }
    const size_t semicolon = raw.substr(i, 12).find(';');
    if (semicolon == std::string_view::npos || !append_entity(out, raw.substr(i + 1, semicolon - 1))) return false;
    i += semicolon + 1;
  }
  return true;
}

// Returns the end of a tag that begins at xml[at]: the place of its '>', past quoted attributes.
size_t end_of_tag(std::string_view xml, size_t at) {
  char quote = 0;
  for (; at < xml.size(); ++at) {
    if (quote != 0) {
      if (xml[at] == quote) quote = 0;
    } else if (xml[at] == '"' || xml[at] == '\'') {
      quote = xml[at];
    } else if (xml[at] == '>') {
      return at;
    }
  }
  return std::string_view::npos;
}

class Reader {
 public:
  Reader(std::string_view xml, const OnElement& on_element) : xml_(xml), on_element_(on_element) {}

  bool run() {
    while (at_ < xml_.size()) {
      const size_t tag = xml_.find('<', at_);
      if (tag == std::string_view::npos) return at_end();
      if (!take_text(xml_.substr(at_, tag - at_))) return false;
      at_ = tag;
      if (!take_markup()) return false;
    }
    return at_end();
  }

 private:
  struct Level {
    size_t path_bytes;  // length of the path before this element
    std::string text;
  };

  bool at_end() {
    if (!levels_.empty() || !seen_root_) return false;
    return take_text(xml_.substr(std::min(at_, xml_.size())));
  }

  bool take_text(std::string_view raw) {
    if (!levels_.empty()) return append_text(levels_.back().text, raw);
    for (const char c : raw) {
      if (!is_blank(c) && static_cast<unsigned char>(c) < 0x80) return false;  // a byte order mark is allowed
    }
    return true;
  }

  bool skip_past(std::string_view end, size_t from) {
    const size_t found = xml_.find(end, from);
    if (found == std::string_view::npos) return false;
    at_ = found + end.size();
    return true;
  }

  bool take_markup() {
    const std::string_view rest = xml_.substr(at_);
    if (rest.starts_with("<?")) return skip_past("?>", at_ + 2);
    if (rest.starts_with("<!--")) return skip_past("-->", at_ + 4);
    if (rest.starts_with("<![CDATA[")) {
      const size_t from = at_ + 9;
      if (levels_.empty() || !skip_past("]]>", from)) return false;
      levels_.back().text.append(xml_.substr(from, at_ - 3 - from));
      return true;
    }
    if (rest.starts_with("<!")) return false;
    const size_t end = end_of_tag(xml_, at_ + 1);
    if (end == std::string_view::npos) return false;
    std::string_view inside = xml_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (inside.starts_with("/")) {
      inside.remove_prefix(1);
      while (!inside.empty() && is_blank(inside.back())) inside.remove_suffix(1);
      return close(inside);
    }
    const bool is_empty = inside.ends_with("/");
    size_t length = 0;
    while (length < inside.size() && !is_blank(inside[length]) && inside[length] != '/') ++length;
    const std::string_view name = inside.substr(0, length);
    return open(name) && (!is_empty || close(name));
  }

  bool open(std::string_view name) {
    if (name.empty() || name.size() > kMaxName || levels_.size() == kMaxDepth || (levels_.empty() && seen_root_))
      return false;
    seen_root_ = true;
    levels_.push_back({path_.size(), {}});
    if (!path_.empty()) path_ += '/';
    path_ += name;
    return true;
  }

  bool close(std::string_view name) {
    if (levels_.empty()) return false;
    const size_t before = levels_.back().path_bytes;
    if (std::string_view(path_).substr(before + (before == 0 ? 0 : 1)) != name) return false;
    on_element_(path_, levels_.back().text);
    path_.resize(before);
    levels_.pop_back();
    return true;
  }

  std::string_view xml_;
  const OnElement& on_element_;
  size_t at_ = 0;
  bool seen_root_ = false;
  std::string path_;
  std::vector<Level> levels_;
};

}  // namespace

bool read_xml(std::string_view xml, const OnElement& on_element) { return Reader(xml, on_element).run(); }

bool looks_like_html(std::string_view body) {
  while (!body.empty() && (is_blank(body.front()) || static_cast<unsigned char>(body.front()) >= 0x80))
    body.remove_prefix(1);
  const auto begins = [&](std::string_view with) {
    return body.size() >= with.size() && ::strncasecmp(body.data(), with.data(), with.size()) == 0;
  };
  return begins("<!doctype html") || begins("<html") || begins("<head") || begins("<body");
}

std::optional<ErrorAnswer> parse_error(std::string_view body) {
  ErrorAnswer error;
  // STS wraps its error in an ErrorResponse.
  const bool is_read = read_xml(body, [&](std::string_view path, std::string_view text) {
    if (path.starts_with("ErrorResponse/")) path.remove_prefix(14);
    if (path == "Error/Code") error.code = text;
    if (path == "Error/Message") error.message = text;
    if (path == "Error/Region") error.region = text;
    if (path == "Error/Endpoint") error.endpoint = text;
  });
  if (!is_read || error.code.empty()) return std::nullopt;
  return error;
}

bool is_completed(std::string_view body) {
  bool is_result = false;
  const bool is_read = read_xml(body, [&](std::string_view path, std::string_view) {
    if (path == "CompleteMultipartUploadResult") is_result = true;
  });
  return is_read && is_result;
}

std::optional<std::string> uri_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      unsigned int byte = 0;
      if (i + 2 >= text.size()) return std::nullopt;
      const char* end = text.data() + i + 3;
      if (std::from_chars(text.data() + i + 1, end, byte, 16).ptr != end) return std::nullopt;
      out += static_cast<char>(byte);
      i += 2;
    }
  }
  return out;
}

std::optional<ListAnswer> parse_list(std::string_view body) {
  ListAnswer list;
  bool is_list = false;
  bool is_encoded = false;
  const bool is_read = read_xml(body, [&](std::string_view path, std::string_view text) {
    if (path == "ListBucketResult") is_list = true;
    if (path == "ListBucketResult/IsTruncated") list.truncated = text == "true";
    if (path == "ListBucketResult/EncodingType") is_encoded = text == "url";
    if (path == "ListBucketResult/Contents/Key") list.keys.emplace_back(text);
  });
  if (!is_read || !is_list) return std::nullopt;
  if (is_encoded) {
    for (std::string& key : list.keys) {
      auto decoded = uri_decode(key);
      if (!decoded) return std::nullopt;
      key = std::move(*decoded);
    }
  }
  return list;
}

}  // namespace kvbm_s3
