// What a manager can be told, typed. From configuration by options.cc, from the C API by capi.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/family_table.h"
#include "block/block_table.h"
#include "policy/admission.h"
#include "tier/tier.h"

namespace kvbm::manager {

// Makes a tier that is not built in (a plug-in): given where it stands and who hears of its losses.
using MakeTier = std::function<Result<std::unique_ptr<tier::Tier>>(TierIndex, FamilyTable&, tier::TierListener*)>;

struct TierOptions {
  std::string path;   // a disk's directory
  MakeTier make;      // or another kind of tier
  uint64_t capacity_bytes = 0;
  uint64_t write_bytes_per_s = 0;
  uint64_t read_bytes_per_s = 0;
  policy::AdmissionKind admission = policy::AdmissionKind::all;
  uint32_t admission_uses = 2;
};

struct Options {
  uint64_t block_bytes = 0;
  uint64_t host_capacity_bytes = 0;
  std::string host_file;
  bool huge_pages = true;
  bool touch = false;
  std::string policy = std::string(policy::kDefaultPolicy);
  block::BlockTable::MakePolicy make_policy;  // empty: built-in policies by name
  std::vector<TierOptions> tiers;
};

// The schema of every option of the library, for configuration files, the environment and the docs.
const ConfigSchema& option_schema();
// Manager options out of an effective configuration.
Result<Options> options_from(const Config& config);

}  // namespace kvbm::manager
