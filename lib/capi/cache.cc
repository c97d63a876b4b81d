#include "manager/operation/cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/stream_point.h"
#include "layout/engine_forms.h"
#include "manager/device/device_caches.h"
#include "manager/namespaces/namespace.h"
#include "manager/operation/load.h"
#include "manager/operation/match.h"
#include "manager/operation/store.h"
#include "manager/stack/tier_stack.h"

using kvbm::Code;
using kvbm::Result;
using kvbm::Status;
using kvbm::capi::fail;
using kvbm::capi::guarded;
using kvbm::capi::invalid;
using kvbm::capi::items;
using kvbm::capi::kTooMany;
using kvbm::capi::point_on;
using kvbm::capi::refuse;
using kvbm::capi::refuse_count;
using kvbm::capi::to_c;
using kvbm::manager::CachePart;
namespace layout = kvbm::layout;

static_assert(sizeof(kvbm_position_t) == sizeof(kvbm::codec::Position));
static_assert(KVBM_FORM_SGLANG_PAGE_HEAD == static_cast<int>(layout::Form::sglang_page_head));
static_assert(KVBM_FORM_CROSS_NHD == static_cast<int>(layout::Form::cross_nhd));
static_assert(KVBM_NO_BLOCK == kvbm::manager::kNoBlock);
static_assert(KVBM_MEMORY_CUDA == static_cast<int>(kvbm::manager::MemoryKind::cuda));
static_assert(sizeof(void*) == sizeof(kvbm::device::CuStream));

namespace {

Status in_part(size_t index, const Status& why) {
  return {why.code(), "a cache part does not fit", "part " + std::to_string(index) + ": " + why.message()};
}

Result<CachePart> make_opaque(const kvbm_cache_part_t& in, kvbm::manager::PartPlan plan, uint32_t n_blocks,
                              uint32_t units) {
  std::vector<layout::PageTensor> tensors;
  for (size_t i = 0; i < in.n_tensors; ++i) {
    const kvbm_tensor_t& t = in.tensors[i];
    layout::PageTensor page;
    page.base = static_cast<std::byte*>(t.data);
    page.extent_bytes = t.bytes;
    page.page_bytes = t.page_bytes;
    page.block_stride = static_cast<int64_t>(t.block_stride != 0 ? t.block_stride : t.page_bytes);
    tensors.push_back(page);
  }
  auto pages = layout::PageArrangement::make(n_blocks, std::move(tensors));
  if (!pages.ok()) return pages.status();
  return CachePart::opaque(std::move(plan), std::move(pages).value(), units);
}

Result<CachePart> make_shaped(const kvbm_cache_part_t& in, kvbm::manager::PartPlan plan, uint32_t n_blocks) {
  if (!plan.shape.has_value()) {
    return Status(Code::invalid_argument, "the namespace has no geometry; only KVBM_FORM_OPAQUE fits it");
  }
  std::vector<layout::Tensor> tensors;
  for (size_t i = 0; i < in.n_tensors; ++i) {
    tensors.push_back({static_cast<std::byte*>(in.tensors[i].data), in.tensors[i].bytes});
    if (in.tensors[i].block_stride != in.tensors[0].block_stride) {
      return Status(Code::invalid_argument, "all tensors of a part have one block_stride");
    }
  }
  const uint64_t stride = in.n_tensors != 0 ? in.tensors[0].block_stride : 0;
  auto arrangement = layout::arrange(static_cast<layout::Form>(in.form), *plan.shape, n_blocks, tensors, stride);
  if (!arrangement.ok()) return arrangement.status();
  return CachePart::shaped(std::move(plan), std::move(arrangement).value());
}

Result<CachePart> make_part(const kvbm_namespace_t& ns, const kvbm_cache_part_t& in, uint32_t n_blocks) {
  if (in.tensors == nullptr || in.n_tensors == 0) return Status(Code::invalid_argument, "the part has no tensors");
  if (kvbm::capi::too_many(in.n_tensors)) return refuse_count("n_tensors");
  if (in.reserved != 0 || in.reserved2[0] != 0 || in.reserved2[1] != 0) {
    return Status(Code::invalid_argument, "reserved fields must be zero");
  }
  if (in.form >= layout::kFormCount && in.form != KVBM_FORM_OPAQUE) {
    return Status(Code::invalid_argument, "form is not a KVBM_FORM_* value");
  }
  auto plan = ns.ns->plan(kvbm::capi::to_part(&in.part));
  if (!plan.ok()) return plan.status();
  const auto& geometry = ns.ns->options().geometry;
  const uint32_t units = geometry != nullptr ? geometry->units() : 1;
  if (in.form == KVBM_FORM_OPAQUE) return make_opaque(in, std::move(plan).value(), n_blocks, units);
  return make_shaped(in, std::move(plan).value(), n_blocks);
}

// Returns the device of the tensors; null: they are in host memory.
Result<std::shared_ptr<kvbm::manager::AttachedDevice>> find_device(kvbm::manager::DeviceCaches& devices,
                                                                   const kvbm_cache_options_t& given) {
  if (given.memory > KVBM_MEMORY_CUDA) return Status(Code::invalid_argument, "memory is not a KVBM_MEMORY_* value");
  if (given.device != 0 && given.memory != KVBM_MEMORY_CUDA) {
    return Status(Code::invalid_argument, "a device is named, and memory is not KVBM_MEMORY_CUDA");
  }
  std::vector<kvbm::manager::TensorPlace> tensors;
  for (size_t p = 0; p < given.n_parts; ++p) {
    for (size_t t = 0; t < given.parts[p].n_tensors; ++t) {
      tensors.push_back({given.parts[p].tensors[t].data, given.parts[p].tensors[t].bytes, p, t});
    }
  }
  return devices.place(static_cast<kvbm::manager::MemoryKind>(given.memory), given.device, tensors);
}

// Returns true if this process has memory at an address. An unknown result counts as true.
bool is_mapped(uintptr_t at) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  return ::mincore(reinterpret_cast<void*>(at / page * page), 1, &resident) == 0 || errno != ENOMEM;
}

