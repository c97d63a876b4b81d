// Step kinds of managers and namespaces, and of the care of what is cached.
#include <cstring>

#include "run.h"

namespace conformance {
namespace {

uint64_t field(const Json& object, const char* name) {
  return object.contains(name) ? Args::to_number<uint64_t>(object.at(name)) : 0;
}

kvbm_tier_t tier_of(const Json& given, const std::string& path, const std::string& url, const std::string& codec) {
  static const std::set<std::string> known = {
      "path",           "url",   "capacity_bytes", "write_bytes_per_s", "read_bytes_per_s", "admission",
      "admission_uses", "codec", "codec_goal"};
  for (const auto& [name, value] : given.items()) {
    if (known.count(name) == 0) throw Failure("a tier has no " + name);
  }
  kvbm_tier_t out;
  std::memset(&out, 0, sizeof out);
  if (!path.empty()) out.path = path.c_str();
  if (!url.empty()) out.url = url.c_str();
  out.capacity_bytes = field(given, "capacity_bytes");
  out.write_bytes_per_s = field(given, "write_bytes_per_s");
  out.read_bytes_per_s = field(given, "read_bytes_per_s");
  out.admission = static_cast<uint32_t>(field(given, "admission"));
  out.admission_uses = static_cast<uint32_t>(field(given, "admission_uses"));
  if (!codec.empty()) out.codec = codec.c_str();
  out.codec_goal = static_cast<uint32_t>(field(given, "codec_goal"));
  return out;
}

Json create(Args& args) {
  auto options = kvbm::manager_options();
  const std::string policy = args.has("policy") ? args.text("policy") : "";
  const std::string host_file = args.has("host_file") ? args.text("host_file") : "";
  std::vector<std::string> paths, urls, codecs;
  std::vector<kvbm_tier_t> tiers;
  if (args.has("tiers")) {
    for (const Json& tier : args.at("tiers")) {
      paths.push_back(tier.value("path", ""));
      urls.push_back(tier.value("url", ""));
      codecs.push_back(tier.value("codec", ""));
    }
    for (std::size_t i = 0; i < paths.size(); ++i) {
      tiers.push_back(tier_of(args.at("tiers")[i], paths[i], urls[i], codecs[i]));
    }
    options.tiers = tiers.data();
    options.n_tiers = tiers.size();
  }
  if (!policy.empty()) options.policy = policy.c_str();
  if (!host_file.empty()) options.host_file = host_file.c_str();
  args.number("flags", options.flags);
  args.number("block_bytes", options.block_bytes);
  args.number("host_capacity_bytes", options.host_capacity_bytes);
  return Json::object({{"manager", args.objects().add(kvbm::Manager(args.object<kvbm::Context>("context"), options))}});
}

Json open_namespace(Args& args) {
  auto options = kvbm::namespace_options();
  std::map<std::string, std::string> texts;
  const auto text = [&](const char* name) -> const char* {
    return args.has(name) ? (texts[name] = args.text(name)).c_str() : nullptr;
  };
  options.tenant = text("tenant");
  options.model = text("model");
  options.adapter = text("adapter");
  options.codec = text("codec");
  args.number("allow_lossy", options.allow_lossy);
  args.number("weak_hashes", options.weak_hashes);
  const std::string secret = args.has("secret") ? from_hex(args.text("secret")) : "";
  if (!secret.empty() && secret.size() != 32) throw Failure("a secret has 32 bytes");
  if (!secret.empty()) options.secret = reinterpret_cast<const uint8_t*>(secret.data());
  args.number("epoch", options.epoch);
  args.number("quota_bytes", options.quota_bytes);
  args.number("quota_mode", options.quota_mode);
  auto ns = args.object<kvbm::Manager>("manager").open(options, args.object_or_null<kvbm::Geometry>("geometry"));
  const std::string id = to_hex(ns.id().data(), 16);
  return Json::object({{"id", id}, {"namespace", args.objects().add(std::move(ns))}});
}

Json tier_stats(const kvbm_tier_stats_t& t) {
  return Json::object({{"capacity_bytes", t.capacity_bytes},
                       {"used_bytes", t.used_bytes},
                       {"blocks", t.blocks},
                       {"payload_bytes", t.payload_bytes},
                       {"hits", t.hits},
                       {"hit_bytes", t.hit_bytes},
                       {"misses", t.misses},
                       {"stores", t.stores},
                       {"store_bytes", t.store_bytes},
                       {"loads", t.loads},
                       {"load_bytes", t.load_bytes},
                       {"evictions", t.evictions},
                       {"damaged", t.damaged},
                       {"errors", t.errors},
                       {"metadata_bytes", t.metadata_bytes},
                       {"disabled", t.disabled}});
}

Json codec_stats(const kvbm_tier_codec_stats_t& t) {
  return Json::object({{"coded", t.coded},
                       {"plain_bytes", t.plain_bytes},
                       {"stored_bytes", t.stored_bytes},
                       {"sealed", t.sealed},
                       {"left_plain", t.left_plain},
                       {"encode_ns", t.encode_ns},
                       {"decode_ns", t.decode_ns},
                       {"decoded", t.decoded},
                       {"decoded_bytes", t.decoded_bytes},
                       {"refused_lossy", t.refused_lossy},
                       {"missing_keys", t.missing_keys},
                       {"damaged", t.damaged},
                       {"stepped_down", t.stepped_down},
                       {"probes", t.probes},
                       {"mode", t.mode},
                       {"automatic", t.automatic}});
}

Json stats(Args& args) {
  const kvbm_manager_stats_t s = args.object<kvbm::Manager>("manager").stats();
  Json tiers = Json::array();
  Json codec = Json::array();
  for (uint32_t i = 0; i < s.n_tiers; ++i) {
    tiers.push_back(tier_stats(s.tiers[i]));
    codec.push_back(codec_stats(s.codec[i]));
  }
  return Json::object({{"n_tiers", s.n_tiers},
                       {"lookups", s.lookups},
                       {"keys_looked_up", s.keys_looked_up},
                       {"keys_hit", s.keys_hit},
                       {"holds", s.holds},
                       {"pins", s.pins},
                       {"matches", s.matches},
                       {"operations_in_flight", s.operations_in_flight},
                       {"stores_refused_room", s.stores_refused_room},
                       {"stores_refused_quota", s.stores_refused_quota},
                       {"deadline_missed", s.deadline_missed},
                       {"position_mismatches", s.position_mismatches},
                       {"verify_failures", s.verify_failures},
                       {"offloads_skipped", s.offloads_skipped},
                       {"loads_weighed", s.loads_weighed},
                       {"load_predicted_ns", s.load_predicted_ns},
                       {"load_actual_ns", s.load_actual_ns},
                       {"loads_not_started", s.loads_not_started},
                       {"blocks_left", s.blocks_left},
                       {"compute_saved_ns", s.compute_saved_ns},
                       {"compute_lost_ns", s.compute_lost_ns},
                       {"lossy_refused", s.lossy_refused},
                       {"codec", codec},
                       {"tiers", tiers}});
}

Json scan(Args& args) {
  Json out = Json::array();
  for (const kvbm_scan_row_t& row : args.object<kvbm::Manager>("manager").scan(args.number<std::size_t>("page"))) {
    out.push_back({{"key", hex_of(row.key)},
                   {"namespace_id", to_hex(row.namespace_id, 16)},
                   {"bytes", row.bytes},
                   {"tier", row.tier},
                   {"component", row.component},
                   {"uses", row.uses},
                   {"holds", row.holds},
                   {"pins", row.pins},
                   {"text", shown(kvbm::to_string(row))}});
  }
  return Json::object({{"rows", out}});
}

Json nodes(Args& args) {
  Json out = Json::array();
  for (const kvbm_node_row_t& row : args.object<kvbm::Manager>("manager").nodes()) {
    out.push_back({{"node", to_hex(row.node, 16)},
                   {"address", row.address},
                   {"state", row.state},
                   {"capacity_bytes", row.capacity_bytes},
                   {"used_bytes", row.used_bytes},
                   {"records", row.records},
                   {"fetched_bytes", row.fetched_bytes},
                   {"served_bytes", row.served_bytes},
                   {"path", row.path},
                   {"path_reason", row.path_reason},
                   {"local_bytes", row.local_bytes}});
  }
  return Json::object({{"n", out.size()}, {"rows", out}});
}

Json locate(Args& args) {
  auto options = kvbm::locate_options();
  const auto parts = args.parts("parts");
  std::vector<std::size_t> requests;
  if (args.has("request_keys")) requests = args.numbers<std::size_t>("request_keys");
  if (!parts.empty()) options.parts = parts.data();
  if (!requests.empty()) options.request_keys = requests.data();
  options.n_parts = parts.size();
  options.n_requests = requests.size();
  args.number("ask_nodes_ns", options.ask_nodes_ns);
  const auto [status, rows] = args.object<kvbm::Manager>("manager").locate(args.object<kvbm::Namespace>("namespace"),
                                                                           args.keys("keys"), options, 64);
  Json out = Json::array();
  for (const kvbm_location_t& row : rows) {
    out.push_back({{"node", to_hex(row.node, 16)},
                   {"request", row.request},
                   {"tier", row.tier},
                   {"n_prefix", row.n_prefix},
                   {"n_in_tier", row.n_in_tier},
                   {"bytes", row.bytes},
                   {"text", shown(kvbm::to_string(row))}});
  }
  return Json::object({{"status", status}, {"n", out.size()}, {"rows", out}});
}

Json share(Args& args) {
  const kvbm_share_t s = args.object<kvbm::Manager>("manager").share();
  return Json::object({{"role", s.role},
                       {"owner_pid", s.owner_pid},
                       {"clients", s.clients},
                       {"takeovers", s.takeovers},
                       {"owners_lost", s.owners_lost},
                       {"silent_lookups", s.silent_lookups}});
}

Json move_blocks(Args& args, bool down) {
  kvbm_part_t storage;
  const kvbm_part_t* part = args.part("part", storage);
  auto& manager = args.object<kvbm::Manager>("manager");
  auto& ns = args.object<kvbm::Namespace>("namespace");
  auto* queue = args.object_or_null<kvbm::Queue>("queue");
  uint64_t user_data = 0;
  args.number("user_data", user_data);
  const kvbm::Keys keys = args.keys("keys");
  if (down)
    return Json::object({{"status", manager.offload(ns, keys, args.number<uint32_t>("tier"), part, queue, user_data)}});
  return Json::object({{"status", manager.prefetch(ns, keys, part, queue, user_data)}});
}

Json drop(Args& args) {
  kvbm_part_t part;
  return Json::object({{"n", args.object<kvbm::Manager>("manager").drop(args.object<kvbm::Namespace>("namespace"),
                                                                        args.keys("keys"), args.part("part", part))}});
}

Json hint(Args& args) {
  kvbm_part_t part;
  args.object<kvbm::Manager>("manager").hint(args.object<kvbm::Namespace>("namespace"), args.keys("keys"),
                                             args.number<uint32_t>("priority"), args.part("part", part));
  return {};
}

Json pin(Args& args) {
  kvbm_part_t part;
  const auto [pin, n] = args.object<kvbm::Manager>("manager").pin(
      args.object<kvbm::Namespace>("namespace"), args.keys("keys"), args.number<uint64_t>("owner"),
      args.number<uint64_t>("timeout_ns"), args.part("part", part));
  return Json::object({{"pin", std::to_string(pin)}, {"n", n}});
}

}  // namespace

void add_manager_steps(Steps& steps) {
  steps["manager.create"] = create;
  steps["manager.reset"] = [](Args& args) { return args.object<kvbm::Manager>("manager").reset(), Json(); };
  steps["manager.flush"] = [](Args& args) {
    return Json::object({{"status", args.object<kvbm::Manager>("manager").flush(args.number<uint64_t>("timeout_ns"))}});
  };
  steps["manager.flush_durable"] = [](Args& args) {
    return Json::object(
        {{"status", args.object<kvbm::Manager>("manager").flush_durable(args.number<uint64_t>("timeout_ns"))}});
  };
  steps["manager.stats"] = stats;
  steps["manager.metrics"] = [](Args& args) {
    return Json::object({{"text", args.object<kvbm::Manager>("manager").metrics()}});
  };
  steps["manager.subscribe"] = [](Args& args) {
    return args.object<kvbm::Manager>("manager").subscribe(args.object_or_null<kvbm::Queue>("queue")), Json();
  };
  steps["manager.scan"] = scan;
  steps["manager.nodes"] = nodes;
  steps["manager.node_address"] = [](Args& args) {
    return Json::object({{"address", args.object<kvbm::Manager>("manager").node_address()}});
  };
  steps["manager.wait_for_peers"] = [](Args& args) {
    args.object<kvbm::Manager>("manager").wait_for_peers(args.number<uint64_t>("timeout_ns"));
    return Json();
  };
  steps["manager.locate"] = locate;
  steps["manager.share"] = share;
  steps["manager.prefetch"] = [](Args& args) { return move_blocks(args, false); };
  steps["manager.offload"] = [](Args& args) { return move_blocks(args, true); };
  steps["manager.drop"] = drop;
  steps["manager.hint"] = hint;
  steps["manager.pin"] = pin;
  steps["manager.unpin"] = [](Args& args) {
    return args.object<kvbm::Manager>("manager").unpin(args.number<uint64_t>("pin")), Json();
  };
  steps["manager.unpin_owner"] = [](Args& args) {
    return Json::object({{"n", args.object<kvbm::Manager>("manager").unpin_owner(args.number<uint64_t>("owner"))}});
  };
  steps["namespace.open"] = open_namespace;
  steps["namespace.id"] = [](Args& args) {
    return Json::object({{"id", to_hex(args.object<kvbm::Namespace>("namespace").id().data(), 16)}});
  };
  steps["namespace.invalidate"] = [](Args& args) {
    return args.object<kvbm::Namespace>("namespace").invalidate(), Json();
  };
  steps["namespace.reset"] = [](Args& args) { return args.object<kvbm::Namespace>("namespace").reset(), Json(); };
  steps["namespace.set_quota"] = [](Args& args) {
    args.object<kvbm::Namespace>("namespace")
        .set_quota(args.number<uint64_t>("quota_bytes"), args.number<uint32_t>("quota_mode"));
    return Json();
  };
}

}  // namespace conformance
