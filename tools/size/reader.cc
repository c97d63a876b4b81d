#include "size/reader.h"

#include <utility>

namespace kvbm::size {

namespace {

// No field of a real config is nearly as large. Products of a few such numbers fit 64 bits.
constexpr uint64_t kMaxField = uint64_t{1} << 24;

}  // namespace

std::string shown(const Json& value) {
  constexpr size_t kMost = 40;
  if (value.is_array()) return "a list of " + std::to_string(value.size());
  if (value.is_object()) return "an object";
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, kMost);
}

std::string Reader::text(const char* name) {
  if (!has(name)) return "";
  if (at(name).is_string()) return at(name).get<std::string>();
  refuse("`" + std::string(name) + "` must be text, it is " + shown(at(name)));
  return "";
}

bool Reader::flag(const char* name) {
  if (!has(name)) return false;
  if (at(name).is_boolean()) return at(name).get<bool>();
  refuse("`" + std::string(name) + "` must be true or false, it is " + shown(at(name)));
  return false;
}

uint64_t Reader::need(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (has(name)) return number(name);
  }
  refuse("the field `" + std::string(*names.begin()) + "` is missing");
  return 1;
}

uint64_t Reader::maybe(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (has(name) && at(name) != 0) return number(name);
  }
  return 0;
}

uint64_t Reader::number(const char* name) {
  const Json& field = at(name);
  if (!field.is_number_unsigned()) {
    refuse("`" + std::string(name) + "` must be a whole number above zero, it is " + shown(field));
    return 1;
  }
  const auto value = field.get<uint64_t>();
  if (value == 0 || value > kMaxField) {
    refuse("`" + std::string(name) + "` is " + shown(field) + ", which no model has");
    return 1;
  }
  factor(name, value, name);
  return value;
}

uint64_t Reader::derived(const char* name, uint64_t value, std::string origin) {
  factor(name, value, std::move(origin));
  return value;
}

void Reader::refuse(std::string why) {
  if (status_.ok())
    status_ = Status(Code::invalid_argument, "this config.json does not say the KV size", std::move(why));
}

void Reader::factor(const char* name, uint64_t value, std::string origin) {
  for (const Factor& known : model_.factors) {
    if (known.name == name) return;
  }
  model_.factors.push_back({name, value, std::move(origin)});
}

}  // namespace kvbm::size