// Checks the tensors' addresses: a device address or a wrong one would end the process at the first store or load.
Status check_host_memory(const kvbm_cache_options_t& given) {
  for (size_t p = 0; p < given.n_parts; ++p) {
    for (size_t t = 0; t < given.parts[p].n_tensors; ++t) {
      const kvbm_tensor_t& tensor = given.parts[p].tensors[t];
      const auto first = reinterpret_cast<uintptr_t>(tensor.data);
      if (tensor.bytes == 0 || (is_mapped(first) && is_mapped(first + tensor.bytes - 1))) continue;
      return {Code::invalid_argument, "a tensor is no memory of this process",
              "part " + std::to_string(p) + ": tensor " + std::to_string(t) +
                  "; if it lies on a device, say so: memory = KVBM_MEMORY_CUDA and its device"};
    }
  }
  return {};
}

kvbm::device::CuStream to_stream(void* stream) noexcept { return static_cast<kvbm::device::CuStream>(stream); }

// A submission has no error slot: kvbm_error_last returns the text, and the log has it.
kvbm_status_t refuse_submission(const kvbm::manager::Cache& cache, const Status& why) {
  cache.stack().host().env().log->write(kvbm::LogLevel::warning, "cache", why.message());
  return fail(nullptr, why);
}

// Checks that the match is of this cache's parts. Records of another namespace or shard may have the same length, so
// nothing later would notice. A match from before an invalidation is still the cache's own.
Status check_parts(const kvbm::manager::Cache& cache, const kvbm::manager::Match& match) {
  if (match.parts().size() != cache.parts().size()) {
    return {Code::invalid_argument, "the match is not of this cache's parts",
            "it has " + std::to_string(match.parts().size()) + ", the cache " + std::to_string(cache.parts().size())};
  }
  for (size_t p = 0; p < cache.parts().size(); ++p) {
    const auto& mine = cache.parts()[p].plan();
    const auto& found = match.parts()[p].plan;
    const auto now = cache.ns()->plan(mine.part);
    const bool same_namespace = match.ns() == cache.ns() || (now.ok() && now.value().family == found.family);
    if (!same_namespace) return {Code::invalid_argument, "the match is of another namespace"};
    if (mine.part < found.part || found.part < mine.part) {
      return {Code::invalid_argument, "the match is not of this cache's parts",
              "part " + std::to_string(p) + " is another component or shard"};
    }
  }
  return {};
}

