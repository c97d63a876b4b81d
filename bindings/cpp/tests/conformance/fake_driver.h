// The engine's side of the fake CUDA driver that the library's own tests use (libtest_cuda_driver.so). Its devices have
// host memory, which stays until the process ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace conformance {

class FakeDriver {
 public:
  // Returns the path of the fake's library; "" if it was not built.
  static std::string file();
  // Loads the fake at the first call, with two devices. Throws a Failure if that is not possible.
  static const FakeDriver& get();

  uint8_t* (*allocate)(int device, std::size_t bytes) = nullptr;
  void* (*make_stream)(int device) = nullptr;
  int (*copy)(void* to, const void* from, std::size_t bytes, void* stream) = nullptr;
  void (*hold)(void* stream, int on) = nullptr;
  void (*capture)(void* stream, int on) = nullptr;
  int (*apply)(const char* text) = nullptr;  // sets it up
  void (*synchronize)(void* stream) = nullptr;

 private:
  FakeDriver();
};

}  // namespace conformance
