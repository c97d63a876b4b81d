// Shared parts of the commands that send a trace through the library: options, reading the trace, and a temporary
// directory for a disk tier.
#pragma once

#include <string>

#include "command/registry.h"
#include "replay/store_replay.h"
#include "trace/trace.h"

namespace kvbm::command {

struct TraceArguments {
  std::string path;
  std::string format = "auto";
  uint32_t block_tokens = 0;  // 0: detected
  bool skip_bad = false;
};

struct StoreArguments {
  std::string policy;
  std::string host;
  std::string disk;
  std::string block_bytes = "64KiB";
  std::string admission;
  std::string disk_path;
  std::string codec = "off";
  std::vector<std::string> stores;
  std::string plugin;
  std::string peers;
  uint32_t threads = 1;
  uint32_t load_blocks = 0;
  bool settle = false;
  uint64_t first = 0;
  uint64_t limit = UINT64_MAX;
};

// Adds options that write to `arguments` when they are parsed.
void add_trace_arguments(Command app, TraceArguments& arguments);
// Adds all options but --policy, because its values differ between the commands.
void add_store_arguments(Command app, StoreArguments& arguments);

// Reads any trace into `out` and reports skipped lines on stderr. Returns kDone, or the exit code after an error on
// stderr.
int read_any_trace(const TraceArguments& arguments, trace::Parsed& out);
// Reads a trace that can be replayed, which means that it shows which prompts have a common beginning.
int read_trace(const TraceArguments& arguments, trace::Trace& out);
// Reports why a trace with lengths alone cannot be replayed or converted. Returns the exit code.
int fail_lengths_alone(const std::string& path, trace::Form form);

// Prints on stderr why a trace could not be read. Returns the exit code.
int fail_trace(const std::string& path, const Status& why);

// A temporary directory, removed with the object.
class ScratchDirectory {
 public:
  ScratchDirectory() = default;
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory();
  Status make();
  [[nodiscard]] std::string tier() const { return path_ + "/tier"; }

 private:
  std::string path_;
};

// Checks the arguments that need no trace, without side effects, so that bad options are reported before a trace is
// read.
int read_store_arguments(const StoreArguments& arguments, replay::StoreOptions& out);
// Makes options from arguments, for a trace of `requests`. `scratch` is made if a disk tier has no directory. Returns
// kDone, or the exit code after an error on stderr.
int make_store_options(const StoreArguments& arguments, uint64_t requests, ScratchDirectory& scratch,
                       replay::StoreOptions& out);
// Returns how many of a trace's `requests` these `options` replay.
uint64_t requests_to_replay(const replay::StoreOptions& options, uint64_t requests);

}  // namespace kvbm::command
