// Attached caches of the C interface's fuzzing, and their blocks coded into memory of the caller's and back.
#pragma once

#include "c_calls_blocks.h"

namespace kvbm::fuzz {

class CodingCalls : protected BlockCalls {
 protected:
  CodingCalls(const uint8_t* data, size_t size) : BlockCalls(data, size) {}

  kvbm_cache_t* attach(Submitted& op, size_t n) {
    kvbm_tensor_t tensor{op.tensors.base(), kEngineBlocks * kBlockBytes, 0, n == 0 ? kBlockBytes : 0};
    kvbm_cache_part_t part{};
    part.form = n == 0 ? KVBM_FORM_OPAQUE : in_.below(2) == 0 ? KVBM_FORM_CROSS_NHD : KVBM_FORM_CROSS_HND;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_t options;
    kvbm_cache_options_init(&options, sizeof options);
    options.n_blocks = kEngineBlocks;
    options.parts = &part;
    options.n_parts = 1;
    kvbm_cache_t* cache = nullptr;
    REQUIRE(kvbm_cache_attach(managers_[0], ns_[n], &options, &cache, nullptr) == KVBM_OK);
    return cache;
  }

  // Codes blocks of a cache, decodes the result into other blocks, and compares.
  void code() {
    Coding c;
    c.n = in_.below(2);
    c.op.cache = attach(c.op, c.n);
    const size_t blocks = in_.below(5);
    c.from = coded_ids(blocks);
    c.to = coded_ids(in_.bad() ? in_.below(5) : blocks);
    const bool numbers = in_.below(2) == 0;
    for (const uint32_t id : c.from.ids) {
      if (id >= kEngineBlocks) continue;
      uint8_t* const bytes = c.op.tensors.block(id);
      fill(bytes, kBlockBytes, keys_[c.n].id.data(), keys_[c.n].key[id % kKeys]);
      for (size_t i = 1; numbers && i < kBlockBytes; i += 2) bytes[i] = 0x3F;  // bf16 from 0.5 to 2
    }
    if (c.n == 0 && in_.below(2) == 0) {
      c.element = KVBM_ELEMENT_BF16;
      if (!numbers) c.element = static_cast<uint32_t>(in_.below(KVBM_ELEMENT_INT8 + 1));
      c.row = c.element == KVBM_ELEMENT_BYTES ? 0 : 64;
    }
    if (encode(c)) decode(c);
    c.op.tensors.check();
    for (uint32_t id = 0; id < kEngineBlocks; ++id) {
      if (!c.from.has(id) && !c.to.has(id)) REQUIRE(is_fresh(c.op.tensors.block(id)));
    }
    kvbm_cache_release(c.op.cache);
  }

 private:
  struct Ids {
    std::vector<uint32_t> ids;
    bool good = true;  // all are ids of the engine
    bool twice = false;
    [[nodiscard]] bool has(uint32_t id) const { return std::find(ids.begin(), ids.end(), id) != ids.end(); }
  };
  struct Coding {
    size_t n = 0;  // of the namespace
    Submitted op;
    Ids from;
    Ids to;
    uint32_t element = 0;
    uint32_t row = 0;
    uint32_t mode = 0;
    std::vector<uint8_t> coded;
  };

  Ids coded_ids(size_t n) {
    Ids out;
    const size_t first = in_.below(kEngineBlocks);
    for (size_t i = 0; i < n; ++i) {
      auto id = static_cast<uint32_t>((first + i) % kEngineBlocks);
      if (in_.bad()) {
        const uint64_t others[] = {KVBM_NO_BLOCK, std::max<uint64_t>(kEngineBlocks, in_.edge() % UINT32_MAX), first};
        id = static_cast<uint32_t>(others[in_.below(std::size(others))]);
      }
      out.good &= id < kEngineBlocks;
      out.twice |= out.has(id);
      out.ids.push_back(id);
    }
    return out;
  }

  static bool is_fresh(const uint8_t* block) {
    return block[0] == 0x5A && std::memcmp(block, block + 1, kBlockBytes - 1) == 0;
  }

