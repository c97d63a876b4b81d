// Libraries of the system that are found while the process runs (libcuda, libcufile): a table of entries, filled once
// for each path. None is ever unloaded: they keep threads of their own, and a library that could not begin does not
// begin later in this process. The signal handlers of the process are restored after a load. Thread: any.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/process/library_loading.h"
#include "base/process/signal_keeper.h"
#include "base/status.h"
#include "base/thread/mutex.h"

namespace kvbm::device {

// One entry of a table of pointers to functions, and the name under which a library exports it.
struct TableEntry {
  const char* entry;   // "cuMemAlloc"
  const char* symbol;  // "cuMemAlloc_v2"
  size_t offset;       // in the table
  bool required;       // else null if a library lacks it
};

// Loads a library; if it fails, unsupported with `what` and the loader's own words.
Result<void*> open_library(const std::string& path, const char* what);
// Fills every entry of `table`; returns the names of the missing required entries, "a, b".
std::string fill_table(void* library, std::span<const TableEntry> entries, void* table);

// Libraries by path. Lives as long as the process, because streams may still run when it ends. Lock: library_loading,
// held over a load.
template <class Library>
class LoadedLibraries {
 public:
  using Load = Result<Library> (*)(const std::string& path);
  explicit LoadedLibraries(Load load) : load_(load) {}

  // Returns one answer per path for ever, also a refusal.
  Result<const Library*> get(const std::string& path) KVBM_EXCLUDES(library_loading) {
    const MutexLock lock(library_loading);
    std::optional<Result<Library>>& loaded = by_path_[path];  // before the load: its answer must not be lost
    if (!loaded.has_value()) {
      const SignalKeeper keeper;
      loaded.emplace(load_(path));
    }
    if (!loaded->ok()) return loaded->status();
    return &loaded->value();
  }
  [[nodiscard]] bool has_any() const KVBM_EXCLUDES(library_loading) {
    const MutexLock lock(library_loading);
    for (const auto& [path, loaded] : by_path_) {
      if (loaded.has_value() && loaded->ok()) return true;
    }
    return false;
  }

 private:
  const Load load_;
  std::map<std::string, std::optional<Result<Library>>> by_path_ KVBM_GUARDED_BY(library_loading);
};

}  // namespace kvbm::device
