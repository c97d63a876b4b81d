// Step kinds of attached caches.
#include <cstring>

#include "run.h"

namespace conformance {
namespace {

kvbm_tensor_t tensor_of(const Json& given, Objects& objects) {
  kvbm_tensor_t out;
  std::memset(&out, 0, sizeof out);
  auto& memory = objects.get<Memory>(given.at("memory"));
  uint64_t offset = 0;
  for (const auto& [name, value] : given.items()) {
    if (name == "memory") continue;
    const auto number = Args::to_number<uint64_t>(value);
    if (name == "offset")
      offset = number;
    else if (name == "bytes")
      out.bytes = number;
    else if (name == "block_stride")
      out.block_stride = number;
    else if (name == "page_bytes")
      out.page_bytes = number;
    else
      throw Failure("a tensor has no " + name);
  }
  if (offset + out.bytes > memory.size) throw Failure("a tensor is outside its memory");
  out.data = memory.data + offset;
  return out;
}

Json attach(Args& args) {
  const Json& given = args.at("parts");
  std::vector<std::vector<kvbm_tensor_t>> tensors(given.size());
  std::vector<kvbm_cache_part_t> parts(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    for (const Json& tensor : given[i].at("tensors")) tensors[i].push_back(tensor_of(tensor, args.objects()));
    std::memset(&parts[i], 0, sizeof parts[i]);
    parts[i].part = Args::to_part(given[i]);
    parts[i].form = Args::to_number<uint32_t>(given[i].at("form"));
    parts[i].tensors = tensors[i].data();
    parts[i].n_tensors = tensors[i].size();
  }
  auto options = kvbm::cache_options();
  options.n_blocks = args.number<uint32_t>("n_blocks");
  options.parts = parts.data();
  options.n_parts = parts.size();
  args.number("memory", options.memory);
  args.number("device", options.device);
  return Json::object({{"cache", args.objects().add(kvbm::Cache(args.object<kvbm::Manager>("manager"),
                                                                args.object<kvbm::Namespace>("namespace"), options))}});
}

// Returns the results of a submission.
Json submitted(Args& args, kvbm::Submission submission) {
  const std::string operation = std::to_string(submission.operation);
  return Json::object(
      {{"status", KVBM_OK}, {"operation", operation}, {"items", args.objects().add(std::move(submission))}});
}

Json store(Args& args) {
  auto options = kvbm::store_options();
  const kvbm_key_t parent = args.has("parent") ? Args::to_key(args.at("parent")) : kvbm_key_t{};
  const auto positions = args.positions();
  const kvbm::Keys unit_keys = args.has("unit_keys") ? args.keys("unit_keys") : kvbm::Keys();
  if (args.has("parent")) options.parent = &parent;
  if (!positions.empty()) options.positions = positions.data();
  if (!unit_keys.empty()) options.unit_keys = unit_keys.data();
  args.number("priority", options.priority);
  args.number("unchained", options.unchained);
  args.number("timeout_ns", options.timeout_ns);
  args.stream_of(options);
  uint64_t user_data = 0;
  args.number("user_data", user_data);
  auto& cache = args.object<kvbm::Cache>("cache");
  const kvbm::Keys keys = args.keys("keys");
  const auto ids = args.numbers<uint32_t>("block_ids");
  auto* queue = args.object_or_null<kvbm::Queue>("queue");
  if (queue != nullptr) return submitted(args, cache.store(keys, ids, *queue, user_data, options));
  return Json::object({{"status", cache.store(keys, ids, &options)}});
}

Json load(Args& args) {
  auto options = kvbm::load_options();
  const auto positions = args.positions();
  if (!positions.empty()) options.positions = positions.data();
  args.number("first_key", options.first_key);
  args.number("any_position", options.any_position);
  args.number("first_layer", options.first_layer);
  args.number("n_layers", options.n_layers);
  args.number("keep_below", options.keep_below);
  args.number("compute_block_ns", options.compute_block_ns);
  args.number("timeout_ns", options.timeout_ns);
  args.stream_of(options);
  args.number("wait_layers", options.wait_layers);
  uint64_t user_data = 0;
  args.number("user_data", user_data);
  auto& cache = args.object<kvbm::Cache>("cache");
  const auto* given = args.object_or_null<kvbm::Match>("match");
  const kvbm::Match nothing = cache.lookup(kvbm::Keys());
  const kvbm::Match& match = given != nullptr ? *given : nothing;
  const auto ids = args.numbers<uint32_t>("block_ids");
  auto* queue = args.object_or_null<kvbm::Queue>("queue");
  if (queue != nullptr) return submitted(args, cache.load(match, ids, *queue, user_data, options));
  return Json::object({{"status", cache.load(match, ids, &options)}});
}

}  // namespace

void add_cache_steps(Steps& steps) {
  steps["cache.attach"] = attach;
  steps["cache.store"] = store;
  steps["cache.load"] = load;
  steps["cache.wait_layer"] = [](Args& args) {
    args.object<kvbm::Cache>("cache").wait_layer(args.number<uint64_t>("operation"), args.number<uint32_t>("layer"),
                                                 args.stream("stream"));
    return Json();
  };
}

}  // namespace conformance
