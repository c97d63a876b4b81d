#include "manager/node/node.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "cluster/mesh/survey.h"
#include "manager/namespaces/namespace.h"
#include "manager/node/locate.h"
#include "manager/node/node_row.h"
#include "manager/stack/tier_stack.h"

using kvbm::Code;
using kvbm::Status;
using kvbm::capi::guarded;
using kvbm::capi::to_c;

namespace {

// Answers a call with checked arguments.
kvbm_status_t locate(kvbm::capi::Tenancy& tenancy, const kvbm::manager::LocateRequest& request, uint64_t ask_nodes_ns,
                     kvbm_location_t* out_rows, size_t capacity, size_t* out_n) {
  std::vector<kvbm::Identity> ids = kvbm::manager::identities_of(request);
  std::vector<kvbm::cluster::NodeAnswer> answers;
  answers.push_back(kvbm::manager::own_answer(tenancy.stack().lower(), ids));
  if (ask_nodes_ns != 0) {
    auto others = kvbm::capi::survey_and_wait(tenancy, std::move(ids), ask_nodes_ns);
    answers.insert(answers.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  }
  const auto rows = kvbm::manager::locate(request, answers);
  *out_n = rows.size();
  for (size_t i = 0; i < rows.size() && i < capacity; ++i) {
    kvbm_location_t row{};
    std::memcpy(row.node, rows[i].node.bytes.data(), sizeof row.node);
    row.request = rows[i].request;
    row.tier = rows[i].tier;
    row.n_prefix = rows[i].prefix;
    row.n_in_tier = rows[i].in_tier;
    row.bytes = rows[i].bytes;
    out_rows[i] = row;
  }
  for (const auto& answer : answers) {
    if (!answer.whole) return KVBM_PARTIAL;
  }
  return KVBM_OK;
}

constexpr uint64_t kLookAgainNs = 2'000'000;

// Returns ok if all addresses of node.peers are connected and known. not_permitted: all that are missing were refused,
// so retrying cannot help; else deadline. The detail has "address: state" of each missing peer.
Status check_peers(kvbm::manager::Node& node) {
  bool refused = true;
  std::string why;
  for (const auto& row : node.nodes()) {
    const auto& link = row.link;
    if (link.state == "this node") continue;
    if (link.state == "ready" && link.status.capacity_bytes != 0) continue;  // has reported its capacity
    refused = refused && link.state.starts_with("refused: ");
    why.append(why.empty() ? "" : "; ").append(link.address).append(": ").append(link.state);
  }
  if (why.empty()) return {};
  if (refused) return {Code::not_permitted, "not all peers let this node in", std::move(why)};
  return {Code::deadline, "not all peers are connected", std::move(why)};
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_manager_wait_for_peers(kvbm_manager_t* manager, uint64_t timeout_ns, kvbm_error_t* err) {
  return guarded(err, [&]() -> kvbm_status_t {
    if (manager == nullptr) return kvbm::capi::fail(err, kvbm::Code::invalid_argument, "manager is NULL");
    const kvbm_status_t here = kvbm::capi::check_process(*manager->tenancy->context, err);
    if (here != KVBM_OK) return here;
    const auto& node = manager->tenancy->node;
    if (node == nullptr) return kvbm::capi::done(err);
    const auto& clock = manager->tenancy->context->executor->clock();
    const uint64_t deadline = kvbm::deadline_after(clock, timeout_ns);
    for (;;) {
      const Status peers = check_peers(*node);
      if (peers.ok()) return kvbm::capi::done(err);
      const uint64_t now = clock.now_ns();
      if (peers.code() == Code::not_permitted || now >= deadline) return kvbm::capi::fail(err, peers);
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(kLookAgainNs, deadline - now)));
    }
  });
}

kvbm_status_t kvbm_manager_nodes(kvbm_manager_t* manager, kvbm_node_row_t* out_rows, size_t capacity, size_t* out_n) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n != nullptr) *out_n = 0;
    if (manager == nullptr || out_n == nullptr) return kvbm::capi::invalid("manager or out_n is NULL");
    if (out_rows == nullptr && capacity != 0) return kvbm::capi::invalid("out_rows is NULL");
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
      const kvbm::cluster::LinkCoder::NodeState& coding = rows[i].coding;
      row.codec = static_cast<uint8_t>(coding.mode);
      row.codec_automatic = coding.automatic ? 1 : 0;
      row.codec_sealed = coding.sealed ? 1 : 0;
      row.codec_refused = static_cast<uint32_t>(std::min<uint64_t>(coding.taken.refused, UINT32_MAX));
      row.codec_plain_bytes = coding.taken.raw_bytes;
      row.codec_stored_bytes = coding.taken.coded_bytes;
      out_rows[i] = row;
    }
    return KVBM_OK;
  });
}

