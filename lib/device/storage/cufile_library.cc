#include "device/storage/cufile_library.h"

#include <unistd.h>

#include <cstddef>
#include <iterator>

#include "device/driver/loaded_library.h"

namespace kvbm::device {

namespace {

constexpr char kCuFileLibrary[] = "libcufile.so.0";
constexpr char kNoCuFile[] = "no usable cuFile";

#define KVBM_ENTRY(name) \
  { #name, #name, offsetof(CuFile, name), true }
constexpr TableEntry kEntries[] = {KVBM_ENTRY(cuFileDriverOpen),
                                   KVBM_ENTRY(cuFileDriverGetProperties),
                                   KVBM_ENTRY(cuFileHandleRegister),
                                   KVBM_ENTRY(cuFileHandleDeregister),
                                   KVBM_ENTRY(cuFileBufRegister),
                                   KVBM_ENTRY(cuFileBufDeregister),
                                   KVBM_ENTRY(cuFileRead)};
#undef KVBM_ENTRY
static_assert(sizeof(CuFile) == std::size(kEntries) * sizeof(void*), "an entry of the table has no symbol");

const char* name_of(int code) noexcept {
  switch (code) {
    case kCuFileNotInitialized:
      return "CU_FILE_DRIVER_NOT_INITIALIZED";
    case kCuFileVersionMismatch:
      return "CU_FILE_DRIVER_VERSION_MISMATCH";
    case kCuFilePlatform:
      return "CU_FILE_PLATFORM_NOT_SUPPORTED";
    case kCuFileNotSupported:
      return "CU_FILE_IO_NOT_SUPPORTED";
    case kCuFileCudaDriver:
      return "CU_FILE_CUDA_DRIVER_ERROR";
    case kCuFilePermission:
      return "CU_FILE_PERMISSION_DENIED";
    case kCuFileInternal:
      return "CU_FILE_INTERNAL_ERROR";
    case kCuFileSetup:
      return "CU_FILE_NVFS_SETUP_ERROR";
    default:
      return "error";
  }
}

Result<CuFileLibrary> load(const std::string& path) {
  CuFileLibrary out;
  out.path = path.empty() ? kCuFileLibrary : path;
  const auto library = open_library(out.path, kNoCuFile);
  if (!library.ok()) return library.status();
  if (const std::string missing = fill_table(library.value(), kEntries, &out.table); !missing.empty()) {
    return Status{Code::unsupported, kNoCuFile, out.path + " lacks " + missing};
  }
  if (const CuFileError error = out.table.cuFileDriverOpen(); error.code != kCuFileSuccess) {
    return Status{Code::unsupported, kNoCuFile, out.path + ": cuFileDriverOpen says " + cufile_error_text(error)};
  }
  CuFileProperties properties;
  if (const CuFileError error = out.table.cuFileDriverGetProperties(&properties); error.code != kCuFileSuccess) {
    return Status{Code::unsupported, kNoCuFile,
                  out.path + ": cuFileDriverGetProperties says " + cufile_error_text(error)};
  }
  out.major = properties.module.major;
  out.minor = properties.module.minor;
  return out;
}

}  // namespace

bool has_nvidia_fs() { return ::access("/proc/driver/nvidia-fs", F_OK) == 0 || ::access("/dev/nvidia-fs0", F_OK) == 0; }

std::string cufile_error_text(CuFileError error) {
  return std::string(name_of(error.code)) + " (" + std::to_string(error.code) +
         (error.code == kCuFileCudaDriver ? ", CUDA " + std::to_string(error.cuda) : "") + ")";
}

Result<const CuFileLibrary*> cufile_library(const std::string& path) {
  static auto* const all = new LoadedLibraries<CuFileLibrary>(load);
  return all->get(path);
}

}  // namespace kvbm::device
