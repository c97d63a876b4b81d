#include "trace/mooncake.h"
#include "target.h"

namespace trace_fuzz {

KVBM_FUZZ_TARGET(trace) {
  using namespace kvbm;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  trace::ParseOptions options;
  options.skip_bad = true;
  const auto all = trace::parse_mooncake(text, options);
  if (!all.ok()) __builtin_trap();
  const trace::Parsed& parsed = all.value();
  if (parsed.bad_lines + parsed.trace.requests.size() > parsed.lines) __builtin_trap();
  // Without skip_bad it fails exactly when a line is bad.
  if (trace::parse_mooncake(text, {}).ok() != (parsed.bad_lines == 0)) __builtin_trap();
  const auto again = trace::parse_mooncake(trace::to_mooncake(parsed.trace), {});
  if (!again.ok() || again.value().trace.hash_ids != parsed.trace.hash_ids) __builtin_trap();
  return 0;
}

}  // namespace trace_fuzz
