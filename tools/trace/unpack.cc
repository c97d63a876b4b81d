#include "trace/unpack.h"

#include <algorithm>
#include <string_view>
#include <utility>

#ifdef KVBM_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef KVBM_WITH_ZSTD
#include <zstd.h>
#endif

namespace kvbm::trace {

namespace {

#if defined(KVBM_HAVE_ZLIB) || defined(KVBM_WITH_ZSTD)
constexpr size_t kStep = size_t{256} << 10;

Status too_long(size_t most, const std::string& name) {
  return {Code::io_error, "the trace is too long", name + " unpacks to more than " + std::to_string(most) + " bytes"};
}
#endif

#ifdef KVBM_HAVE_ZLIB
// Unpacks several concatenated parts as one file, as gzip defines it.
Result<std::string> from_gzip(const std::string& packed, size_t most, const std::string& name) {
  std::string out;
  size_t used = 0;
  while (used < packed.size()) {
    z_stream stream = {};
    if (inflateInit2(&stream, 15 + 16) != Z_OK) return Status(Code::no_memory, "no memory to unpack the trace", name);
    int done = Z_OK;
    while (done == Z_OK) {
      const size_t piece = std::min(packed.size() - used, size_t{1} << 30);
      const size_t before = out.size();
      out.resize(before + kStep);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + used));
      stream.avail_in = static_cast<uInt>(piece);
      stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
      stream.avail_out = static_cast<uInt>(kStep);
      done = inflate(&stream, Z_NO_FLUSH);
      used += piece - stream.avail_in;
      out.resize(before + kStep - stream.avail_out);
      if (out.size() > most) {
        inflateEnd(&stream);
        return too_long(most, name);
      }
      if (done == Z_BUF_ERROR || (done == Z_OK && used == packed.size() && stream.avail_out != 0)) break;
    }
    inflateEnd(&stream);
    if (done != Z_STREAM_END)
      return Status(Code::io_error, "the gzip data of the trace is damaged or ends early", name);
  }
  return out;
}
#endif

#ifdef KVBM_WITH_ZSTD
Result<std::string> from_zstd(const std::string& packed, size_t most, const std::string& name) {
  ZSTD_DCtx* context = ZSTD_createDCtx();
  if (context == nullptr) return Status(Code::no_memory, "no memory to unpack the trace", name);
  std::string out;
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  size_t left = 1;
  while (left != 0 || in.pos < in.size) {
    const size_t before = out.size();
    out.resize(before + kStep);
    ZSTD_outBuffer room{out.data() + before, kStep, 0};
    const size_t was = in.pos;
    left = ZSTD_decompressStream(context, &room, &in);
    out.resize(before + room.pos);
    const bool stuck = in.pos == was && room.pos == 0;
    if (ZSTD_isError(left) != 0 || (stuck && left != 0) || out.size() > most) break;
  }
  ZSTD_freeDCtx(context);
  if (out.size() > most) return too_long(most, name);
  if (ZSTD_isError(left) != 0 || left != 0) {
    return Status(Code::io_error, "the zstd data of the trace is damaged or ends early", name);
  }
  return out;
}
#endif

}  // namespace

Result<std::string> unpacked(std::string text, size_t most, const std::string& name) {
  const std::string_view bytes = text;
  if (bytes.rfind("\x1f\x8b", 0) == 0) {
#ifdef KVBM_HAVE_ZLIB
    return from_gzip(text, most, name);
#else
    (void)most;
    return Status(Code::io_error, "this build reads no gzip; unpack the trace first", name);
#endif
  }
  if (bytes.rfind("\x28\xb5\x2f\xfd", 0) == 0) {
#ifdef KVBM_WITH_ZSTD
    return from_zstd(text, most, name);
#else
    (void)most;
    return Status(Code::io_error, "this build reads no zstd; unpack the trace first", name);
#endif
  }
  if (bytes.rfind("BZh", 0) == 0 ||
      bytes.rfind("\xfd"
                  "7zXZ",
                  0) == 0 ||
      bytes.rfind("PK\x03\x04", 0) == 0) {
    return Status(Code::io_error, "the trace is compressed in a way that is not read here; unpack it first", name);
  }
  return text;
}

}  // namespace kvbm::trace
