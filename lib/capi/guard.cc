#include "capi/guard.h"

#include <string>

namespace kvbm::capi {

kvbm_status_t fail(kvbm_error_t* err, Code code, const char* text) noexcept {
  if (err != nullptr) {
    err->status = to_c(code);
    err->reserved = 0;
    const size_t n = std::min(std::strlen(text), sizeof(err->message) - 1);
    std::memcpy(err->message, text, n);
    err->message[n] = '\0';
  }
  return to_c(code);
}

kvbm_status_t fail(kvbm_error_t* err, const Status& status) noexcept {
  if (err == nullptr) return to_c(status.code());
  return guarded(nullptr, [&] {
    const std::string text = status.message();
    return fail(err, status.code(), text.empty() ? code_text(status.code()) : text.c_str());
  });
}

kvbm_status_t copy_text(const char* text, size_t length, char* out, size_t capacity, size_t* out_needed) noexcept {
  if (out_needed != nullptr) *out_needed = length;
  if (capacity == 0) return KVBM_OK;
  if (out == nullptr) return to_c(Code::invalid_argument);
  const size_t n = std::min(length, capacity - 1);
  std::memcpy(out, text, n);
  out[n] = '\0';
  return KVBM_OK;
}

}  // namespace kvbm::capi
