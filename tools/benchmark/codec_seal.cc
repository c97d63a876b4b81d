#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/memory/memory.h"
#include "benchmark/codec.h"
#include "benchmark/statistics.h"
#include "codec/seal/seal.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kLeafBytes = 64 << 10;
constexpr uint64_t kSealedBytes = kLeafBytes + codec::kSealTagBytes;

struct FreeSealed {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeSealed>;

// OpenSSL alone, with the calls in the order of its manual: one key, a new nonce for each leaf.
class Plain {
 public:
  Plain() : context_(EVP_CIPHER_CTX_new()) {}
  bool start(bool sealing) {
    const std::array<unsigned char, 32> key{1};
    return context_ != nullptr &&
           EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, key.data(), nullptr, sealing ? 1 : 0) == 1;
  }
  bool seal(uint64_t leaf, const std::byte* in, std::byte* out) {
    return begin(leaf) && update(in, out) && EVP_CipherFinal_ex(context_.get(), tag_.data(), &done_) == 1 &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, 16, out + kLeafBytes) == 1;
  }
  bool open(uint64_t leaf, std::byte* in, std::byte* out) {
    return begin(leaf) && update(in, out) &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, 16, in + kLeafBytes) == 1 &&
           EVP_CipherFinal_ex(context_.get(), tag_.data(), &done_) == 1;
  }

 private:
  bool begin(uint64_t leaf) {
    std::array<unsigned char, 12> nonce{};
    for (size_t i = 0; i < 8; ++i) nonce.at(i) = static_cast<unsigned char>(leaf >> (8 * i));
    return EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(), -1) == 1;
  }
  bool update(const std::byte* in, std::byte* out) {
    return EVP_CipherUpdate(context_.get(), reinterpret_cast<unsigned char*>(out), &done_,
                            reinterpret_cast<const unsigned char*>(in), static_cast<int>(kLeafBytes)) == 1;
  }
  Context context_;
  std::array<unsigned char, 16> tag_{};
  int done_ = 0;
};

struct SealBench {
  const std::byte* bytes;
  uint64_t leaves;
  std::unique_ptr<Arena> sealed, opened;
  codec::Sealer sealer;
  Plain plain;

  codec::SealedLeaf leaf(uint64_t i) const {
    return {static_cast<uint32_t>(i), static_cast<uint32_t>(kLeafBytes), static_cast<uint32_t>(i * kLeafBytes),
            codec::LeafCodec::raw};
  }
  Status seal() {
    Status done;
    for (uint64_t i = 0; done.ok() && i < leaves; ++i) {
      done = sealer.seal(leaf(i), {bytes + i * kLeafBytes, kLeafBytes}, {},
                         {sealed->data() + i * kSealedBytes, kSealedBytes});
    }
    return done;
  }
  Status open() {
    Status done;
    for (uint64_t i = 0; done.ok() && i < leaves; ++i) {
      done = sealer.open(leaf(i), {sealed->data() + i * kSealedBytes, kSealedBytes},
                         {opened->data() + i * kLeafBytes, kLeafBytes}, {});
    }
    return done;
  }
  Status reference(bool sealing) {
    bool fine = plain.start(sealing);
    for (uint64_t i = 0; fine && i < leaves; ++i) {
      std::byte* to = opened->data() + i * kLeafBytes;
      std::byte* stored = sealed->data() + i * kSealedBytes;
      fine = sealing ? plain.seal(i, bytes + i * kLeafBytes, stored) : plain.open(i, stored, to);
    }
    return fine ? Status() : Status(Code::internal, "OpenSSL refuses AES-256-GCM");
  }
};

}  // namespace

Result<std::vector<Row>> bench_seal(const std::byte* bytes, uint64_t n, int rounds) {
  const auto ring = codec::KeyRing::parse("1 " + std::string(64, 'a'));
  if (!ring.ok()) return ring.status();
  SealBench bench{bytes, std::max<uint64_t>(n / kLeafBytes, 1), nullptr, nullptr, {}, {}};
  if (n < kLeafBytes) return std::vector<Row>();
  for (auto* arena : {&bench.sealed, &bench.opened}) {
    ArenaOptions options;
    options.bytes = bench.leaves * kSealedBytes;
    options.touch_threads = 1;
    auto made = Arena::map(options);
    if (!made.ok()) return made.status();
    *arena = std::move(made).value();
  }
  codec::Header header;
  header.flags = codec::kSealed;
  header.key_id = ring.value()->sealing_key();
  header.record_id = {1};
  header.raw_bytes = bench.leaves * kLeafBytes;
  header.leaf_count = static_cast<uint32_t>(bench.leaves);
  Status done = bench.sealer.start(*ring.value(), header);
  std::vector<double> seals, opens, plain_seals, plain_opens;
  for (int round = 0; done.ok() && round < rounds; ++round) {
    // Each side opens its own sealed leaves, because keys and nonces differ.
    done = timed(seals, [&] { return bench.seal(); });
    if (done.ok()) done = timed(opens, [&] { return bench.open(); });
    if (done.ok()) done = timed(plain_seals, [&] { return bench.reference(true); });
    if (done.ok()) done = timed(plain_opens, [&] { return bench.reference(false); });
  }
  if (!done.ok()) return done;
  const double gigabytes = static_cast<double>(bench.leaves * kLeafBytes) / 1e9;
  return std::vector<Row>{more_is_better("codec.seal", gigabytes / median(seals), "GB/s",
                                         gigabytes / median(plain_seals), "OpenSSL's AES-256-GCM"),
                          more_is_better("codec.open", gigabytes / median(opens), "GB/s",
                                         gigabytes / median(plain_opens), "OpenSSL's AES-256-GCM")};
}

}  // namespace kvbm::benchmark
