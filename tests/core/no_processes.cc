// Processes of other roles, which main() would run: none in this program.
#include "support/member_process.h"
#include "support/transport_process.h"

namespace kvbm::test {

std::optional<int> run_member_if_asked(int, char**) { return std::nullopt; }
std::optional<int> run_node_if_asked(int, char**) { return std::nullopt; }

}  // namespace kvbm::test
