// Writer and reader of message fields. Internal to wire; the reader also to session/wire.
#pragma once

#include <concepts>
#include <cstring>

#include "cluster/wire/wire.h"

namespace kvbm::cluster::wire {

// Writes fields into a buffer of checked size: put() has no check of its own.
class Writer {
 public:
  Writer(MutableBytes out, size_t bytes, Type type, size_t count, uint64_t request) noexcept
      : fits_(bytes <= out.size() && bytes <= kMaxBody), bytes_(bytes), at_(out.data()) {
    if (!fits_) return;
    put(static_cast<uint8_t>(type));
    put(uint8_t{0});
    put(uint16_t{0});
    put(static_cast<uint32_t>(count));
    put(request);
  }
  [[nodiscard]] bool fits() const noexcept { return fits_; }
  [[nodiscard]] size_t bytes() const noexcept { return bytes_; }

  template <std::integral T>
  void put(T v) noexcept {
    store_le(at_, v);
    at_ += sizeof v;
  }
  template <size_t N>
  void put(const std::array<uint8_t, N>& v) noexcept {
    std::memcpy(at_, v.data(), N);
    at_ += N;
  }
  void put(const Name& name) noexcept {
    put(name.key.bytes);
    put(name.family);
  }
  void put(const std::vector<Family>& families) noexcept {
    for (const Family& f : families) {
      put(f.ns.bytes);
      put(f.geometry);
      put(f.component);
      put(f.shard.first_layer);
      put(f.shard.layers);
      put(f.shard.first_head);
      put(f.shard.heads);
      put(f.shard.replicated);
      put(uint32_t{0});
    }
  }

 private:
  bool fits_;
  size_t bytes_;
  std::byte* at_;
};

// Reads with one check per field; after the first failure everything is zero and ok() is false.
class Reader {
 public:
  explicit Reader(ConstBytes bytes) noexcept : at_(bytes.data()), left_(bytes.size()) {}
  // Reads the head, which must be of this type.
  Reader(ConstBytes body, Type type, Head& head) noexcept : Reader(body) {
    const auto said = get<uint8_t>();
    zero<uint8_t>();
    zero<uint16_t>();
    head.count = get<uint32_t>();
    head.request = get<uint64_t>();
    head.type = static_cast<Type>(said);
    if (head.type != type) ok_ = false;
  }
  template <std::integral T>
  T get() noexcept {
    if (left_ < sizeof(T)) {
      ok_ = false;
      left_ = 0;
      return 0;
    }
    const T v = load_le<T>(at_);
    at_ += sizeof(T);
    left_ -= sizeof(T);
    return v;
  }
  template <std::integral T>
  void zero() noexcept {
    if (get<T>() != 0) ok_ = false;
  }
  template <size_t N>
  void get(std::array<uint8_t, N>& v) noexcept {
    if (left_ < N) {
      ok_ = false;
      left_ = 0;
      return;
    }
    std::memcpy(v.data(), at_, N);
    at_ += N;
    left_ -= N;
  }
  void bytes(void* to, size_t n) noexcept {
    if (left_ < n) ok_ = false;
    if (!ok_ || n == 0) return;  // an empty range may have no address
    std::memcpy(to, at_, n);
    at_ += n;
    left_ -= n;
  }
  void get(Name& name, size_t families) noexcept {
    get(name.key.bytes);
    name.family = get<uint16_t>();
    if (name.family >= families) ok_ = false;
  }
  // Checks that a message without items has count 0.
  void no_items(const Head& head) noexcept {
    if (head.count != 0) ok_ = false;
  }
  // Checks that exactly `count` items of `each` bytes are left, and `count` is at most `most`.
  bool items(size_t count, size_t each, size_t most) noexcept {
    if (count > most || left_ != count * each) ok_ = false;
    return ok_;
  }
  // Checks that `count` elements of `each` bytes are all here.
  bool room(uint64_t count, uint64_t limit, size_t each) noexcept {
    if (count > limit || count * each > left_) ok_ = false;
    return ok_;
  }
  void get(std::vector<Family>& families, uint32_t count) {
    families.clear();
    if (!room(count, kMaxFamiliesPerMessage, kFamilyBytes)) return;
    families.resize(count);
    for (Family& f : families) {
      get(f.ns.bytes);
      f.geometry = get<uint64_t>();
      f.component = get<uint16_t>();
      f.shard.first_layer = get<uint16_t>();
      f.shard.layers = get<uint16_t>();
      f.shard.first_head = get<uint16_t>();
      f.shard.heads = get<uint16_t>();
      f.shard.replicated = get<uint16_t>();
      zero<uint32_t>();
    }
  }
  void fail() noexcept { ok_ = false; }
  [[nodiscard]] bool good() const noexcept { return ok_; }
  [[nodiscard]] bool finished() const noexcept { return ok_ && left_ == 0; }
  // Checks that no bytes are left.
  [[nodiscard]] Status end(const char* text) const {
    if (finished()) return {};
    return {Code::damaged, text};
  }

 private:
  const std::byte* at_;
  size_t left_;
  bool ok_ = true;
};

}  // namespace kvbm::cluster::wire
