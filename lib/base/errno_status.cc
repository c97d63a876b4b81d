#include "base/errno_status.h"

#include <cerrno>
#include <system_error>

namespace kvbm {

Code code_of_errno(int error) noexcept {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return Code::disk_full;
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP:
      return Code::not_permitted;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return Code::no_memory;
    case ENOENT:
      return Code::miss;
    case EEXIST:
      return Code::exists;
    default:
      return Code::io_error;
  }
}

Status errno_status(int error, const char* what, std::string_view subject) {
  std::string detail(subject);
  detail.append(": ").append(std::generic_category().message(error));  // strerror, thread-safe
  return Status(code_of_errno(error), what, std::move(detail));
}

}  // namespace kvbm
