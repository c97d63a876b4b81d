#include "cluster/placement/membership.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/config/config.h"

namespace kvbm::cluster {
namespace {

Status wrong(std::string_view name, size_t line, const char* what, std::string detail) {
  return {Code::bad_config, what, std::string(name) + ":" + std::to_string(line) + ": " + std::move(detail)};
}

bool number(std::string_view text, uint64_t& out) {
  const auto end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && at == end && !text.empty();
}

// Takes the next word off a line; words are separated by blanks.
std::string_view next_word(std::string_view& line) {
  const size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return line = {};
  const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

bool valid_host(std::string_view host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    return host.find_first_not_of("0123456789abcdefABCDEF:.%") == std::string_view::npos &&
           host.find(':') != std::string_view::npos;
  }
  return valid_name(host) && host.find_first_of(":[]") == std::string_view::npos;
}

class Parser {
 public:
  explicit Parser(std::string_view name) : name_(name) {}

  Status line(std::string_view line) {
    ++number_;
    const size_t comment = line.find('#');
    if (comment != std::string_view::npos) line = line.substr(0, comment);
    Member member;
    Fields fields;
    std::string_view leave;
    bool any = false;
    for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
      any = true;
      const size_t equal = word.find('=');
      if (equal == std::string_view::npos) {
        return wrong(name_, number_, "members: a word is not key=value", std::string(word));
      }
      if (Status s = field(word.substr(0, equal), word.substr(equal + 1), member, fields, leave); !s.ok()) return s;
    }
    if (!any) return {};
    if (!leave.empty()) return take_out(leave, fields);
    return add(std::move(member));
  }

  Result<MemberList> finish() {
    std::map<std::string_view, std::string_view> owners;
    MemberList list;
    for (const auto& [name, member] : members_) {
      for (const std::string& address : member.addresses) {
        const auto [at, fresh] = owners.emplace(address, name);
        if (!fresh) {
          return Status(
              Code::bad_config, "members: two members have one address",
              std::string(name_) + ": " + address + " is given for " + std::string(at->second) + " and " + name);
        }
      }
    }
    list.reserve(members_.size());
    for (auto& [name, member] : members_) list.push_back(std::move(member));
    std::sort(list.begin(), list.end(), [](const Member& a, const Member& b) { return a.id < b.id; });
    return list;
  }

 private:
  struct Fields {
    bool name = false, weight = false, incarnation = false, address = false;
  };

  Status field(std::string_view key, std::string_view value, Member& m, Fields& seen, std::string_view& leave) {
    if (key == "address") {
      seen.address = true;
      if (Status s = check_address(value); !s.ok()) return wrong(name_, number_, s.what(), std::string(value));
      if (m.addresses.size() == kMaxAddresses) {
        return wrong(name_, number_, "members: a member has at most 8 addresses", std::string(value));
      }
      if (std::find(m.addresses.begin(), m.addresses.end(), value) != m.addresses.end()) {
        return wrong(name_, number_, "members: an address is given twice", std::string(value));
      }
      m.addresses.emplace_back(value);
      return {};
    }
    bool* once = key == "name" || key == "leave" ? &seen.name
                 : key == "weight"               ? &seen.weight
                 : key == "incarnation"          ? &seen.incarnation
                                                 : nullptr;
    if (once == nullptr) {
      return wrong(name_, number_, "members: unknown key; known are name, address, weight, incarnation, leave",
                   std::string(key));
    }
    if (std::exchange(*once, true)) return wrong(name_, number_, "members: a key is given twice", std::string(key));
    if (key == "name" || key == "leave") {
      if (!valid_name(value)) {
        return wrong(name_, number_, "members: a name has 1 to 63 of letters, digits and . _ : - [ ]",
                     std::string(value));
      }
      if (key == "leave") {
        leave = value;
      } else {
        m.name = value;
      }
    } else if (key == "weight") {
      const auto bytes = parse_bytes(value);
      if (!bytes.ok()) return wrong(name_, number_, "members: a weight is a size, such as 64GiB", std::string(value));
      m.weight = bytes.value();
    } else if (!number(value, m.incarnation)) {
      return wrong(name_, number_, "members: an incarnation is a number", std::string(value));
    }
    return {};
  }

