// Reads one object of fields of a model's configuration. Records each field that was used as a factor of the model,
// and the first failure.
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

  // Returns whether the field is present and not null.
  [[nodiscard]] bool has(const char* name) const { return config_.contains(name) && !config_.at(name).is_null(); }
  [[nodiscard]] const Json& at(const char* name) const { return config_.at(name); }
  [[nodiscard]] const Json& all() const { return config_; }
  [[nodiscard]] Model& model() { return model_; }

  // Returns "" for a missing field.
  std::string text(const char* name);
  // Returns false for a missing field.
  bool flag(const char* name);
  // Returns the first of `names` that is present. If none is, fails with the first name.
  uint64_t need(std::initializer_list<const char*> names);
  // Returns the first of `names` that is present and not 0; else 0.
  uint64_t maybe(std::initializer_list<const char*> names);
  // Reads a present field: above zero, and no more than any model has.
  uint64_t number(const char* name);
  // Records a number that is in no field, and its origin.
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

// Formats a value for a message: short, and printable whatever bytes it has.
std::string shown(const Json& value);

}  // namespace kvbm::size
