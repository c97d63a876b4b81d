// Coded streams (coded_stream.h) of bytes in strided runs, as in an engine's cache: equal to streams of a buffer with
// the runs' bytes one after the other. Thread: any, one workspace a thread.
#pragma once

#include "base/bytes.h"
#include "base/status.h"
#include "codec/coded/coded_stream.h"
#include "codec/coded/strided_bytes.h"

namespace kvbm::codec {

// The longest run that is accepted.
inline constexpr uint64_t kMaxRunBytes = kMaxLeafBytes;

// Encodes like encode_stream(); also no_memory.
[[nodiscard]] Result<uint64_t> encode_runs(const LeafForm& form, Mode mode, const StridedBytes& from, MutableBytes out,
                                           Workspace& workspace) noexcept;
// Decodes like StreamView::decode(), into as many bytes as the stream has. A run is written once all of its bytes are
// decoded and checked: after an error each run has either the decoded bytes or its old ones.
[[nodiscard]] Status decode_runs(const StreamView& stream, bool allow_lossy, const StridedBytes& to,
                                 Workspace& workspace) noexcept;

}  // namespace kvbm::codec
