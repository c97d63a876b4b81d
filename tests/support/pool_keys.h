// Keys of pools for tests, as `kvbm key new` would have made them (lib/cluster/admission/pool_key.h), and files with
// one.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "support/other_user.h"

namespace kvbm::test {

// Bytes 0 to 31, and 32 to 63.
inline constexpr std::string_view kOnePoolKey =
    "kvbm-pool-key-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f:75cfd3a0";
inline constexpr std::string_view kOtherPoolKey =
    "kvbm-pool-key-1:202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f:9bfabfdb";

// Its user's alone.
inline std::string write_key_file(const std::string& path, std::string_view text = kOnePoolKey) {
  EXPECT_TRUE(write_own_file(path, std::string(text) + "\n"));
  return path;
}

}  // namespace kvbm::test
