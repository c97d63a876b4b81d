#include "base/crypto/hmac.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace kvbm::hmac_test {
namespace {

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

std::vector<std::byte> bytes_of(const Mac& mac) {
  const auto bytes = std::as_bytes(std::span(mac));
  return {bytes.begin(), bytes.end()};
}

// RFC 4231 has no case with a 32-byte key; this value comes from Python's hmac module.
TEST(KeyedMac, is_hmac_sha256) {
  std::array<uint8_t, 32> key{};
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(i);
  const std::string text = "what do ya want for nothing?";
  const Mac mac = KeyedMac(key)(std::as_bytes(std::span(text)));
  std::string hex;
  for (const uint8_t b : mac) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", b);
    hex += two;
  }
  EXPECT_EQ(hex, "099805f4ac310786968565c098db515cc50862b420ae31e20238312344bed36a");
}

// RFC 4231, cases 2 and 6: a short key, and one that is longer than a block of the hash.
TEST(KeyedMac, takes_keys_of_any_length_and_messages_in_parts) {
  const std::string text = "what do ya want for nothing?";
  const KeyedMac keyed(std::as_bytes(std::span(std::string_view("Jefe"))));
  const auto expected = from_hex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const ConstBytes whole = std::as_bytes(std::span(text));
  EXPECT_EQ(bytes_of(keyed(whole)), expected);
  EXPECT_EQ(bytes_of(keyed({whole.first(5), {}, whole.subspan(5)})), expected);
  const std::vector<std::byte> long_key(131, std::byte{0xaa});
  const std::string long_text = "Test Using Larger Than Block-Size Key - Hash Key First";
  EXPECT_EQ(bytes_of(KeyedMac(ConstBytes(long_key))(std::as_bytes(std::span(long_text)))),
            from_hex("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"));
}

struct HkdfCase {
  std::string input, salt, info, extracted, expanded;
};

// RFC 5869, appendix A: the cases with SHA-256.
TEST(Hkdf, gives_the_vectors_of_rfc_5869) {
  std::string long_input, long_salt, long_info;
  for (int i = 0; i < 80; ++i) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", i);
    long_input += text;
    std::snprintf(text, sizeof text, "%02x", 0x60 + i);
    long_salt += text;
    std::snprintf(text, sizeof text, "%02x", 0xB0 + i);
    long_info += text;
  }
  std::string short_input;
  for (int i = 0; i < 22; ++i) short_input += "0b";
  const HkdfCase cases[] = {
      {short_input, "000102030405060708090a0b0c", "f0f1f2f3f4f5f6f7f8f9",
       "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
       "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"},
      {long_input, long_salt, long_info, "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
       "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600c2f09b"
       "8367"
       "793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"},
      {short_input, "", "", "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
       "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"},
  };
  for (const HkdfCase& c : cases) {
    const Mac extracted = hkdf_extract(from_hex(c.salt), from_hex(c.input));
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(extracted)), from_hex(c.extracted)));
    const auto expected = from_hex(c.expanded);
    std::vector<std::byte> out(expected.size());
    ASSERT_TRUE(hkdf_expand(extracted, from_hex(c.info), out));
    EXPECT_EQ(expected, out);
  }
}

TEST(Hkdf, gives_no_more_than_255_blocks) {
  const Mac key{};
  std::vector<std::byte> out(255 * kMacBytes + 1);
  EXPECT_FALSE(hkdf_expand(key, {}, out));
  out.pop_back();
  EXPECT_TRUE(hkdf_expand(key, {}, out));
  EXPECT_NE(out.back(), std::byte{0});
}

}  // namespace
}  // namespace kvbm::hmac_test
