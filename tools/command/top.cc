#include "command/top.h"

#include <unistd.h>

#include <cstdio>

#include "command/store_arguments.h"
#include "replay/policy_replay.h"
#include "terminal/interrupt.h"
#include "terminal/progress.h"
#include "terminal/screen.h"
#include "terminal/table.h"
#include "top/render.h"
#include "top/viewer.h"

namespace kvbm::command {

namespace {

struct TopArguments {
  TraceArguments trace;
  StoreArguments store;
  double interval = 1;
  size_t rows = 10;
  std::string sort = "uses";
  bool once = false;
};

const std::pair<const char*, top::Order> kOrders[] = {
    {"uses", top::Order::uses}, {"age", top::Order::age}, {"holds", top::Order::holds}, {"pins", top::Order::pins}};

top::Order order_named(const std::string& name) {
  for (const auto& [known, order] : kOrders) {
    if (name == known) return order;
  }
  return top::Order::uses;
}

// Output of frames: a screen that is redrawn, lines of text one frame after the other, or lines of JSON.
class FrameWriter {
 public:
  FrameWriter(const top::Run& run, bool json, bool in_place)
      : run_(run), json_(json), screen_(in_place && !json ? STDOUT_FILENO : -1) {}

  void show(const top::Frame& frame) {
    if (!screen_.usable()) return print(frame, run_);
    screen_.draw(top::render_text(frame, run_, {terminal::locale_is_utf8(), screen_.lines()}));
  }

  // Prints the last frame after the screen was restored, so that it stays visible.
  void finish(const top::Frame* frame, const top::Run& run) {
    screen_.leave();
    if (frame != nullptr) print(*frame, run);
  }

  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  // Ends the replay if the output was closed by its reader.
  void print(const top::Frame& frame, const top::Run& run) {
    const std::string text =
        json_ ? top::render_json(frame, run) + "\n"
              : top::render_text(frame, run, {terminal::locale_is_utf8(), 0}) + (frame.last ? "" : "\n");
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
    failed_ = true;
    terminal::Interrupt::ask();
  }

  const top::Run& run_;
  const bool json_;
  bool failed_ = false;
  terminal::Screen screen_;
};

top::Run describe(const TopArguments& arguments, const replay::StoreOptions& options, uint64_t requests) {
  top::Run run;
  run.trace = arguments.trace.path;
  run.requests = requests_to_replay(options, requests);
  run.tiers = {"host"};
  for (size_t i = 0; i < options.disks.size(); ++i) {
    run.tiers.push_back(i == 0 ? "disk" : "disk " + std::to_string(i + 1));
  }
  for (size_t i = 0; i < options.stores.size(); ++i) run.tiers.emplace_back("store");
  if (!options.plugin.empty()) run.tiers.emplace_back("plug-in");
  run.order = order_named(arguments.sort);
  return run;
}

int watch(const TopArguments& arguments, const Output& output, const trace::Trace& trace) {
  replay::StoreOptions options;
  options.verify = false;
  ScratchDirectory scratch;
  const int ready = make_store_options(arguments.store, trace.requests.size(), scratch, options);
  if (ready != kDone) return ready;
  top::Run run = describe(arguments, options, trace.requests.size());
  const replay::PathTrace paths = replay::make_paths(trace);
  const terminal::Interrupt interrupt;
  FrameWriter writer(run, output.json, !arguments.once);
  terminal::Progress progress("replaying", run.requests, terminal::Unit::items, output.json || !arguments.once);
  top::Viewer::Options viewing;
  viewing.interval_seconds = arguments.interval;
  viewing.last_only = arguments.once;
  viewing.rows = arguments.rows;
  viewing.order = run.order;
  viewing.show = [&writer](const top::Frame& frame) { writer.show(frame); };
  top::Viewer viewer(std::move(viewing));
  options.opened = [&viewer](kvbm_manager_t* manager) { viewer.opened(manager); };
  options.stop = &terminal::Interrupt::asked();
  options.progress = [&](const replay::StoreProgress& so_far) {
    viewer.progress(so_far);
    progress.set(so_far.requests);
  };
  const auto result = replay::replay_store(trace, paths, options);
  progress.finish();
  top::Run ended = run;
  ended.stopped = viewer.last().has_value() && viewer.last()->progress.requests < run.requests;
  writer.finish(viewer.last().has_value() ? &*viewer.last() : nullptr, ended);
  if (!result.ok()) return fail(result.status());
  return writer.failed() ? fail(kFailed, "the frames could not be written") : kDone;
}

int run(const TopArguments& arguments, const Output& output) {
  replay::StoreOptions unread;
  const int good = read_store_arguments(arguments.store, unread);
  if (good != kDone) return good;
  trace::Trace trace;
  const int read = read_trace(arguments.trace, trace);
  return read != kDone ? read : watch(arguments, output, trace);
}

}  // namespace

void add_top(Registry& registry) {
  auto arguments = std::make_shared<TopArguments>();
  Command app = registry.add("top", "Replay a trace and show live how full each tier is and which blocks are hot",
                             [arguments](const Output& output) { return run(*arguments, output); });
  add_trace_arguments(app, arguments->trace);
  app.add_option("--policy", arguments->store.policy, "Eviction policy of the host tier").type_name("NAME");
  add_store_arguments(app, arguments->store);
  app.add_option("--interval", arguments->interval, "Seconds from a frame to the next")
      .type_name("SECONDS")
      .range(0.01, 86400.0)
      .show_default();
  app.add_option("--rows", arguments->rows, "Hottest and coldest blocks to list")
      .type_name("K")
      .range(0, 1000)
      .show_default();
  app.add_option("--sort", arguments->sort, "What makes a block hot: uses, age (of its last use), holds or pins")
      .one_of({"uses", "age", "holds", "pins"})
      .show_default();
  app.add_flag("--once", arguments->once, "One frame, at the end");
  app.footer(
      "Ctrl-C ends the replay after the requests in hand and prints the last frame. With --json a frame is a line.\n"
      "Examples:\n"
      "  kvbm top trace.jsonl --host 256MiB --disk 1GiB\n"
      "  kvbm top trace.jsonl --host 256MiB --once --json --rows 50 --sort age");
}

}  // namespace kvbm::command
