// The public C objects of a benchmark: a context, one manager, one namespace of opaque blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kvbm.h"

namespace kvbm::benchmark {

struct StoreOptions {
  uint64_t block_bytes = 0;
  uint32_t slots = 0;  // host blocks
  std::string disk;    // directory of a disk tier, or the URL of a store; empty: none
  uint64_t disk_bytes = 0;
  uint64_t disk_read_bytes_per_s = 0;  // cap; 0 = none
  uint32_t admission = KVBM_ADMIT_ALL;
  const char* codec = nullptr;                // of the disk; null: off
  const char* managed_hashes = nullptr;       // host.managed_hashes; null: as configured
  const kvbm_geometry_t* geometry = nullptr;  // of the namespace; null: opaque
};

class Store {
 public:
  static Result<std::unique_ptr<Store>> open(const StoreOptions& options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  [[nodiscard]] kvbm_context_t* context() const noexcept { return context_; }
  [[nodiscard]] kvbm_manager_t* manager() const noexcept { return manager_; }
  [[nodiscard]] kvbm_namespace_t* ns() const noexcept { return ns_; }
  [[nodiscard]] uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }
  [[nodiscard]] kvbm_manager_stats_t stats() const;

 private:
  Store() = default;
  kvbm_context_t* context_ = nullptr;
  kvbm_manager_t* manager_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
  uint64_t capacity_bytes_ = 0;
};

// Returns a failed C call's status with its text.
Status failed(const char* what, kvbm_status_t status, const kvbm_error_t* error = nullptr);

}  // namespace kvbm::benchmark
