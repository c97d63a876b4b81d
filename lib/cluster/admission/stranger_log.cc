#include "cluster/admission/stranger_log.h"

#include <algorithm>
#include <functional>

namespace kvbm::cluster {
namespace {

// Returns at most `most` bytes, each printable; other bytes and quotes are replaced by '?'.
std::string shown(std::string_view text, size_t most) {
  std::string out(text.substr(0, most));
  for (char& c : out) {
    if (c < ' ' || c > '~' || c == '"') c = '?';
  }
  if (text.size() > most) out += "...";
  return out;
}

// Removes the port: a second connection of one stranger has another port.
std::string_view host_of(std::string_view from) noexcept {
  const size_t port = from.find_last_not_of("0123456789");
  return port != std::string_view::npos && from[port] == ':' ? from.substr(0, port) : from;
}

size_t hash_of(std::string_view from, const NodeId& node, const Status& why) {
  std::string all = node == NodeId{} ? std::string(host_of(from)) : short_text(node);
  all += " " + std::to_string(static_cast<int>(why.code())) + " " + why.what();
  return std::hash<std::string>()(all);
}

}  // namespace

bool is_refusal(Code why) noexcept {
  switch (why) {
    case Code::ok:
    case Code::closed:
    case Code::owner_gone:
    case Code::deadline:
    case Code::no_room:
    case Code::at_limit:
    case Code::no_memory:
      return false;
    default:
      return true;
  }
}

bool StrangerLog::was_said(size_t stranger, uint64_t now_ns) const noexcept {
  return std::any_of(said_.begin(), said_.end(),
                     [&](const Said& said) { return said.stranger == stranger && now_ns < said.until_ns; });
}

bool StrangerLog::may_speak(uint64_t now_ns) noexcept {
  const uint64_t more = now_ns > filled_ns_ ? (now_ns - filled_ns_) / kEveryNs : 0;
  filled_ns_ += more * kEveryNs;
  lines_left_ = std::min(kBurst, lines_left_ + more);
  if (lines_left_ == 0) return false;
  --lines_left_;
  return true;
}

void StrangerLog::refused(std::string_view from, const NodeId& node, std::string_view pool, const Status& why,
                          uint64_t now_ns) {
  if (log_ == nullptr) return;
  const size_t stranger = hash_of(from, node, why);
  if (was_said(stranger, now_ns) || !may_speak(now_ns)) {
    ++unsaid_;
    return;
  }
  said_[next_said_++ % kRemembered] = {stranger, now_ns + kAgainNs};
  std::string text = "refused a connection from " + shown(from, kMostShown);
  if (node == NodeId{}) {
    text += ", which has not named its node";
  } else {
    text += ", which calls itself node " + short_text(node);
    if (!pool.empty()) text += " of pool \"" + shown(pool, kMaxName) + "\"";
    text += " (unproven)";
  }
  text += ": " + why.message();
  if (unsaid_ != 0) text += " (" + std::to_string(unsaid_) + " more were refused since the last such line)";
  unsaid_ = 0;
  log_->write(LogLevel::warning, component_, text);
}

}  // namespace kvbm::cluster
