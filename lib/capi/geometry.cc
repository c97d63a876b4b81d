#include "layout/geometry.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "codec/record/record.h"
#include "layout/record_shape.h"
#include "layout/shard.h"
#include "manager/namespaces/namespace.h"

using kvbm::Code;
using kvbm::capi::fail;
using kvbm::capi::guarded;
namespace layout = kvbm::layout;

static_assert(layout::kLeafLimit == kvbm::codec::kMaxLeafBytes);
static_assert(layout::kLeafCountLimit == kvbm::codec::kMaxLeaves);

namespace {

kvbm::Status refuse_component(size_t index, const char* field, const char* wanted) {
  return {Code::invalid_argument, "geometry refused",
          "component " + std::to_string(index) + ": " + field + " " + wanted};
}

// Converts a component. Refuses fields that its kind does not use: a set one suggests that another model was meant.
kvbm::Result<layout::ComponentGeometry> to_component(size_t index, const kvbm_component_t& in) {
  if (in.kind > KVBM_COMPONENT_STATE) return refuse_component(index, "kind", "is not a KVBM_COMPONENT_* value");
  if (in.element >= layout::kElementCount) return refuse_component(index, "element", "is not a KVBM_ELEMENT_* value");
  if (in.reserved[0] != 0 || in.reserved[1] != 0) return refuse_component(index, "reserved", "must be zero");
  if (in.window_tokens != 0 && in.kind != KVBM_COMPONENT_WINDOW) {
    return refuse_component(index, "window_tokens", "must be 0 but for KVBM_COMPONENT_WINDOW");
  }
  if (in.state_bytes != 0 && in.kind != KVBM_COMPONENT_STATE) {
    return refuse_component(index, "state_bytes", "must be 0 but for KVBM_COMPONENT_STATE");
  }
  if (in.heads > 1 && (in.kind == KVBM_COMPONENT_LATENT || in.kind == KVBM_COMPONENT_STATE)) {
    return refuse_component(index, "heads", "must be 1 for a latent or a state");
  }
  if (in.element != KVBM_ELEMENT_BYTES && in.kind == KVBM_COMPONENT_STATE) {
    return refuse_component(index, "element", "must be 0, KVBM_ELEMENT_BYTES, for a state");
  }
  if (in.head_dim != 0 && in.kind == KVBM_COMPONENT_STATE) {
    return refuse_component(index, "head_dim", "must be 0 for a state");
  }
  const auto element = static_cast<layout::Element>(in.element);
  switch (in.kind) {
    case KVBM_COMPONENT_ATTENTION:
      return layout::attention(in.layers, in.heads, in.head_dim, element);
    case KVBM_COMPONENT_WINDOW:
      return layout::sliding_window(in.layers, in.heads, in.head_dim, element, in.window_tokens);
    case KVBM_COMPONENT_LATENT:
      return layout::latent(in.layers, in.head_dim, element);
    default:
      return layout::state(in.layers, in.state_bytes);
  }
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_geometry_create(uint32_t tokens_per_block, uint32_t units, const kvbm_component_t* components,
                                   size_t n_components, kvbm_geometry_t** out_geometry, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (out_geometry == nullptr || components == nullptr) {
      return fail(err, Code::invalid_argument, "components or out_geometry is NULL");
    }
    if (n_components == 0 || n_components > layout::kMaxComponents) {
      return fail(err, Code::invalid_argument, "a geometry has 1 to 16 components");
    }
    std::vector<layout::ComponentGeometry> list;
    for (size_t i = 0; i < n_components; ++i) {
      const auto component = to_component(i, components[i]);
      if (!component.ok()) return fail(err, component.status());
      list.push_back(component.value());
    }
    auto geometry = layout::Geometry::make(tokens_per_block, std::move(list), units);
    if (!geometry.ok()) return fail(err, geometry.status());
    *out_geometry = new kvbm_geometry{std::make_shared<const layout::Geometry>(std::move(geometry).value())};
    return kvbm::capi::done(err);
  });
}

void kvbm_geometry_release(kvbm_geometry_t* geometry) { delete geometry; }

uint64_t kvbm_geometry_fingerprint(const kvbm_geometry_t* geometry) {
  return geometry != nullptr ? geometry->core->fingerprint() : 0;
}

kvbm_status_t kvbm_geometry_record_bytes(const kvbm_geometry_t* geometry, uint32_t component, const kvbm_shard_t* shard,
                                         uint64_t* out_bytes) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (geometry == nullptr || out_bytes == nullptr) return kvbm::capi::invalid("geometry or out_bytes is NULL");
    if (component > UINT16_MAX) return kvbm::capi::invalid("component is over 65535");
    const auto index = static_cast<kvbm::Component>(component);
    const layout::ComponentGeometry* facts = geometry->core->component(index);
    if (facts == nullptr) return kvbm::capi::invalid("the geometry has no such component");
    kvbm_part_t part{};
    if (shard != nullptr) part.shard = *shard;
    part.component = component;
    const kvbm::manager::Part given = kvbm::capi::to_part(&part);
    if (given.component != index) return kvbm::capi::invalid("a reserved field of the part is set");
    kvbm::Shard which = given.shard;
    if (which == kvbm::Shard{}) which = layout::whole_shard(*facts);
    const kvbm::Status fits = layout::check_shard(*geometry->core, index, which);
    if (!fits.ok()) return kvbm::capi::to_c(fits.code());
    const auto shape = layout::RecordShape::make(*geometry->core, index, which, geometry->core->units());
    if (!shape.ok()) return kvbm::capi::to_c(shape.status().code());
    *out_bytes = shape.value().payload_bytes();
    return KVBM_OK;
  });
}

}  // extern "C"
