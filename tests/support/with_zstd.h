// Whether this build has zstd (KVBM_WITH_ZSTD), which alone makes bytes smaller of which nothing is known. Tests that
// expect that of opaque blocks are skipped without it.
#pragma once

#include <kvbm.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace kvbm::test {

inline bool with_zstd() {
  const std::string zeros(4096, '\0');
  uint64_t room = 0;
  if (kvbm_codec_room(zeros.size(), nullptr, &room, nullptr) != KVBM_OK) return false;
  std::string coded(room, '\0');
  size_t bytes = 0;
  return kvbm_codec_encode(zeros.data(), zeros.size(), KVBM_CODEC_ZSTD, nullptr, coded.data(), coded.size(), &bytes,
                           nullptr) == KVBM_OK &&
         bytes < zeros.size();
}

inline constexpr const char* kWithoutZstd = "built without zstd, which alone makes opaque bytes smaller";

}  // namespace kvbm::test