// Checks that some part's shard has the layers. With a range that none has, a load would do nothing and report
// success.
Status check_layers(const kvbm::manager::Cache& cache, uint64_t first, uint64_t n) {
  if (first == 0 && n == 0) return {};
  uint64_t most = 0;
  for (const CachePart& part : cache.parts()) most = std::max<uint64_t>(most, part.layers());
  if (first < most && n <= most - first) return {};
  return {Code::invalid_argument, "the layers are out of range",
          "[" + std::to_string(first) + ", " + std::to_string(n == 0 ? most : first + n) + "), the cache has " +
              std::to_string(most)};
}

Status check_match(const kvbm::manager::Cache& cache, const kvbm::manager::Match& match,
                   const kvbm_load_options_t& given, size_t n_keys) {
  if (const Status fits = check_parts(cache, match); !fits.ok()) return fits;
  const size_t matched = match.keys().size();
  if (given.first_key > matched || n_keys > matched - given.first_key) {
    return {Code::invalid_argument, "the match does not have as many keys",
            std::to_string(n_keys) + " from " + std::to_string(given.first_key) + " on of " + std::to_string(matched)};
  }
  return check_layers(cache, given.first_layer, given.n_layers);
}

// Submits a load with layers to wait for: it can be found by its number as soon as the caller has that.
kvbm_status_t load_by_layers(kvbm_cache_t& cache, kvbm::manager::LoadRequest request, const kvbm_load_options_t& given,
                             kvbm_queue_t* queue, uint64_t user_data) {
  const auto& core = cache.cache;
  if (given.wait_layers > KVBM_WAIT_LAYERS_ISSUED) {
    return refuse_submission(*core, Status(Code::unsupported, "wait_layers is none of KVBM_WAIT_LAYERS_*"));
  }
  if (core->device() == nullptr || queue == nullptr || given.out_operation == nullptr) {
    return refuse_submission(
        *core, Status(Code::invalid_argument, "wait_layers needs a cache on a device, a queue and out_operation"));
  }
  auto marks = core->mark_layers(given.first_layer, given.n_layers, given.wait_layers == KVBM_WAIT_LAYERS_ISSUED);
  if (!marks.ok()) return refuse_submission(*core, marks.status());
  request.layers = marks.value();
  kvbm::manager::LayerWaits::Place place = kvbm::manager::LayerWaits::place(std::move(marks).value());
  auto operation = std::make_shared<kvbm::manager::LoadOperation>(std::move(request));
  const kvbm_status_t taken =
      run_operation(cache.tenancy, cache.gate, std::move(operation), queue, user_data, given.out_operation);
  if (taken == KVBM_OK) core->layer_waits().add(*given.out_operation, std::move(place));
  return taken;
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_cache_options_init(kvbm_cache_options_t* out_options, uint32_t struct_size) {
  return kvbm::capi::init_options(out_options, struct_size, kvbm_cache_options_t{});
}

kvbm_status_t kvbm_cache_attach(kvbm_manager_t* manager, kvbm_namespace_t* ns, const kvbm_cache_options_t* options,
                                kvbm_cache_t** out_cache, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (manager == nullptr || ns == nullptr || options == nullptr || out_cache == nullptr) {
      return fail(err, Code::invalid_argument, "manager, ns, options or out_cache is NULL");
    }
    if (ns->tenancy != manager->tenancy)
      return fail(err, Code::foreign_handle, "the namespace belongs to another manager");
    const kvbm_status_t here = kvbm::capi::check_process(*manager->tenancy->context, err);
    if (here != KVBM_OK) return here;
    kvbm_cache_options_t given{};
    if (!kvbm::capi::take_options(options, given)) return fail(err, Code::unsupported, kvbm::capi::kUnknownOptions);
    if (given.n_blocks == 0 || given.n_parts == 0 || given.n_parts > 32 || given.parts == nullptr) {
      return fail(err, Code::invalid_argument, "a cache has at least one block and 1 to 32 parts");
    }
    std::vector<CachePart> parts;
    for (size_t i = 0; i < given.n_parts; ++i) {
      auto part = make_part(*ns, given.parts[i], given.n_blocks);
      if (!part.ok()) return fail(err, in_part(i, part.status()));
      parts.push_back(std::move(part).value());
    }
    auto device = find_device(manager->tenancy->devices(), given);
    if (!device.ok()) return fail(err, device.status());
    if (device.value() == nullptr) {
      if (const Status there = check_host_memory(given); !there.ok()) return fail(err, there);
    }
    auto cache = kvbm::manager::Cache::create(manager->tenancy->stack().keep(), ns->ns, std::move(parts),
                                              std::move(device).value());
    if (!cache.ok()) return fail(err, cache.status());
    *out_cache = new kvbm_cache{manager->tenancy, std::move(cache).value(), std::make_shared<kvbm::Gate>()};
    return kvbm::capi::done(err);
  });
}

