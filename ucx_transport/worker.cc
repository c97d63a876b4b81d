#include "worker.h"

#include <ucm/api/ucm.h>

#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/memory/peer_memory.h"
#include "base/process/signal_keeper.h"
#include "device_memory.h"
#include "lanes.h"

namespace kvbm::ucx {

namespace {

Status refused(const char* what, ucs_status_t status) { return {Code::unsupported, what, ucs_status_string(status)}; }

// UCM patches code to hook mmap and its kin, the allocator and CUDA, for registration caches that nothing here uses.
// Its settings are a public object; the first two fields are the same from 1.13 to 1.22.
void switch_memory_hooks_off() { ucm_global_opts.enable_events = 0; }

using Config = std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)>;

ucs_status_t set(const Config& config, const char* name, const std::string& text) {
  return ucp_config_modify(config.get(), name, text.c_str());
}

// Sets options that help and that some versions lack.
void set_preferences(const Config& config) {
  (void)set(config, "RCACHE_ENABLE", "n");    // would need memory hooks
  (void)set(config, "CM_REUSEADDR", "y");     // a restarted node gets its port back at once
  (void)set(config, "MAX_EAGER_LANES", "1");  // messages stay in order
}

// UCX 1.13 aborts the process when a TCP connection ends in the middle of a transfer. One cause is TCP's emulated put
// (an assertion on PUT_TX_WAITING_ACK in tcp_ep.c), the other is sending from the caller's memory (a completion that
// is counted twice, uct_iface.h). 1.22 passes the same tests, but its wheel is built without those assertions. So
// bulk over TCP is sent as copied active messages. With RDMA nothing is changed: a copy would cancel its advantage.
void set_for_tcp(const Config& config) {
  if (set(config, "PUT_ENABLE", "n") != UCS_OK) (void)set(config, "TCP_PUT_ENABLE", "n");  // depends on the version
  (void)set(config, "ZCOPY_THRESH", "inf");
}

std::vector<Resource> resources_of(ucp_context_h context) {
  std::istringstream lines(printed([&](FILE* stream) { ucp_context_print_info(context, stream); }));
  std::vector<Resource> out;
  for (std::string line; std::getline(lines, line);) {
    // "#      resource 1  :  md 1  dev 1  flags -- tcp/lo"
    if (line.find(" resource ") == std::string::npos) continue;
    const size_t space = line.find_last_of(' ');
    const size_t slash = line.find('/', space);
    const size_t domain = line.find(" md ");
    if (slash == std::string::npos || domain == std::string::npos) continue;
    out.push_back({line.substr(space + 1, slash - space - 1), line.substr(slash + 1),
                   static_cast<unsigned>(std::strtoul(line.c_str() + domain + 4, nullptr, 10))});
  }
  return out;
}

// Returns true for a transport that reaches other processes. Excludes a process's own memory, memory of one host
// (which UCX does not use when dead peers must be detected), and transports that only serve others.
bool reaches_peers(const std::string& transport) {
  for (const char* local : {"self", "sysv", "posix", "cma", "knem", "xpmem", "cuda", "gdr", "rocm", "ze"}) {
    if (transport.rfind(local, 0) == 0) return false;
  }
  return true;
}

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

}  // namespace

Result<std::unique_ptr<Worker>> Worker::open(const WorkerOptions& options) {
  const SignalKeeper keeper;
  std::unique_ptr<Worker> out(new Worker);
  if (Status status = out->open_context(options); !status.ok()) return status;
  if (Status status = out->open_worker(); !status.ok()) return status;
  return out;
}

Status Worker::open_context(const WorkerOptions& options) {
  switch_memory_hooks_off();
  ucp_config_t* read = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &read); status != UCS_OK) {
    return refused("UCX cannot read its configuration; look for a wrong UCX_ variable in the environment", status);
  }
  const Config config(read, &ucp_config_release);
  set_preferences(config);
  loopback_only_ = options.devices.empty();
  const std::string devices = loopback_only_ ? "lo" : options.devices;
  if (set(config, "NET_DEVICES", devices) != UCS_OK) return {Code::bad_config, "UCX refuses these devices", devices};
  const std::string transports = !options.transports.empty() ? options.transports : loopback_only_ ? "tcp" : "all";
  if (set(config, "TLS", transports) != UCS_OK) return {Code::bad_config, "UCX refuses these transports", transports};

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "kvbm";
  if (const ucs_status_t status = ucp_init(&params, config.get(), &context_); status != UCS_OK) {
    return {status == UCS_ERR_NO_DEVICE ? Code::bad_config : Code::unsupported, "UCX does not start",
            std::string(ucs_status_string(status)) + ", devices " + devices + ", transports " + transports};
  }
  bool native = false;
  bool reaches = false;
  for (const Resource& r : resources_of(context_)) {
    native |= one_sided(r.transport);
    reaches |= reaches_peers(r.transport);
  }
  if (!reaches) {
    return {Code::bad_config, "UCX finds no network",
            "devices " + devices + ", transports " + transports + "; `ucx_info -d` lists what there is"};
  }
  emulated_get_ = options.emulated_get;
  emulated_device_ = options.emulated_device;
  can_get_ = native || emulated_get_;
  // Set only now that the resources are known: UCX emulates remote reads and writes in software once the feature is
  // requested, so it is requested only where it pays.
  if (can_get_) params.features |= UCP_FEATURE_RMA;
  if (!native) set_for_tcp(config);
  ucp_cleanup(std::exchange(context_, nullptr));
  if (const ucs_status_t status = ucp_init(&params, config.get(), &context_); status != UCS_OK) {
    return refused("UCX does not start again", status);
  }
  ask_device_memory();
  describe(native);
  return {};
}

void Worker::ask_device_memory() {
  static_assert(kCudaMemory == UCS_BIT(UCS_MEMORY_TYPE_CUDA));
  for (const Resource& r : resources_of(context_)) {
    if (is_rdma(r.transport) && r.domain < 64) cards_ |= uint64_t{1} << r.domain;
  }
  device_memory_ = emulated_device_;
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (ucp_context_query(context_, &attributes) != UCS_OK) return;
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  ucp_get_version(&major, &minor, &patch);
  knows_device_memory_ = ucx::knows_device_memory(attributes.memory_types);
  device_memory_ |=
      offers_device_memory(attributes.memory_types, cards_ != 0, has_peer_memory() || uses_dma_buf(major, minor));
}

void Worker::describe(bool native) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  ucp_get_version(&major, &minor, &patch);
  description_ = "UCX " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch) + ":";
  for (const Resource& r : resources_of(context_)) {
    if (starts_with(r.transport, "cuda") || reaches_peers(r.transport))
      description_ += " " + r.transport + "/" + r.device;
  }
  description_ += can_get_ ? (emulated_get_ ? "; emulated one-sided reads" : "; one-sided reads") : "";
  description_ += native ? "; bulk in the way that UCX chooses by size" : "; bulk as copied active messages";
  description_ += device_memory_ ? ", device memory too where its cards reach it" : "";
}

Status Worker::open_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (const ucs_status_t status = ucp_worker_create(context_, &params, &worker_); status != UCS_OK) {
    return refused("UCX does not make a worker", status);
  }
  if (const ucs_status_t status = ucp_worker_get_efd(worker_, &fd_); status != UCS_OK) {
    return refused("UCX has no file descriptor to sleep on with these transports", status);
  }
  return {};
}

Worker::~Worker() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

}  // namespace kvbm::ucx
