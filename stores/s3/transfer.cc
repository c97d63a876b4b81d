#include "transfer.h"

#include <algorithm>
#include <cstring>

#include "http.h"
#include "xml.h"

namespace kvbm_s3 {
namespace {

constexpr size_t kMaxError = 64 * 1024;
constexpr size_t kMaxListing = 4 << 20;  // 1,000 names of 1,024 bytes, encoded

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > KVBM_STORE_NAME_BYTES || text.front() == '/' || text.back() == '/') return false;
  char before = '/';
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '/';
    if (!is_plain || (before == '/' && (c == '/' || c == '.'))) return false;
    before = c;
  }
  return true;
}

Transport transport_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return Transport::ok;
    case CURLE_OPERATION_TIMEDOUT:
      return Transport::timed_out;
    case CURLE_COULDNT_CONNECT:
      return Transport::no_connection;
    case CURLE_COULDNT_RESOLVE_HOST:
      return Transport::no_address;
    case CURLE_COULDNT_RESOLVE_PROXY:
      return Transport::no_proxy;
    case CURLE_PEER_FAILED_VERIFICATION:
      return Transport::untrusted;
    case CURLE_SSL_CACERT_BADFILE:
      return Transport::bad_ca_file;
    case CURLE_SSL_CONNECT_ERROR:
      return Transport::no_tls;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
      return Transport::broken_off;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
      return Transport::not_http;
    default:
      return Transport::other;
  }
}

std::string header_value(std::string_view line, std::string_view name) {
  if (line.size() <= name.size() || line[name.size()] != ':' ||
      ::strncasecmp(line.data(), name.data(), name.size()) != 0)
    return {};
  line.remove_prefix(name.size() + 1);
  const size_t first = line.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return std::string(line.substr(first, line.find_last_not_of(" \t\r\n") - first + 1)).substr(0, 1024);
}

}  // namespace

Transfer::Transfer(kvbm_store_op_t* operation)
    : op(operation),
      deadline(std::chrono::steady_clock::now() +
               std::chrono::nanoseconds(std::min<uint64_t>(operation->timeout_ns, 86'400'000'000'000U))),
      op_name_(operation->name) {
  if (op->kind == KVBM_STORE_PUT && op->bytes > kMaxPlainPut) step = Step::create;
}

Transfer::~Transfer() {
  curl_slist_free_all(headers_);
  if (easy != nullptr) curl_easy_cleanup(easy);
}

const char* Transfer::body() const {
  if (step == Step::complete) return own_body_.data();
  return static_cast<const char*>(op->data) + (step == Step::part ? part_ * kPartBytes : 0);
}

size_t Transfer::body_bytes() const {
  if (step == Step::complete) return own_body_.size();
  if (step == Step::part) return std::min<size_t>(kPartBytes, op->bytes - part_ * kPartBytes);
  return step == Step::single && op != nullptr && op->kind == KVBM_STORE_PUT ? op->bytes : 0;
}

const char* Transfer::method() const {
  switch (step) {
    case Step::create:
    case Step::complete:
      return "POST";
    case Step::part:
      return "PUT";
    case Step::abandon:
      return "DELETE";
    case Step::single:
      break;
  }
  return op->kind == KVBM_STORE_PUT ? "PUT" : op->kind == KVBM_STORE_REMOVE ? "DELETE" : "GET";
}

Pairs Transfer::query(const Settings& settings) const {
  switch (step) {
    case Step::create:
      return {{"uploads", ""}};
    case Step::part:
      return {{"partNumber", std::to_string(part_ + 1)}, {"uploadId", upload_id}};
    case Step::complete:
    case Step::abandon:
      return {{"uploadId", upload_id}};
    case Step::single:
      break;
  }
  if (op->kind != KVBM_STORE_LIST) return {};
  Pairs query = {{"list-type", "2"}, {"encoding-type", "url"}, {"prefix", settings.prefix + op_name_}};
  query.emplace_back("max-keys", std::to_string(std::clamp<uint64_t>(op->bytes / 64, 1, 1000)));
  const std::string after = !list_after_.empty()   ? list_after_
                            : op->after[0] != '\0' ? settings.prefix + op->after
                                                   : "";
  if (!after.empty()) query.emplace_back("start-after", after);
  return query;
}

