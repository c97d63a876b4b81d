// Step kinds of devices, on the fake of their driver.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "fake_driver.h"
#include "run.h"

namespace conformance {

std::string FakeDriver::file() {
  const char* given = std::getenv("KVBMTEST_CUDA_DRIVER");
  const std::string path = given != nullptr && *given != '\0' ? given : BUILT_CUDA_DRIVER;
  return std::filesystem::exists(path) ? path : "";
}

FakeDriver::FakeDriver() {
  void* const library = dlopen(file().c_str(), RTLD_NOW | RTLD_LOCAL);  // stays loaded
  if (library == nullptr) throw Failure(dlerror());
  const auto find = [library](auto& entry, const char* name) {
    void* const found = dlsym(library, name);
    if (found == nullptr) throw Failure(std::string("not the fake CUDA driver: it has no ") + name);
    entry = reinterpret_cast<std::decay_t<decltype(entry)>>(found);
  };
  find(allocate, "kvbm_fake_allocate");  // an address, which has a pointer's size
  find(make_stream, "kvbm_fake_make_stream");
  find(copy, "kvbm_fake_copy");
  find(hold, "kvbm_fake_hold");
  find(capture, "kvbm_fake_capture");
  find(synchronize, "kvbm_fake_synchronize");
  find(apply, "kvbm_fake_apply");
  if (apply("devices=2") == 0) throw Failure("the fake CUDA driver has no second device");
}

const FakeDriver& FakeDriver::get() {
  static const FakeDriver driver;
  return driver;
}

namespace {

Json copy(Args& args) {
  auto& from = args.object<Memory>("from");
  auto& to = args.object<Memory>("to");
  if (from.size != to.size) throw Failure("the memories are not as large as each other");
  void* const stream = args.stream("stream");
  if (FakeDriver::get().copy(to.data, from.data, from.size, stream) == 0) throw Failure("no such stream");
  return {};
}

Json devices(Args& args) {
  Json rows = Json::array();
  const auto moves = [](const kvbm_device_moves_t& m) {
    return Json::object({{"batches", m.batches},
                         {"leaves", m.leaves},
                         {"bytes", m.bytes},
                         {"bad_leaves", m.bad_leaves},
                         {"mapped_leaves", m.mapped_leaves},
                         {"staged_leaves", m.staged_leaves},
                         {"straight_leaves", m.straight_leaves},
                         {"bounced_leaves", m.bounced_leaves},
                         {"device_ns", m.device_ns}});
  };
  for (const kvbm_device_row_t& row : args.object<kvbm::Manager>("manager").devices()) {
    rows.push_back({{"ordinal", row.ordinal},
                    {"lost", row.lost},
                    {"name", row.name},
                    {"pci", row.pci},
                    {"state", row.state},
                    {"memory_bytes", row.memory_bytes},
                    {"pinned_bytes", row.pinned_bytes},
                    {"gathers", moves(row.gathers)},
                    {"scatters", moves(row.scatters)}});
  }
  return Json::object({{"n", rows.size()}, {"rows", rows}});
}

}  // namespace

void add_device_steps(Steps& steps) {
  steps["device.memory"] = [](Args& args) {
    const auto bytes = args.number<std::size_t>("bytes");
    uint8_t* const data = FakeDriver::get().allocate(args.number<int>("device"), bytes);
    return Json::object({{"memory", args.objects().add(Memory(data, bytes))}});
  };
  steps["device.stream"] = [](Args& args) {
    void* const stream = FakeDriver::get().make_stream(args.number<int>("device"));
    return Json::object({{"stream", std::to_string(reinterpret_cast<uintptr_t>(stream))}});
  };
  steps["device.copy"] = copy;
  steps["device.hold"] = [](Args& args) {
    return FakeDriver::get().hold(args.stream("stream"), args.number<int>("on")), Json();
  };
  steps["device.capture"] = [](Args& args) {
    return FakeDriver::get().capture(args.stream("stream"), args.number<int>("on")), Json();
  };
  steps["device.waits"] = [](Args& args) {
    if (FakeDriver::get().apply(args.number<int>("on") != 0 ? "waits=1" : "waits=0") == 0) throw Failure("no such setting");
    return Json();
  };
  steps["device.synchronize"] = [](Args& args) {
    return FakeDriver::get().synchronize(args.stream("stream")), Json();
  };
  steps["manager.devices"] = devices;
}

}  // namespace conformance
