#include "http.h"

#include <algorithm>
#include <memory>
#include <mutex>

namespace kvbm_s3 {
namespace {

constexpr size_t kMaxFetched = 256 * 1024;

size_t append_fetched(char* data, size_t size, size_t count, void* user) {
  auto* body = static_cast<std::string*>(user);
  if (body->size() + size * count > kMaxFetched) return 0;
  body->append(data, size * count);
  return size * count;
}

}  // namespace

void init_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

void set_common(CURL* easy, bool verifies, const std::string& ca_file) {
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
  // A cleanup does not wait for a name lookup that is still running.
  curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, verifies ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, verifies ? 2L : 0L);
  if (!ca_file.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file.c_str());
}

FetchAnswer fetch(const FetchRequest& request) {
  init_curl();
  FetchAnswer answer;
  const std::unique_ptr<CURL, void (*)(CURL*)> owner(curl_easy_init(), curl_easy_cleanup);
  CURL* easy = owner.get();
  if (easy == nullptr) {
    answer.error = "libcurl has no memory";
    return answer;
  }
  set_common(easy, request.verifies, request.ca_file);
  curl_slist* headers = curl_slist_append(nullptr, "Expect:");
  for (const auto& [name, value] : request.headers) headers = curl_slist_append(headers, (name + ": " + value).c_str());
  curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, request.timeout_ms);
  if (!request.uses_proxy) curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
  if (request.method != "GET") {
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request.body.c_str());
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, append_fetched);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &answer.body);
  const CURLcode code = curl_easy_perform(easy);
  curl_slist_free_all(headers);
  if (code != CURLE_OK) answer.error = curl_easy_strerror(code);
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer.status);
  return answer;
}

}  // namespace kvbm_s3
