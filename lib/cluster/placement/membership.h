// Members of a pool: a text in the configuration, or an address file that members append to.
//
//   # one member a line
//   name=a address=10.0.0.1:7000 weight=64GiB
//   name=b address=[fd00::2]:7000 address=10.0.0.2:7000 weight=128GiB incarnation=77
//   leave=a
//
// A member without a name is called by its first address. In a text two lines of one name are an error. In a file a
// later line replaces an earlier one of the same name (the member restarted), and leave removes a name; so a member
// only ever appends. An incarnation identifies a start of a node; 0 = not given. An address that two members claim is
// an error in both.
//
// Thread: one at a time; the owner calls refresh() from its own timer. Budget: memory grows with the members.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/file.h"
#include "base/status.h"
#include "cluster/node.h"

namespace kvbm::cluster {

struct Member {
  NodeId id;  // node_id_of(name)
  std::string name;
  std::vector<std::string> addresses;  // "host:port", at least one
  uint64_t weight = 0;                 // bytes offered; 0 = only asks, and holds nothing for others
  uint64_t incarnation = 0;
  bool operator==(const Member&) const = default;
};

// Sorted by id.
using MemberList = std::vector<Member>;

inline constexpr size_t kMaxMembers = 16384;
inline constexpr size_t kMaxAddresses = 8;
inline constexpr size_t kMaxMembershipText = 4U << 20;

// Parses a list. A later line of a member replaces an earlier one, and "leave=NAME" removes the member. bad_config: the
// line's number, its error and a correct form. `name` is that of the text, for messages.
Result<MemberList> parse_members(std::string_view text, std::string_view name);
// Returns one line with its end, as a member appends it.
std::string member_line(const Member& member);
// Checks "host:port" with a number, a name or "[v6]" as host and a port of 1 to 65535.
Status check_address(std::string_view address);

// The list of a file, read at each refresh(). A missing file is an empty list. A last line without its end is being
// written, and is left for the next refresh.
class AddressFile {
 public:
  AddressFile(std::unique_ptr<Directory> directory, std::string file_name);
  [[nodiscard]] const MemberList& members() const noexcept { return members_; }
  // Reads the file again. Returns true if the members have changed. If it is unreadable or malformed, keeps the members
  // and returns the reason.
  Result<bool> refresh();
  // Appends a line, and makes the file if it is missing. Two members that append at the same time may overwrite each
  // other: each member looks for its line after a refresh and appends it again.
  Status append(const Member& member);
  // Appends the line that removes a member, under the same rules.
  Status leave(const std::string& name);

 private:
  Status append_line(const std::string& line);
  Result<std::string> read();

  std::unique_ptr<Directory> directory_;
  std::string file_name_;
  std::string text_;
  MemberList members_;
};

}  // namespace kvbm::cluster
