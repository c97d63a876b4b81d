#include "base/config/config.h"
#include "manager/common/options.h"
#include "target.h"

namespace config_fuzz {

KVBM_FUZZ_TARGET(config) {
  using namespace kvbm;
  ConfigSources sources;
  sources.file_name = "fuzz";
  sources.file_text = std::string_view(reinterpret_cast<const char*>(data), size);
  const auto schema = manager::option_schema();
  const auto set = resolve_config(schema, sources);
  if (!set.ok()) return 0;
  // An accepted configuration can be printed, and the printed text is accepted.
  const std::string printed = print_config(schema, set.value());
  sources.file_text = printed;
  if (!resolve_config(schema, sources).ok()) __builtin_trap();
  (void)manager::options_from(set.value());
  return 0;
}

}  // namespace config_fuzz
