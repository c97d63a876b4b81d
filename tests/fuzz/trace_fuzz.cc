#include "target.h"
#include "trace/block_size.h"
#include "trace/mooncake.h"
#include "trace/read.h"
#include "trace/unpack.h"

namespace trace_fuzz {

namespace {

using namespace kvbm;

// Checks that apply to every form.
void check(std::string_view text, trace::Form form) {
  trace::ParseOptions options;
  options.skip_bad = true;
  options.form = form;
  options.tokens_per_block = 16;
  const auto all = trace::parse(text, options);
  // Bad lines are skipped; what is no table of the form at all is refused.
  const bool table = form == trace::Form::azure || form == trace::Form::burstgpt;
  if (!all.ok()) {
    if (!table) __builtin_trap();
    return;
  }
  const trace::Parsed& parsed = all.value();
  if (parsed.bad_lines + parsed.trace.requests.size() > parsed.lines) __builtin_trap();
  // Without skip_bad it fails exactly when a line is bad.
  options.skip_bad = false;
  if (trace::parse(text, options).ok() != (parsed.bad_lines == 0)) __builtin_trap();
  if (parsed.trace.lengths_alone) return;
  options.form = trace::Form::mooncake;  // the form that to_mooncake() writes
  const auto again = trace::parse_json_lines(trace::to_mooncake(parsed.trace), options);
  if (!again.ok() || again.value().trace.hash_ids != parsed.trace.hash_ids) __builtin_trap();
}

// A block size that is found out gives every prompt the ids it has, whole or without the last part of a block.
void check_block_size(std::string_view text) {
  trace::ParseOptions options;
  options.skip_bad = true;
  const auto found = trace::parse(text, options);
  if (!found.ok() || found.value().trace.lengths_alone) return;
  const trace::Trace& all = found.value().trace;
  if (all.tokens_per_block == 0) __builtin_trap();
  for (const trace::Request& request : all.requests) {
    if (!trace::fits(request.input_length, request.count, all.tokens_per_block)) __builtin_trap();
  }
}

}  // namespace

KVBM_FUZZ_TARGET(trace) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const trace::Form form : {trace::Form::automatic, trace::Form::mooncake, trace::Form::bailian,
                                 trace::Form::azure, trace::Form::burstgpt}) {
    check(text, form);
  }
  check_block_size(text);
  const auto plain = trace::unpacked(std::string(text), size_t{1} << 20, "input");
  if (plain.ok() && plain.value().size() > size_t{1} << 20 && plain.value() != text) __builtin_trap();
  return 0;
}

}  // namespace trace_fuzz
