#include "device/cufile_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "base/signal_keeper.h"

namespace kvbm::device {

namespace {

constexpr char kLibrary[] = "libcufile.so.0";
constexpr char kWhat[] = "no usable cuFile";

struct Entry {
  const char* symbol;
  size_t offset;
};
#define KVBM_ENTRY(name) {#name, offsetof(CuFile, name)}
constexpr Entry kEntries[] = {KVBM_ENTRY(cuFileDriverOpen),     KVBM_ENTRY(cuFileDriverGetProperties),
                              KVBM_ENTRY(cuFileHandleRegister), KVBM_ENTRY(cuFileHandleDeregister),
                              KVBM_ENTRY(cuFileBufRegister),    KVBM_ENTRY(cuFileBufDeregister),
                              KVBM_ENTRY(cuFileRead)};
#undef KVBM_ENTRY
static_assert(sizeof(CuFile) == std::size(kEntries) * sizeof(void*), "an entry of the table has no symbol");

const char* name_of(int code) noexcept {
  switch (code) {
    case kCuFileNotInitialized: return "CU_FILE_DRIVER_NOT_INITIALIZED";
    case kCuFileVersionMismatch: return "CU_FILE_DRIVER_VERSION_MISMATCH";
    case kCuFilePlatform: return "CU_FILE_PLATFORM_NOT_SUPPORTED";
    case kCuFileNotSupported: return "CU_FILE_IO_NOT_SUPPORTED";
    case kCuFileCudaDriver: return "CU_FILE_CUDA_DRIVER_ERROR";
    case kCuFilePermission: return "CU_FILE_PERMISSION_DENIED";
    case kCuFileInternal: return "CU_FILE_INTERNAL_ERROR";
    case kCuFileSetup: return "CU_FILE_NVFS_SETUP_ERROR";
    default: return "error";
  }
}

Status load(const std::string& path, CuFileLibrary* out) {
  const SignalKeeper keeper;
  out->path = path.empty() ? kLibrary : path;
  void* const library = ::dlopen(out->path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return {Code::unsupported, kWhat, why == nullptr ? out->path : std::string(why)};
  }
  std::string missing;
  for (const Entry& entry : kEntries) {
    void* const found = ::dlsym(library, entry.symbol);
    if (found == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(entry.symbol);
    std::memcpy(reinterpret_cast<char*>(&out->table) + entry.offset, &found, sizeof found);
  }
  if (!missing.empty()) return {Code::unsupported, kWhat, out->path + " lacks " + missing};
  if (const CuFileError error = out->table.cuFileDriverOpen(); error.code != kCuFileSuccess) {
    return {Code::unsupported, kWhat, out->path + ": cuFileDriverOpen says " + cufile_error_text(error)};
  }
  CuFileProperties properties;
  if (const CuFileError error = out->table.cuFileDriverGetProperties(&properties); error.code != kCuFileSuccess) {
    return {Code::unsupported, kWhat, out->path + ": cuFileDriverGetProperties says " + cufile_error_text(error)};
  }
  out->major = properties.module.major;
  out->minor = properties.module.minor;
  return {};
}

struct Loaded {
  CuFileLibrary library;
  Status status;
};

struct Libraries {
  Mutex mutex;
  std::map<std::string, std::unique_ptr<Loaded>> by_path KVBM_GUARDED_BY(mutex);
};

// Never destroyed: the library has threads of its own.
Libraries& libraries() {
  static Libraries* const all = new Libraries;
  return *all;
}

}  // namespace

bool has_nvidia_fs() {
  return ::access("/proc/driver/nvidia-fs", F_OK) == 0 || ::access("/dev/nvidia-fs0", F_OK) == 0;
}

std::string cufile_error_text(CuFileError error) {
  return std::string(name_of(error.code)) + " (" + std::to_string(error.code) +
         (error.code == kCuFileCudaDriver ? ", CUDA " + std::to_string(error.cuda) : "") + ")";
}

Result<const CuFileLibrary*> cufile_library(const std::string& path) {
  Libraries& all = libraries();
  const MutexLock lock(all.mutex);
  std::unique_ptr<Loaded>& loaded = all.by_path[path];
  if (!loaded) {
    auto fresh = std::make_unique<Loaded>();
    fresh->status = load(path, &fresh->library);
    loaded = std::move(fresh);
  }
  if (!loaded->status.ok()) return loaded->status;
  return static_cast<const CuFileLibrary*>(&loaded->library);
}

}  // namespace kvbm::device
