// Step kinds of the runner itself, and those of contexts, queues, geometries and keys.
#include <chrono>
#include <fstream>
#include <thread>

#include "run.h"

namespace conformance {
namespace {

using Clock = std::chrono::steady_clock;

// Calls on(row number, offset) for each row.
template <class On>
void each_row(Args& args, On&& on) {
  const Json dims = args.has("dims") ? args.at("dims") : Json::array();
  uint64_t offset = 0;
  args.number("offset", offset);
  std::vector<uint64_t> index(dims.size());
  for (uint32_t row = 0;; ++row) {
    uint64_t at = offset;
    for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * dims[d][1].get<uint64_t>();
    on(row, at);
    std::size_t d = index.size();
    while (d > 0 && ++index[d - 1] == dims[d - 1][0].get<uint64_t>()) index[--d] = 0;
    if (d == 0) return;
  }
}

// Calls on(bytes of the row, its length, its seed) for each row.
template <class On>
Json with_rows(Args& args, On&& on) {
  auto& memory = args.object<Memory>("memory");
  const auto bytes = args.number<uint64_t>("bytes");
  const auto seed = args.number<uint32_t>("seed");
  each_row(args, [&](uint32_t row, uint64_t at) {
    if (at + bytes > memory.size) throw Failure("row " + std::to_string(row) + " is outside the memory");
    on(memory.data + at, bytes, seed + row);
  });
  return {};
}

Json fill_rows(Args& args) {
  return with_rows(args, [](uint8_t* data, uint64_t bytes, uint32_t seed) { pattern_fill(data, bytes, seed); });
}

Json compare_rows(Args& args) {
  return with_rows(args, [](const uint8_t* data, uint64_t bytes, uint32_t seed) {
    const uint64_t i = pattern_differs(data, bytes, seed);
    if (i != bytes) throw Failure("byte " + std::to_string(i) + " is not that of the pattern " + std::to_string(seed));
  });
}

Json clear(Args& args) {
  auto& memory = args.object<Memory>("memory");
  int value = 0;
  args.number("value", value);
  std::fill_n(memory.data, memory.size, static_cast<uint8_t>(value));
  return {};
}

Json write_file(Args& args) {
  std::ofstream out(args.text("path"), std::ios::binary);
  out << args.text("text");
  if (!out.flush()) throw Failure("cannot write " + args.text("path"));
  return {};
}

Json status_name(Args& args) {
  const auto status = args.number<kvbm_status_t>("status");
  return Json::object({{"name", kvbm_status_name(status)},
                       {"text", kvbm_status_text(status)},
                       {"band", -static_cast<int>(kvbm::band_of(status))}});
}

Json create_context(Args& args) {
  auto options = kvbm::context_options();
  std::vector<std::pair<std::string, std::string>> texts;
  if (args.has("settings")) {
    for (const auto& [key, value] : args.at("settings").items()) texts.emplace_back(key, value.get<std::string>());
  }
  std::vector<kvbm_setting_t> settings;
  for (const auto& [key, value] : texts) settings.push_back({key.c_str(), value.c_str()});
  const std::string file = args.has("config_file") ? args.text("config_file") : "";
  if (!file.empty()) options.config_file = file.c_str();
  args.number("threads", options.threads);
  options.settings = settings.data();
  options.n_settings = settings.size();
  return Json::object({{"context", args.objects().add(kvbm::Context(options))}});
}

Json completion_json(const kvbm_completion_t& c) {
  return Json::object({{"user_data", c.user_data},
                       {"operation", std::to_string(c.operation)},
                       {"op", c.op},
                       {"status", c.status},
                       {"items_done", c.items_done},
                       {"items", c.items},
                       {"bytes", c.bytes},
                       {"text", shown(kvbm::to_string(c))}});
}

Json wait_queue(Args& args) {
  auto& queue = args.object<kvbm::Queue>("queue");
  const auto n = args.number<std::size_t>("n");
  const auto timeout = std::chrono::nanoseconds(args.number<int64_t>("timeout_ns"));
  const auto until = Clock::now() + timeout;
  Json out = Json::array();
  do {
    kvbm_completion_t got[16];
    const kvbm::Span<kvbm_completion_t> room(got, std::min<std::size_t>(16, n - out.size()));
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - Clock::now());
    const std::size_t k = left.count() > 0 ? queue.wait(room, static_cast<uint64_t>(left.count())) : queue.poll(room);
    for (std::size_t i = 0; i < k; ++i) out.push_back(completion_json(got[i]));
  } while (out.size() < n && Clock::now() < until);
  return Json::object({{"completions", out}});
}

Json event_json(const kvbm_event_t& e) {
  return Json::object({{"sequence", e.sequence},
                       {"kind", e.kind},
                       {"tier", e.tier},
                       {"namespace_id", to_hex(e.namespace_id, 16)},
                       {"key", hex_of(e.key)},
                       {"parent", hex_of(e.parent)},
                       {"component", e.component},
                       {"text", shown(kvbm::to_string(e))}});
}

Json take_events(Args& args) {
  auto& queue = args.object<kvbm::Queue>("queue");
  const auto n = args.number<std::size_t>("n");
  const auto until = Clock::now() + std::chrono::nanoseconds(args.number<int64_t>("timeout_ns"));
  Json out = Json::array();
  for (;;) {
    kvbm_event_t event;
    while (out.size() < n && queue.poll_events({&event, 1}) == 1) out.push_back(event_json(event));
    if (out.size() == n || Clock::now() >= until) return Json::object({{"events", out}});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

uint64_t field(const Json& object, const char* name) {
  return object.contains(name) ? Args::to_number<uint64_t>(object.at(name)) : 0;
}

Json create_geometry(Args& args) {
  std::vector<kvbm_component_t> components;
  for (const Json& given : args.at("components")) {
    const auto small = [&](const char* name) { return static_cast<uint32_t>(field(given, name)); };
    components.push_back({small("kind"),
                          small("element"),
                          small("layers"),
                          small("heads"),
                          small("head_dim"),
                          small("window_tokens"),
                          field(given, "state_bytes"),
                          {0, 0}});
  }
  kvbm::Geometry geometry(args.number<uint32_t>("tokens_per_block"), args.number<uint32_t>("units"), components);
  uint8_t big_endian[8];
  for (unsigned i = 0; i < 8; ++i) big_endian[i] = static_cast<uint8_t>(geometry.fingerprint() >> (56 - 8 * i));
  return Json::object({{"fingerprint", to_hex(big_endian, 8)}, {"geometry", args.objects().add(std::move(geometry))}});
}

Json record_bytes(Args& args) {
  const kvbm_part_t part =
      Args::to_part(args.has("shard") ? Json::object({{"shard", args.at("shard")}}) : Json::object());
  const auto component = args.number<uint32_t>("component");
  return Json::object(
      {{"bytes",
        args.object<kvbm::Geometry>("geometry").record_bytes(component, args.has("shard") ? &part.shard : nullptr)}});
}

// Reads the extras of keys; they point into `texts`.
std::vector<kvbm_extra_t> extras_of(Args& args, std::vector<std::string>& texts) {
  std::vector<kvbm_extra_t> out;
  if (!args.has("extras")) return out;
  for (const Json& hex : args.at("extras")) texts.push_back(from_hex(hex.get<std::string>()));
  for (const std::string& text : texts) {
    out.push_back({text.empty() ? nullptr : reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  return out;
}

Json keys_result(const kvbm::Keys& keys) { return Json::object({{"keys", keys_json(keys)}, {"n", keys.size()}}); }

Json chain(Args& args) {
  std::vector<std::string> texts;
  const auto extras = extras_of(args, texts);
  const kvbm_key_t previous = args.has("previous") ? Args::to_key(args.at("previous")) : kvbm_key_t{};
  return keys_result(args.object<kvbm::Namespace>("namespace")
                         .chain(args.tokens(), args.number<uint32_t>("block_tokens"),
                                args.has("previous") ? &previous : nullptr, extras));
}

Json content(Args& args) {
  std::vector<std::string> texts;
  const auto extras = extras_of(args, texts);
  return keys_result(
      args.object<kvbm::Namespace>("namespace").content(args.tokens(), args.number<uint32_t>("block_tokens"), extras));
}

Json from_hashes(Args& args) {
  const std::string hashes = from_hex(args.text("hashes"));
  const kvbm::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(hashes.data()), hashes.size());
  return keys_result(
      args.object<kvbm::Namespace>("namespace").from_hashes(bytes, args.number<std::size_t>("hash_bytes")));
}

}  // namespace

void add_own_steps(Steps& steps) {
  steps["release"] = [](Args& args) { return args.objects().release(args.at("it")), Json(); };
  steps["memory.create"] = [](Args& args) {
    return Json::object({{"memory", args.objects().add(Memory(args.number<std::size_t>("bytes")))}});
  };
  steps["memory.fill"] = fill_rows;
  steps["memory.compare"] = compare_rows;
  steps["memory.clear"] = clear;
  steps["file.write"] = write_file;
  steps["show"] = [](Args& args) { return Json::object({{"text", args.objects().text(args.at("it"))}}); };
  steps["status.name"] = status_name;
  steps["version"] = [](Args&) { return Json::object({{"number", kvbm_version()}, {"text", kvbm_version_string()}}); };
  steps["items.read"] = [](Args& args) {
    const auto& items = *args.object<kvbm::Submission>("items").items;
    return Json::object({{"items", items}, {"text", shown(kvbm::to_string(items))}});
  };
  steps["context.create"] = create_context;
  steps["context.config"] = [](Args& args) {
    return Json::object({{"text", args.object<kvbm::Context>("context").config()}});
  };
  steps["config.reference"] = [](Args&) { return Json::object({{"text", kvbm::Context::config_reference()}}); };
  steps["queue.create"] = [](Args& args) {
    return Json::object({{"queue", args.objects().add(kvbm::Queue(args.object<kvbm::Context>("context"),
                                                                  args.number<uint32_t>("depth")))}});
  };
  steps["queue.wait"] = wait_queue;
  steps["queue.events"] = take_events;
  steps["queue.cancel"] = [](Args& args) {
    return args.object<kvbm::Queue>("queue").cancel(args.number<uint64_t>("operation")), Json();
  };
  steps["geometry.create"] = create_geometry;
  steps["geometry.record_bytes"] = record_bytes;
  steps["key.chain"] = chain;
  steps["key.content"] = content;
  steps["key.from_hashes"] = from_hashes;
}

}  // namespace conformance
