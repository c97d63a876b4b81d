#include "manager/common/options.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

namespace kvbm::manager {

namespace {

constexpr uint64_t kMaxBytes = 1ULL << 50;
constexpr uint64_t kMinDiskBytes = 1ULL << 20;
constexpr uint64_t kMaxTierBytes = 1ULL << 44;  // the largest size that a disk tier can address

constexpr const char* kTierCodecs[] = {"off", "auto", "fast", "default", "max", "zstd"};

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const std::string_view name : policy::eviction_policy_names()) names.emplace_back(name);
  return names;
}

std::vector<OptionRow> tier_rows() {
  std::vector<OptionRow> rows;
  rows.push_back(
      {"path", OptionType::string, "",
       "Directory of the disk tier, of this user, which no other user may write; made with mode 0700 if missing."});
  rows.push_back(
      {"url", OptionType::string, "",
       "Instead of path: a store, as s3://bucket/prefix?region=eu-west-1, redis://host:6379, file:///mnt/kv or "
       "plugin:/path/of.so (docs/stores.md)."});
  rows.push_back({"capacity", OptionType::bytes, "1GiB",
                  "Hard cap of everything in the directory, or of all that hosts keep in the store; a store has none "
                  "by default, or with 0.",
                  0, kMaxTierBytes});
  rows.push_back({"admission",
                  OptionType::choice,
                  "all",
                  "Which blocks come here: all as they are stored, on eviction from the tier above, after n uses, by "
                  "frequency with decay, or only those that a caller sends.",
                  0,
                  0,
                  {"all", "on_eviction", "after_uses", "frequency", "on_request"}});
  rows.push_back({"admission_uses", OptionType::count, "2", "Uses for after_uses; threshold for frequency.", 1, 15});
  rows.push_back({"write_bytes_per_s", OptionType::bytes, "0", "Bandwidth cap of offload; 0 = none.", 0, kMaxBytes});
  rows.push_back({"read_bytes_per_s", OptionType::bytes, "0", "Bandwidth cap of onboard; 0 = none.", 0, kMaxBytes});
  rows.push_back({"codec",
                  OptionType::choice,
                  "off",
                  "How records are coded here, without loss unless their namespace says otherwise; auto: as measuring "
                  "shows that it pays.",
                  0,
                  0,
                  {std::begin(kTierCodecs), std::end(kTierCodecs)}});
  rows.push_back({"codec_goal",
                  OptionType::choice,
                  "speed",
                  "What codec = auto is for: that blocks are brought up sooner, or that more of them fit.",
                  0,
                  0,
                  {"speed", "space"}});
  return rows;
}

