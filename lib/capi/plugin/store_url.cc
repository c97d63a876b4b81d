#include "capi/plugin/store_url.h"

#include <algorithm>
#include <utility>

namespace kvbm::capi {

namespace {

constexpr char kWrongUrl[] = "a store's URL is not valid";
constexpr std::string_view kHidden = "***";

Status wrong_url(std::string detail) { return {Code::bad_config, kWrongUrl, std::move(detail)}; }

bool is_control(char c) noexcept { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

bool is_lower_or_digit(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Decodes %41 sequences. `part`: name of the URL's part, for the message.
Status decode(std::string_view text, const std::string& part, std::string& out) {
  out.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0)
        return wrong_url(part + " has a % without two hexadecimal digits; write a percent sign as %25");
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (is_control(c)) return wrong_url(part + " has a control character");
    out += c;
  }
  return {};
}

// Takes the scheme and its colon off `rest`.
Status take_scheme(std::string_view& rest, std::string& out) {
  const size_t colon = rest.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon > rest.find_first_of("/?@")) {
    return wrong_url(
        "it has no scheme; write it as scheme://place, for instance s3://bucket/prefix or file:///mnt/shared/kv");
  }
  const std::string_view scheme = rest.substr(0, colon);
  const bool good =
      scheme.size() <= kMostSchemeBytes && scheme[0] >= 'a' && scheme[0] <= 'z' &&
      std::all_of(scheme.begin(), scheme.end(), [](char c) { return is_lower_or_digit(c) || c == '+' || c == '-'; });
  if (!good) {
    return wrong_url("its scheme has to consist of a to z, 0 to 9, + and -, to begin with a letter, and to have " +
                     std::to_string(kMostSchemeBytes) + " characters at most");
  }
  out = scheme;
  rest.remove_prefix(colon + 1);
  if (out == kPluginScheme) return {};
  if (!rest.starts_with("//")) return wrong_url("// has to follow " + out + ":");
  rest.remove_prefix(2);
  return {};
}

Status take_authority(std::string_view& rest, StoreUrl& out) {
  const std::string_view text = rest.substr(0, rest.find_first_of("/?"));
  rest.remove_prefix(text.size());
  const size_t at = text.rfind('@');
  if (at == std::string_view::npos) return decode(text, "its authority", out.authority);
  const std::string_view who = text.substr(0, at);
  const size_t colon = who.find(':');
  if (Status s = decode(who.substr(0, colon), "its user", out.user); !s.ok()) return s;
  if (colon != std::string_view::npos) {
    if (Status s = decode(who.substr(colon + 1), "its password", out.password); !s.ok()) return s;
  }
  return decode(text.substr(at + 1), "its authority", out.authority);
}

Status take_option(std::string_view text, std::vector<NamedText>& out) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const bool good = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return is_lower_or_digit(c) || c == '_' || c == '-';
  });
  if (!good) {
    return wrong_url(
        "behind ? stand name=value, joined by &, and the names have a to z, 0 to 9, _ and - alone; write & in "
        "a value as %26");
  }
  const std::string option = "option " + std::string(name);
  if (equals == std::string_view::npos)
    return wrong_url(option + " has no value; write " + std::string(name) + "=value");
  if (std::any_of(out.begin(), out.end(), [&](const NamedText& other) { return other.name == name; })) {
    return wrong_url(option + " is given twice");
  }
  if (out.size() == kMostUrlOptions)
    return wrong_url("it has more than " + std::to_string(kMostUrlOptions) + " options");
  NamedText made{std::string(name), {}};
  if (Status s = decode(text.substr(equals + 1), option, made.text); !s.ok()) return s;
  out.push_back(std::move(made));
  return {};
}

bool is_secret(std::string_view name) {
  return name.find("password") != std::string_view::npos || name.find("secret") != std::string_view::npos ||
         name.find("token") != std::string_view::npos || name.ends_with("key");
}

// Encodes a text. `kept` are characters that need no encoding, besides letters and digits.
std::string encode(std::string_view text, std::string_view kept) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (is_lower_or_digit(c) || (c >= 'A' && c <= 'Z') || kept.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out.append({'%', kHex[u >> 4], kHex[u & 15]});
    }
  }
  return out;
}

}  // namespace

Result<StoreUrl> parse_store_url(std::string_view text) {
  if (text.empty()) return wrong_url("it is empty");
  if (text.size() > kMostUrlBytes) {
    return wrong_url("it has " + std::to_string(text.size()) + " bytes and may have " + std::to_string(kMostUrlBytes));
  }
  if (std::any_of(text.begin(), text.end(), is_control)) return wrong_url("it has a control character");
  if (text.find(' ') != std::string_view::npos) return wrong_url("it has a space; write one as %20");
  if (text.find('#') != std::string_view::npos) return wrong_url("it has a #; write one as %23");
  StoreUrl url;
  std::string_view rest = text;
  if (Status s = take_scheme(rest, url.scheme); !s.ok()) return s;
  if (url.scheme != kPluginScheme) {
    if (Status s = take_authority(rest, url); !s.ok()) return s;
  }
  if (rest.find('@') != std::string_view::npos) {
    return wrong_url("an @ stands behind the authority; write it as %40, and / and ? in a password as %2F and %3F");
  }
  const size_t question = rest.find('?');
  if (Status s = decode(rest.substr(0, question), "its path", url.path); !s.ok()) return s;
  if (url.scheme == kPluginScheme && (url.path.size() < 2 || url.path[0] != '/' || url.path[1] == '/')) {
    return wrong_url("plugin: takes the whole path of a library; write it as plugin:/path/of.so");
  }
  rest.remove_prefix(question == std::string_view::npos ? rest.size() : question + 1);
  while (!rest.empty()) {
    const size_t end = rest.find('&');
    if (Status s = take_option(rest.substr(0, end), url.options); !s.ok()) return s;
    if (end != std::string_view::npos && end + 1 == rest.size()) return wrong_url("an & ends it; take it away");
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return url;
}

std::string print_store_url(const StoreUrl& url) {
  std::string out = url.scheme + ":";
  if (url.scheme != kPluginScheme) {
    out += "//";
    if (!url.user.empty() || !url.password.empty()) {
      out += encode(url.user, "-._~");
      if (!url.password.empty()) out.append(":").append(kHidden);
      out += '@';
    }
    out += encode(url.authority, "-._~:[],");
  }
  out += encode(url.path, "-._~/:+,=");
  char before = '?';
  for (const NamedText& option : url.options) {
    out.append(1, std::exchange(before, '&')).append(option.name).append("=");
    out += is_secret(option.name) ? std::string(kHidden) : encode(option.text, "-._~/:+,*");
  }
  return out;
}

}  // namespace kvbm::capi
