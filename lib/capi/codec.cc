#include <string>

#include "capi/coding.h"
#include "codec/coded/coded_stream.h"
#include "layout/geometry.h"

using kvbm::Code;
using kvbm::ConstBytes;
using kvbm::MutableBytes;
using kvbm::Result;
using kvbm::Status;
using kvbm::capi::coding_workspace;
using kvbm::capi::fail;
using kvbm::capi::guarded;
using kvbm::capi::is_mode;
using kvbm::capi::take_form;
using kvbm::capi::too_small;
namespace codec = kvbm::codec;

#define KVBM_SAME(mode, value) static_assert(static_cast<int>(codec::Mode::mode) == (value))
KVBM_SAME(off, KVBM_CODEC_OFF);
KVBM_SAME(fast, KVBM_CODEC_FAST);
KVBM_SAME(standard, KVBM_CODEC_DEFAULT);
KVBM_SAME(max, KVBM_CODEC_MAX);
KVBM_SAME(zstd, KVBM_CODEC_ZSTD);
KVBM_SAME(fp8_e4m3, KVBM_CODEC_FP8_E4M3);
KVBM_SAME(fp8_e5m2, KVBM_CODEC_FP8_E5M2);
KVBM_SAME(int8, KVBM_CODEC_INT8);
KVBM_SAME(int6, KVBM_CODEC_INT6);
KVBM_SAME(int4, KVBM_CODEC_INT4);
KVBM_SAME(int8_coded, KVBM_CODEC_INT8_CODED);
KVBM_SAME(int6_coded, KVBM_CODEC_INT6_CODED);
KVBM_SAME(int4_coded, KVBM_CODEC_INT4_CODED);
KVBM_SAME(delta, KVBM_CODEC_DELTA);
#undef KVBM_SAME
#define KVBM_SAME(element) \
  static_assert(static_cast<int>(codec::Element::element) == static_cast<int>(kvbm::layout::Element::element))
KVBM_SAME(bytes);
KVBM_SAME(bf16);
KVBM_SAME(fp16);
KVBM_SAME(fp32);
KVBM_SAME(fp8_e4m3);
KVBM_SAME(fp8_e5m2);
KVBM_SAME(int8);
#undef KVBM_SAME

namespace {

constexpr codec::Mode kModes[] = {
    codec::Mode::off,        codec::Mode::fast,       codec::Mode::standard,   codec::Mode::max,  codec::Mode::zstd,
    codec::Mode::fp8_e4m3,   codec::Mode::fp8_e5m2,   codec::Mode::int8,       codec::Mode::int6, codec::Mode::int4,
    codec::Mode::int8_coded, codec::Mode::int6_coded, codec::Mode::int4_coded, codec::Mode::delta};

// Reads the form from the options. Returns KVBM_OK, or the code written to err.
kvbm_status_t take_form_of(const kvbm_codec_options_t* options, codec::LeafForm& form, kvbm_error_t* err) noexcept {
  kvbm_codec_options_t known{};
  if (!kvbm::capi::take_options(options, known)) return fail(err, Code::unsupported, kvbm::capi::kUnknownOptions);
  return take_form(known.element, known.row_elements, known.rows, form, err);
}

}  // namespace

namespace kvbm::capi {

codec::Workspace& coding_workspace() noexcept {
  thread_local codec::Workspace mine;
  return mine;
}

bool is_mode(uint32_t number) noexcept {
  for (const codec::Mode mode : kModes) {
    if (static_cast<uint32_t>(mode) == number) return true;
  }
  return false;
}

kvbm_status_t take_form(uint32_t element, uint32_t row_elements, uint32_t rows, codec::LeafForm& form,
                        kvbm_error_t* err) noexcept {
  if (element > KVBM_ELEMENT_INT8) return fail(err, Code::invalid_argument, "options.element is no KVBM_ELEMENT_*");
  if (rows != 0 && row_elements == 0) {
    return fail(err, Code::invalid_argument, "options.rows is set and options.row_elements is not");
  }
  form.element = static_cast<codec::Element>(element);
  form.row = row_elements;
  form.rows = rows;
  return KVBM_OK;
}

kvbm_status_t too_small(kvbm_error_t* err, size_t capacity, uint64_t needed) {
  return fail(err, Status(Code::no_room, "capacity is too small",
                          std::to_string(capacity) + " bytes were given, " + std::to_string(needed) + " are needed"));
}

}  // namespace kvbm::capi

extern "C" {

const char* kvbm_codec_mode_name(uint32_t mode) {
  // Names are literals, so they end with a zero byte.
  return is_mode(mode) ? codec::mode_name(static_cast<codec::Mode>(mode)).data() : nullptr;
}

kvbm_status_t kvbm_codec_mode_by_name(const char* name, uint32_t* out_mode, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (name == nullptr || out_mode == nullptr) return fail(err, Code::invalid_argument, "name or out_mode is NULL");
    const auto mode = codec::mode_by_name(name);
    if (!mode.has_value()) {
      std::string all;
      for (const codec::Mode known : kModes) all.append(all.empty() ? "" : ", ").append(codec::mode_name(known));
      return fail(err, Status(Code::invalid_argument, "no codec has that name", std::string(name) + "; one of " + all));
    }
    *out_mode = static_cast<uint32_t>(*mode);
    return kvbm::capi::done(err);
  });
}

