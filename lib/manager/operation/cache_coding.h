// Codes blocks of an attached cache as streams in a caller's memory, and back (kvbm_cache_encode). The bytes do not
// depend on where the cache lies, and none of it enters a tier. Thread: any. Blocks: encode_blocks() and
// decode_blocks() do.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/coded/coded_stream.h"
#include "device/transfer/stream_point.h"
#include "manager/operation/cache.h"

namespace kvbm::manager {

struct BlockCoding {
  const Cache* cache = nullptr;
  size_t part = 0;
  std::span<const uint32_t> ids;               // engine blocks, `units` to a stored block, each in range
  codec::LeafForm form;                        // of their bytes: form_of_blocks()
  std::shared_ptr<device::StreamPoint> after;  // null: at once
};

// Returns the form of a part's bytes: as its geometry says, or `said` for opaque pages and states. invalid_argument:
// `said` contradicts a known form.
Result<codec::LeafForm> form_of_blocks(const Cache& cache, size_t part, const codec::LeafForm& said);
// Refuses ids that cannot be coded, and names the first by its index: a missing block, one out of range, or ids that
// are not whole stored blocks. If the blocks are written, also an id that occurs twice.
Status check_coded_ids(const Cache& cache, size_t part, std::span<const uint32_t> ids, bool written);
// Returns the plain bytes of `blocks` engine blocks, which are whole stored blocks; UINT64_MAX: more than that.
[[nodiscard]] uint64_t plain_bytes(const Cache& cache, size_t part, size_t blocks) noexcept;

// Codes the payloads of the stored blocks, in the order of ids, as one stream, and returns its size. invalid_argument:
// a lossy mode for elements that have none; no_room: out is smaller than stream_room(); tier_disabled: the device was
// lost.
Result<uint64_t> encode_blocks(const BlockCoding& what, codec::Mode mode, MutableBytes out,
                               codec::Workspace& workspace);
// Decodes a stream into the blocks. invalid_argument: it holds another number of bytes; mismatch: the part holds other
// elements; not_permitted; damaged.
Status decode_blocks(const BlockCoding& what, const codec::StreamView& stream, bool allow_lossy,
                     codec::Workspace& workspace);

}  // namespace kvbm::manager
