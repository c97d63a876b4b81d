// Step kinds of coding buffers.
#include "run.h"

namespace conformance {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes bytes_of(Args& args, const char* name) {
  const std::string text = from_hex(args.text(name));
  return Bytes(text.begin(), text.end());
}

Json encode(Args& args) {
  Bytes raw;
  if (args.has("raw")) {
    raw = bytes_of(args, "raw");
  } else {
    raw.resize(args.number<std::size_t>("bytes"));
    pattern_fill(raw.data(), raw.size(), args.number<uint32_t>("seed"));
  }
  auto form = kvbm::codec::options();
  args.number("element", form.element);
  args.number("row_elements", form.row_elements);
  args.number("rows", form.rows);
  const Bytes coded = kvbm::codec::encode(raw, args.number<uint32_t>("mode"), form);
  return Json::object({{"coded", to_hex(coded.data(), coded.size())}, {"n", coded.size()}});
}

Json inspect(Args& args) {
  const kvbm_codec_info_t info = kvbm::codec::inspect(bytes_of(args, "coded"));
  return Json::object({{"mode", info.mode},
                       {"element", info.element},
                       {"row_elements", info.row_elements},
                       {"rows", info.rows},
                       {"lossy", info.lossy},
                       {"leaves", info.leaves},
                       {"raw_leaves", info.raw_leaves},
                       {"raw_bytes", info.raw_bytes},
                       {"coded_bytes", info.coded_bytes},
                       {"error_ppb", info.error_ppb}});
}

Json decode(Args& args) {
  uint32_t allow_lossy = 0;
  args.number("allow_lossy", allow_lossy);
  const Bytes raw = kvbm::codec::decode(bytes_of(args, "coded"), allow_lossy != 0 ? KVBM_CODEC_ALLOW_LOSSY : 0);
  return Json::object({{"raw", to_hex(raw.data(), raw.size())}, {"n", raw.size()}});
}

// Reads the options that choose blocks of a cache, without the stream.
kvbm_cache_code_options_t code_options(Args& args) {
  auto options = kvbm::code_options();
  args.number("part", options.part);
  args.number("element", options.element);
  args.number("row_elements", options.row_elements);
  args.number("rows", options.rows);
  return options;
}

Json code_room(Args& args) {
  const auto options = code_options(args);
  return Json::object(
      {{"bytes", args.object<kvbm::Cache>("cache").code_room(args.number<std::size_t>("n_blocks"), options)}});
}

Json encode_blocks(Args& args) {
  auto options = code_options(args);
  args.stream_of(options);
  auto& cache = args.object<kvbm::Cache>("cache");
  const auto ids = args.numbers<uint32_t>("block_ids");
  const auto mode = args.number<uint32_t>("mode");
  Bytes coded;
  if (args.has("capacity")) {
    coded.resize(args.number<std::size_t>("capacity"));
    coded.resize(cache.encode(ids, coded, mode, options));
  } else {
    coded = cache.encode(ids, mode, options);
  }
  return Json::object({{"coded", to_hex(coded.data(), coded.size())}, {"n", coded.size()}});
}

Json decode_blocks(Args& args) {
  auto options = code_options(args);
  args.stream_of(options);
  uint32_t allow_lossy = 0;
  args.number("allow_lossy", allow_lossy);
  if (allow_lossy != 0) options.flags = KVBM_CODEC_ALLOW_LOSSY;
  Bytes coded = bytes_of(args, "coded");
  if (args.has("coded_bytes")) {
    const auto n = args.number<std::size_t>("coded_bytes");
    if (n > coded.size()) throw Failure("coded_bytes is more than there are");
    coded.resize(n);
    coded.shrink_to_fit();  // a sanitizer then detects a byte too many
  }
  args.object<kvbm::Cache>("cache").decode(coded, args.numbers<uint32_t>("block_ids"), options);
  return {};
}

}  // namespace

void add_codec_steps(Steps& steps) {
  steps["codec.mode"] = [](Args& args) { return Json::object({{"mode", kvbm::codec::mode(args.text("name"))}}); };
  steps["codec.encode"] = encode;
  steps["codec.inspect"] = inspect;
  steps["codec.decode"] = decode;
  steps["cache.code_room"] = code_room;
  steps["cache.encode"] = encode_blocks;
  steps["cache.decode"] = decode_blocks;
}

}  // namespace conformance
