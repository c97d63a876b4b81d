// Compares our cufile.h with NVIDIA's: values, the layout of structures, and signatures by size.
#ifdef KVBM_HAVE_CUFILE_HEADER
#include <cufile.h>
#endif

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "device/storage/cufile.h"

namespace cufile_header_test {
namespace {

#ifdef KVBM_HAVE_CUFILE_HEADER

using namespace kvbm::device;

static_assert(sizeof(CuFileError) == sizeof(CUfileError_t) &&
              offsetof(CuFileError, cuda) == offsetof(CUfileError_t, cu_err));
static_assert(sizeof(CuFileDescription) == sizeof(CUfileDescr_t) &&
              offsetof(CuFileDescription, file) == offsetof(CUfileDescr_t, handle) &&
              offsetof(CuFileDescription, operations) == offsetof(CUfileDescr_t, fs_ops));
static_assert(sizeof(CuFileProperties) >= sizeof(CUfileDrvProps_t) &&
              offsetof(CuFileProperties, module.minor) == offsetof(CUfileDrvProps_t, nvfs.minor_version) &&
              offsetof(CuFileProperties, module.control_flags) == offsetof(CUfileDrvProps_t, nvfs.dcontrolflags) &&
              offsetof(CuFileProperties, feature_flags) == offsetof(CUfileDrvProps_t, fflags) &&
              offsetof(CuFileProperties, batch_timeout_ms) == offsetof(CUfileDrvProps_t, max_batch_io_timeout_msecs));

// Returns true if calls that compile with the header's functions compile with the table's.
template <class Open, class Properties, class Register, class Deregister, class Buffer, class Release, class Read>
constexpr bool takes_and_gives(Open, Properties, Register, Deregister, Buffer, Release, Read) {
  return sizeof(std::invoke_result_t<Open>) == sizeof(CuFileError) &&
         std::is_same_v<std::invoke_result_t<Buffer, const void*, size_t, int>, std::invoke_result_t<Open>> &&
         std::is_same_v<std::invoke_result_t<Release, const void*>, std::invoke_result_t<Open>> &&
         std::is_void_v<std::invoke_result_t<Deregister, void*>> &&
         std::is_same_v<std::invoke_result_t<Read, void*, void*, size_t, off_t, off_t>, ssize_t>;
}
static_assert(takes_and_gives(&cuFileDriverOpen, &cuFileDriverGetProperties, &cuFileHandleRegister,
                              &cuFileHandleDeregister, &cuFileBufRegister, &cuFileBufDeregister, &cuFileRead));
static_assert(takes_and_gives(CuFile{}.cuFileDriverOpen, CuFile{}.cuFileDriverGetProperties,
                              CuFile{}.cuFileHandleRegister, CuFile{}.cuFileHandleDeregister,
                              CuFile{}.cuFileBufRegister, CuFile{}.cuFileBufDeregister, CuFile{}.cuFileRead));

TEST(CuFileHeader, values_are_the_header_s) {
  EXPECT_EQ(kCuFileSuccess, CU_FILE_SUCCESS);
  EXPECT_EQ(kCuFileBase, CUFILEOP_BASE_ERR);
  EXPECT_EQ(kCuFileNotInitialized, CU_FILE_DRIVER_NOT_INITIALIZED);
  EXPECT_EQ(kCuFileVersionMismatch, CU_FILE_DRIVER_VERSION_MISMATCH);
  EXPECT_EQ(kCuFilePlatform, CU_FILE_PLATFORM_NOT_SUPPORTED);
  EXPECT_EQ(kCuFileNotSupported, CU_FILE_IO_NOT_SUPPORTED);
  EXPECT_EQ(kCuFileCudaDriver, CU_FILE_CUDA_DRIVER_ERROR);
  EXPECT_EQ(kCuFilePermission, CU_FILE_PERMISSION_DENIED);
  EXPECT_EQ(kCuFileInternal, CU_FILE_INTERNAL_ERROR);
  EXPECT_EQ(kCuFileSetup, CU_FILE_NVFS_SETUP_ERROR);
  EXPECT_EQ(kCuFileByDescriptor, CU_FILE_HANDLE_TYPE_OPAQUE_FD);
}

#else

TEST(CuFileHeader, is_compared_with_nvidias) {
  GTEST_SKIP() << "there is no cufile.h on this machine (tools/setup --cuda fetches one)";
}

#endif

}  // namespace
}  // namespace cufile_header_test
