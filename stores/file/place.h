// The directory of a store: whose it is, on what file system, and opened anew when it was lost (unmounted, removed).
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

  // Why it cannot be used.
  struct Refusal {
    int error = 0;         // errno value; 0: it can be used
    std::string sentence;  // with the remedy
  };
  // Opens the directory and looks at it; its last part is made if nothing is there.
  Refusal open();
  // Its descriptor, as long as a caller holds it.
  [[nodiscard]] std::shared_ptr<const Fd> root();
  // Whether an error may mean that the directory itself is not the one of its path any more; it is opened anew then.
  bool opened_anew(int error);

  [[nodiscard]] Modes modes() const { return shared_ ? Modes{02770, 0660, true} : Modes{}; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // "nfs", "ext4", or a number.
  [[nodiscard]] std::string file_system();
  // Whether the file system is known to be this host's alone.
  [[nodiscard]] bool is_local();

 private:
  Refusal check(int fd) const;

  const std::string path_;
  const bool shared_;
  std::mutex mutex_;
  std::shared_ptr<const Fd> root_ = std::make_shared<const Fd>();  // of no file until it is opened
};

}  // namespace kvbm_file
