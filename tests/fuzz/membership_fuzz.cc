// Any text as a list of members. An accepted list is accepted again after it was written out, and is equal.
#include "cluster/placement/membership.h"
#include "target.h"

namespace membership_fuzz {

KVBM_FUZZ_TARGET(membership) {
  using namespace kvbm::cluster;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto list = parse_members(text, "fuzz");
  if (!list.ok()) {
    if (list.status().message().empty()) __builtin_trap();
    return 0;
  }
  std::string again;
  for (const Member& member : list.value()) again += member_line(member);
  const auto second = parse_members(again, "fuzz");
  if (!second.ok() || second.value() != list.value()) __builtin_trap();
  return 0;
}

}  // namespace membership_fuzz
