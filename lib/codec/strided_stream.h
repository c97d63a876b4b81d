// Coded streams (coded_stream.h) of bytes that lie in strided runs, as an engine's cache has them: the same bytes as of a
// buffer that has the runs' bytes one after the other. Thread: any, one workspace a thread.
#pragma once

#include "base/bytes.h"
#include "base/status.h"
#include "codec/coded_stream.h"
#include "codec/strided_bytes.h"

namespace kvbm::codec {

// The longest run that is taken.
inline constexpr uint64_t kMaxRunBytes = kMaxLeafBytes;

// As encode_stream(); also no_memory.
[[nodiscard]] Result<uint64_t> encode_runs(const LeafForm& form, Mode mode, const StridedBytes& from, MutableBytes out,
                                           StreamWorkspace& workspace) noexcept;
// As StreamView::decode(), into as many bytes as the stream has. A run is written once all of its bytes are decoded and
// checked: after an error each run has the bytes that were coded or those that it had.
[[nodiscard]] Status decode_runs(const StreamView& stream, bool allow_lossy, const StridedBytes& to,
                                 StreamWorkspace& workspace) noexcept;

}  // namespace kvbm::codec
