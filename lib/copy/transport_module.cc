#include "copy/transport_module.h"

#include <dlfcn.h>

#include <array>

#include "base/process/library_loading.h"
#include "base/process/module_places.h"
#include "base/process/signal_keeper.h"
#include "base/thread/mutex.h"

namespace kvbm::copy {

namespace {

constexpr char kModule[] = "libkvbm_ucx.so";
constexpr char kUcx[] = "libucp.so.0";
constexpr char kUcm[] = "libucm.so.0";
constexpr char kVariable[] = "KVBM_UCX_PATH";
constexpr char kWhat[] = "transport unavailable";

// Turns off UCX's memory hooks. UCX's memory library patches mmap and related functions inside the C library, for a
// registration cache that is not used here, while other threads may be executing them. It does so when UCX is loaded,
// by a default that only the environment can change. So that library is loaded first, alone, which does nothing yet.
// Then it is made to initialise itself with its events off: that happens once. Its names are in its public header
// (ucm/api/ucm.h), and the first two fields of its settings are unchanged from 1.13 to 1.22.
//
// It refers to functions of UCX's core that only installing hooks would call, so it is bound lazily, and its events are
// kept off for good. If the process uses UCX already, its settings stay its own.
class MemoryHooksOff {
 public:
  explicit MemoryHooksOff(const std::string& library) {
    if (::dlopen(kUcm, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) != nullptr) return;
    void* ucm = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (ucm == nullptr) return;  // without UCX the module's load reports it
    auto* settings = static_cast<Settings*>(::dlsym(ucm, "ucm_global_opts"));
    const auto set = reinterpret_cast<void (*)(const Settings*)>(::dlsym(ucm, "ucm_set_global_opts"));
    if (settings == nullptr || set == nullptr || settings->enable_events != 1) return;
    settings->enable_events = 0;
    set(settings);
    settings_ = settings;
  }
  // Loading the rest has read the environment again.
  ~MemoryHooksOff() {
    if (settings_ != nullptr) settings_->enable_events = 0;
  }
  MemoryHooksOff(const MemoryHooksOff&) = delete;
  MemoryHooksOff& operator=(const MemoryHooksOff&) = delete;

 private:
  struct Settings {
    int log_level;
    int enable_events;
  };
  Settings* settings_ = nullptr;
};

// Binds later loads of the same names to the UCX in `directory`, if there is one.
Status preload_ucx(const std::string& directory) {
  const std::string library = module_path(directory) + "/" + kUcx;
  if (!is_regular_file(library)) return {};
  if (::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return {};
  const char* why = ::dlerror();
  return {Code::unsupported, kWhat, "UCX of " + directory + " does not load: " + (why == nullptr ? "?" : why)};
}

Status check(const kvbm_transport_ops_t* ops) {
  if (ops == nullptr) return {Code::damaged, kWhat, "the module gives no table"};
  if (ops->struct_size < offsetof(kvbm_transport_ops_t, name))
    return {Code::damaged, kWhat, "the module's table is cut"};
  if (ops->abi_version != KVBM_TRANSPORT_ABI_VERSION) {
    return {Code::newer_version, kWhat,
            "the module speaks version " + std::to_string(ops->abi_version) +
                " of the transport boundary and libkvbm " + std::to_string(KVBM_TRANSPORT_ABI_VERSION) +
                "; install both from one release"};
  }
  if (ops->struct_size < sizeof *ops) {
    return {Code::damaged, kWhat,
            "the module's table has " + std::to_string(ops->struct_size) + " bytes and needs " +
                std::to_string(sizeof *ops) + "; install module and libkvbm from one release"};
  }
  const bool whole = ops->name && ops->build && ops->open && ops->close && ops->features && ops->describe && ops->fd &&
                     ops->arm && ops->progress && ops->listen && ops->connect && ops->admit && ops->disconnect &&
                     ops->send && ops->post && ops->push && ops->cancel;
  if (!whole) return {Code::damaged, kWhat, "the module's table has holes"};
  return {};
}

Result<const kvbm_transport_ops_t*> load_file(const std::string& path) {
  void* module = ::dlopen(module_path(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* why = ::dlerror();
    return Status{Code::unsupported, kWhat, why == nullptr ? path : std::string(why)};
  }
  const auto entry = reinterpret_cast<kvbm_transport_entry_fn>(::dlsym(module, "kvbm_transport_entry"));
  if (entry == nullptr) {
    return Status{Code::unsupported, kWhat, path + " is no transport module: it has no kvbm_transport_entry"};
  }
  std::array<char, 256> error{};
  const kvbm_transport_ops_t* ops = entry(KVBM_TRANSPORT_ABI_VERSION, error.data(), error.size());
  if (ops == nullptr && error[0] != '\0') {
    error.back() = '\0';
    return Status{Code::unsupported, kWhat, path + ": " + error.data()};
  }
  if (Status status = check(ops); !status.ok()) return status;
  return ops;
}

}  // namespace

std::vector<std::string> transport_module_places(const std::string& path) {
  return module_places(kModule, path, kVariable);
}

Result<const kvbm_transport_ops_t*> load_transport_module(const std::string& path) {
  const MutexLock lock(library_loading);
  const SignalKeeper keeper;
  const std::string named = path.empty() ? module_variable(kVariable) : path;
  const bool folder = !named.empty() && is_directory(named);
  if (!named.empty() && !folder && !is_regular_file(named)) {
    return Status{Code::unsupported, kWhat,
                  named + " does not exist; it was named " + (path.empty() ? "by KVBM_UCX_PATH" : "as the module")};
  }
  const std::string own_ucm = folder ? module_path(named) + "/" + kUcm : "";
  const MemoryHooksOff hooks_off(folder && is_regular_file(own_ucm) ? own_ucm : kUcm);
  if (folder) {
    if (Status status = preload_ucx(named); !status.ok()) return status;
  }
  std::string looked;
  for (const std::string& place : transport_module_places(path)) {
    if (is_regular_file(place)) return load_file(place);
    looked += (looked.empty() ? "" : ", ") + place;
  }
  return Status{
      Code::unsupported, kWhat,
      "no module at " + looked + "; install the kvbm package with its UCX module, or name it by KVBM_UCX_PATH"};
}

}  // namespace kvbm::copy
