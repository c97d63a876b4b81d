// Input: the URL of a store.
#include "capi/plugin/store_url.h"
#include "target.h"

namespace store_url_fuzz {

namespace {

using namespace kvbm;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

bool is_clean(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  }
  return true;
}

}  // namespace

KVBM_FUZZ_TARGET(store_url) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto url = capi::parse_store_url(text);
  if (!url.ok()) {
    check(url.status().code() == Code::bad_config && is_clean(url.status().message()));
    return 0;
  }
  const capi::StoreUrl& was = url.value();
  check(size <= capi::kMostUrlBytes && was.options.size() <= capi::kMostUrlOptions);
  check(is_clean(was.authority) && is_clean(was.user) && is_clean(was.password) && is_clean(was.path));
  check(was.path.empty() || was.path[0] == '/');
  // A printed URL can be parsed again, and only its secrets differ.
  const std::string printed = capi::print_store_url(was);
  if (printed.size() > capi::kMostUrlBytes) return 0;  // more had to be escaped than was
  const auto again = capi::parse_store_url(printed);
  check(again.ok());
  const capi::StoreUrl& is = again.value();
  check(is.scheme == was.scheme && is.authority == was.authority && is.user == was.user && is.path == was.path);
  check(is.password == (was.password.empty() ? "" : "***") && is.options.size() == was.options.size());
  for (size_t i = 0; i < is.options.size(); ++i) {
    check(is.options[i].name == was.options[i].name);
    check(is.options[i].text == was.options[i].text || is.options[i].text == "***");
  }
  check(capi::print_store_url(is) == printed);
  return 0;
}

}  // namespace store_url_fuzz
