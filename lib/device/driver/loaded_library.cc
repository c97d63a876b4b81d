#include "device/driver/loaded_library.h"

#include <dlfcn.h>

#include <cstring>

namespace kvbm::device {

Result<void*> open_library(const std::string& path, const char* what) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* why = ::dlerror();
  return Status(Code::unsupported, what, why == nullptr ? path : std::string(why));
}

// Stores dlsym's result, which POSIX makes the representation of a function pointer, in each entry.
std::string fill_table(void* library, std::span<const TableEntry> entries, void* table) {
  std::string missing;
  for (const TableEntry& entry : entries) {
    void* const found = ::dlsym(library, entry.symbol);
    if (found == nullptr && entry.required) missing += (missing.empty() ? "" : ", ") + std::string(entry.symbol);
    std::memcpy(static_cast<char*>(table) + entry.offset, &found, sizeof found);
  }
  return missing;
}

}  // namespace kvbm::device
