#include "capi/guard.h"

#include <string>
#include <string_view>

namespace kvbm::capi {

namespace {

// Error of this thread's last call without an error slot. Constant-initialized: needs no allocation and no code.
constinit thread_local kvbm_error_t last_error{};

// Writes Status::message(), as far as it fits. Allocates nothing, so that a refused allocation can be reported, too.
kvbm_status_t write(kvbm_error_t* err, Code code, std::string_view what, std::string_view detail) noexcept {
  if (err == nullptr) err = &last_error;
  size_t n = 0;
  const auto add = [&](std::string_view text) {
    if (text.empty()) return;  // its address may be null, which memcpy does not accept even for length 0
    const size_t fits = std::min(text.size(), sizeof(err->message) - 1 - n);
    std::memcpy(err->message + n, text.data(), fits);
    n += fits;
  };
  add(what);
  if (!what.empty() && !detail.empty()) add(": ");
  add(detail);
  err->message[n] = '\0';
  err->status = to_c(code);
  err->reserved = 0;
  return to_c(code);
}

}  // namespace

void forget_last_error() noexcept { last_error.status = KVBM_OK; }

void explain_last_error(kvbm_status_t status) noexcept {
  if (last_error.status != status) write(nullptr, static_cast<Code>(status), code_text(static_cast<Code>(status)), {});
}

kvbm_status_t fail(kvbm_error_t* err, Code code, const char* text) noexcept { return write(err, code, text, {}); }

kvbm_status_t fail(kvbm_error_t* err, const Status& status) noexcept {
  const std::string_view what = status.what();
  const std::string_view detail = status.detail_view();
  const bool silent = what.empty() && detail.empty();
  return write(err, status.code(), silent ? code_text(status.code()) : what, detail);
}

Status refuse_count(const char* what) {
  return {Code::invalid_argument, "an array of a call has at most 2^28 elements", std::string(what) + " is more"};
}

kvbm_status_t copy_text(const char* text, size_t length, char* out, size_t capacity, size_t* out_needed) noexcept {
  if (out_needed != nullptr) *out_needed = length;
  if (capacity == 0) return KVBM_OK;
  if (out == nullptr) return invalid("out is NULL and capacity is not 0");
  const size_t n = std::min(length, capacity - 1);
  std::memcpy(out, text, n);
  out[n] = '\0';
  return KVBM_OK;
}

}  // namespace kvbm::capi

extern "C" kvbm_status_t kvbm_error_last(kvbm_error_t* out_error) {
  if (out_error == nullptr) return KVBM_ERR_INVALID;
  if (kvbm::capi::last_error.status == KVBM_OK) {
    *out_error = {};
  } else {
    *out_error = kvbm::capi::last_error;
  }
  return KVBM_OK;
}
