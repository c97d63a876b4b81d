#include "manager/node/members_file.h"

#include <algorithm>
#include <utility>

namespace kvbm::manager {

Result<std::shared_ptr<MembersFile>> MembersFile::open(const Environment& environment, const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.empty()) return Status(Code::bad_config, "node.peers_file names no file", path);
  auto made = std::shared_ptr<MembersFile>(new MembersFile(environment, folder, name));
  auto file = made->open_file();
  if (!file.ok())
    return Status(file.status().code(), "node.peers_file cannot be read", path + ": " + file.status().message());
  made->file_ = std::move(file).value();
  const Status read = made->file_->refresh().status();
  if (!read.ok()) {
    return Status(read.code(), "node.peers_file cannot be used",
                  path + ": " + read.message() + "; mend that line of it");
  }
  return made;
}

Result<std::unique_ptr<cluster::AddressFile>> MembersFile::open_file() const {
  // The folder may belong to any user: a node named there is dialled, and must prove its identity.
  auto directory = env_.files->visit_directory(folder_);
  if (!directory.ok()) return directory.status();
  return std::make_unique<cluster::AddressFile>(std::move(directory).value(), name_);
}

Status MembersFile::watch(OnChange on_change, cluster::Member self) {
  on_change_ = std::move(on_change);
  self_ = std::move(self);
  if (!self_.name.empty() && !listed()) {
    if (Status s = file_->append(self_); !s.ok()) {
      return {s.code(), "node.peers_file cannot be written", folder_ + "/" + name_ + ": " + s.message()};
    }
  }
  on_change_(file_->members());
  look_later();
  return {};
}

// Uses a reader of its own, because the watch may be reading now. The watch then removes the line it wrote meanwhile.
void MembersFile::leave() {
  if (self_.name.empty()) return;
  left_ = true;
  const auto file = open_file();
  if (file.ok()) (void)file.value()->leave(self_.name);
}

// Returns true if the file lists this start of this node.
bool MembersFile::listed() const {
  const cluster::MemberList& members = file_->members();
  return std::find(members.begin(), members.end(), self_) != members.end();
}

void MembersFile::look() {
  const auto changed = file_->refresh();
  if (changed.ok() && changed.value()) on_change_(file_->members());
  Status done = changed.status();
  if (done.ok() && !self_.name.empty() && !left_ && !listed()) {
    done = file_->append(self_);
    if (left_) (void)file_->leave(self_.name);
  }
  const std::string complaint = done.ok() ? "" : done.message();
  if (!complaint.empty() && complaint != complaint_ && env_.log != nullptr) {
    env_.log->write(LogLevel::warning, "node", "the members stay as they were: " + complaint);
  }
  complaint_ = complaint;
  look_later();
}

void MembersFile::look_later() {
  Executor& executor = *env_.executor;
  executor.post_at(executor.clock().now_ns() + kLookNs, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->look();
  });
}

}  // namespace kvbm::manager