void kvbm_cache_release(kvbm_cache_t* cache) {
  if (cache == nullptr || kvbm::capi::forked(*cache->tenancy)) return;
  cache->gate->close();
  delete cache;
}

kvbm_status_t kvbm_store_options_init(kvbm_store_options_t* out_options, uint32_t struct_size) {
  kvbm_store_options_t defaults{};
  defaults.timeout_ns = KVBM_FOREVER;
  return kvbm::capi::init_options(out_options, struct_size, defaults);
}

kvbm_status_t kvbm_cache_store(kvbm_cache_t* cache, const kvbm_key_t* keys, const uint32_t* block_ids, size_t n_keys,
                               const kvbm_store_options_t* options, kvbm_queue_t* queue, uint64_t user_data) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (cache == nullptr) return invalid("cache is NULL");
    if (n_keys != 0 && (keys == nullptr || block_ids == nullptr))
      return invalid("keys or block_ids is NULL, and n_keys is not 0");
    kvbm_store_options_t given{};
    given.timeout_ns = KVBM_FOREVER;
    if (!kvbm::capi::take_options(options, given)) return refuse(Code::unsupported, kvbm::capi::kUnknownOptions);
    if (given.reserved != 0 || given.reserved2 != 0) return refuse(Code::unsupported, "options.reserved must be zero");
    const kvbm_status_t here = kvbm::capi::check_process(*cache->tenancy->context, nullptr);
    if (here != KVBM_OK) return here;
    const auto& core = cache->cache;
    if (given.priority > KVBM_PRIORITY_KEEP) {
      return refuse_submission(*core, Status(Code::invalid_argument, "priority is not a KVBM_PRIORITY_* value"));
    }
    const size_t per_part = items({n_keys, core->units()});
    const size_t n_ids = items({per_part, core->parts().size()});
    if (n_ids == kTooMany) return refuse_submission(*core, refuse_count("n_keys * units * parts"));
    kvbm::manager::StoreRequest request;
    request.cache = core;
    const auto* list = reinterpret_cast<const kvbm::Key*>(keys);
    request.keys.assign(list, list + n_keys);
    request.block_ids.assign(block_ids, block_ids + n_ids);
    if (const Status fits = core->check_blocks(request.block_ids, per_part); !fits.ok())
      return refuse_submission(*core, fits);
    if (given.parent != nullptr) request.parent = *reinterpret_cast<const kvbm::Key*>(given.parent);
    request.unchained = given.unchained != 0;
    if (given.positions != nullptr) {
      const auto* positions = reinterpret_cast<const kvbm::codec::Position*>(given.positions);
      request.positions.assign(positions, positions + n_keys);
      request.unchained = true;  // a content key has no parent
    }
    if (given.unit_keys != nullptr) {
      const auto* units = reinterpret_cast<const kvbm::Key*>(given.unit_keys);
      request.unit_keys.assign(units, units + per_part);
    }
    request.priority = static_cast<uint8_t>(given.priority);
    request.deadline_ns = kvbm::deadline_after(core->stack().host().env().clock(), given.timeout_ns);
    if (given.item_status != nullptr) request.item_status = {given.item_status, n_keys};
    auto after = point_on(*core, given.stream, given.has_stream);
    if (!after.ok()) return refuse_submission(*core, after.status());
    request.after = std::move(after).value();
    auto operation = std::make_shared<kvbm::manager::StoreOperation>(std::move(request));
    return run_operation(cache->tenancy, cache->gate, std::move(operation), queue, user_data, given.out_operation);
  });
}

