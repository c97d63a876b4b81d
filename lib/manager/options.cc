#include "manager/options.h"
namespace kvbm::manager {
Result<Options> options_from(const Config&) { Options o; o.block_bytes = 65536; o.host_capacity_bytes = 256 << 20; return o; }
}
