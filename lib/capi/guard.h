// The boundary between C and the core: no exception leaves, errors get their text, and structs from newer headers are
// accepted as far as they are understood.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>

#include "base/status.h"
#include "kvbm.h"

namespace kvbm::capi {

inline kvbm_status_t to_c(Code code) noexcept { return static_cast<kvbm_status_t>(code); }

// Writes code and text into a caller's error slot, or without one into this thread's own, for kvbm_error_last.
kvbm_status_t fail(kvbm_error_t* err, Code code, const char* text) noexcept;
kvbm_status_t fail(kvbm_error_t* err, const Status& status) noexcept;
// Report an error of a call without an error slot.
inline kvbm_status_t refuse(Code code, const char* text) noexcept { return fail(nullptr, code, text); }
inline kvbm_status_t invalid(const char* text) noexcept { return refuse(Code::invalid_argument, text); }
// Marks the content of this thread's own slot as from an earlier call.
void forget_last_error() noexcept;
// Writes the status's own text (kvbm_status_text) into this thread's own slot, unless the call has left one of that
// status.
void explain_last_error(kvbm_status_t status) noexcept;
inline kvbm_status_t done(kvbm_error_t* err) noexcept { return fail(err, Code::ok, ""); }

// Runs a call and turns exceptions into codes. Only allocation may throw; an operation's own steps are guarded in
// manager/operation/operation.cc.
template <class Fn>
kvbm_status_t guarded(kvbm_error_t* err, Fn&& body) noexcept {
  if (err == nullptr) forget_last_error();
  try {
    const kvbm_status_t status = body();
    if (err == nullptr && status < KVBM_OK) [[unlikely]]
      explain_last_error(status);
    return status;
  } catch (const std::bad_alloc&) {
    return fail(err, Code::no_memory, "the system refused memory");
  } catch (...) {
    return fail(err, Code::internal, "an unexpected exception inside kvbm");
  }
}

// Larger than the struct of any header: a struct_size beyond it was never set, and its tail must not be read.
inline constexpr size_t kMostStructBytes = size_t{1} << 16;
inline bool is_struct_size(size_t size) noexcept { return size >= sizeof(uint32_t) && size <= kMostStructBytes; }

// Copies a caller's options into `known`, which holds the defaults. A shorter struct (older header) keeps the
// defaults of the missing fields; a longer one is accepted if its unknown tail is zero. False: refuse the options.
template <class T>
bool take_options(const T* given, T& known) noexcept {
  if (given == nullptr) return true;
  const size_t size = given->struct_size;
  if (!is_struct_size(size)) return false;
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char c) { return c != 0; })) {
    return false;
  }
  std::memcpy(static_cast<void*>(&known), given, std::min(size, sizeof(T)));
  known.struct_size = sizeof(T);
  return true;
}
inline constexpr const char* kUnknownOptions =
    "options.struct_size is not set (call the _options_init function), or a field is set that this library does not "
    "know";

// Fills in the defaults, zeroes the fields that only the caller's header has, and sets struct_size.
template <class T>
kvbm_status_t init_options(T* out, uint32_t struct_size, const T& defaults) noexcept {
  if (out == nullptr) return invalid("out_options is NULL");
  if (!is_struct_size(struct_size)) return invalid("struct_size is not that of a struct");
  std::memset(static_cast<void*>(out), 0, struct_size);
  std::memcpy(static_cast<void*>(out), &defaults, std::min<size_t>(struct_size, sizeof(T)));
  out->struct_size = struct_size;
  return KVBM_OK;
}

// Limit of an array's elements in a call (kvbm.h, convention 7). A larger count is a mistake of the caller, usually a
// negative number, and products with it would wrap.
inline constexpr size_t kMostItems = size_t{1} << 28;
inline constexpr size_t kTooMany = SIZE_MAX;
// Returns the number of elements of an array with these dimensions; kTooMany if that, or one dimension, exceeds
// kMostItems.
[[nodiscard]] constexpr size_t items(std::initializer_list<size_t> dimensions) noexcept {
  size_t n = 1;
  bool fits = true;
  for (const size_t d : dimensions) {
    fits = fits && d <= kMostItems && n <= kMostItems;
    n = fits ? n * d : 0;  // both factors are at most kMostItems, so the product does not overflow
  }
  return fits && n <= kMostItems ? n : kTooMany;
}
[[nodiscard]] constexpr bool too_many(size_t n) noexcept { return n > kMostItems; }
// Returns the refusal as text; `what` is the count, or the product.
Status refuse_count(const char* what);

// Copies text in two phases: size first, then content.
kvbm_status_t copy_text(const char* text, size_t length, char* out, size_t capacity, size_t* out_needed) noexcept;

}  // namespace kvbm::capi