kvbm_status_t kvbm_load_options_init(kvbm_load_options_t* out_options, uint32_t struct_size) {
  kvbm_load_options_t defaults{};
  defaults.timeout_ns = KVBM_FOREVER;
  return kvbm::capi::init_options(out_options, struct_size, defaults);
}

kvbm_status_t kvbm_cache_load(kvbm_cache_t* cache, kvbm_match_t* match, const uint32_t* block_ids, size_t n_block_ids,
                              const kvbm_load_options_t* options, kvbm_queue_t* queue, uint64_t user_data) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (cache == nullptr) return invalid("cache is NULL");
    if (block_ids == nullptr && n_block_ids != 0) return invalid("block_ids is NULL, and n_block_ids is not 0");
    if (match == nullptr && n_block_ids != 0)
      return invalid("match is NULL, as of a lookup that hit nothing, and there are block ids to load into");
    if (match != nullptr && match->tenancy != cache->tenancy)
      return refuse(Code::foreign_handle, "the match is of another manager");
    kvbm_load_options_t given{};
    given.timeout_ns = KVBM_FOREVER;
    if (!kvbm::capi::take_options(options, given)) return refuse(Code::unsupported, kvbm::capi::kUnknownOptions);
    const kvbm_status_t here = kvbm::capi::check_process(*cache->tenancy->context, nullptr);
    if (here != KVBM_OK) return here;
    const auto& core = cache->cache;
    const size_t n_ids = items({n_block_ids, core->parts().size()});
    if (n_ids == kTooMany) return refuse_submission(*core, refuse_count("n_block_ids * parts"));
    const size_t n_keys = (n_block_ids + core->units() - 1) / core->units();
    if (match == nullptr) {
      given.compute_block_ns = 0;  // there is nothing to weigh
    } else if (const Status fits = check_match(*core, *match->match, given, n_keys); !fits.ok()) {
      return refuse_submission(*core, fits);
    }
    kvbm::manager::LoadRequest request;
    request.cache = core;
    if (match != nullptr) request.match = match->match;  // without a match there are no keys to load
    request.block_ids.assign(block_ids, block_ids + n_ids);
    if (const Status fits = core->check_blocks(request.block_ids, n_block_ids); !fits.ok())
      return refuse_submission(*core, fits);
    request.n_ids = n_block_ids;
    request.first_key = given.first_key;
    request.any_position = given.any_position != 0;
    request.first_layer = given.first_layer;
    request.n_layers = given.n_layers;
    request.keep_below = given.keep_below != 0;
    if (given.positions != nullptr) {
      const auto* positions = reinterpret_cast<const kvbm::codec::Position*>(given.positions);
      request.positions.assign(positions, positions + n_keys);
    }
    request.deadline_ns = kvbm::deadline_after(core->stack().host().env().clock(), given.timeout_ns);
    request.compute_block_ns = given.compute_block_ns;
    if (given.item_status != nullptr) request.item_status = {given.item_status, n_keys};
    auto after = point_on(*core, given.stream, given.has_stream);
    if (!after.ok()) return refuse_submission(*core, after.status());
    request.after = std::move(after).value();
    if (given.wait_layers != 0) return load_by_layers(*cache, std::move(request), given, queue, user_data);
    auto operation = std::make_shared<kvbm::manager::LoadOperation>(std::move(request));
    return run_operation(cache->tenancy, cache->gate, std::move(operation), queue, user_data, given.out_operation);
  });
}

kvbm_status_t kvbm_cache_wait_layer(kvbm_cache_t* cache, uint64_t operation, uint32_t layer, void* stream) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (cache == nullptr) return invalid("cache is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*cache->tenancy->context, nullptr);
    if (here != KVBM_OK) return here;
    const Status waits = cache->cache->wait_layer(operation, layer, to_stream(stream));
    return waits.ok() ? KVBM_OK : refuse_submission(*cache->cache, waits);
  });
}

}  // extern "C"
