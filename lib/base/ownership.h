// Whose a file, a directory or a process is: this user's, or a stranger's.
//
// What lies in a file that somebody else made, or may write, is that one's word. So the directories and files in which
// kvbm keeps blocks, its keys and the directories of its sockets have to belong to the effective user, and nobody else
// may write them. Asked of an open descriptor: a path may name another file a moment later. An access control list
// counts as well: what it lets others do stands in the group's bits of the mode.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace kvbm {

// Whether a user id that the kernel says of a file or of another process is the effective user's. In a user namespace
// all users that it does not map have one number (overflowuid, 65534): a process that has this number itself cannot tell
// itself from them, and takes none of them for itself.
[[nodiscard]] bool is_this_user(uid_t theirs) noexcept;
// The rule alone.
[[nodiscard]] constexpr bool is_same_user(uid_t mine, uid_t theirs, uid_t of_unmapped, bool all_are_mapped) noexcept {
  return theirs == mine && (theirs != of_unmapped || all_are_mapped);
}

// What others than the owner may do at most.
enum class Others : uint8_t { read, nothing };

// not_permitted, with the path and the remedy, unless this user owns what is open and others may do no more than that.
Status check_own(int fd, std::string_view path, Others others);

// The same of a key file, with one more owner: root, where the file's access control list lets this user read it and
// nobody else, as service managers hand secrets over (systemd: LoadCredential=).
Status check_own_key(int fd, std::string_view path);

// Gives the owner of a file that this process has just made what a umask took from it: mode 0600.
Status give_owner(int fd, std::string_view path);
// Makes a directory of mode 0700, whatever the umask. ok, too, where something is there already.
Status make_own_directory(const std::string& path);

}  // namespace kvbm
