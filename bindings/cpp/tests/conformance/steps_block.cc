// Step kinds of managed blocks, lookups and matches.
#include "run.h"

namespace conformance {
namespace {

// Blocks that a step borrows: their holds are not released at its end, whatever happens.
struct Borrowed {
  explicit Borrowed(Args& args)
      : blocks(args.object<kvbm::Manager>("manager").share_pointer(), args.numbers<uint64_t>("blocks")) {}
  ~Borrowed() { blocks.detach(); }
  kvbm::Blocks blocks;
};

// Returns holds as values of the scenario.
Json ids_of(kvbm::Blocks blocks) { return blocks.detach(); }

std::size_t present(const Json& ids) {
  std::size_t n = 0;
  for (const Json& id : ids) n += id != 0;
  return n;
}

Json allocate(Args& args) {
  kvbm::Keys evicted(64);
  std::size_t n_evicted = 0;
  auto blocks = args.object<kvbm::Manager>("manager").allocate(args.object<kvbm::Namespace>("namespace"),
                                                               args.number<std::size_t>("n"), evicted, &n_evicted);
  evicted.resize(std::min<std::size_t>(n_evicted, evicted.size()));
  return Json::object(
      {{"blocks", ids_of(std::move(blocks))}, {"evicted", keys_json(evicted)}, {"n_evicted", n_evicted}});
}

Json complete(Args& args) {
  Borrowed borrowed(args);
  borrowed.blocks.complete(args.has("bytes") ? args.numbers<uint64_t>("bytes") : std::vector<uint64_t>());
  return {};
}

Json publish(Args& args) {
  Borrowed borrowed(args);
  auto options = kvbm::register_options();
  kvbm_part_t part;
  const kvbm_key_t parent = args.has("parent") ? Args::to_key(args.at("parent")) : kvbm_key_t{};
  std::vector<kvbm_status_t> items(borrowed.blocks.size());
  options.part = args.part("part", part);
  if (args.has("parent")) options.parent = &parent;
  args.number("duplicates", options.duplicates);
  args.number("unchained", options.unchained);
  args.number("priority", options.priority);
  const auto positions = args.positions();
  if (!positions.empty()) options.positions = positions.data();
  options.item_status = items.data();
  borrowed.blocks.publish(args.object<kvbm::Namespace>("namespace"), args.keys("keys"), options);
  return Json::object({{"blocks", borrowed.blocks.ids()}, {"items", items}});
}

Json view(Args& args) {
  Borrowed borrowed(args);
  Json bytes = Json::array(), slots = Json::array();
  uint32_t fill = 0, compare = 0;
  args.number("fill", fill);
  args.number("compare", compare);
  for (const kvbm_view_t& view : borrowed.blocks.view()) {
    auto* data = static_cast<uint8_t*>(view.data);
    if (args.has("fill")) pattern_fill(data, view.bytes, fill++);
    if (args.has("compare")) {
      const uint64_t differs = pattern_differs(data, view.bytes, compare++);
      if (differs != view.bytes)
        throw Failure("block " + std::to_string(bytes.size()) + " differs at byte " + std::to_string(differs));
    }
    bytes.push_back(view.bytes);
    slots.push_back(view.slot);
  }
  return Json::object({{"bytes", bytes}, {"slots", slots}});
}

Json release(Args& args) {
  kvbm::Blocks(args.object<kvbm::Manager>("manager").share_pointer(), args.numbers<uint64_t>("blocks")).release();
  return {};
}

Json upgrade(Args& args) {
  const Json ids = ids_of(Borrowed(args).blocks.upgrade());
  return Json::object({{"blocks", ids}, {"present", present(ids)}});
}

Json match_items(Args& args) {
  const auto& match = args.object<kvbm::Match>("match");
  Json items = Json::array();
  for (const kvbm_match_item_t& item : match.items()) {
    items.push_back({{"tier", item.tier},
                     {"parts_needed", item.parts_needed},
                     {"bytes", item.bytes},
                     {"below_bytes", item.below_bytes},
                     {"text", shown(kvbm::to_string(item))}});
  }
  return Json::object({{"count", match.count()}, {"units", match.units()}, {"items", items}});
}

Json match_blocks(Args& args) {
  uint32_t part = 0;
  args.number("part", part);
  const Json ids = ids_of(
      args.object<kvbm::Match>("match").blocks(args.number<std::size_t>("first"), args.number<std::size_t>("n"), part));
  return Json::object({{"blocks", ids}, {"present", present(ids)}});
}

Json lookup(Args& args, bool by_cache) {
  auto options = kvbm::lookup_options();
  const auto parts = args.parts(by_cache ? "" : "parts");
  const kvbm::Keys unit_keys = args.has("unit_keys") ? args.keys("unit_keys") : kvbm::Keys();
  if (!parts.empty()) options.parts = parts.data();
  if (!unit_keys.empty()) options.unit_keys = unit_keys.data();
  options.n_parts = parts.size();
  options.n_unit_keys = unit_keys.size();
  args.number("mode", options.mode);
  args.number("host_only", options.host_only);
  args.number("no_use", options.no_use);
  args.number("ask_nodes_ns", options.ask_nodes_ns);
  const kvbm::Keys keys = args.keys("keys");
  auto match = by_cache ? args.object<kvbm::Cache>("cache").lookup(keys, &options)
                        : args.object<kvbm::Manager>("manager").lookup(args.object<kvbm::Namespace>("namespace"), keys,
                                                                       &options);
  const std::size_t n = match.hits();
  return Json::object({{"n", n}, {"match", match ? args.objects().add(std::move(match)) : Json()}});
}

}  // namespace

void add_block_steps(Steps& steps) {
  steps["manager.allocate"] = allocate;
  steps["manager.complete"] = complete;
  steps["manager.register"] = publish;
  steps["block.view"] = view;
  steps["block.release"] = release;
  steps["block.clone"] = [](Args& args) { return Json::object({{"blocks", ids_of(Borrowed(args).blocks.clone())}}); };
  steps["block.downgrade"] = [](Args& args) {
    return Json::object({{"blocks", ids_of(Borrowed(args).blocks.downgrade())}});
  };
  steps["block.upgrade"] = upgrade;
  steps["manager.lookup"] = [](Args& args) { return lookup(args, false); };
  steps["cache.lookup"] = [](Args& args) { return lookup(args, true); };
  steps["match.items"] = match_items;
  steps["match.blocks"] = match_blocks;
}

}  // namespace conformance