void Transfer::prepare(const Settings& settings, const Credentials& keys, int64_t unix_s) {
  answer = Answer();
  sent_ = 0;
  signed_at = unix_s;
  if (easy == nullptr) easy = curl_easy_init();
  if (easy == nullptr) throw std::bad_alloc();
  curl_easy_reset(easy);
  curl_slist_free_all(headers_);
  headers_ = nullptr;
  set_common(easy, settings.verifies, settings.ca_file);

  const bool is_list = step == Step::single && op->kind == KVBM_STORE_LIST;
  const std::string path = settings.request_path(is_list ? "" : key(settings));
  const std::string asked = canonical_query(query(settings));
  const std::string date = amz_date(unix_s);
  const bool is_signed = settings.signs_payload || step != Step::single || body_bytes() == 0;
  const std::string hash(body_bytes() == 0 ? kNoPayload : is_signed ? std::string_view(digest) : kUnsignedPayload);
  Pairs headers = {{"host", settings.request_host()}, {"x-amz-content-sha256", hash}, {"x-amz-date", date}};
  if (!keys.token.empty()) headers.emplace_back("x-amz-security-token", keys.token);
  if (!is_signed) headers.emplace_back("x-amz-checksum-crc32c", digest);
  if (step == Step::single && op->kind == KVBM_STORE_GET) {
    // A read of no bytes requests one byte, because it has to find out whether the object exists.
    const uint64_t last = op->offset + std::max<uint64_t>(op->bytes, 1) - 1;
    headers.emplace_back("range", "bytes=" + std::to_string(op->offset) + "-" + std::to_string(last));
  }
  const std::string value = authorization({method(), path, asked, headers, hash}, keys, settings.region, "s3", date);
  for (const auto& [name, text] : headers) headers_ = curl_slist_append(headers_, (name + ": " + text).c_str());
  headers_ = curl_slist_append(headers_, ("authorization: " + value).c_str());
  // Disables waiting for a "100 Continue" that some servers never send.
  headers_ = curl_slist_append(headers_, "Expect:");
  if (body_bytes() > 0) headers_ = curl_slist_append(headers_, "Content-Type: application/octet-stream");

  const std::string url = (settings.is_https ? "https://" : "http://") + settings.request_host() + path +
                          (asked.empty() ? "" : "?" + asked);
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "kvbm");
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers_);
  curl_easy_setopt(easy, CURLOPT_PRIVATE, this);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L * 1024);
  if (std::strcmp(method(), "GET") != 0) {
    curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 256L * 1024);
    curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body_bytes()));
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_upload);
    curl_easy_setopt(easy, CURLOPT_READDATA, this);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, this);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method());
  }
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, this);
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(std::max<int64_t>(left, 1)));
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(std::clamp<int64_t>(left, 1, 10'000)));
}

size_t Transfer::on_header(char* data, size_t size, size_t count, void* user) {
  Answer& answer = static_cast<Transfer*>(user)->answer;
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) answer = Answer();  // the lines before belong to "100 Continue"
  const auto take = [&](std::string_view name, std::string* out) {
    if (auto value = header_value(line, name); !value.empty()) *out = std::move(value);
  };
  take("content-type", &answer.content_type);
  take("content-range", &answer.content_range);
  take("x-amz-bucket-region", &answer.bucket_region);
  take("etag", &answer.etag);
  if (const auto date = header_value(line, "date"); !date.empty()) {
    answer.date_s = std::max<int64_t>(curl_getdate(date.c_str(), nullptr), 0);
  }
  return size * count;
}

size_t Transfer::on_body(char* data, size_t size, size_t count, void* user) {
  auto* self = static_cast<Transfer*>(user);
  const size_t bytes = size * count;
  Answer& answer = self->answer;
  if (answer.status == 0) curl_easy_getinfo(self->easy, CURLINFO_RESPONSE_CODE, &answer.status);
  const bool is_good = answer.status >= 200 && answer.status < 300 && self->step == Step::single &&
                       !answer.content_type.starts_with("text/html");
  if (is_good && self->op->kind == KVBM_STORE_GET) {
    if (answer.received + bytes > std::max<uint64_t>(self->op->bytes, 1)) {
      answer.is_too_long = true;
      return 0;
    }
    if (self->op->bytes > 0) std::memcpy(static_cast<char*>(self->op->data) + answer.received, data, bytes);
    answer.received += bytes;
    return bytes;
  }
  if (answer.body.size() + bytes > (is_good && self->op->kind == KVBM_STORE_LIST ? kMaxListing : kMaxError)) {
    answer.is_too_long = true;
    return 0;
  }
  answer.body.append(data, bytes);
  return bytes;
}

size_t Transfer::on_upload(char* data, size_t size, size_t count, void* user) {
  auto* self = static_cast<Transfer*>(user);
  const size_t bytes = std::min(size * count, self->body_bytes() - self->sent_);
  if (bytes > 0) std::memcpy(data, self->body() + self->sent_, bytes);
  self->sent_ += bytes;
  return bytes;
}

