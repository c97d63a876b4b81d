// The cuFile API (GPUDirect Storage), as far as kvbm uses it: its types, the values it gives meaning to, and a table of
// entry points.
//
// Declared here and not taken from cufile.h, as driver.h is not from cuda.h. Names, types and values are those of
// NVIDIA's cuFile API Reference Guide, sections 4.1 and 5.1 to 5.3, and of cufile.h of cuFile 1.15 (CUDA 13.0). A test
// compares them with cufile.h if it is installed. The guide on the entries:
// - all of them may be called on any thread, none in a forked child (section 3);
// - cuFileRead blocks, and takes device memory of the context that is current. In a registered buffer the address is
//   the registered one and the offset is the last argument. It returns the bytes read, -1 with errno, or a negated
//   error of its own (5.2.3);
// - any offset and size are read; multiples of 4 KiB without a detour (5.2.3);
// - if something prevents GPUDirect it reads into host memory and copies ("compatibility mode"), unless cufile.json
//   forbids that (4.3): cuFileDriverGetProperties then has no version of the nvidia-fs module;
// - batches beyond its bounce buffer are read in compatibility mode always (4.7): kvbm calls cuFileRead on threads.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace kvbm::device {

struct CuFileError {
  int code = 0;  // CUfileOpError
  int cuda = 0;  // CUresult, if code is kCuFileCudaDriver
};
using CuFileHandle = void*;

struct CuFileDescription {  // CUfileDescr_t
  int type = 0;
  union {
    int fd;
    void* handle;
  } file = {};
  const void* operations = nullptr;  // CUfileFSOps_t: of file systems in user space
};

struct CuFileProperties {  // CUfileDrvProps_t
  struct {
    unsigned major = 0, minor = 0;  // of the nvidia-fs module; 0.0: there is none
    size_t poll_kib = 0, direct_kib = 0;
    unsigned status_flags = 0, control_flags = 0;
  } module;
  unsigned feature_flags = 0;
  unsigned device_cache_kib = 0, buffer_cache_kib = 0, pinned_kib = 0;
  unsigned batch_size = 0, batch_timeout_ms = 0;
  // Reserve for later versions, which may write more than 1.15 did.
  unsigned char room[256] = {};
};

inline constexpr int kCuFileSuccess = 0;
inline constexpr int kCuFileBase = 5000;
inline constexpr int kCuFileNotInitialized = 5001;
inline constexpr int kCuFileVersionMismatch = 5004;
inline constexpr int kCuFilePlatform = 5007;
inline constexpr int kCuFileNotSupported = 5008;
inline constexpr int kCuFileCudaDriver = 5011;
inline constexpr int kCuFilePermission = 5025;
inline constexpr int kCuFileInternal = 5030;
inline constexpr int kCuFileSetup = 5033;      // returned without a CUDA driver, too (seen with 1.15)
inline constexpr int kCuFileByDescriptor = 1;  // CU_FILE_HANDLE_TYPE_OPAQUE_FD

struct CuFile {
  CuFileError (*cuFileDriverOpen)() = nullptr;
  CuFileError (*cuFileDriverGetProperties)(CuFileProperties* properties) = nullptr;
  CuFileError (*cuFileHandleRegister)(CuFileHandle* handle, CuFileDescription* description) = nullptr;
  void (*cuFileHandleDeregister)(CuFileHandle handle) = nullptr;
  CuFileError (*cuFileBufRegister)(const void* base, size_t bytes, int flags) = nullptr;
  CuFileError (*cuFileBufDeregister)(const void* base) = nullptr;
  ssize_t (*cuFileRead)(CuFileHandle handle, void* base, size_t bytes, off_t file_offset,
                        off_t buffer_offset) = nullptr;
  // Lacks cuFileDriverClose on purpose: versions crashed in it at the end of the process, which closes the driver
  // anyway.
};

}  // namespace kvbm::device
