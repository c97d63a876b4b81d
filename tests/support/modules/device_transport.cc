// A transport module that says that it takes device memory: kvbm's sockets, which can, as memory of the fake devices is
// the host's. TEST_REFUSES_MEMORY in the environment makes it refuse to register any.
#include <cstdlib>

#include "copy/tcp/tcp_transport.h"

namespace {

kvbm_transport_ops_t table;

uint32_t features(const kvbm_transport_t* transport) {
  return kvbm::copy::tcp::ops().features(transport) | KVBM_TRANSPORT_DEVICE;
}

int32_t add_device_memory(kvbm_transport_t*, void*, uint64_t, uint64_t* memory) {
  static uint64_t names = 0;
  if (std::getenv("TEST_REFUSES_MEMORY") != nullptr) return -402;
  *memory = ++names;
  return 0;
}

int32_t remove_memory(kvbm_transport_t*, uint64_t) { return 0; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const kvbm_transport_ops_t* kvbm_transport_entry(uint32_t, char*,
                                                                                                   size_t);
extern "C" const kvbm_transport_ops_t* kvbm_transport_entry(uint32_t, char*, size_t) {
  table = kvbm::copy::tcp::ops();
  table.name = "device";
  table.build = "sockets that take memory of fake devices";
  table.features = features;
  table.add_device_memory = add_device_memory;
  table.remove_memory = remove_memory;
  return &table;
}
