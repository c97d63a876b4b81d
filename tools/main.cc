// The `kvbm` command. A subcommand is one file in command/ and one line here.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <new>
#include <optional>

#include "command/bench.h"
#include "command/codec.h"
#include "command/config.h"
#include "command/demo.h"
#include "command/doctor.h"
#include "command/inspect.h"
#include "command/key.h"
#include "command/node.h"
#include "command/plugin.h"
#include "command/registry.h"
#include "command/replay.h"
#include "command/session.h"
#include "command/shell.h"
#include "command/size.h"
#include "command/top.h"
#include "command/trace.h"
#include "command/watch.h"
#include "kvbm.h"

#define KVBM_TEXT_OF(x) #x
#define KVBM_TEXT(x) KVBM_TEXT_OF(x)

namespace {

// Returns whether printed output was lost, as on a full disk. A pipe closed by its reader does not count.
bool output_is_lost() {
  struct stat facts {};
  return (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && ::fstat(STDOUT_FILENO, &facts) == 0 &&
         !S_ISFIFO(facts.st_mode) && !S_ISSOCK(facts.st_mode);
}

// Opens the standard descriptors that are closed. Otherwise the next opened file, such as a tier's, would get such a
// descriptor, and printed output would be written into it. With /dev/null the output is lost, and output_is_lost()
// detects it.
void fill_standard_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDONLY);
  if (fd >= 0) ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  namespace command = kvbm::command;
  fill_standard_descriptors();
  try {
    command::Registry registry(
        "kvbm", "KV-cache blocks of LLM engines in host memory and on disk: sizes, replays, checks",
        "kvbm " KVBM_TEXT(KVBM_VERSION_MAJOR) "." KVBM_TEXT(KVBM_VERSION_MINOR) "." KVBM_TEXT(KVBM_VERSION_PATCH));
    registry.root().footer(
        "`kvbm COMMAND --help` shows options and examples. Exit codes: 0 done, 1 failed, 2 bad input,\n"
        "3 a pool has a part of the file (put, exists), 130 asked to end before it was through.");
    command::add_demo(registry);
    command::add_replay(registry);
    command::add_top(registry);
    command::add_watch(registry);
    command::add_trace(registry);
    command::add_size(registry);
    command::add_bench(registry);
    command::add_codec(registry);
    command::add_config(registry);
    command::add_key(registry);
    command::add_node(registry);
    command::add_session(registry);
    command::add_plugin(registry);
    command::add_inspect(registry);
    command::add_stats(registry);
    command::add_doctor(registry);
    command::add_completion(registry);
    command::add_man(registry);
    const std::optional<int> said = registry.parse(argc, argv);
    if (said) return *said;
    const int code = registry.run_chosen();
    if (code == command::kDone && output_is_lost()) {
      return command::fail(command::kFailed, "standard output cannot be written", "is its disk full?");
    }
    return code;
  } catch (const std::bad_alloc&) {
    return command::fail(command::kFailed, "the system refused memory",
                         "free some, or ask for less: sizes, threads, a shorter trace");
  } catch (const std::exception& error) {
    return command::fail(command::kFailed, error.what(), "this is a fault in kvbm; please report the command line");
  }
}
