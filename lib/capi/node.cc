#include "manager/node.h"

#include <cstdio>
#include <cstring>

#include "capi/guard.h"
#include "capi/handles.h"

using kvbm::capi::guarded;

extern "C" {

kvbm_status_t kvbm_manager_nodes(kvbm_manager_t* manager, kvbm_node_row_t* out_rows, size_t capacity, size_t* out_n) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n != nullptr) *out_n = 0;
    if (manager == nullptr || out_n == nullptr || (out_rows == nullptr && capacity != 0)) return KVBM_ERR_INVALID;
    const kvbm_status_t here = kvbm::capi::check_process(*manager->tenancy->context, nullptr);
    if (here != KVBM_OK) return here;
    if (manager->tenancy->node == nullptr) return KVBM_OK;
    const auto rows = manager->tenancy->node->nodes();
    *out_n = rows.size();
    for (size_t i = 0; i < rows.size() && i < capacity; ++i) {
      kvbm_node_row_t row{};
      const kvbm::cluster::Mesh::NodeRow& link = rows[i].link;
      std::memcpy(row.node, link.node.bytes.data(), sizeof row.node);
      std::snprintf(row.address, sizeof row.address, "%s", link.address.c_str());
      std::snprintf(row.state, sizeof row.state, "%s", link.state.c_str());
      row.capacity_bytes = link.status.capacity_bytes;
      row.used_bytes = link.status.used_bytes;
      row.records = link.status.records;
      row.fetched_bytes = link.stats.fetched_bytes;
      row.served_bytes = link.stats.served_bytes;
      row.local_bytes = rows[i].local_bytes;
      using Path = kvbm::cluster::SameHost::Path;
      const Path path = rows[i].path.path;
      std::snprintf(row.path, sizeof row.path, "%s", path == Path::local ? "local" : path == Path::link ? "tcp" : "");
      std::snprintf(row.path_reason, sizeof row.path_reason, "%s", rows[i].path.why.c_str());
      out_rows[i] = row;
    }
    return KVBM_OK;
  });
}

kvbm_status_t kvbm_manager_node_address(kvbm_manager_t* manager, char* out, size_t capacity, size_t* out_needed) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr || (out == nullptr && capacity != 0)) return KVBM_ERR_INVALID;
    const auto& node = manager->tenancy->node;
    const std::string text = node != nullptr ? node->address() : std::string();
    return kvbm::capi::copy_text(text.data(), text.size(), out, capacity, out_needed);
  });
}

}  // extern "C"
