#include "base/memory/peer_memory.h"
#include "device/context/device.h"
#include "device/driver/driver_library.h"
#include "device/kernels/kernel_image.h"
#include "device/storage/cufile_library.h"
#include "doctor/finding.h"
#include "terminal/quantity.h"

namespace kvbm::doctor {

namespace {

using device::DeviceFacts;

// Reports the kernels in this libkvbm, or the driver's if it has its own.
void probe_kernels(const device::DriverLibrary* library, Findings& out) {
  if (library != nullptr && library->driver.own_kernels != nullptr) {
    out.push_back({"gpu", "kernels", State::ok, "the driver's own", "this driver is not NVIDIA's"});
    return;
  }
  const std::string have = device::architectures_of(device::embedded_kernels());
  if (!device::embedded_kernels().empty()) {
    out.push_back({"gpu", "kernels", State::ok, have.empty() ? "embedded" : have, ""});
    return;
  }
  out.push_back({"gpu", "kernels", State::absent, "none embedded in this build",
                 "caches in device memory are refused; build kvbm where nvcc is (docs/gpu.md)"});
}

std::string described(const DeviceFacts& facts) {
  return facts.name + ", sm_" + std::to_string(facts.major * 10 + facts.minor) + ", " +
         terminal::format_size(static_cast<double>(facts.memory_bytes)) + ", " + std::to_string(facts.multiprocessors) +
         " multiprocessors, " + facts.pci;
}

// Opens the device, because only this shows whether the driver accepts the kernels. Its context lives for that
// moment.
void probe_device(const device::Driver& driver, const DeviceFacts& facts, Findings& out) {
  const std::string name = "device " + std::to_string(facts.ordinal);
  const auto opened = device::Device::open(driver, facts.ordinal, nullptr);
  if (!opened.ok()) {
    out.push_back({"gpu", name, State::limited, described(facts), "not usable: " + opened.status().message()});
    return;
  }
  out.push_back({"gpu", name, State::ok, described(facts), ""});
}

// Reports what the device and the kernel offer. Whether a card reaches the device is known only when a transport
// registers memory.
void probe_direct_rdma(const DeviceFacts& facts, Findings& out) {
  const std::string what = "direct rdma " + std::to_string(facts.ordinal);
  if (!facts.cards_reach) {
    out.push_back({"gpu", what, State::absent, "the device reports neither GPUDirect RDMA nor dma-buf",
                   "sessions between machines go through host memory"});
  } else if (!facts.cards_ordered && !facts.cards_flushed) {
    out.push_back({"gpu", what, State::limited, "the device cannot report when a card's write can be read",
                   "sessions between machines land in host memory"});
  } else {
    const std::string writes = facts.cards_ordered ? "writes are ordered" : "writes are flushed";
    const bool module = has_peer_memory();
    if (!module && !facts.cards_dma_buf) {
      out.push_back({"gpu", what, State::absent, writes + ", the kernel has no nvidia_peermem, the device no dma-buf",
                     "sessions between machines go through host memory; `modprobe nvidia_peermem` changes that"});
      return;
    }
    out.push_back({"gpu", what, State::ok, writes + (module ? ", nvidia_peermem" : ", dma-buf"),
                   module ? "used where node.transport takes device memory: UCX with CUDA and RDMA"
                          : "used where node.transport takes device memory: UCX from 1.14 on with CUDA and RDMA, on "
                            "cards and a kernel with dma-buf"});
  }
}

// Loads and opens cuFile only if the kernel has its module, or if its path is given. Without the module it can only
// copy through host memory, and opening it has crashed on unknown machines.
void probe_direct_storage(const std::string& library, bool has_driver, Findings& out) {
  const char* const host = "disks are read through host memory";
  if (library.empty() && !has_driver) {
    out.push_back({"gpu", "direct storage", State::absent, "cuFile is not looked for: no usable CUDA driver", host});
    return;
  }
  if (library.empty() && !device::has_nvidia_fs()) {
    out.push_back({"gpu", "direct storage", State::absent, "the kernel has no nvidia-fs module",
                   std::string(host) + "; GPUDirect Storage is the NVIDIA package nvidia-gds"});
    return;
  }
  const auto loaded = device::cufile_library(library);
  if (!loaded.ok()) {
    out.push_back({"gpu", "direct storage", State::absent, loaded.status().message(), host});
    return;
  }
  const device::CuFileLibrary& cufile = *Result(loaded).value();
  if (cufile.compatible_only()) {
    out.push_back({"gpu", "direct storage", State::limited, cufile.path + ", in compatibility mode",
                   std::string(host) + ": cuFile would copy through it too (the kernel has no nvidia-fs module)"});
    return;
  }
  out.push_back({"gpu", "direct storage", State::ok,
                 cufile.path + ", nvidia-fs " + std::to_string(cufile.major) + "." + std::to_string(cufile.minor), ""});
}

}  // namespace

void probe_gpu(const std::string& library, const std::string& cufile, Findings& out) {
  const auto driver = device::driver_library(library);
  if (!driver.ok()) {
    out.push_back({"gpu", "driver", State::absent, driver.status().message(),
                   "no caches in device memory; where there is a GPU, install the NVIDIA driver and let this process "
                   "see its devices"});
    probe_kernels(nullptr, out);
    probe_direct_storage(cufile, false, out);
    return;
  }
  const device::DriverLibrary& loaded = *Result(driver).value();
  const std::string version = "CUDA " + device::cuda_version_text(loaded.version);
  out.push_back({"gpu", "driver", State::ok, version + ", " + loaded.path, ""});
  probe_kernels(&loaded, out);
  const auto all = device::list_devices(loaded.driver);
  if (!all.ok()) {
    const std::string why = all.status().message();
    out.push_back({"gpu", "devices", State::limited, why, "no caches in device memory; see nvidia-smi"});
    probe_direct_storage(cufile, false, out);
    return;
  }
  for (const DeviceFacts& facts : all.value()) {
    probe_device(loaded.driver, facts, out);
    probe_direct_rdma(facts, out);
  }
  if (device::has_one_connection()) {
    out.push_back({"gpu", "connections", State::limited, "CUDA_DEVICE_MAX_CONNECTIONS=1",
                   "waiting for layers on a stream may hold up the load that it waits for; set it to 2 or more"});
  }
  if (device::has_blocking_launches()) {
    out.push_back({"gpu", "launches", State::limited, "CUDA_LAUNCH_BLOCKING is set",
                   "loads whose layers a stream waits for (wait_layers) are refused; unset it"});
  }
  probe_direct_storage(cufile, true, out);
}

}  // namespace kvbm::doctor
