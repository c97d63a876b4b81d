#include "manager/share/share_wire.h"

#include <gtest/gtest.h>

namespace kvbm::manager::share_wire_test {
namespace {

ShareMessage message(ShareKind kind, size_t keys) {
  ShareMessage m;
  m.kind = kind;
  m.code = Code::deadline;
  m.request = 7;
  m.value = 1ULL << 60;
  for (size_t i = 0; i < 16; ++i) m.base.bytes[i] = m.family.ns.bytes[i] = static_cast<uint8_t>(i + 1);
  m.family.geometry = 0x1122334455667788;
  m.family.component = 3;
  m.family.shard = {1, 2, 3, 4, 1};
  m.keys.resize(keys);
  for (size_t i = 0; i < keys; ++i) m.keys[i].bytes[0] = static_cast<uint8_t>(i);
  return m;
}

TEST(ShareWire, gives_back_what_was_said) {
  for (const size_t keys : {size_t{0}, size_t{1}, kMaxShareKeys}) {
    const ShareMessage m = message(ShareKind::erase, keys);
    ShareMessage out;
    ASSERT_TRUE(decode(encode(m), out).ok());
    EXPECT_EQ(out.kind, m.kind);
    EXPECT_EQ(out.code, m.code);
    EXPECT_EQ(out.request, m.request);
    EXPECT_EQ(out.value, m.value);
    EXPECT_EQ(out.base, m.base);
    EXPECT_EQ(out.family, m.family);
    EXPECT_EQ(out.keys, m.keys);
  }
}

TEST(ShareWire, the_first_message_says_the_configuration) {
  ShareMessage m;
  m.kind = ShareKind::here;
  m.block_bytes = 8192;
  m.disk_bytes = 1ULL << 40;
  ShareMessage out;
  ASSERT_TRUE(decode(encode(m), out).ok());
  EXPECT_EQ(out.block_bytes, m.block_bytes);
  EXPECT_EQ(out.disk_bytes, m.disk_bytes);
}

TEST(ShareWire, anything_else_is_damaged) {
  const std::vector<std::byte> good = encode(message(ShareKind::erase, 3));
  ShareMessage out;
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(decode(ConstBytes(good).first(n), out).ok()) << n;
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode(longer, out).ok());
  for (const unsigned kind : {0U, 7U, 255U}) {
    std::vector<std::byte> strange = good;
    strange[0] = static_cast<std::byte>(kind);
    EXPECT_FALSE(decode(strange, out).ok()) << kind;
  }
  EXPECT_FALSE(decode(encode(message(ShareKind::erase, kMaxShareKeys + 1)), out).ok());
}

}  // namespace
}  // namespace kvbm::manager::share_wire_test
