// Shared parts of the calls that code in a caller's memory (codec.cc, cache_coding.cc): work memory, checks,
// refusals.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capi/guard.h"
#include "codec/coded/coded_stream.h"

namespace kvbm::capi {

// Returns this thread's workspace, which is kept until the thread ends.
codec::Workspace& coding_workspace() noexcept;
// Returns true if `number` is a KVBM_CODEC_* value.
bool is_mode(uint32_t number) noexcept;
// Makes the form from fields of options. Returns KVBM_OK, or the code written to err.
kvbm_status_t take_form(uint32_t element, uint32_t row_elements, uint32_t rows, codec::LeafForm& form,
                        kvbm_error_t* err) noexcept;
kvbm_status_t too_small(kvbm_error_t* err, size_t capacity, uint64_t needed);

}  // namespace kvbm::capi