// Adds options of tier sets that processes share.
void add_share(std::vector<OptionRow>& rows) {
  rows.push_back({"share",
                  OptionType::choice,
                  "off",
                  "Let several processes of this host share the tier set: one owns it, the others are its clients.",
                  0,
                  0,
                  {"off", "on"}});
  rows.push_back(
      {"share_directory", OptionType::string, "",
       "Where a tier set without a disk is shared: a directory of this user's alone. With a disk: the disk's."});
  rows.push_back({"share_ask", OptionType::duration, "20ms",
                  "How long a lookup of a client waits for what the owner of the tier set has.", 0, 60'000'000'000});
}

// Adds options that identify a node of the pool and protect its messages.
void add_protection(std::vector<OptionRow>& rows) {
  rows.push_back(
      {"node.key_file", OptionType::string, "",
       "File with the pool's key, which `kvbm key new` makes, of this user's alone (chmod 600); needed for other "
       "machines, other users of this one, and node.transport = ucx."});
  rows.push_back(
      {"node.protect",
       OptionType::choice,
       "auto",
       "What is done to everything that crosses a link over TCP: authenticate, so that no byte of it can be "
       "changed on its way; encrypt, so that no byte can be read on its way either; off. auto: authenticate where "
       "there is a key. One side's off is refused by the others; else the stronger wish of both counts.",
       0,
       0,
       {"auto", "authenticate", "encrypt", "off"}});
  rows.push_back({"node.trusted_network", OptionType::boolean, "false",
                  "Only this pool can read or change what crosses the network between its nodes: links beyond this "
                  "machine may be unprotected (node.protect = off, or UCX)."});
}

// Adds options of the transport between nodes.
void add_transport(std::vector<OptionRow>& rows) {
  rows.push_back({"node.transport",
                  OptionType::choice,
                  "auto",
                  "What carries the links, the same on all nodes of a pool; auto: ucx where RDMA is here and "
                  "node.ucx_devices names it, else tcp.",
                  0,
                  0,
                  {"auto", "tcp", "ucx"}});
  rows.push_back({"node.ucx_devices", OptionType::string, "",
                  "Devices that UCX may use, with commas, as UCX names them (mlx5_0:1, eth0) or all; empty: loopback "
                  "alone. UCX trusts every process that reaches its ports."});
  rows.push_back({"node.ucx_transports", OptionType::string, "",
                  "Transports that UCX may use, with commas (rc,tcp); empty: what it finds."});
  rows.push_back({"node.ucx_module", OptionType::string, "",
                  "kvbm's UCX module, or the folder with it; empty: KVBM_UCX_PATH, then beside the library."});
}

// Adds options of reading between nodes of one machine.
void add_in_place(std::vector<OptionRow>& rows) {
  rows.push_back(
      {"node.local",
       OptionType::choice,
       "auto",
       "Read the host memory of nodes on this machine in place, where they run as the same user, and let them "
       "read this one's.",
       0,
       0,
       {"auto", "off"}});
  rows.push_back({"node.local_directory", OptionType::string, "",
                  "Directory for the sockets that this takes; this user's alone. Empty: kvbm in $XDG_RUNTIME_DIR, else "
                  "kvbm-<user id> in the directory for temporary files."});
}

// Adds options of a node among others, and of sharing on one host.
void add_neighbours(std::vector<OptionRow>& rows) {
  rows.push_back(
      {"node.listen", OptionType::string, "",
       "Address on which other nodes may read from this one, host:port; port 0 takes a free one. Empty: none may. "
       "Without "
       "a key (node.key_file) it is one of this machine's own, as 127.0.0.1, for processes of this user alone."});
  rows.push_back({"node.peers", OptionType::string, "",
                  "Addresses of other nodes, separated by commas: what they have is found and read."});
  add_protection(rows);
  rows.push_back(
      {"node.name", OptionType::string, "", "Name of this node, the same after a restart. Empty: a random one."});
  rows.push_back(
      {"node.pool", OptionType::string, "default", "Name of the pool; nodes of different pools refuse each other."});
  rows.push_back({"node.staging", OptionType::bytes, "256MiB", "Memory that blocks from other nodes land in.", 1 << 20,
                  kMaxBytes});
  rows.push_back({"node.admission",
                  OptionType::choice,
                  "on_request",
                  "Which host blocks are offered to other nodes.",
                  0,
                  0,
                  {"all", "on_eviction", "after_uses", "frequency", "on_request"}});
  add_share(rows);
  rows.push_back({"node.peers_file", OptionType::string, "",
                  "File of other nodes, name=... address=host:port a line, looked at once a second: added nodes "
                  "are dialled, removed ones are left."});
  rows.push_back(
      {"node.peers_file_join", OptionType::boolean, "false",
       "Write this node into node.peers_file at start, and take it out at the end; needs node.listen and node.name."});
  rows.push_back({"node.replicas", OptionType::count, "1", "Homes that a block is offered to.", 1, 7});
  add_transport(rows);
  rows.push_back({"node.session_staging", OptionType::bytes, "64MiB",
                  "Memory that prefill->decode sessions land in; a prefill rank sends through a quarter of it.",
                  4 << 20, kMaxBytes});
  add_in_place(rows);
  rows.push_back({"node.codec",
                  OptionType::choice,
                  "off",
                  "How records come from other nodes, which must not be off either: auto codes without loss where that "
                  "makes transfers shorter by more than 3 %.",
                  0,
                  0,
                  {"off", "auto", "fast", "default", "max", "zstd"}});
}

// Adds options of reading disks into devices.
void add_device_storage(std::vector<OptionRow>& rows) {
  rows.push_back({"device.storage",
                  OptionType::choice,
                  "auto",
                  "Reading disks straight into a device (GPUDirect Storage, cuFile): for loads that do not keep blocks "
                  "in the host, where the kernel has nvidia-fs; never; or, on, for all loads into devices, also where "
                  "cuFile can only copy.",
                  0,
                  0,
                  {"auto", "off", "on"}});
  rows.push_back({"device.storage_library", OptionType::string, "",
                  "The library of cuFile, a path; empty: libcufile.so.0 as the system finds it."});
}

// Adds options of sessions between devices.
void add_device_sessions(std::vector<OptionRow>& rows) {
  rows.push_back({"device.ipc",
                  OptionType::choice,
                  "auto",
                  "Sessions between two processes of one machine go from device memory to device memory (CUDA IPC) "
                  "where the driver allows it; or never.",
                  0,
                  0,
                  {"auto", "off"}});
  rows.push_back({"device.rdma",
                  OptionType::choice,
                  "auto",
                  "Sessions between machines: network cards read and write kvbm's own device memory (GPUDirect RDMA) "
                  "where the transport of node.transport and the device say that they can; never; or, on, also where "
                  "the device does not say so.",
                  0,
                  0,
                  {"auto", "off", "on"}});
}

// Adds options of attached caches in device memory.
void add_device(std::vector<OptionRow>& rows) {
  rows.push_back({"device.cuda",
                  OptionType::choice,
                  "auto",
                  "Attached caches in the memory of CUDA devices: where the driver is; never; or, on, a manager is not "
                  "created without one.",
                  0,
                  0,
                  {"auto", "off", "on"}});
  rows.push_back({"device.library", OptionType::string, "",
                  "The driver's library, a path; empty: libcuda.so.1 as the system finds it."});
  rows.push_back(
      {"device.multiprocessors", OptionType::count, "8",
       "Multiprocessors of a device that kvbm's kernels use at most, stores, loads and coding by hand each; the "
       "others stay the engine's.",
       1, 1024});
  rows.push_back({"device.staging", OptionType::bytes, "64MiB",
                  "Device memory that stores and loads go through, and as much pinned host memory; for each device.",
                  1 << 20, kMaxBytes});
  rows.push_back(
      {"device.staged_run", OptionType::bytes, "0",
       "From how long runs in host memory on, on the average, a copy engine moves them; shorter ones are read and "
       "written by kernels. 0: 5 us of the device's link: 256KiB on PCIe 5 x16, 128KiB on PCIe 4 x16; loads "
       "whose layers are waited for then go by kernels alone.",
       0, 1ULL << 30});
  rows.push_back(
      {"device.pin_threads", OptionType::count, "4",
       "Threads that bring in the host tier's memory and register it with a device, in stripes of 64 MiB to 1 GiB, "
       "when its first cache is attached.",
       1, 256});
  rows.push_back(
      {"device.decode", OptionType::boolean, "true",
       "Blocks that lie coded in a tier below cross to a device coded and are decoded there, where its kernels "
       "can; else by the processor."});
  rows.push_back({"device.lost_after", OptionType::duration, "10s",
                  "A device that does not end what it has begun within this time counts as lost.", 100'000'000,
                  3'600'000'000'000});
  add_device_storage(rows);
  add_device_sessions(rows);
}

std::vector<OptionRow> make_schema() {
  std::vector<OptionRow> rows;
  rows.push_back({"threads", OptionType::count, "2",
                  "Worker threads of a context; by default no more than the process has processors.", 1, 256});
  rows.push_back({"io.engine",
                  OptionType::choice,
                  "automatic",
                  "How files are read and written: io_uring, pread/pwrite on threads, or the first that works.",
                  0,
                  0,
                  {"automatic", "uring", "pread"}});
  rows.push_back({"io.threads", OptionType::count, "4", "Threads of the pread engine.", 1, 256});
  rows.push_back(
      {"host.capacity", OptionType::bytes, "256MiB",
       "Host memory for blocks, their heads included; by default at most a quarter of the memory that the process "
       "may use.",
       4096, kMaxBytes});
  rows.push_back({"host.block_bytes", OptionType::bytes, "64KiB", "Largest payload of one block.", 1, 1ULL << 31});
  rows.push_back({"host.policy", OptionType::choice, std::string(policy::kDefaultPolicy),
                  "Which block goes when room is needed.", 0, 0, policy_names()});
  rows.push_back(
      {"host.file", OptionType::string, "",
       "Keep host blocks in this file of a tmpfs or hugetlbfs, to find them again after a restart. It has one owner, "
       "and is this user's alone."});
  rows.push_back({"host.huge_pages", OptionType::boolean, "true", "Use huge pages where the system gives them."});
  rows.push_back({"host.interleave", OptionType::boolean, "false", "Spread host memory over all NUMA nodes."});
  rows.push_back(
      {"host.managed_hashes",
       OptionType::choice,
       "at_register",
       "When managed blocks are hashed, by which every read of them is verified: as they are registered, or "
       "when_needed, before they first leave host memory. A bit that flips there before that is not noticed.",
       0,
       0,
       {"at_register", "when_needed"}});
  rows.push_back({"host.touch_threads", OptionType::count, "0",
                  "Threads that fault the host memory in at start; 0 = at first use.", 0, 256});
  rows.push_back({"host.room_wait", OptionType::duration, "1s",
                  "How long a store or prefetch waits for room in the host while none comes free for them, and some is "
                  "on its way: offloads, loads and stores give back what they hold. 0: it is refused at once.",
                  0, 3'600'000'000'000});
  add_neighbours(rows);
  add_device(rows);
  rows.push_back({"seal.key_file", OptionType::string, "",
                  "File of keys that records are sealed with (AES-256-GCM) when they leave this host's memory, a line "
                  "\"<id> <64 hex digits>\" each; the first one seals. Its owner's alone. Empty: nothing is sealed."});
  OptionRow tiers{"tier", OptionType::table_list, "", "Tiers below the host, fastest first."};
  tiers.entry = tier_rows();
  rows.push_back(std::move(tiers));
  return rows;
}

// Returns the parts of a comma-separated list, without the spaces around them and without empty ones.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t first = part.find_first_not_of(" \t");
    if (first == std::string::npos) continue;
    out.push_back(part.substr(first, part.find_last_not_of(" \t") - first + 1));
  }
  return out;
}

