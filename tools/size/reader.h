// One object of fields of a model's configuration. It reads them, remembers each that it used as a factor of the model,
// and keeps the first failure.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "size/model.h"

namespace kvbm::size {

using Json = nlohmann::json;

class Reader {
 public:
  Reader(const Json& config, Model& model) : config_(config), model_(model) {}

  // There and not null.
  [[nodiscard]] bool has(const char* name) const { return config_.contains(name) && !config_.at(name).is_null(); }
  [[nodiscard]] const Json& at(const char* name) const { return config_.at(name); }
  [[nodiscard]] const Json& all() const { return config_; }
  [[nodiscard]] Model& model() { return model_; }

  // Empty where it is not there.
  std::string text(const char* name);
  // False where it is not there.
  bool flag(const char* name);
  // The first of `names` that is there; a failure that names the first where none is.
  uint64_t need(std::initializer_list<const char*> names);
  // The first of `names` that is there and not 0; else 0.
  uint64_t maybe(std::initializer_list<const char*> names);
  // Of a field that is there: above zero, and no more than any model has.
  uint64_t number(const char* name);
  // A number that no field says, and where it comes from.
  uint64_t derived(const char* name, uint64_t value, std::string origin);
  void note(std::string text) { model_.notes.push_back(std::move(text)); }

  void refuse(std::string why);
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  void factor(const char* name, uint64_t value, std::string origin);

  const Json& config_;
  Model& model_;
  Status status_;
};

// A value as a message shows it: short, and text whatever bytes it holds.
std::string shown(const Json& value);

}  // namespace kvbm::size