  Status take_out(std::string_view name, const Fields& seen) {
    if (seen.address || seen.weight || seen.incarnation) {
      return wrong(name_, number_, "members: leave stands alone on its line", std::string(name));
    }
    members_.erase(std::string(name));
    return {};
  }

  Status add(Member member) {
    if (member.addresses.empty()) {
      return wrong(name_, number_, "members: a member needs an address", "add address=host:port");
    }
    if (member.name.empty()) member.name = member.addresses.front();
    if (!valid_name(member.name)) {
      return wrong(name_, number_, "members: the address is too long for a name; add name=", member.name);
    }
    member.id = node_id_of(member.name);
    std::string name = member.name;
    if (members_.size() >= kMaxMembers) return wrong(name_, number_, "members: more than 16384", name);
    members_[std::move(name)] = std::move(member);
    return {};
  }

  std::string_view name_;
  size_t number_ = 0;
  std::map<std::string, Member> members_;
};

}  // namespace

Status check_address(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return {Code::bad_config, "members: an address is host:port"};
  uint64_t port = 0;
  if (!number(address.substr(colon + 1), port) || port == 0 || port > 65535) {
    return {Code::bad_config, "members: a port is a number from 1 to 65535"};
  }
  if (!valid_host(address.substr(0, colon))) {
    return {Code::bad_config, "members: a host is a name, an IPv4 address or an IPv6 address in [ ]"};
  }
  return {};
}

Result<MemberList> parse_members(std::string_view text, std::string_view name) {
  if (text.size() > kMaxMembershipText) return Status(Code::bad_config, "members: the list is larger than 4 MiB");
  Parser parser(name);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (Status status = parser.line(text.substr(0, end)); !status.ok()) return status;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parser.finish();
}

std::string member_line(const Member& member) {
  std::string line = "name=" + member.name;
  for (const std::string& address : member.addresses) line += " address=" + address;
  line += " weight=" + std::to_string(member.weight);
  if (member.incarnation != 0) line += " incarnation=" + std::to_string(member.incarnation);
  return line + "\n";
}

AddressFile::AddressFile(std::unique_ptr<Directory> directory, std::string file_name)
    : directory_(std::move(directory)), file_name_(std::move(file_name)) {}

Result<std::string> AddressFile::read() {
  auto file = directory_->open(file_name_, OpenMode::read_only, false);
  if (!file.ok()) {
    if (file.status().code() == Code::miss) return std::string();
    return file.status();
  }
  const auto size = file.value()->size();
  if (!size.ok()) return size.status();
  if (size.value() > kMaxMembershipText)
    return Status(Code::bad_config, "members: the file is larger than 4 MiB", file_name_);
  std::string text(size.value(), '\0');
  const auto got = file.value()->read_now(0, std::as_writable_bytes(std::span(text)));
  if (!got.ok()) return got.status();
  text.resize(std::min(text.size(), got.value()));
  return text;
}

Result<bool> AddressFile::refresh() {
  auto text = read();
  if (!text.ok()) return text.status();
  const size_t whole = text.value().rfind('\n');
  text.value().resize(whole == std::string::npos ? 0 : whole + 1);
  if (text.value() == text_) return false;
  auto list = parse_members(text.value(), file_name_);
  if (!list.ok()) return list.status();
  text_ = std::move(text).value();
  const bool changed = list.value() != members_;
  members_ = std::move(list).value();
  return changed;
}

Status AddressFile::append(const Member& member) { return append_line(member_line(member)); }

Status AddressFile::leave(const std::string& name) { return append_line("leave=" + name + "\n"); }

Status AddressFile::append_line(const std::string& text) {
  auto file = directory_->open(file_name_, OpenMode::create, false);
  if (!file.ok()) return file.status();
  const auto size = file.value()->size();
  if (!size.ok()) return size.status();
  // A half-written line of another member gets its line end first, so that only that line is spoilt.
  std::byte last{'\n'};
  if (size.value() != 0) {
    const auto got = file.value()->read_now(size.value() - 1, {&last, 1});
    if (!got.ok()) return got.status();
  }
  const std::string line = (last == std::byte{'\n'} ? "" : "\n") + text;
  return file.value()->write_now(size.value(), std::as_bytes(std::span(line)));
}

}  // namespace kvbm::cluster
