#include "manager/node/node_transport.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "cluster/mesh/mesh.h"
#include "copy/tcp/tcp_transport.h"
#include "copy/transport_module.h"

namespace kvbm::manager {

namespace {

constexpr char kInfiniband[] = "/sys/class/infiniband";

constexpr char kUcxRemedy[] =
    "set node.transport=tcp on all nodes; or seal what leaves the host (seal.key_file); or, if only this pool can "
    "reach "
    "that network, node.trusted_network=on";

NodeTransport sockets(const NodeOptions& options, std::string why) {
  NodeTransport out{&copy::tcp::ops(), {}, "tcp: " + std::move(why), true};
  out.options.own_user_only = options.key_file.empty();
  return out;
}

bool may_be_unprotected(const NodeOptions& options, bool sealed) noexcept {
  return options.key_file.empty() || options.trusted_network || sealed;
}

Result<NodeTransport> ucx(const NodeOptions& options, const std::string& why) {
  std::vector<std::string> addresses = options.peers;
  if (!options.listen.empty()) addresses.push_back(options.listen);
  for (const std::string& address : addresses) {
    if (!options.ucx_devices.empty() || cluster::only_this_machine(address)) continue;
    return Status(Code::bad_config, "UCX would carry links beyond this machine, and no device is named for it",
                  address + ": set node.ucx_devices, such as mlx5_0:1, on networks whose hosts are trusted");
  }
  // The kernel cannot identify UCX's peers: a UCX connection may have several sockets, or none.
  if (options.key_file.empty()) {
    return Status(Code::bad_config, "UCX cannot tell which user owns a peer, so all peers need a key",
                  "set node.key_file, or node.transport = tcp on all nodes of the pool");
  }
  const auto module = copy::load_transport_module(options.ucx_module);
  if (!module.ok()) return module.status();
  NodeTransport out;
  out.ops = module.value();
  out.options.devices = options.ucx_devices;
  out.options.transports = options.ucx_transports;
  out.why = "ucx: " + why;
  return out;
}

}  // namespace

std::string active_rdma(const std::string& folder) {
  std::vector<std::string> ports;
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator(folder, error)) {
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", error)) {
      std::string state;
      std::getline(std::ifstream(port.path() / "state"), state);  // "4: ACTIVE"
      if (state.rfind("4:", 0) != 0) continue;
      ports.push_back(device.path().filename().string() + ":" + port.path().filename().string());
    }
  }
  std::sort(ports.begin(), ports.end());
  std::string out;
  for (const std::string& port : ports) out += (out.empty() ? "" : ",") + port;
  return out;
}

copy::Protection wanted_protection(const NodeOptions& options) noexcept {
  using copy::Protection;
  return options.protect.value_or(options.key_file.empty() ? Protection::off : Protection::authenticate);
}

Status settle_protection(const NodeOptions& options, const NodeTransport& transport, bool sealed,
                         cluster::MeshOptions& mesh) {
  using copy::Protection;
  mesh.unprotected_beyond = options.trusted_network || (sealed && !transport.protects);
  mesh.self.protect = transport.protects ? wanted_protection(options) : Protection::off;
  if (transport.protects) return {};
  if (options.protect.value_or(Protection::off) != Protection::off) {
    return {Code::bad_config, "node.protect asks for what UCX cannot do: a network card reads and writes by itself",
            kUcxRemedy + std::string(", with node.protect=auto")};
  }
  // Without a device UCX listens on loopback alone.
  if (options.ucx_devices.empty() || may_be_unprotected(options, sealed)) return {};
  return {Code::bad_config, "UCX cannot protect what it carries beyond this machine", kUcxRemedy};
}

Result<NodeTransport> choose_transport(const NodeOptions& options, bool sealed) {
  if (options.transport == "tcp") return sockets(options, "node.transport says so");
  if (options.transport == "ucx") return ucx(options, "node.transport says so");
  const std::string rdma = active_rdma(kInfiniband);
  if (rdma.empty()) return sockets(options, "no RDMA device with an active port is here");
  if (options.ucx_devices.empty()) {
    return sockets(options, "RDMA is here (" + rdma + ") and node.ucx_devices does not name it");
  }
  const bool asks = options.protect.value_or(copy::Protection::off) != copy::Protection::off;
  if (asks || !may_be_unprotected(options, sealed)) {
    return sockets(options, "RDMA is here (" + rdma +
                                "), and UCX cannot protect links; seal.key_file or node.trusted_network would " +
                                "let it carry them");
  }
  auto chosen = ucx(options, "RDMA is here (" + rdma + ")");
  if (!chosen.ok()) return sockets(options, "RDMA is here (" + rdma + "), but " + chosen.status().message());
  return chosen;
}

}  // namespace kvbm::manager