int Transfer::on_seek(void* user, curl_off_t offset, int origin) {
  auto* self = static_cast<Transfer*>(user);
  if (origin != SEEK_SET || offset < 0 || static_cast<size_t>(offset) > self->body_bytes()) return CURL_SEEKFUNC_FAIL;
  self->sent_ = static_cast<size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

Transfer::Next Transfer::conclude(const Settings& settings, CURLcode code, Verdict* out) {
  answer.transport = transport_of(code);
  answer.transport_text = curl_easy_strerror(code);
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer.status);
  curl_off_t length = -1;
  curl_easy_getinfo(easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  answer.content_length = length;
  const bool is_get = step == Step::single && op->kind == KVBM_STORE_GET;
  // A range behind the object's end is not an error.
  const bool is_behind = is_get && answer.status == 416 && answer.transport == Transport::ok && !answer.is_too_long &&
                         !looks_like_html(answer.body) && !answer.content_type.starts_with("text/html");
  *out = is_behind ? Verdict() : judge(answer, settings.endpoint(), settings.region);
  const bool is_remove = step == Step::single && op->kind == KVBM_STORE_REMOVE;
  if (is_remove && out->status == KVBM_ERR_MISS) *out = Verdict();
  if (out->status != KVBM_OK) return Next::finished;
  digest.clear();
  switch (step) {
    case Step::single:
      if (is_get) *out = judge_get(answer, op->offset, op->bytes, &op->done);
      if (op->kind == KVBM_STORE_LIST) return conclude_list(settings, out);
      // Every S3 server returns an ETag of the stored object. A server that returns only "200" is not one.
      if (op->kind == KVBM_STORE_PUT && answer.etag.empty())
        *out = {KVBM_ERR_IO, "the answer to a put has no ETag: is it an S3 server?", false, true};
      return Next::finished;
    case Step::create:
      read_xml(answer.body, [this](std::string_view path, std::string_view text) {
        if (path == "InitiateMultipartUploadResult/UploadId") upload_id = text.substr(0, 1024);
      });
      if (upload_id.empty()) {
        *out = {KVBM_ERR_IO, "no name was given to an upload in parts", false, false};
        return Next::finished;
      }
      step = Step::part;
      return Next::send_again;
    case Step::part:
      etags_.push_back(answer.etag);
      if (++part_ * kPartBytes < op->bytes) return Next::send_again;
      own_body_ = "<CompleteMultipartUpload>";
      for (size_t i = 0; i < etags_.size(); ++i) {
        own_body_ +=
            "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" + etags_[i] + "</ETag></Part>";
      }
      own_body_ += "</CompleteMultipartUpload>";
      step = Step::complete;
      return Next::send_again;
    case Step::complete:
      // The server sends "200 OK" at once, and an error may follow in the body, or nothing if it ended meanwhile.
      if (!is_completed(answer.body))
        *out = {KVBM_ERR_AGAIN, "the parts of the object were not put together", false, false};
      return Next::finished;
    case Step::abandon:
      break;
  }
  return Next::finished;
}

Transfer::Next Transfer::conclude_list(const Settings& settings, Verdict* out) {
  const auto list = parse_list(answer.body);
  if (!list) {
    *out = {KVBM_ERR_IO, "a listing cannot be read: is it an S3 server?", false, true};
    return Next::finished;
  }
  auto* at = static_cast<char*>(op->data);
  std::string before = !list_after_.empty() ? list_after_ : op->after[0] != '\0' ? settings.prefix + op->after : "";
  for (const std::string& name : list->keys) {
    if (name <= before && !before.empty()) {
      *out = {KVBM_ERR_CONFIG, "the server does not list names in their order behind a name", false, true};
      return Next::finished;
    }
    before = name;
    if (!name.starts_with(settings.prefix)) continue;
    const std::string_view own = std::string_view(name).substr(settings.prefix.size());
    if (!is_name(own)) continue;  // written by another program
    if (op->done + own.size() + 1 > op->bytes) {
      op->more = 1;
      return Next::finished;
    }
    std::memcpy(at + op->done, own.data(), own.size());
    at[op->done + own.size()] = '\0';
    op->done += own.size() + 1;
  }
  op->more = list->truncated ? 1 : 0;
  // The next request begins behind the names that were skipped.
  if (!list->truncated || op->done > 0 || list->keys.empty()) return Next::finished;
  list_after_ = before;
  return Next::send_again;
}

}  // namespace kvbm_s3
