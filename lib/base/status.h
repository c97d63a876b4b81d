// Status and Result: how all layers of kvbm report failures.
//
// A Status is a code, a static text that names what was refused, and, on control-plane paths only, a heap text with
// details (a path, a line, a limit). Per-block paths carry bare Codes. Codes equal the KVBM_* status values of kvbm.h
// (asserted in capi).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace kvbm {

enum class Code : int32_t {
  ok = 0,
  partial = 1,  // some items of a batch failed; see the per-item statuses
  // Caller bugs: fix the call.
  invalid_argument = -100,
  stale_handle = -101,
  foreign_handle = -102,
  wrong_state = -103,
  forked = -104,
  bad_config = -105,
  in_use = -106,
  exists = -107,
  // No space: evict, wait or retry.
  no_room = -200,
  over_quota = -201,
  again = -202,
  no_memory = -203,
  disk_full = -204,
  at_limit = -205,  // of a count, not of bytes
  // Time, peers and owners: retry elsewhere.
  deadline = -300,
  cancelled = -301,
  owner_gone = -302,
  closed = -303,
  // Integrity: treat as a miss.
  miss = -400,
  damaged = -401,
  mismatch = -402,
  // Not available here.
  unsupported = -500,
  newer_version = -501,
  not_permitted = -502,
  // The library's or the system's fault.
  internal = -600,
  io_error = -601,
  tier_disabled = -602,
};

// The symbolic name of a code, e.g. "KVBM_ERR_NO_ROOM"; never null.
const char* code_name(Code code) noexcept;
// One plain sentence that says what the code means and what to do; never null.
const char* code_text(Code code) noexcept;

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, const char* what) : code_(code), what_(what) {}
  Status(Code code, const char* what, std::string detail)
      : code_(code), what_(what), detail_(std::make_shared<const std::string>(std::move(detail))) {}

  [[nodiscard]] bool ok() const noexcept { return code_ >= Code::ok; }
  [[nodiscard]] Code code() const noexcept { return code_; }
  [[nodiscard]] const char* what() const noexcept { return what_; }
  [[nodiscard]] std::string detail() const { return detail_ != nullptr ? *detail_ : std::string(); }
  // Returns detail() without a copy, valid as long as this object.
  [[nodiscard]] std::string_view detail_view() const noexcept {
    return detail_ != nullptr ? std::string_view(*detail_) : std::string_view();
  }
  // Returns what(), then the detail if there is one.
  [[nodiscard]] std::string message() const;

 private:
  Code code_ = Code::ok;
  const char* what_ = "";
  std::shared_ptr<const std::string> detail_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  [[nodiscard]] T& value() & { return *std::get_if<0>(&state_); }
  [[nodiscard]] const T& value() const& { return *std::get_if<0>(&state_); }
  [[nodiscard]] T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  // ok() when the result holds a value.
  [[nodiscard]] Status status() const { return ok() ? Status{} : *std::get_if<1>(&state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace kvbm