const char* kvbm_codec_kernel(void) { return codec::codec_kernel_name(); }

kvbm_status_t kvbm_codec_options_init(kvbm_codec_options_t* out_options, uint32_t struct_size) {
  return kvbm::capi::init_options(out_options, struct_size, kvbm_codec_options_t{});
}

kvbm_status_t kvbm_codec_room(uint64_t raw_bytes, const kvbm_codec_options_t* options, uint64_t* out_bytes,
                              kvbm_error_t* err) {
  codec::LeafForm form;
  if (out_bytes == nullptr) return fail(err, Code::invalid_argument, "out_bytes is NULL");
  if (const kvbm_status_t taken = take_form_of(options, form, err); taken != KVBM_OK) return taken;
  if (raw_bytes > codec::kMaxStreamBytes) return fail(err, Code::invalid_argument, "raw_bytes is more than 2^40");
  *out_bytes = codec::stream_room(form, raw_bytes);
  return kvbm::capi::done(err);
}

kvbm_status_t kvbm_codec_encode(const void* raw, size_t raw_bytes, uint32_t mode, const kvbm_codec_options_t* options,
                                void* out, size_t capacity, size_t* out_bytes, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    codec::LeafForm form;
    if ((raw == nullptr && raw_bytes != 0) || out == nullptr || out_bytes == nullptr) {
      return fail(err, Code::invalid_argument, "raw, out or out_bytes is NULL");
    }
    if (!is_mode(mode)) return fail(err, Code::invalid_argument, "mode is no KVBM_CODEC_*");
    if (const kvbm_status_t taken = take_form_of(options, form, err); taken != KVBM_OK) return taken;
    if (raw_bytes > codec::kMaxStreamBytes) return fail(err, Code::invalid_argument, "raw_bytes is more than 2^40");
    const uint64_t room = codec::stream_room(form, raw_bytes);
    if (capacity < room) return too_small(err, capacity, room);
    const auto made =
        codec::encode_stream(form, static_cast<codec::Mode>(mode), {static_cast<const std::byte*>(raw), raw_bytes},
                             {static_cast<std::byte*>(out), capacity}, coding_workspace());
    if (!made.ok()) return fail(err, made.status());
    *out_bytes = made.value();
    return kvbm::capi::done(err);
  });
}

kvbm_status_t kvbm_codec_inspect(const void* coded, size_t coded_bytes, kvbm_codec_info_t* out_info,
                                 kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if ((coded == nullptr && coded_bytes != 0) || out_info == nullptr ||
        !kvbm::capi::is_struct_size(out_info->struct_size)) {
      return fail(err, Code::invalid_argument, "coded or out_info is NULL, or out_info->struct_size is not set");
    }
    const auto view = codec::StreamView::parse({static_cast<const std::byte*>(coded), coded_bytes});
    if (!view.ok()) return fail(err, view.status());
    const codec::StreamInfo& info = view.value().info();
    kvbm_codec_info_t out{};
    out.mode = info.mode;
    out.element = static_cast<uint32_t>(info.form.element);
    out.row_elements = info.form.row;
    out.rows = info.form.rows;
    out.lossy = info.lossy ? 1 : 0;
    out.leaves = info.leaves;
    out.raw_leaves = info.raw_leaves;
    out.raw_bytes = info.raw_bytes;
    out.coded_bytes = info.stored_bytes;
    out.error_ppb = codec::error_ppb(info.difference, info.value);
    kvbm::capi::init_options(out_info, out_info->struct_size, out);
    return kvbm::capi::done(err);
  });
}

kvbm_status_t kvbm_codec_decode(const void* coded, size_t coded_bytes, uint32_t flags, void* out_raw, size_t capacity,
                                size_t* out_bytes, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if ((coded == nullptr && coded_bytes != 0) || (out_raw == nullptr && capacity != 0) || out_bytes == nullptr) {
      return fail(err, Code::invalid_argument, "coded, out_raw or out_bytes is NULL");
    }
    if ((flags & ~KVBM_CODEC_ALLOW_LOSSY) != 0)
      return fail(err, Code::invalid_argument, "flags has bits that are not known");
    const auto view = codec::StreamView::parse({static_cast<const std::byte*>(coded), coded_bytes});
    if (!view.ok()) return fail(err, view.status());
    const uint64_t raw_bytes = view.value().info().raw_bytes;
    if (capacity < raw_bytes) return too_small(err, capacity, raw_bytes);
    Status decoded = view.value().decode((flags & KVBM_CODEC_ALLOW_LOSSY) != 0,
                                         {static_cast<std::byte*>(out_raw), capacity}, coding_workspace());
    if (!decoded.ok()) return fail(err, decoded);
    *out_bytes = raw_bytes;
    return kvbm::capi::done(err);
  });
}

}  // extern "C"
