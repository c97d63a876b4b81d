#include <dlfcn.h>

#include <array>
#include <csignal>
#include <filesystem>

#include "doctor/finding.h"

namespace kvbm::doctor {

namespace {

// Restores every signal's disposition when it goes: a library's constructor may install handlers.
class SignalKeeper {
 public:
  SignalKeeper() {
    for (size_t i = 1; i < saved_.size(); ++i) known_[i] = ::sigaction(static_cast<int>(i), nullptr, &saved_[i]) == 0;
  }
  ~SignalKeeper() {
    for (size_t i = 1; i < saved_.size(); ++i) {
      if (known_[i]) ::sigaction(static_cast<int>(i), &saved_[i], nullptr);
    }
  }
  SignalKeeper(const SignalKeeper&) = delete;
  SignalKeeper& operator=(const SignalKeeper&) = delete;

 private:
  std::array<struct sigaction, 65> saved_{};
  std::array<bool, 65> known_{};
};

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

// The libraries stay loaded: both start threads that do not survive an unload.
void probe_ucx(Findings& out) {
  const SignalKeeper keeper;
  void* library = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    out.push_back({"devices", "UCX", State::absent, "libucp.so.0 does not load", "no transfers to other machines; install libucx0"});
    return;
  }
  const auto version = symbol<void (*)(unsigned*, unsigned*, unsigned*)>(library, "ucp_get_version");
  std::array<unsigned, 3> v{};
  if (version != nullptr) version(&v[0], &v[1], &v[2]);
  out.push_back({"devices", "UCX", version != nullptr ? State::ok : State::limited,
                 std::to_string(v[0]) + "." + std::to_string(v[1]) + "." + std::to_string(v[2]),
                 version != nullptr ? "" : "libucp.so.0 has no ucp_get_version; reinstall UCX"});
}

void probe_cuda(Findings& out) {
  const SignalKeeper keeper;
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    out.push_back({"devices", "CUDA", State::absent, "libcuda.so.1 does not load", "no device memory; install the NVIDIA driver where there is a GPU"});
    return;
  }
  const auto init = symbol<int (*)(unsigned)>(library, "cuInit");
  const auto count_of = symbol<int (*)(int*)>(library, "cuDeviceGetCount");
  const auto version_of = symbol<int (*)(int*)>(library, "cuDriverGetVersion");
  int devices = 0;
  int version = 0;
  const bool works = init != nullptr && count_of != nullptr && version_of != nullptr && init(0) == 0 &&
                     count_of(&devices) == 0 && version_of(&version) == 0 && devices > 0;
  out.push_back({"devices", "CUDA", works ? State::ok : State::limited,
                 works ? std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) + ", " +
                             std::to_string(devices) + " devices"
                       : "the driver library loads but offers no device",
                 works ? "" : "no device memory; check `nvidia-smi` and the container's device access"});
}

}  // namespace

void probe_devices(Findings& out) {
  probe_ucx(out);
  probe_cuda(out);
  std::string names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    names += (names.empty() ? "" : ", ") + entry.path().filename().string();
  }
  out.push_back({"devices", "RDMA", names.empty() ? State::absent : State::ok, names.empty() ? "no device" : names,
                 names.empty() ? "transfers would use TCP or shared memory" : ""});
}

}  // namespace kvbm::doctor
