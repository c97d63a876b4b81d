#include "command/watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "terminal/interrupt.h"
#include "terminal/screen.h"
#include "watch/render.h"

namespace kvbm::command {

namespace {

using Clock = std::chrono::steady_clock;

struct WatchArguments {
  watch::ReaderOptions reader;
  std::string duration;
  double interval = 1;
  size_t rows = 10;
  bool once = false;
  bool tokens = false;
};

double seconds_after(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Parses "10s", "500ms", "2min", "1h"; a plain number is seconds. An empty text means no end.
Result<double> parse_duration(const std::string& text) {
  if (text.empty()) return 1e18;
  const std::pair<const char*, double> units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"min", 60}, {"h", 3600}};
  size_t digits = 0;
  double value = -1;
  try {
    value = std::stod(text, &digits);
  } catch (const std::exception&) {
    digits = 0;
  }
  for (const auto& [unit, seconds] : units) {
    if (digits != 0 && value > 0 && value < 1e9 && text.substr(digits) == unit) return value * seconds;
  }
  return Status(Code::invalid_argument, "--for is a time such as 10s, 500ms, 5min or 1h", "not `" + text + "`");
}

// Output: a screen that is redrawn, lines of text one frame after the other, or a line of JSON for each event.
class Writer {
 public:
  Writer(const WatchArguments& arguments, bool json)
      : arguments_(arguments), json_(json), screen_(json || arguments.once ? -1 : STDOUT_FILENO) {}

  void heard(const watch::Message& message) {
    if (json_) print(watch::render_events(message, arguments_.tokens));
  }
  void frame(const watch::Frame& frame) {
    if (json_ || arguments_.once) return;
    if (screen_.usable()) return screen_.draw(watch::render_text(frame, arguments_.reader, screen_.lines()));
    print(watch::render_text(frame, arguments_.reader, 0) + "\n");
  }
  void finish(const watch::Frame& frame) {
    screen_.leave();
    print(json_ ? watch::render_summary(frame) : watch::render_text(frame, arguments_.reader, 0));
  }
  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  // Ends the command if the output was closed by its reader.
  void print(const std::string& text) {
    if (failed_ || (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0))
      return;
    failed_ = true;
    terminal::Interrupt::ask();
  }

  const WatchArguments& arguments_;
  const bool json_;
  bool failed_ = false;
  terminal::Screen screen_;
};

int watch_events(const WatchArguments& arguments, const Output& output, watch::Reader& reader, double duration) {
  const terminal::Interrupt interrupt;
  Writer writer(arguments, output.json);
  watch::Tally tally(arguments.rows);
  const Clock::time_point began = Clock::now();
  const auto heard = [&](watch::Message&& message) {
    writer.heard(message);
    tally.take(message, seconds_after(began));
  };
  double next_frame = arguments.interval;
  while (!terminal::Interrupt::asked() && seconds_after(began) < duration) {
    const double left = std::min(next_frame, duration) - seconds_after(began);
    const Status polled =
        reader.poll(static_cast<int>(std::clamp(left, 0.0, 60.0) * 1000) + 1, terminal::Interrupt::fd(), heard);
    if (!polled.ok()) return fail(polled);
    if (seconds_after(began) < next_frame) continue;
    writer.frame(tally.frame(reader.counts(), seconds_after(began), false));
    next_frame = seconds_after(began) + arguments.interval;
  }
  writer.finish(tally.frame(reader.counts(), seconds_after(began), true));
  if (writer.failed()) return fail(kFailed, "the events could not be written");
  if (reader.counts().messages == 0) {
    std::fprintf(stderr,
                 "kvbm: no event received from %s: does the engine publish there, and topics that begin with `%s`?\n",
                 arguments.reader.endpoint.c_str(), arguments.reader.topic.c_str());
  }
  return kDone;
}

int run(const WatchArguments& arguments, const Output& output) {
  const auto duration = parse_duration(arguments.duration);
  if (!duration.ok()) return fail(duration.status());
  const auto zmq = watch::Zmq::load();
  if (!zmq.ok()) {
    return fail(zmq.status(), "apt install libzmq5 (to build: libzmq3-dev), or your system's package of ZeroMQ 4");
  }
  const auto reader = watch::Reader::open(*zmq.value(), arguments.reader);
  if (!reader.ok()) return fail(reader.status(), "an endpoint is tcp://HOST:PORT or ipc://PATH");
  return watch_events(arguments, output, *reader.value(), duration.value());
}

}  // namespace

void add_watch(Registry& registry) {
  auto arguments = std::make_shared<WatchArguments>();
  Command app = registry.add("watch", "Watch the KV events of an engine: blocks stored and removed, gaps, rates",
                             [arguments](const Output& output) { return run(*arguments, output); });
  app.add_option("endpoint", arguments->reader.endpoint,
                 "Where events are published: connected to; with * as its host or port engines connect here")
      .type_name("ENDPOINT")
      .required();
  app.add_option("--replay", arguments->reader.replay, "The publisher's replay endpoint: what was missed is asked for")
      .type_name("ENDPOINT");
  app.add_option("--topic", arguments->reader.topic, "Only topics that begin so").type_name("TEXT");
  app.add_option("--for", arguments->duration, "End after this time, such as 10s or 5min; else at Ctrl-C")
      .type_name("TIME");
  app.add_option("--interval", arguments->interval, "Seconds from a frame to the next")
      .type_name("SECONDS")
      .range(0.01, 86400.0)
      .show_default();
  app.add_option("--rows", arguments->rows, "Last events to list").type_name("K").range(0, 1000).show_default();
  app.add_flag("--once", arguments->once, "One frame, at the end");
  app.add_flag("--tokens", arguments->tokens, "With --json: token ids as well");
  app.footer(
      "Reads what vLLM, SGLang and libkvbm publish. With --json an event is a line, and the last line sums up.\n"
      "Examples:\n"
      "  kvbm watch tcp://127.0.0.1:5557\n"
      "  kvbm watch tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5558 --topic kv@ --json --for 10s");
}

}  // namespace kvbm::command
