// Checks the owner of a file, a directory or a process: this user, or another one.
//
// The content of a file that another user made, or may write, cannot be trusted. So the effective user must own the
// directories and files in which kvbm keeps blocks, its keys and the directories of its sockets. No other user may
// write them. The check uses an open descriptor: a path may name another file a moment later. An access control list
// counts as well: its rights for others appear in the group's bits of the mode.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace kvbm {

// True if a user id, reported by the kernel for a file or another process, is the effective user's. In a user namespace
// all users that it does not map have one number (overflowuid, 65534). A process with this number cannot tell itself
// from them, so nothing counts as its own.
[[nodiscard]] bool is_this_user(uid_t theirs) noexcept;
// The rule itself, without system calls.
[[nodiscard]] constexpr bool is_same_user(uid_t mine, uid_t theirs, uid_t of_unmapped, bool all_are_mapped) noexcept {
  return theirs == mine && (theirs != of_unmapped || all_are_mapped);
}

// Most that other users may do.
enum class Others : uint8_t { read, nothing };

// Returns not_permitted, with the path and the remedy, unless this user owns the open file and others may do no more
// than that.
Status check_own(int fd, std::string_view path, Others others);

// Like check_own(), for a key file, which root may also own. Its access control list must then let this user read it
// and no other, as service managers pass secrets (systemd: LoadCredential=).
Status check_own_key(int fd, std::string_view path);

// Restores the owner's bits that a umask removed from a file that this process has just made: mode 0600.
Status give_owner(int fd, std::string_view path);
// Makes a directory of mode 0700, whatever the umask. Also ok if the path exists already.
Status make_own_directory(const std::string& path);

}  // namespace kvbm
