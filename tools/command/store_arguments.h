// What the commands that send a trace through the library share: their options, the reading of the trace and a
// directory for a disk tier that nobody asked to keep.
#pragma once

#include <string>

#include "command/registry.h"
#include "replay/store_replay.h"
#include "trace/trace.h"

namespace kvbm::command {

struct TraceArguments {
  std::string path;
  std::string format = "auto";
  uint32_t block_tokens = 0;  // 0: found out
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
  bool settle = false;
  uint64_t first = 0;
  uint64_t limit = UINT64_MAX;
};

// The options write to `arguments` when they are parsed.
void add_trace_arguments(Command app, TraceArguments& arguments);
// All but --policy, whose values differ between the commands.
void add_store_arguments(Command app, StoreArguments& arguments);

// Reads any trace into `out`; tells on stderr what was skipped. kDone, or the exit code of what it said on stderr.
int read_any_trace(const TraceArguments& arguments, trace::Parsed& out);
// The same of a trace that can be replayed: it says which prompts begin alike.
int read_trace(const TraceArguments& arguments, trace::Trace& out);
// Why a trace with lengths alone cannot be replayed or converted; returns the exit code.
int fail_lengths_alone(const std::string& path, trace::Form form);

// Says on stderr why a trace could not be read; returns the exit code.
int fail_trace(const std::string& path, const Status& why);

// A directory of our own that goes with the object.
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

// The part of make_store_options that needs no trace, and leaves nothing behind: for bad options to be told before a
// trace is read.
int read_store_arguments(const StoreArguments& arguments, replay::StoreOptions& out);
// Options out of arguments, for a trace of `requests`; `scratch` is made when a disk tier has no directory. kDone, or
// the exit code of what it said on stderr.
int make_store_options(const StoreArguments& arguments, uint64_t requests, ScratchDirectory& scratch,
                       replay::StoreOptions& out);
// Requests of `options` that a trace of `requests` has.
uint64_t requests_to_replay(const replay::StoreOptions& options, uint64_t requests);

}  // namespace kvbm::command
