// Blocks of an attached cache as coded streams in memory of a caller's, and back (kvbm_cache_encode): the same bytes
// wherever the cache lies. Nothing of it enters a tier. Thread: any. Blocks: encode_blocks() and decode_blocks() do.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/coded_stream.h"
#include "device/stream_point.h"
#include "manager/cache.h"

namespace kvbm::manager {

struct BlockCoding {
  const Cache* cache = nullptr;
  size_t part = 0;
  std::span<const uint32_t> ids;  // engine blocks, `units` to a stored block, each in range
  codec::LeafForm form;           // of their bytes: form_of_blocks()
  std::shared_ptr<device::StreamPoint> after;  // null: at once
};

// What the bytes of a part are: what its geometry says; of opaque pages and of states, what the caller says.
// invalid_argument: the caller says something of bytes that are known.
Result<codec::LeafForm> form_of_blocks(const Cache& cache, size_t part, const codec::LeafForm& said);
// Which ids cannot be coded, by their index: a block that is not there, out of range, or not whole stored blocks; and,
// where they are written to, one that is there twice.
Status check_coded_ids(const Cache& cache, size_t part, std::span<const uint32_t> ids, bool written);
// Plain bytes of so many engine blocks, which are whole stored blocks; UINT64_MAX: more than that.
[[nodiscard]] uint64_t plain_bytes(const Cache& cache, size_t part, size_t blocks) noexcept;

// The payloads of the stored blocks, in the order of ids, as one stream. Returns its bytes. invalid_argument: a lossy mode
// for elements that have none; no_room: out is smaller than stream_room(); tier_disabled: the device was lost.
Result<uint64_t> encode_blocks(const BlockCoding& what, codec::Mode mode, MutableBytes out,
                               codec::StreamWorkspace& workspace);
// invalid_argument: not of as many bytes; mismatch: coded as something else than the part holds; not_permitted; damaged.
Status decode_blocks(const BlockCoding& what, const codec::StreamView& stream, bool allow_lossy,
                     codec::StreamWorkspace& workspace);

}  // namespace kvbm::manager