AdmissionKind admission_named(const std::string& name) {
  if (name == "on_eviction") return AdmissionKind::on_eviction;
  if (name == "after_uses") return AdmissionKind::after_uses;
  if (name == "frequency") return AdmissionKind::frequency;
  if (name == "on_request") return AdmissionKind::on_request;
  return AdmissionKind::all;
}

void read_host(const OptionSet& config, Options& out) {
  const auto& values = config.values;
  out.host.capacity_bytes = values.at("host.capacity").number;
  out.host.block_bytes = values.at("host.block_bytes").number;
  out.host.file = values.at("host.file").text;
  out.host.huge_pages = values.at("host.huge_pages").number != 0;
  out.host.interleave = values.at("host.interleave").number != 0;
  out.host.touch_threads = static_cast<uint32_t>(values.at("host.touch_threads").number);
  out.policy = values.at("host.policy").text;
  out.hash_managed = values.at("host.managed_hashes").text == "at_register";
  out.room_wait_ns = values.at("host.room_wait").number;
}

void read_node(const OptionSet& config, NodeOptions& out) {
  const auto& values = config.values;
  out.listen = values.at("node.listen").text;
  out.peers = split(values.at("node.peers").text);
  out.key_file = values.at("node.key_file").text;
  const std::string& protect = values.at("node.protect").text;
  if (protect == "authenticate") out.protect = copy::Protection::authenticate;
  if (protect == "encrypt") out.protect = copy::Protection::encrypt;
  if (protect == "off") out.protect = copy::Protection::off;
  out.trusted_network = values.at("node.trusted_network").number != 0;
  out.name = values.at("node.name").text;
  out.pool = values.at("node.pool").text;
  out.staging_bytes = values.at("node.staging").number;
  out.session_staging_bytes = values.at("node.session_staging").number;
  out.admission = admission_named(values.at("node.admission").text);
  out.peers_file = values.at("node.peers_file").text;
  out.peers_file_join = values.at("node.peers_file_join").number != 0;
  out.replicas = static_cast<uint32_t>(values.at("node.replicas").number);
  out.transport = values.at("node.transport").text;
  out.ucx_devices = values.at("node.ucx_devices").text;
  out.ucx_transports = values.at("node.ucx_transports").text;
  out.ucx_module = values.at("node.ucx_module").text;
  out.local = values.at("node.local").text == "auto";
  out.local_directory = values.at("node.local_directory").text;
  out.codec = values.at("node.codec").text;
  out.device_ipc = values.at("device.ipc").text == "auto";
  using Rdma = NodeOptions::DeviceRdma;
  const std::string& rdma = values.at("device.rdma").text;
  if (rdma != "auto") out.device_rdma = rdma == "on" ? Rdma::on : Rdma::off;
}

