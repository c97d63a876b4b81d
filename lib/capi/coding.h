// What the calls that code in a caller's memory share (codec.cc, cache_coding.cc): work memory, checks, refusals.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capi/guard.h"
#include "codec/coded_stream.h"

namespace kvbm::capi {

// This thread's, kept until it ends.
codec::StreamWorkspace& coding_workspace() noexcept;
// Whether it is a KVBM_CODEC_*.
bool is_mode(uint32_t number) noexcept;
// The form that fields of options say; KVBM_OK, or what err was given.
kvbm_status_t take_form(uint32_t element, uint32_t row_elements, uint32_t rows, codec::LeafForm& form,
                        kvbm_error_t* err) noexcept;
kvbm_status_t too_small(kvbm_error_t* err, size_t capacity, uint64_t needed);

}  // namespace kvbm::capi
