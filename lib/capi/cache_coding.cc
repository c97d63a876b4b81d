#include "manager/operation/cache_coding.h"

#include <span>
#include <string>

#include "capi/coding.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/stream_point.h"
#include "manager/operation/cache.h"

using kvbm::Code;
using kvbm::Status;
using kvbm::capi::fail;
using kvbm::capi::guarded;
using kvbm::manager::BlockCoding;
namespace codec = kvbm::codec;

namespace {

// Counts a call in the cache's gate: kvbm_cache_release waits for calls that touch the tensors.
class Inside {
 public:
  explicit Inside(kvbm::Gate& gate) : gate_(gate) { gate_.enter(); }
  ~Inside() { gate_.leave(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  kvbm::Gate& gate_;
};

// Reads the part and the form from the options. Returns KVBM_OK, or the code written to err.
kvbm_status_t take(kvbm_cache_t& cache, const kvbm_cache_code_options_t* options, kvbm_cache_code_options_t& given,
                   BlockCoding& what, kvbm_error_t* err) {
  if (!kvbm::capi::take_options(options, given)) return fail(err, Code::unsupported, kvbm::capi::kUnknownOptions);
  if (given.reserved != 0) return fail(err, Code::unsupported, "options.reserved is not zero");
  const kvbm_status_t here = kvbm::capi::check_process(*cache.tenancy->context, err);
  if (here != KVBM_OK) return here;
  what.cache = cache.cache.get();
  what.part = given.part;
  const size_t parts = cache.cache->parts().size();
  if (given.part >= parts) {
    return fail(err, Status(Code::invalid_argument, "options.part is out of range",
                            std::to_string(given.part) + ", the cache has " + std::to_string(parts)));
  }
  codec::LeafForm said;
  const kvbm_status_t taken = kvbm::capi::take_form(given.element, given.row_elements, given.rows, said, err);
  if (taken != KVBM_OK) return taken;
  const auto form = kvbm::manager::form_of_blocks(*cache.cache, given.part, said);
  if (!form.ok()) return fail(err, form.status());
  what.form = form.value();
  return KVBM_OK;
}

// Reads the blocks and the stream.
Status take_blocks(const kvbm_cache_code_options_t& given, const uint32_t* ids, size_t n, bool written,
                   BlockCoding& what) {
  if (kvbm::capi::too_many(n)) return kvbm::capi::refuse_count("n_blocks");
  what.ids = {ids, n};
  if (Status fits = kvbm::manager::check_coded_ids(*what.cache, what.part, what.ids, written); !fits.ok()) return fits;
  auto after = kvbm::capi::point_on(*what.cache, given.stream, given.has_stream);
  if (!after.ok()) return after.status();
  what.after = std::move(after).value();
  return {};
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_cache_code_options_init(kvbm_cache_code_options_t* out_options, uint32_t struct_size) {
  return kvbm::capi::init_options(out_options, struct_size, kvbm_cache_code_options_t{});
}

kvbm_status_t kvbm_cache_code_room(kvbm_cache_t* cache, size_t n_blocks, const kvbm_cache_code_options_t* options,
                                   uint64_t* out_bytes, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (cache == nullptr || out_bytes == nullptr)
      return fail(err, Code::invalid_argument, "cache or out_bytes is NULL");
    kvbm_cache_code_options_t given{};
    BlockCoding what;
    if (const kvbm_status_t taken = take(*cache, options, given, what, err); taken != KVBM_OK) return taken;
    if (kvbm::capi::too_many(n_blocks)) return fail(err, kvbm::capi::refuse_count("n_blocks"));
    const uint32_t units = cache->cache->units();
    if (n_blocks % units != 0) {
      return fail(err, Status(Code::invalid_argument, "blocks are coded in whole stored blocks",
                              std::to_string(n_blocks) + " engine blocks, a stored block is " + std::to_string(units)));
    }
    const uint64_t bytes = kvbm::manager::plain_bytes(*what.cache, what.part, n_blocks);
    if (bytes > codec::kMaxStreamBytes) return fail(err, Code::invalid_argument, "the blocks are more than 2^40 bytes");
    *out_bytes = codec::stream_room(what.form, bytes);
    return kvbm::capi::done(err);
  });
}

kvbm_status_t kvbm_cache_encode(kvbm_cache_t* cache, const uint32_t* block_ids, size_t n_blocks, uint32_t mode,
                                const kvbm_cache_code_options_t* options, void* out, size_t capacity, size_t* out_bytes,
                                kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (cache == nullptr || (block_ids == nullptr && n_blocks != 0) || out == nullptr || out_bytes == nullptr) {
      return fail(err, Code::invalid_argument, "cache, block_ids, out or out_bytes is NULL");
    }
    if (!kvbm::capi::is_mode(mode)) return fail(err, Code::invalid_argument, "mode is no KVBM_CODEC_*");
    kvbm_cache_code_options_t given{};
    BlockCoding what;
    if (const kvbm_status_t taken = take(*cache, options, given, what, err); taken != KVBM_OK) return taken;
    if (given.flags != 0)
      return fail(err, Code::invalid_argument, "options.flags is for kvbm_cache_decode: the mode says what is lossy");
    const Inside inside(*cache->gate);
    if (Status fits = take_blocks(given, block_ids, n_blocks, false, what); !fits.ok()) return fail(err, fits);
    const uint64_t bytes = kvbm::manager::plain_bytes(*what.cache, what.part, n_blocks);
    const uint64_t room = bytes > codec::kMaxStreamBytes ? 0 : codec::stream_room(what.form, bytes);
    if (capacity < room) return kvbm::capi::too_small(err, capacity, room);
    const auto made = kvbm::manager::encode_blocks(
        what, static_cast<codec::Mode>(mode), {static_cast<std::byte*>(out), capacity}, kvbm::capi::coding_workspace());
    if (!made.ok()) return fail(err, made.status());
    *out_bytes = made.value();
    return kvbm::capi::done(err);
  });
}

kvbm_status_t kvbm_cache_decode(kvbm_cache_t* cache, const void* coded, size_t coded_bytes, const uint32_t* block_ids,
                                size_t n_blocks, const kvbm_cache_code_options_t* options, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (cache == nullptr || (coded == nullptr && coded_bytes != 0) || (block_ids == nullptr && n_blocks != 0)) {
      return fail(err, Code::invalid_argument, "cache, coded or block_ids is NULL");
    }
    kvbm_cache_code_options_t given{};
    BlockCoding what;
    if (const kvbm_status_t taken = take(*cache, options, given, what, err); taken != KVBM_OK) return taken;
    if ((given.flags & ~KVBM_CODEC_ALLOW_LOSSY) != 0) {
      return fail(err, Code::invalid_argument, "options.flags has bits that are not known");
    }
    const auto view = codec::StreamView::parse({static_cast<const std::byte*>(coded), coded_bytes});
    if (!view.ok()) return fail(err, view.status());
    const Inside inside(*cache->gate);
    if (Status fits = take_blocks(given, block_ids, n_blocks, true, what); !fits.ok()) return fail(err, fits);
    const Status done = kvbm::manager::decode_blocks(what, view.value(), (given.flags & KVBM_CODEC_ALLOW_LOSSY) != 0,
                                                     kvbm::capi::coding_workspace());
    return done.ok() ? kvbm::capi::done(err) : fail(err, done);
  });
}

}  // extern "C"
