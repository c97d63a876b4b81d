// The directory of a store: checks its owner and its file system, and opens it again after it was lost (unmounted,
// removed).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "directory.h"

namespace kvbm_file {

class Place {
 public:
  Place(std::string path, bool shared) : path_(std::move(path)), shared_(shared) {}

  // Reason why the directory cannot be used.
  struct Refusal {
    int error = 0;         // errno value; 0: the directory can be used
    std::string sentence;  // with the remedy
  };
  // Opens and checks the directory. Its last part is created if it is missing.
  Refusal open();
  // Returns the directory's descriptor, which stays open as long as a caller holds it.
  [[nodiscard]] std::shared_ptr<const Fd> root();
  // Opens the directory again if `error` means that the descriptor is no longer that of the path. Returns whether it
  // did.
  bool opened_anew(int error);

  [[nodiscard]] Modes modes() const { return shared_ ? Modes{02770, 0660, true} : Modes{}; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Returns "nfs", "ext4", or a number.
  [[nodiscard]] std::string file_system();
  // Returns whether only this host can use the file system, as far as its type shows.
  [[nodiscard]] bool is_local();

 private:
  Refusal check(int fd) const;

  const std::string path_;
  const bool shared_;
  std::mutex mutex_;
  std::shared_ptr<const Fd> root_ = std::make_shared<const Fd>();  // of no file until it is opened
};

}  // namespace kvbm_file