void read_share(const OptionSet& config, ShareOptions& out) {
  out.on = config.values.at("share").text == "on";
  out.directory = config.values.at("share_directory").text;
  out.ask_ns = config.values.at("share_ask").number;
}

void read_device(const OptionSet& config, DeviceOptions& out) {
  const auto& values = config.values;
  const std::string& cuda = values.at("device.cuda").text;
  if (cuda != "auto") out.use = cuda == "on" ? DeviceOptions::Use::on : DeviceOptions::Use::off;
  out.library = values.at("device.library").text;
  out.multiprocessors = static_cast<uint32_t>(values.at("device.multiprocessors").number);
  out.staging_bytes = values.at("device.staging").number;
  out.staged_run_bytes = values.at("device.staged_run").number;
  out.pin_threads = static_cast<uint32_t>(values.at("device.pin_threads").number);
  out.decode = values.at("device.decode").number != 0;
  out.lost_after_ns = values.at("device.lost_after").number;
  const std::string& storage = values.at("device.storage").text;
  if (storage != "auto") out.storage = storage == "on" ? DeviceOptions::Use::on : DeviceOptions::Use::off;
  out.storage_library = values.at("device.storage_library").text;
}

Result<TierOptions> tier_from(const OptionSet& entry) {
  const auto& values = entry.values;
  TierOptions tier;
  tier.path = values.at("path").text;
  tier.url = values.at("url").text;
  if (tier.path.empty() == tier.url.empty()) {
    return Status(Code::bad_config,
                  tier.path.empty() ? "a [[tier]] has no path and no url" : "a [[tier]] has a path and a url",
                  "say where its directory is, as path = \"...\", or which store it is, as url = \"...\"");
  }
  tier.capacity_bytes = values.at("capacity").number;
  if (!tier.url.empty() && values.at("capacity").origin == "default") tier.capacity_bytes = 0;
  if (!tier.path.empty() && tier.capacity_bytes < kMinDiskBytes) {
    return Status(Code::bad_config, "a [[tier]] is too small", "capacity of " + tier.path + " is at least 1MiB");
  }
  tier.write_bytes_per_s = values.at("write_bytes_per_s").number;
  tier.read_bytes_per_s = values.at("read_bytes_per_s").number;
  tier.admission = admission_named(values.at("admission").text);
  tier.admission_uses = static_cast<uint32_t>(values.at("admission_uses").number);
  tier.codec = values.at("codec").text;
  tier.codec_for_space = values.at("codec_goal").text == "space";
  return tier;
}

}  // namespace

