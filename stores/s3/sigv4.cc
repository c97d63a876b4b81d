#include "sigv4.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <ctime>

namespace kvbm_s3 {
namespace {

using Digest = std::array<unsigned char, 32>;

std::string hex(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Digest hmac(const void* key, size_t key_bytes, std::string_view text) {
  Digest digest{};
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), key, static_cast<int>(key_bytes), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       digest.data(), &bytes);
  return digest;
}
Digest hmac(const Digest& key, std::string_view text) { return hmac(key.data(), key.size(), text); }

// Removes blanks around a value, and replaces several blanks by one.
std::string trimmed(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c != ' ' && c != '\t') {
      text += c;
    } else if (!text.empty() && text.back() != ' ') {
      text += ' ';
    }
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

std::array<uint32_t, 256> crc32c_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    table[i] = crc;
  }
  return table;
}

uint32_t crc32c_plain(const unsigned char* at, size_t bytes) {
  static const std::array<uint32_t, 256> table = crc32c_table();
  uint32_t crc = ~0U;
  for (size_t i = 0; i < bytes; ++i) crc = (crc >> 8) ^ table[(crc ^ at[i]) & 0xFF];
  return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_fast(const unsigned char* at, size_t bytes) {
  uint64_t crc = ~0U;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word = 0;
    __builtin_memcpy(&word, at, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  auto rest = static_cast<uint32_t>(crc);
  for (; bytes > 0; ++at, --bytes) rest = __builtin_ia32_crc32qi(rest, *at);
  return ~rest;
}
#endif

uint32_t crc32c(const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_fast(at, bytes);
#endif
  return crc32c_plain(at, bytes);
}

}  // namespace

Credentials::~Credentials() {
  OPENSSL_cleanse(secret.data(), secret.size());
  OPENSSL_cleanse(token.data(), token.size());
}

std::string sha256_hex(const void* data, size_t bytes) {
  Digest digest{};
  EVP_Digest(data, bytes, digest.data(), nullptr, EVP_sha256(), nullptr);
  return hex(digest);
}

std::string crc32c_base64(const void* data, size_t bytes) {
  const uint32_t crc = crc32c(data, bytes);
  const unsigned char in[4] = {static_cast<unsigned char>(crc >> 24), static_cast<unsigned char>(crc >> 16),
                               static_cast<unsigned char>(crc >> 8), static_cast<unsigned char>(crc)};
  unsigned char out[12];
  const int length = EVP_EncodeBlock(out, in, 4);
  return {reinterpret_cast<const char*>(out), static_cast<size_t>(length)};
}

std::string uri_encode(std::string_view text, bool keep_slash) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~' || (keep_slash && c == '/');
    if (plain) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

std::string canonical_query(Pairs query) {
  for (auto& [name, value] : query) {
    name = uri_encode(name, false);
    value = uri_encode(value, false);
  }
  std::sort(query.begin(), query.end());
  std::string out;
  for (const auto& [name, value] : query) {
    if (!out.empty()) out += '&';
    out.append(name).append("=").append(value);
  }
  return out;
}

std::string amz_date(int64_t unix_s) {
  const auto when = static_cast<time_t>(unix_s);
  tm parts{};
  gmtime_r(&when, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts);
  return {text, length};
}

std::string authorization(const Signable& request, const Credentials& credentials, std::string_view region,
                          std::string_view service, std::string_view date) {
  Pairs headers = request.headers;
  std::sort(headers.begin(), headers.end());
  std::string canonical;
  canonical.append(request.method).append("\n").append(request.path).append("\n").append(request.query).append("\n");
  std::string signed_names;
  for (const auto& [name, value] : headers) {
    canonical.append(name).append(":").append(trimmed(value)).append("\n");
    if (!signed_names.empty()) signed_names += ';';
    signed_names += name;
  }
  canonical.append("\n").append(signed_names).append("\n").append(request.payload_hash);

  const std::string_view day = date.substr(0, 8);
  std::string scope;
  scope.append(day).append("/").append(region).append("/").append(service).append("/aws4_request");
  std::string to_sign = "AWS4-HMAC-SHA256\n";
  to_sign.append(date).append("\n").append(scope).append("\n");
  to_sign += sha256_hex(canonical.data(), canonical.size());

  std::string first = "AWS4" + credentials.secret;
  Digest key = hmac(first.data(), first.size(), day);
  OPENSSL_cleanse(first.data(), first.size());
  key = hmac(hmac(hmac(key, region), service), "aws4_request");
  return "AWS4-HMAC-SHA256 Credential=" + credentials.access_key + "/" + scope + ", SignedHeaders=" + signed_names +
         ", Signature=" + hex(hmac(key, to_sign));
}

}  // namespace kvbm_s3
