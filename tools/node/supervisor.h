// What systemd, or whoever sets NOTIFY_SOCKET, is told about the process: sd_notify(3) without its library.
#pragma once

#include <string_view>

namespace kvbm::node {

// "READY=1", "STOPPING=1", "STATUS=...", several with line ends between them. False where nobody asked or nobody
// listens: a daemon goes on all the same.
bool tell_supervisor(std::string_view state);

}  // namespace kvbm::node
