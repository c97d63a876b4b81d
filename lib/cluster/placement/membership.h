// Members of a pool. The interface is small so that etcd or Redis can implement it later; the static list is the
// embedded default: a text in the configuration, or an address file that members append to.
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

struct MemberChange {
  enum class Kind : uint8_t { joined, left, restarted, moved };  // moved: other addresses or weight
  Kind kind;
  Member member;  // the present member; for left, the former one
  bool operator==(const MemberChange&) const = default;
};
// Returns the changes from one list to the other, by id.
std::vector<MemberChange> member_changes(const MemberList& before, const MemberList& after);

class MembershipListener {
 public:
  virtual ~MembershipListener() = default;
  virtual void members_changed(const MemberList& now, const std::vector<MemberChange>& changes) = 0;
};

class Membership {
 public:
  virtual ~Membership() = default;
  [[nodiscard]] virtual const MemberList& members() const noexcept = 0;
  // Sets the one listener, which is called inside refresh().
  virtual void listen(MembershipListener* listener) noexcept = 0;
  // Reads the source again. If it is unreadable or malformed, keeps the members and returns the reason.
  virtual Status refresh() = 0;
};

// The list of a file, read at once and again at each refresh(). A missing file is an empty list. A last line without
// its end is being written, and is left for the next refresh.
class AddressFile final : public Membership {
 public:
  AddressFile(std::unique_ptr<Directory> directory, std::string file_name);
  [[nodiscard]] const MemberList& members() const noexcept override { return members_; }
  void listen(MembershipListener* listener) noexcept override { listener_ = listener; }
  Status refresh() override;
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
  MembershipListener* listener_ = nullptr;
};

}  // namespace kvbm::cluster