  // Draws options of a call. Returns true if one of them is wrong.
  bool code_options(const Coding& c, Roomy<kvbm_cache_code_options_t>& room) {
    REQUIRE(kvbm_cache_code_options_init(&room.options, sizeof room.options) == KVBM_OK);
    kvbm_cache_code_options_t& o = room.options;
    o.element = c.element, o.row_elements = c.row;
    bool wrong = false;
    if (in_.bad()) o.part = static_cast<uint32_t>(in_.edge()), wrong |= o.part != 0;
    if (in_.bad()) o.stream = &room, wrong = true;  // of host memory there is none
    if (in_.bad()) o.has_stream = static_cast<uint32_t>(in_.edge()), wrong |= o.has_stream != 0;
    if (in_.bad()) o.reserved = 1, wrong = true;
    resize(room);
    const bool unknown = std::any_of(std::begin(room.tail), std::end(room.tail), [](uint8_t b) { return b != 0; });
    return wrong || unknown || o.struct_size < sizeof o;
  }

  // Returns the room that the blocks need. Asks again with valid options if the first call was refused.
  uint64_t room_of(const Coding& c, const kvbm_cache_code_options_t& given) {
    uint64_t room = kUnwritten;
    ErrorSlot slot;
    kvbm_error_t* err = in_.or_null(&slot.error);
    kvbm_cache_t* const cache = in_.or_null(c.op.cache);
    const size_t n = in_.bad() ? static_cast<size_t>(in_.edge()) : c.from.ids.size();
    const kvbm_status_t got =
        slot.check(expected(kvbm_cache_code_room(cache, n, &given, in_.or_null(&room), err)), err);
    REQUIRE((got == KVBM_OK) == (room != kUnwritten) && (got < 0 || cache != nullptr));
    if (got == KVBM_OK && n == c.from.ids.size()) return room;
    kvbm_cache_code_options_t right;
    REQUIRE(kvbm_cache_code_options_init(&right, sizeof right) == KVBM_OK);
    right.element = c.element, right.row_elements = c.row;
    REQUIRE(kvbm_cache_code_room(c.op.cache, c.from.ids.size(), &right, &room, nullptr) == KVBM_OK);
    return room;
  }

  bool encode(Coding& c) {
    static constexpr uint32_t kLossless[] = {KVBM_CODEC_OFF, KVBM_CODEC_FAST, KVBM_CODEC_DEFAULT, KVBM_CODEC_ZSTD};
    static constexpr uint32_t kLossy[] = {KVBM_CODEC_INT8, KVBM_CODEC_INT4, KVBM_CODEC_FP8_E4M3, KVBM_CODEC_INT6_CODED};
    c.mode = in_.below(2) == 0 ? kLossless[in_.below(std::size(kLossless))] : kLossy[in_.below(std::size(kLossy))];
    if (in_.bad()) c.mode = static_cast<uint32_t>(in_.edge());
    const auto is_one_of = [&](const auto& modes) {
      return std::find(std::begin(modes), std::end(modes), c.mode) != std::end(modes);
    };
    const bool is_float = c.n == 1 || (c.element >= KVBM_ELEMENT_BF16 && c.element <= KVBM_ELEMENT_FP32);
    Roomy<kvbm_cache_code_options_t> given;
    bool wrong = code_options(c, given) || !(is_one_of(kLossless) || (is_float && is_one_of(kLossy)));
    const uint64_t room = room_of(c, given.options);
    const bool no_room = in_.bad();
    const size_t capacity = static_cast<size_t>(room) - (no_room ? 1 + in_.below(static_cast<size_t>(room)) : 0);
    std::vector<uint8_t> out(capacity + 2 * kGuard, 0x5A);
    if (in_.bad()) given.options.flags = KVBM_CODEC_ALLOW_LOSSY, wrong = true;
    ErrorSlot slot;
    kvbm_error_t* err = in_.or_null(&slot.error);
    kvbm_cache_t* const cache = in_.or_null(c.op.cache);
    const uint32_t* const ids = in_.or_null(c.from.ids.data());
    uint8_t* const to = in_.or_null(out.data() + kGuard);
    size_t made = 0;
    size_t* const counted = in_.or_null(&made);
    const size_t n = c.from.ids.size();
    const kvbm_status_t got =
        slot.check(expected(kvbm_cache_encode(cache, ids, n, c.mode, &given.options, to, capacity, counted, err)), err);
    for (size_t i = 0; i < kGuard; ++i) REQUIRE(out[i] == 0x5A && out[out.size() - 1 - i] == 0x5A);
    wrong |= no_room || cache == nullptr || (ids == nullptr && n != 0) || to == nullptr || counted == nullptr ||
             !c.from.good;
    REQUIRE((got == KVBM_OK) == !wrong);
    if (got != KVBM_OK) return false;
    REQUIRE(made <= room);
    c.coded.assign(to, to + made);
    return true;
  }

