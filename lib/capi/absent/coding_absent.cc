// Stands in for codecs and sealing in a build without them. Tiers store records as they are. A coded or sealed record
// that another build left in a tier is refused at a load (Code::mismatch), like one of another shape.
#include "capi/absent/absent.h"
#include "codec/coded/recipe.h"
#include "manager/common/options.h"
#include "manager/common/seal_keys.h"
#include "manager/lower/coded_tiers.h"
#include "manager/stack/coded_landing.h"

namespace kvbm::codec {

Result<Recipe> Recipe::parse(std::string_view) { return capi::absent(capi::kNoCoding); }
bool Recipe::lossy() const noexcept { return false; }
// A workspace never has memory, nor its sealer a key.
void Workspace::Free::operator()(std::byte*) const noexcept {}
AesGcm::~AesGcm() = default;

}  // namespace kvbm::codec

namespace kvbm::manager {

bool is_storage(const tier::Tier& tier) noexcept {
  return tier.kind() == "disk" || tier.kind() == "plugin" || tier.kind() == "store";
}
std::unique_ptr<tier::Tier> code_tier(const CodedTierParts&, const TierOptions&, std::unique_ptr<tier::Tier> tier) {
  return tier;
}

// Runs before a manager is made, so it also refuses options of coding.
Status load_seal_keys(Options& options) {
  bool coded = !options.seal_key_file.empty() || options.seal_keys != nullptr;
  for (const TierOptions& tier : options.tiers) coded = coded || tier.codec != "off";
  return coded ? capi::absent(capi::kNoCoding) : Status();
}

void BackgroundDecoder::keep(const Identity&, Delivery) {}

}  // namespace kvbm::manager

using kvbm::capi::absent;
using kvbm::capi::kNoCoding;

extern "C" {

const char* kvbm_codec_mode_name(uint32_t) { return nullptr; }
kvbm_status_t kvbm_codec_mode_by_name(const char*, uint32_t*, kvbm_error_t* err) { return absent(err, kNoCoding); }
const char* kvbm_codec_kernel(void) { return "none"; }
kvbm_status_t kvbm_codec_options_init(kvbm_codec_options_t*, uint32_t) { return absent(nullptr, kNoCoding); }
kvbm_status_t kvbm_codec_room(uint64_t, const kvbm_codec_options_t*, uint64_t*, kvbm_error_t* err) {
  return absent(err, kNoCoding);
}
kvbm_status_t kvbm_codec_encode(const void*, size_t, uint32_t, const kvbm_codec_options_t*, void*, size_t, size_t*,
                                kvbm_error_t* err) {
  return absent(err, kNoCoding);
}
kvbm_status_t kvbm_codec_inspect(const void*, size_t, kvbm_codec_info_t*, kvbm_error_t* err) {
  return absent(err, kNoCoding);
}
kvbm_status_t kvbm_codec_decode(const void*, size_t, uint32_t, void*, size_t, size_t*, kvbm_error_t* err) {
  return absent(err, kNoCoding);
}

kvbm_status_t kvbm_cache_code_options_init(kvbm_cache_code_options_t*, uint32_t) { return absent(nullptr, kNoCoding); }
kvbm_status_t kvbm_cache_code_room(kvbm_cache_t*, size_t, const kvbm_cache_code_options_t*, uint64_t*,
                                   kvbm_error_t* err) {
  return absent(err, kNoCoding);
}
kvbm_status_t kvbm_cache_encode(kvbm_cache_t*, const uint32_t*, size_t, uint32_t, const kvbm_cache_code_options_t*,
                                void*, size_t, size_t*, kvbm_error_t* err) {
  return absent(err, kNoCoding);
}
kvbm_status_t kvbm_cache_decode(kvbm_cache_t*, const void*, size_t, const uint32_t*, size_t,
                                const kvbm_cache_code_options_t*, kvbm_error_t* err) {
  return absent(err, kNoCoding);
}

}  // extern "C"
