// Watches an address file (cluster/placement/membership.h) for a node: reads it once a second, and reports the members
// when they have changed. A file that is unreadable or malformed is logged once and changes nothing.
//
// Thread: any; reads are made on the core's executor, one at a time. Budget: one read of the file a second.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "cluster/placement/membership.h"
#include "manager/common/environment.h"

namespace kvbm::manager {

class MembersFile final : public std::enable_shared_from_this<MembersFile> {
 public:
  static constexpr uint64_t kLookNs = 1'000'000'000;
  using OnChange = std::function<void(const cluster::MemberList&)>;

  // Reads the file; bad_config, with the line, if it is malformed, and io_error if its folder cannot be opened. A
  // missing file is an empty list.
  static Result<std::shared_ptr<MembersFile>> open(const Environment& environment, const std::string& path);

  // Reports the members now and at every change, until the last owner releases this object. Called once. `self`, if
  // it has a name, is written into the file, and again if another writer's change lost it.
  Status watch(OnChange on_change, cluster::Member self);
  // Removes `self` from the file.
  void leave();

 private:
  MembersFile(const Environment& environment, std::string folder, std::string name)
      : env_(environment), folder_(std::move(folder)), name_(std::move(name)) {}
  [[nodiscard]] Result<std::unique_ptr<cluster::AddressFile>> open_file() const;
  void look();
  void look_later();
  [[nodiscard]] bool listed() const;

  const Environment env_;
  const std::string folder_;
  const std::string name_;
  std::unique_ptr<cluster::AddressFile> file_;
  OnChange on_change_;
  cluster::Member self_;
  std::string complaint_;
  std::atomic<bool> left_{false};
};

}  // namespace kvbm::manager
