#include <array>
#include <filesystem>

#include "copy/transport_module.h"
#include "doctor/finding.h"
#include "manager/node/node_transport.h"

namespace kvbm::doctor {

namespace {

// Returns a host that ignores all events. The transport is only opened, asked, and closed.
kvbm_transport_host_t deaf_host() {
  kvbm_transport_host_t host{};
  host.struct_size = sizeof host;
  host.log = [](void*, int32_t, const char*) {};
  host.accepted = [](void*, kvbm_transport_peer_t, const char*) {};
  host.connected = [](void*, kvbm_transport_peer_t) {};
  host.message = [](void*, kvbm_transport_peer_t, const void*, size_t) {};
  host.writable = [](void*, kvbm_transport_peer_t) {};
  host.pushed = [](void*, kvbm_transport_peer_t, kvbm_transport_token_t, int32_t) {};
  host.received = [](void*, kvbm_transport_peer_t, kvbm_transport_token_t, int32_t, uint64_t) {};
  host.closed = [](void*, kvbm_transport_peer_t, int32_t, const char*) {};
  return host;
}

// Returns the transport's description of itself with every device, or sets `error` if it does not open. For that
// moment UCX has a socket on each device.
std::string described(const kvbm_transport_ops_t& ops, std::string* error) {
  kvbm_transport_options_t options{};
  options.struct_size = sizeof options;
  options.peer_queue_bytes = 1 << 16;
  options.peer_bulk_bytes = 1 << 20;
  options.devices = "all";
  const kvbm_transport_host_t host = deaf_host();
  kvbm_transport_t* transport = nullptr;
  std::array<char, 256> text{};
  if (ops.open(&options, &host, &transport, text.data(), text.size()) != 0) {
    *error = text.data();
    return {};
  }
  std::string out(ops.describe(transport, nullptr, 0) + 1, '\0');
  out.resize(ops.describe(transport, out.data(), out.size()));
  ops.close(transport);
  return out;
}

void probe_ucx(Findings& out) {
  const auto loaded = copy::load_transport_module();
  if (!loaded.ok()) {
    out.push_back(
        {"devices", "UCX", State::absent, loaded.status().message(),
         "transfers to other machines go over plain TCP sockets; for RDMA install libucx0 and kvbm's UCX module, "
         "or name their folder by KVBM_UCX_PATH"});
    return;
  }
  const kvbm_transport_ops_t& ops = *Result(loaded).value();
  std::string error;
  const std::string all = described(ops, &error);
  if (all.empty()) {
    out.push_back({"devices", "UCX", State::limited, error, "the module loads and does not open; see `ucx_info -d`"});
    return;
  }
  // "UCX 1.13.1: tcp/lo tcp/eth0"
  const size_t colon = all.find(": ");
  out.push_back({"devices", "UCX", State::ok, all.substr(0, colon) + ", " + ops.build, ""});
  const bool rdma = all.find(" rc") != std::string::npos || all.find(" dc") != std::string::npos;
  out.push_back({"devices", "UCX transports", State::ok, colon == std::string::npos ? "" : all.substr(colon + 2),
                 rdma ? "" : "no RDMA: transfers go over TCP, for which kvbm's own sockets are the faster way"});
}

}  // namespace

void probe_devices(Findings& out) {
  probe_ucx(out);
  std::string names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    names += (names.empty() ? "" : ", ") + entry.path().filename().string();
  }
  out.push_back({"devices", "RDMA", names.empty() ? State::absent : State::ok, names.empty() ? "no device" : names,
                 names.empty() ? "transfers would use TCP or shared memory" : ""});
  // The transport that a node would use here by default.
  const auto transport = manager::choose_transport({});
  out.push_back({"devices", "node transport", State::ok,
                 transport.ok() ? transport.value().why : transport.status().message(), ""});
}

}  // namespace kvbm::doctor
