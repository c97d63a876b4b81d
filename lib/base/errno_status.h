// The only mapping from errno to Code. ENOSPC, EDQUOT: disk_full. EACCES, EPERM, EROFS, ELOOP: not_permitted. ENOMEM,
// EMFILE, ENFILE: no_memory. ENOENT: miss. EEXIST: exists. Else io_error.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace kvbm {

Code code_of_errno(int error) noexcept;
// `what` is static text; the detail is "<subject>: <the system's text>".
Status errno_status(int error, const char* what, std::string_view subject);

}  // namespace kvbm
