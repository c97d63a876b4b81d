// Notifies systemd, or another program that sets NOTIFY_SOCKET, about the process: sd_notify(3) without its library.
#pragma once

#include <string_view>

namespace kvbm::node {

// Sends "READY=1", "STOPPING=1", "STATUS=...", several with line ends between them. Returns false if there is no such
// program, or it does not listen; a daemon continues in that case.
bool tell_supervisor(std::string_view state);

}  // namespace kvbm::node
