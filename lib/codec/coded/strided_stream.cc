#include "codec/coded/strided_stream.h"

#include <cstring>

#include "base/memory/aligned_bytes.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::codec {
namespace {

constexpr size_t kWindowAlign = 64;
// Unfinished bytes are fewer than a run or a leaf; the next ones are at most one.
constexpr size_t kWindowBytes = kMaxRunBytes + kMaxLeafBytes;

Status no_memory() { return {Code::no_memory, "no memory to code blocks in"}; }

}  // namespace

Result<uint64_t> encode_runs(const LeafForm& form, Mode mode, const StridedBytes& from, MutableBytes out,
                             Workspace& workspace) noexcept {
  if (Status fits = StreamWriter::check(form, from.bytes(), out.size()); !fits.ok()) return fits;
  const AlignedBytes window = aligned_bytes(kWindowAlign, kWindowBytes);
  if (window == nullptr) return no_memory();
  StreamWriter writer(form, mode, from.bytes(), out);
  size_t held = 0;
  for (const StridedRun& run : from.runs()) {
    (void)gather_hashed(window.get() + held, {&run, 1}, CopyHint::cached);
    held += run.total();
    size_t coded = 0;
    while (writer.leaf_bytes(0) != 0 && writer.leaf_bytes(0) <= held - coded) {
      const uint32_t bytes = writer.leaf_bytes(0);
      if (Status done = writer.code({window.get() + coded, bytes}, workspace); !done.ok()) return done;
      coded += bytes;
    }
    held -= coded;
    if (coded != 0) std::memmove(window.get(), window.get() + coded, held);
  }
  return writer.finish();
}

Status decode_runs(const StreamView& stream, bool allow_lossy, const StridedBytes& to, Workspace& workspace) noexcept {
  const StreamInfo& info = stream.info();
  if (info.lossy && !allow_lossy) {
    return {Code::not_permitted, "the coded buffer is lossy, and lossy bytes were not allowed"};
  }
  if (info.raw_bytes != to.bytes()) return {Code::invalid_argument, "the coded buffer is not of as many bytes"};
  const AlignedBytes window = aligned_bytes(kWindowAlign, kWindowBytes);
  if (window == nullptr) return no_memory();
  size_t held = 0;
  auto run = to.runs().begin();
  return stream.each_leaf([&](const StreamLeaf& leaf) -> Status {
    if (Status done = decode_stream_leaf(leaf, window.get() + held, workspace); !done.ok()) return done;
    held += leaf.raw_bytes;
    size_t written = 0;
    for (; run != to.runs().end() && run->total() <= held - written; ++run) {
      (void)scatter_hashed({&*run, 1}, window.get() + written, CopyHint::cached);
      written += run->total();
    }
    held -= written;
    if (written != 0) std::memmove(window.get(), window.get() + written, held);
    return {};
  });
}

}  // namespace kvbm::codec
