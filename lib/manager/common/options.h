// Configuration of a manager, typed, and the schema of every option of the library.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/config.h"
#include "base/family/family_table.h"
#include "base/process/machine_limits.h"
#include "copy/frame_guard.h"
#include "policy/admission.h"
#include "policy/eviction.h"
#include "tier/host/host_arena.h"
#include "tier/tier.h"

namespace kvbm::device {
struct Driver;
}
namespace kvbm::codec {
class KeyRing;
}

namespace kvbm::manager {

// Makes a tier that is no disk (a store, a plug-in, other nodes), from its index and the listener of its events.
using MakeTier = std::function<Result<std::unique_ptr<tier::Tier>>(TierIndex, FamilyTable&, tier::TierListener*)>;

// Admission: which blocks of the host are written into a tier below (names as in policy/admission.h).
enum class AdmissionKind : uint32_t { all = 0, on_eviction = 1, after_uses = 2, frequency = 3, on_request = 4 };
const char* admission_name(AdmissionKind kind) noexcept;

struct TierOptions {
  std::string path;  // a disk's directory
  std::string url;   // or a store's; `make` is then set from it
  MakeTier make;     // or a maker of another kind of tier
  uint64_t capacity_bytes = 0;
  uint64_t write_bytes_per_s = 0;
  uint64_t read_bytes_per_s = 0;
  AdmissionKind admission = AdmissionKind::all;
  uint32_t admission_uses = 2;
  std::string codec = "off";     // auto, or the name of a lossless codec::Mode: coding of records here
  bool codec_for_space = false;  // auto chooses the best ratio, not the shortest time to bring blocks up
};

// This manager as a node among others; without listen, peers and peers_file it is no node.
struct NodeOptions {
  std::string listen;
  std::vector<std::string> peers;
  std::string key_file;
  std::optional<copy::Protection> protect;  // of links; nothing: authenticate if there is a key
  bool trusted_network = false;             // links beyond this machine may be unprotected
  std::string name;                         // empty: a random one
  std::string pool = "default";
  std::string peers_file;  // file of peers' addresses, which may change
  bool peers_file_join = false;
  uint32_t replicas = 1;
  std::string transport = "auto";  // or tcp, ucx
  std::string ucx_module, ucx_devices, ucx_transports;
  uint64_t staging_bytes = 256ULL << 20;
  bool device_ipc = true;  // device.ipc
  enum class DeviceRdma : uint8_t { automatic, off, on };
  DeviceRdma device_rdma = DeviceRdma::automatic;
  uint64_t session_staging_bytes = 64ULL << 20;
  AdmissionKind admission = AdmissionKind::on_request;  // admission to other nodes
  bool local = true;                                    // nodes of one machine read each other's host memory in place
  std::string local_directory;                          // directory of their sockets; empty: the user's own
  std::string codec = "off";                            // auto, or a lossless mode: coding of records on links
  [[nodiscard]] bool wanted() const noexcept { return !listen.empty() || !peers.empty() || !peers_file.empty(); }
};

// Sharing of the tier set by several processes of this host (share.h).
struct ShareOptions {
  bool on = false;
  std::string directory;  // if there is no disk; else the disk's
  uint64_t ask_ns = 20'000'000;
};

// Attached caches in device memory (device_caches.h).
struct DeviceOptions {
  enum class Use : uint8_t { automatic, off, on };
  Use use = Use::automatic;
  std::string library;                     // of the driver; empty: the system's
  const device::Driver* driver = nullptr;  // used instead by a simulation
  uint32_t multiprocessors = 8;
  uint64_t staging_bytes = 64ULL << 20;
  uint64_t staged_run_bytes = 0;  // PlanLimits; 0: derived from the device's link
  uint32_t pin_threads = 4;
  uint64_t lost_after_ns = 10'000'000'000;
  // Controls whether loads read disks past host memory (load_storage.cc).
  Use storage = Use::automatic;
  std::string storage_library;  // of cuFile; empty: the system's
  bool has_disk = false;        // a disk to read from exists
  bool decode = true;           // kernels decode the coded leaves that they can
};

struct Options {
  tier::HostOptions host;
  std::string policy = std::string(policy::kDefaultPolicy);
  policy::MakePolicy make_policy;  // empty: built-in policies by name
  bool hash_managed = true;  // managed blocks get their heads when they are registered, not when they leave the host
  uint64_t room_wait_ns = 1'000'000'000;  // of stores, while none of them gets a slot (space_queue.h)
  std::vector<TierOptions> tiers;
  NodeOptions node;
  ShareOptions share;
  DeviceOptions device;
  std::string seal_key_file;  // empty: nothing is sealed
  // Result of load_seal_keys() for that file.
  std::shared_ptr<const codec::KeyRing> seal_keys;
};

// Returns true if `name` names a lossless codec for tiers.
[[nodiscard]] bool is_tier_codec(std::string_view name) noexcept;

// Returns every option, for configuration files, the environment and the docs.
std::span<const OptionRow> option_schema();
// Reduces defaults on small machines, or where control groups limit this process: host.capacity to at most a quarter
// of the memory, threads to at most the processors. Options that were set stay.
void fit_defaults(OptionSet& config, const MachineLimits& limits);
// Returns manager options from an effective configuration.
Result<Options> options_from(const OptionSet& config);

}  // namespace kvbm::manager