  void decode(Coding& c) {
    kvbm_codec_info_t info{};
    info.struct_size = sizeof info;
    REQUIRE(kvbm_codec_inspect(c.coded.data(), c.coded.size(), &info, nullptr) == KVBM_OK);
    REQUIRE(info.mode == c.mode && info.raw_bytes == c.from.ids.size() * kBlockBytes);
    REQUIRE(info.coded_bytes == c.coded.size());
    std::vector<uint8_t> plain(info.raw_bytes + 1);
    size_t n = 0;
    REQUIRE(kvbm_codec_decode(c.coded.data(), c.coded.size(), KVBM_CODEC_ALLOW_LOSSY, plain.data(), plain.size(), &n,
                              nullptr) == KVBM_OK);
    REQUIRE(n == info.raw_bytes);
    std::vector<uint8_t> before;
    for (const uint32_t id : c.from.ids) {
      before.insert(before.end(), c.op.tensors.block(id), c.op.tensors.block(id) + kBlockBytes);
    }
    if (c.n == 0 && info.lossy == 0) REQUIRE(std::equal(before.begin(), before.end(), plain.begin()));
    const bool cut = in_.bad();
    if (cut) c.coded.resize(in_.below(c.coded.size()));
    const bool changed = in_.bad() && !c.coded.empty();
    if (changed) {
      const size_t at = in_.byte() + size_t{256} * in_.byte();
      c.coded[at % c.coded.size()] ^= static_cast<uint8_t>(1 + in_.below(255));
    }
    Roomy<kvbm_cache_code_options_t> given;
    bool wrong = code_options(c, given);
    const bool allowed = in_.below(2) == 0;
    given.options.flags = allowed ? KVBM_CODEC_ALLOW_LOSSY : 0;
    if (in_.bad()) given.options.flags |= 2, wrong = true;
    ErrorSlot slot;
    kvbm_error_t* err = in_.or_null(&slot.error);
    kvbm_cache_t* const cache = in_.or_null(c.op.cache);
    const uint32_t* const ids = in_.or_null(c.to.ids.data());
    const uint8_t* const from = in_.or_null(c.coded.data());
    const size_t blocks = c.to.ids.size();
    const kvbm_status_t got =
        slot.check(expected(kvbm_cache_decode(cache, from, c.coded.size(), ids, blocks, &given.options, err)), err);
    wrong |= cut || cache == nullptr || (ids == nullptr && blocks != 0) || (from == nullptr && !c.coded.empty()) ||
             !c.to.good || c.to.twice || blocks != c.from.ids.size();
    if (wrong) REQUIRE(got < 0);
    if (!wrong && !changed) REQUIRE(got == (info.lossy != 0 && !allowed ? KVBM_ERR_PERMISSION : KVBM_OK));
    if (got != KVBM_OK) return;
    // A changed byte that causes no error must not change the result. Pages are compared with the payloads.
    for (size_t i = 0; i < c.to.ids.size(); ++i) {
      const uint8_t* const now = c.op.tensors.block(c.to.ids[i]);
      if (info.lossy == 0) REQUIRE(std::memcmp(now, before.data() + i * kBlockBytes, kBlockBytes) == 0);
      if (c.n == 0) REQUIRE(std::memcmp(now, plain.data() + i * kBlockBytes, kBlockBytes) == 0);
    }
  }
};

}  // namespace kvbm::fuzz
