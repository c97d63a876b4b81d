// One scenario while it runs: its variables and objects, and the arguments of a step as kvbm.hpp wants them.
#pragma once

#include <any>
#include <cctype>
#include <charconv>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "kvbm.hpp"
#include "values.h"

namespace conformance {

// Memory of a scenario. The allocation ends exactly at the last byte, so that a sanitizer sees a byte too many.
struct Memory {
  explicit Memory(std::size_t bytes) : owned(new uint8_t[bytes]()), data(owned.get()), size(bytes) {}
  Memory(uint8_t* device_memory, std::size_t bytes) : data(device_memory), size(bytes) {}
  std::unique_ptr<uint8_t[]> owned;
  uint8_t* data;
  std::size_t size;
};

// Objects of a scenario by number; a variable has the number in an object of its own, which equals nothing else.
class Objects {
 public:
  template <class T>
  Json add(T&& object) {
    all_.push_back(std::make_shared<std::decay_t<T>>(std::forward<T>(object)));
    texts_.emplace_back();
    if constexpr (has_text<std::decay_t<T>>::value) {
      texts_.back() = [](const std::any& of) {
        std::ostringstream out;
        out << **std::any_cast<std::shared_ptr<std::decay_t<T>>>(&of);
        return out.str();
      };
    }
    return Json::object({{"object", all_.size() - 1}});
  }
  template <class T>
  T& get(const Json& value) {
    const auto* found = std::any_cast<std::shared_ptr<T>>(&slot(value));
    if (found == nullptr) throw Failure("an object of another kind, or one that was released: " + value.dump());
    return **found;
  }
  // Returns a value as the text that a stream prints.
  std::string text(const Json& value) {
    const std::any& of = slot(value);
    const auto& text = texts_.at(value.at("object").get<std::size_t>());
    if (!of.has_value() || !text) throw Failure("an object that has no text: " + value.dump());
    return text(of);
  }
  void release(const Json& value) { slot(value).reset(); }
  ~Objects() {
    while (!all_.empty()) all_.pop_back();  // the newest first
  }

 private:
  template <class T, class = void>
  struct has_text : std::false_type {};
  template <class T>
  struct has_text<T, std::void_t<decltype(kvbm::to_string(std::declval<const T&>()))>> : std::true_type {};
  std::any& slot(const Json& value) {
    if (!value.is_object() || !value.contains("object")) throw Failure("no object: " + value.dump());
    return all_.at(value.at("object").get<std::size_t>());
  }
  std::vector<std::any> all_;
  std::vector<std::function<std::string(const std::any&)>> texts_;
};

// The arguments of a step. finish() refuses arguments that no code has read, because the step kind does not have them.
class Args {
 public:
  Args(Objects& objects, const Json& values) : objects_(objects), values_(values) {}

  bool has(const char* name) {
    seen_.insert(name);
    return values_.contains(name) && !values_.at(name).is_null();
  }
  const Json& at(const char* name) {
    if (!has(name)) throw Failure(std::string("no argument ") + name);
    return values_.at(name);
  }
  template <class T>
  T number(const char* name) {
    return to_number<T>(at(name));
  }
  template <class T>
  void number(const char* name, T& out) {
    if (has(name)) out = number<T>(name);
  }
  std::string text(const char* name) { return at(name).get<std::string>(); }
  template <class T>
  T& object(const char* name) {
    return objects_.get<T>(at(name));
  }
  template <class T>
  T* object_or_null(const char* name) {
    return has(name) ? &object<T>(name) : nullptr;
  }
  kvbm::Keys keys(const char* name) {
    kvbm::Keys out;
    for (const Json& key : at(name)) out.push_back(to_key(key));
    return out;
  }
  template <class T>
  std::vector<T> numbers(const char* name) {
    std::vector<T> out;
    for (const Json& n : at(name)) out.push_back(to_number<T>(n));
    return out;
  }
  void* stream(const char* name) { return reinterpret_cast<void*>(number<uintptr_t>(name)); }
  // Sets the two fields of options that name a stream, if one is given.
  template <class Options>
  void stream_of(Options& options) {
    if (has("stream")) options.stream = stream("stream"), options.has_stream = 1;
  }
  std::vector<uint32_t> tokens();
  kvbm_part_t* part(const char* name, kvbm_part_t& storage);
  std::vector<kvbm_part_t> parts(const char* name);
  std::vector<kvbm_position_t> positions();
  Objects& objects() { return objects_; }
  // Throws if an argument was not read.
  void finish() const;

  template <class T>
  static T to_number(const Json& value) {
    if (!value.is_string() && !value.is_number_integer()) throw Failure("no number: " + value.dump());
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    T out{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    const bool negative = std::is_unsigned_v<T> && text[0] == '-';
    if (negative || error == std::errc::result_out_of_range) throw std::out_of_range(text + " does not fit");
    if (error != std::errc{} || end != text.data() + text.size()) throw Failure("no number: " + text);
    return out;
  }
  static kvbm_key_t to_key(const Json& hex);
  static kvbm_part_t to_part(const Json& value);

 private:
  Objects& objects_;
  const Json& values_;
  std::set<std::string> seen_;
};

using Step = std::function<Json(Args&)>;
using Steps = std::map<std::string, Step>;
// Adds the step kinds of one part of the library.
void add_own_steps(Steps& steps);
void add_manager_steps(Steps& steps);
void add_block_steps(Steps& steps);
void add_cache_steps(Steps& steps);
void add_session_steps(Steps& steps);
void add_codec_steps(Steps& steps);
void add_device_steps(Steps& steps);

// Runs a scenario in `directory`; throws a Failure that names the step. `driver`: the fake CUDA driver, for scenarios
// that need it.
void run_scenario(const Json& scenario, const Json& constants, const std::string& directory,
                  const std::string& driver = {});

// Returns a row's text in lower case.
inline Json shown(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}
inline Json hex_of(const kvbm_key_t& key) { return to_hex(key.bytes, sizeof key.bytes); }
inline Json keys_json(const kvbm::Keys& keys) {
  Json out = Json::array();
  for (const kvbm_key_t& key : keys) out.push_back(hex_of(key));
  return out;
}

}  // namespace conformance
