#include "run.h"

#include <chrono>
#include <cstring>
#include <thread>

namespace conformance {

std::vector<uint32_t> Args::tokens() {
  const Json& range = at("tokens");
  const uint32_t first = to_number<uint32_t>(range.at("first"));
  const uint32_t step = range.contains("step") ? to_number<uint32_t>(range.at("step")) : 1;
  std::vector<uint32_t> out(to_number<std::size_t>(range.at("count")));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = first + static_cast<uint32_t>(i) * step;
  return out;
}

kvbm_key_t Args::to_key(const Json& hex) {
  const std::string bytes = from_hex(hex.get<std::string>());
  kvbm_key_t out;
  if (bytes.size() != sizeof out.bytes) throw Failure("a key has 16 bytes: " + hex.dump());
  std::memcpy(out.bytes, bytes.data(), sizeof out.bytes);
  return out;
}

kvbm_part_t Args::to_part(const Json& value) {
  kvbm_part_t out;
  std::memset(&out, 0, sizeof out);
  if (value.contains("component")) out.component = to_number<uint32_t>(value.at("component"));
  if (!value.contains("shard")) return out;
  for (const auto& [name, n] : value.at("shard").items()) {
    const auto number = to_number<uint16_t>(n);
    if (name == "first_layer")
      out.shard.first_layer = number;
    else if (name == "layers")
      out.shard.layers = number;
    else if (name == "first_head")
      out.shard.first_head = number;
    else if (name == "heads")
      out.shard.heads = number;
    else if (name == "replicated")
      out.shard.replicated = number;
    else
      throw Failure("a shard has no " + name);
  }
  return out;
}

kvbm_part_t* Args::part(const char* name, kvbm_part_t& storage) {
  if (!has(name)) return nullptr;
  storage = to_part(at(name));
  return &storage;
}

std::vector<kvbm_part_t> Args::parts(const char* name) {
  std::vector<kvbm_part_t> out;
  if (has(name)) {
    for (const Json& part : at(name)) out.push_back(to_part(part));
  }
  return out;
}

std::vector<kvbm_position_t> Args::positions() {
  std::vector<kvbm_position_t> out;
  if (!has("positions")) return out;
  for (const Json& given : at("positions")) {
    const auto field = [&](const char* name) { return given.contains(name) ? to_number<uint64_t>(given.at(name)) : 0; };
    out.push_back({field("first_token"), field("rotation"), field("left_context")});
  }
  return out;
}

void Args::finish() const {
  static const std::set<std::string> of_every_step = {"do",      "as",    "expect",    "error",
                                                      "message", "range", "within_ns", "why"};
  for (const auto& [name, value] : values_.items()) {
    if (seen_.count(name) == 0 && of_every_step.count(name) == 0)
      throw Failure("no argument of this step kind: " + name);
  }
}

namespace {

const Steps& all_steps() {
  static const Steps steps = [] {
    Steps out;
    add_own_steps(out);
    add_codec_steps(out);
    add_manager_steps(out);
    add_block_steps(out);
    add_cache_steps(out);
    add_session_steps(out);
    add_device_steps(out);
    return out;
  }();
  return steps;
}

class Run {
 public:
  Run(const Json& constants, const std::string& directory) : constants_(constants) { bind("tmp", directory); }

  void bind(const std::string& name, const std::string& text) { variables_[name] = text; }

  void step(const Json& given) {
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::nanoseconds(given.contains("within_ns") ? given.at("within_ns").get<int64_t>() : 0);
    for (;;) {
      const std::string wrong = once(given);
      if (wrong.empty()) return;
      if (std::chrono::steady_clock::now() >= until) throw Failure(wrong);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  // Runs a step. Returns "" if it passed.
  std::string once(const Json& given) {
    const std::string wanted = given.value("error", "");
    const auto kind = all_steps().find(given.at("do").get<std::string>());
    if (kind == all_steps().end()) throw Failure("no step kind " + given.at("do").get<std::string>());
    Json values = given;
    const bool out_of_range = given.contains("range");
    for (const char* name : {"error", "message", "range", "why"}) values.erase(name);
    values = resolve(values, variables_, constants_);
    Args args(objects_, values);
    Json results;
    try {
      results = kind->second(args);
    } catch (const kvbm::Error& error) {
      return out_of_range ? std::string("reached the library: ") + error.what() : refusal(given, wanted, error);
    } catch (const std::out_of_range& error) {
      return out_of_range ? "" : error.what();
    }
    args.finish();
    if (out_of_range) return "took a number that cannot be, and gave " + results.dump();
    if (!wanted.empty()) return "did not fail with " + wanted + ", but gave " + results.dump();
    const Json names = given.value("as", Json::object());
    for (const auto& [name, variable] : names.items()) {
      if (!results.contains(name)) throw Failure("no result " + name);
      variables_[variable.get<std::string>()] = results.at(name);
    }
    return values.contains("expect") ? difference(values.at("expect"), results, "result") : "";
  }

  std::string refusal(const Json& given, const std::string& wanted, const kvbm::Error& error) const {
    if (wanted.empty() || error.name() != wanted) return std::string("failed: ") + error.what();
    const int status = constants_.at(wanted).get<int>();
    if (error.status() != status || static_cast<int>(error.band()) != -status / 100)
      return "the error is of another band";
    const std::string message = given.value("message", "");
    const bool said = std::string(error.what()).find(message) != std::string::npos;
    return said ? "" : "\"" + message + "\" is not in: " + error.what();
  }

  const Json& constants_;
  Variables variables_;
  Objects objects_;
};

}  // namespace

void run_scenario(const Json& scenario, const Json& constants, const std::string& directory,
                  const std::string& driver) {
  static const std::set<std::string> members = {"name", "purpose", "needs", "steps"};
  for (const auto& [name, value] : scenario.items()) {
    if (members.count(name) == 0) throw Failure("a scenario has no " + name);
  }
  Run run(constants, directory);
  if (scenario.contains("needs")) {
    if (scenario.at("needs") != "cuda_driver") throw Failure("no such need: " + scenario.at("needs").dump());
    run.bind("driver", driver);
  }
  std::size_t number = 0;
  for (const Json& step : scenario.at("steps")) {
    try {
      run.step(step);
    } catch (const std::exception& error) {
      throw Failure("step " + std::to_string(number) + " " + step.dump() + "\n  " + error.what());
    }
    ++number;
  }
}

}  // namespace conformance
