#include "support/suite_file.h"

#include <map>

namespace kvbm::test {
namespace {

std::map<std::string_view, std::string_view>& files() {
  static std::map<std::string_view, std::string_view> of;
  return of;
}

}  // namespace

bool belongs_to(std::string_view name, std::string_view file) { return files().emplace(name, file).second; }

std::string_view suite_file(std::string_view name, std::string_view written) {
  const auto found = files().find(name);
  return found != files().end() ? found->second : written;
}

}  // namespace kvbm::test