const char* admission_name(AdmissionKind kind) noexcept {
  switch (kind) {
    case AdmissionKind::on_eviction:
      return "on_eviction";
    case AdmissionKind::after_uses:
      return "after_uses";
    case AdmissionKind::frequency:
      return "frequency";
    case AdmissionKind::on_request:
      return "on_request";
    case AdmissionKind::all:
      break;
  }
  return "all";
}

bool is_tier_codec(std::string_view name) noexcept {
  return std::find(std::begin(kTierCodecs), std::end(kTierCodecs), name) != std::end(kTierCodecs);
}

void fit_defaults(OptionSet& config, const MachineLimits& limits) {
  constexpr uint64_t kMiB = 1 << 20;
  const auto at_most = [&](const char* name, uint64_t most, const char* why) {
    OptionValue& value = config.values.at(name);
    if (value.origin != "default" || value.number <= most) return;
    value.number = most;
    value.origin.append(", ").append(why);
  };
  if (limits.memory() != MachineLimits::kNone) {
    at_most("host.capacity", std::max(limits.memory() / 4 / kMiB, uint64_t{1}) * kMiB,
            "a quarter of the memory of this process");
  }
  at_most("threads", limits.processors(), "the processors of this process");
}

std::span<const OptionRow> option_schema() {
  static const std::vector<OptionRow> rows = make_schema();
  return rows;
}

Result<Options> options_from(const OptionSet& config) {
  Options out;
  read_host(config, out);
  read_node(config, out.node);
  read_share(config, out.share);
  read_device(config, out.device);
  out.seal_key_file = config.values.at("seal.key_file").text;
  const auto tiers = config.lists.find("tier");
  if (tiers == config.lists.end()) return out;
  for (const OptionSet& entry : tiers->second) {
    auto tier = tier_from(entry);
    if (!tier.ok()) return tier.status();
    out.tiers.push_back(std::move(tier).value());
  }
  return out;
}

}  // namespace kvbm::manager