kvbm_status_t kvbm_manager_node_address(kvbm_manager_t* manager, char* out, size_t capacity, size_t* out_needed) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_needed != nullptr) *out_needed = 0;
    if (manager == nullptr || (out == nullptr && capacity != 0)) return kvbm::capi::invalid("manager or out is NULL");
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    const auto& node = manager->tenancy->node;
    const std::string text = node != nullptr ? node->address() : std::string();
    return kvbm::capi::copy_text(text.data(), text.size(), out, capacity, out_needed);
  });
}

kvbm_status_t kvbm_locate_options_init(kvbm_locate_options_t* out_options, uint32_t struct_size) {
  return kvbm::capi::init_options(out_options, struct_size, kvbm_locate_options_t{});
}

kvbm_status_t kvbm_manager_locate(kvbm_manager_t* manager, kvbm_namespace_t* ns, const kvbm_key_t* keys, size_t n_keys,
                                  const kvbm_locate_options_t* options, kvbm_location_t* out_rows, size_t capacity,
                                  size_t* out_n) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n != nullptr) *out_n = 0;
    if (manager == nullptr || ns == nullptr || out_n == nullptr)
      return kvbm::capi::invalid("manager, ns or out_n is NULL");
    if (kvbm::capi::too_many(n_keys)) return kvbm::capi::fail(nullptr, kvbm::capi::refuse_count("n_keys"));
    if (keys == nullptr && n_keys != 0) return kvbm::capi::invalid("keys is NULL");
    if (out_rows == nullptr && capacity != 0) return kvbm::capi::invalid("out_rows is NULL");
    if (ns->tenancy != manager->tenancy)
      return kvbm::capi::refuse(kvbm::Code::foreign_handle, "ns belongs to another manager");
    kvbm_locate_options_t given{};
    if (!kvbm::capi::take_options(options, given) || given.reserved != 0) {
      return kvbm::capi::refuse(kvbm::Code::unsupported, kvbm::capi::kUnknownOptions);
    }
    if (given.n_parts > 32 || (given.parts == nullptr && given.n_parts != 0)) {
      return kvbm::capi::invalid("options.n_parts is over 32, or options.parts is NULL");
    }
    if (kvbm::capi::too_many(given.n_requests) || (given.request_keys == nullptr) != (given.n_requests == 0)) {
      return kvbm::capi::invalid("options.request_keys and options.n_requests go together, with at most 2^28 requests");
    }
    const kvbm_status_t here = kvbm::capi::check_process(*manager->tenancy->context, nullptr);
    if (here != KVBM_OK) return here;
    kvbm::manager::LocateRequest request;
    request.keys = {reinterpret_cast<const kvbm::Key*>(keys), n_keys};
    request.request_keys = given.request_keys != nullptr ? std::span(given.request_keys, given.n_requests)
                                                         : std::span<const size_t>(&n_keys, 1);
    size_t left = n_keys;
    for (const size_t n : request.request_keys) {
      if (n > left) return kvbm::capi::invalid("options.request_keys add up to more than n_keys");
      left -= n;
    }
    if (left != 0) return kvbm::capi::invalid("options.request_keys add up to less than n_keys");
    std::vector<kvbm::manager::PartPlan> parts;
    for (size_t i = 0; i < (given.n_parts == 0 ? 1 : given.n_parts); ++i) {
      auto plan = ns->ns->plan(kvbm::capi::to_part(given.n_parts == 0 ? nullptr : &given.parts[i]));
      if (!plan.ok()) return kvbm::capi::fail(nullptr, plan.status());
      parts.push_back(std::move(plan).value());
    }
    request.parts = parts;
    return locate(*manager->tenancy, request, given.ask_nodes_ns, out_rows, capacity, out_n);
  });
}

}  // extern "C"
