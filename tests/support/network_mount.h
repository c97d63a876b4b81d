// A folder that a server gives over a network protocol: sshfs (FUSE) in front of an sftp-server of its own. Two mounts
// of one folder are two hosts, each with a cache of its own. Needs sshfs, sftp-server and /dev/fuse; ends with the
// test.
#pragma once

#include <sys/types.h>

#include <string>

#include "support/temp_dir.h"

namespace kvbm::test {

class NetworkMount {
 public:
  // Why nothing can be mounted here; "" if it can.
  static std::string missing();

  NetworkMount() = default;
  ~NetworkMount() { stop(); }
  NetworkMount(const NetworkMount&) = delete;
  NetworkMount& operator=(const NetworkMount&) = delete;

  // Mounts the folder. Returns false if it is not mounted after a minute.
  bool start(const std::string& folder);
  void stop();
  void freeze();  // the server
  void thaw();
  [[nodiscard]] std::string path() const { return directory_.path() + "/mount"; }
  [[nodiscard]] std::string log() const;

 private:
  TempDir directory_;
  pid_t client_ = -1;
  pid_t server_ = -1;
};

}  // namespace kvbm::test
