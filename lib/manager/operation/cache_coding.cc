#include "manager/operation/cache_coding.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "codec/coded/leaf_codec.h"
#include "codec/coded/strided_stream.h"
#include "codec/lossy/quantize_scales.h"
#include "device/coder/block_coder.h"
#include "device/context/device.h"
#include "manager/device/device_caches.h"
#include "manager/lower/coding_terms.h"

namespace kvbm::manager {
namespace {

constexpr const char* kElementNames[] = {
    "bytes of no known kind", "bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "int8"};

std::string text_of(const codec::LeafForm& form) {
  return std::string(kElementNames[static_cast<size_t>(form.element)]) + ", rows of " + std::to_string(form.row) +
         ", " + std::to_string(form.rows) + " rows";
}

// The leaves of the stored blocks, one after the other.
codec::StridedBytes bytes_of(const BlockCoding& what) {
  const CachePart& part = what.cache->parts()[what.part];
  const uint32_t units = what.cache->units();
  std::vector<StridedRun> runs;
  runs.reserve(what.ids.size() / units * part.leaf_count());
  for (size_t first = 0; first < what.ids.size(); first += units) {
    for (uint32_t i = 0; i < part.leaf_count(); ++i) {
      uint32_t unit = 0;
      uint32_t layer = 0;
      (void)part.leaf(i, unit, layer);
      runs.push_back(part.run(i, what.ids[first + unit]));
    }
  }
  return codec::StridedBytes(std::move(runs));
}

}  // namespace

Result<codec::LeafForm> form_of_blocks(const Cache& cache, size_t part, const codec::LeafForm& said) {
  const CachePart& mine = cache.parts()[part];
  codec::LeafForm known;
  if (!mine.is_opaque()) known = form_of(*mine.plan().shape).leaf_form();
  if (known == codec::LeafForm{}) return said;
  if (said == codec::LeafForm{} || said == known) return known;
  return Status(Code::invalid_argument, "options say another element or other rows than the cache has",
                text_of(said) + "; the cache has " + text_of(known) + ": leave them zero");
}

Status check_coded_ids(const Cache& cache, size_t part, std::span<const uint32_t> ids, bool written) {
  const auto refusal = [&](size_t i, const std::string& why) {
    return Status(Code::invalid_argument, "a block id cannot be coded",
                  "block_ids[" + std::to_string(i) + "] is " + why);
  };
  if (ids.size() % cache.units() != 0) {
    return {Code::invalid_argument, "blocks are coded in whole stored blocks",
            std::to_string(ids.size()) + " ids, a stored block is " + std::to_string(cache.units()) + " engine blocks"};
  }
  const uint64_t blocks = cache.parts()[part].blocks();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kNoBlock) return refusal(i, "KVBM_NO_BLOCK");
    if (ids[i] >= blocks) {
      return refusal(i, std::to_string(ids[i]) + ", the cache has " + std::to_string(blocks) + " blocks");
    }
  }
  if (!written) return {};
  std::vector<std::pair<uint32_t, size_t>> sorted;
  sorted.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) sorted.emplace_back(ids[i], i);
  std::sort(sorted.begin(), sorted.end());
  const auto twice =
      std::adjacent_find(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice == sorted.end()) return {};
  return refusal((twice + 1)->second,
                 std::to_string(twice->first) + ", as block_ids[" + std::to_string(twice->second) + "] is");
}

uint64_t plain_bytes(const Cache& cache, size_t part, size_t blocks) noexcept {
  uint64_t bytes = 0;
  const bool wraps = __builtin_mul_overflow(blocks / cache.units(), cache.parts()[part].payload_bytes(), &bytes);
  return wraps ? UINT64_MAX : bytes;
}

Result<uint64_t> encode_blocks(const BlockCoding& what, codec::Mode mode, MutableBytes out,
                               codec::Workspace& workspace) {
  if (codec::is_lossy(mode) && !codec::is_float(what.form.element)) {
    return Status(Code::invalid_argument, "lossy modes are for bf16, fp16 and fp32",
                  std::string(codec::mode_name(mode)) + " was asked for, the blocks hold " +
                      kElementNames[static_cast<size_t>(what.form.element)]);
  }
  const codec::StridedBytes from = bytes_of(what);
  AttachedDevice* const device = what.cache->device().get();
  if (device == nullptr) return codec::encode_runs(what.form, mode, from, out, workspace);
  return device->coder().encode(what.form, mode, from, what.after.get(), out, workspace);
}

Status decode_blocks(const BlockCoding& what, const codec::StreamView& stream, bool allow_lossy,
                     codec::Workspace& workspace) {
  const codec::StreamInfo& info = stream.info();
  const codec::StridedBytes to = bytes_of(what);
  if (info.raw_bytes != to.bytes()) {
    return {Code::invalid_argument, "the coded buffer is not of as many blocks",
            "it decodes to " + std::to_string(info.raw_bytes) + " bytes, the blocks named have " +
                std::to_string(to.bytes())};
  }
  if (info.form != what.form) {
    return {Code::mismatch, "the coded buffer is of another cache",
            "it was coded as " + text_of(info.form) + ", the cache has " + text_of(what.form)};
  }
  AttachedDevice* const device = what.cache->device().get();
  if (device == nullptr) return codec::decode_runs(stream, allow_lossy, to, workspace);
  return device->coder().decode(stream, allow_lossy, to, what.after.get(), workspace);
}

}  // namespace kvbm::manager
