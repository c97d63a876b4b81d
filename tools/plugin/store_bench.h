// Shared parts of the rules of store_check: an open store, unique names, and contents that identify themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/store_check.h"
#include "plugin/store_runner.h"

namespace kvbm::plugin {

struct Outcome {
  Verdict verdict = Verdict::passed;
  std::string seen;
};
inline Outcome passed(std::string seen = "") { return {Verdict::passed, std::move(seen)}; }
inline Outcome failed(std::string seen) { return {Verdict::failed, std::move(seen)}; }
inline Outcome skipped(std::string seen) { return {Verdict::skipped, std::move(seen)}; }

class StoreBench {
 public:
  StoreBench(const kvbm_store_table_t& table, const capi::StoreUrl& url, capi::StoreOptions options,
             const CheckLimits& limits);
  ~StoreBench();

  // Returns "" if the store is open. Opens it again if it got stuck.
  std::string open();
  [[nodiscard]] StoreRunner& store() { return *runner_; }
  // Opens the same place once more, as another host would.
  StoreRunner::Opened open_another(const capi::StoreOptions* options = nullptr);
  void close() { runner_.reset(); }

  // Returns a name beneath this check's own prefix, which is removed at the end.
  std::string name(const std::string& tail);
  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  [[nodiscard]] const CheckLimits& limits() const { return limits_; }
  [[nodiscard]] const kvbm_store_table_t& table() const { return table_; }
  [[nodiscard]] const capi::StoreOptions& options() const { return options_; }
  [[nodiscard]] Misdeeds& misdeeds() { return *misdeeds_; }
  // Returns why the first open failed.
  [[nodiscard]] const StoreRunner::Opened& first() const { return first_; }

  // Each of the following returns a fault, or "".
  std::string put(const std::string& name, const Data& data, uint32_t flags = 0);
  std::string expect_data(const std::string& name, const Data& data);
  std::string expect_range(const std::string& name, const Data& data, uint64_t offset, uint64_t bytes);
  std::string expect_missing(const std::string& name);
  std::string remove(const std::string& name, uint32_t flags = 0);
  // Lists all names into `out`, page by page. Checks each page for violations.
  std::string list(StoreRunner& store, const std::string& prefix, const std::string& after, uint64_t room,
                   std::vector<std::string>& out, size_t* pages = nullptr);
  void remove_all();

 private:
  const kvbm_store_table_t& table_;
  const capi::StoreUrl& url_;
  const capi::StoreOptions options_;
  const CheckLimits limits_;
  const std::shared_ptr<Misdeeds> misdeeds_ = std::make_shared<Misdeeds>();
  std::string prefix_;
  std::vector<std::string> written_;
  StoreRunner::Opened first_;
  std::unique_ptr<StoreRunner> runner_;
};

struct Rule {
  const char* name;
  const char* text;
  Outcome (*check)(StoreBench& bench);
};
std::span<const Rule> object_rules();
std::span<const Rule> listing_rules();
std::span<const Rule> strain_rules();

// Returns bytes that only this number and length have. A part of another number's bytes is detected.
Data content_of(uint64_t number, size_t bytes);
bool is_content_of(uint64_t number, const uint8_t* data, size_t bytes);

}  // namespace kvbm::plugin
