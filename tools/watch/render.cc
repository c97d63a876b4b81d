#include "watch/render.h"

#include <algorithm>
#include <cstdio>

#include "terminal/quantity.h"
#include "terminal/safe_text.h"
#include "terminal/table.h"

namespace kvbm::watch {

namespace {

using nlohmann::ordered_json;
using terminal::Align;
using terminal::format_count;
using terminal::safe_text;

std::string rate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.1f" : "%.0f", value);
  return text;
}

std::string line(const ordered_json& row) {
  return row.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ordered_json about(const char* type, const Message& message) {
  return {{"type", type}, {"stream", message.stream}, {"seq", message.sequence}, {"ts", message.batch.ts}};
}

ordered_json counts_of(const ReaderCounts& counts) {
  return {{"messages", counts.messages},  {"events", counts.events}, {"malformed", counts.malformed},
          {"unknown", counts.unknown},    {"gaps", counts.gaps},     {"missed", counts.missed},
          {"replayed", counts.recovered}, {"lost", counts.lost},     {"restarts", counts.restarts},
          {"ignored", counts.ignored}};
}

std::string table_of(const Frame& frame) {
  terminal::Table table({{"stream", Align::left},
                         {"medium", Align::left},
                         {"blocks", Align::right},
                         {"stored", Align::right},
                         {"removed", Align::right},
                         {"stored/s", Align::right},
                         {"removed/s", Align::right},
                         {"tokens", Align::right}});
  for (const Row& row : frame.rows) {
    table.add_row({safe_text(row.stream.empty() ? "(no topic)" : row.stream, 40), safe_text(row.medium, 24),
                   format_count(row.blocks_known), format_count(row.stored), format_count(row.removed),
                   rate(row.stored_per_s), rate(row.removed_per_s), format_count(row.tokens)});
  }
  return table.render();
}

}  // namespace

std::string render_text(const Frame& frame, const ReaderOptions& options, size_t lines) {
  const ReaderCounts& counts = frame.counts;
  std::string text = "kvbm watch " + options.endpoint + "  " + terminal::format_duration(frame.seconds) + "\n";
  text += format_count(counts.messages) + " messages, " + format_count(counts.events) + " events, " +
          format_count(frame.cleared) + " times all cleared";
  if (counts.recovered != 0) text += ", " + format_count(counts.recovered) + " replayed";
  text += "\n";
  if (counts.gaps != 0 || counts.restarts != 0) {
    text += "gaps: " + format_count(counts.gaps) + " (" + format_count(counts.missed) + " messages, " +
            format_count(counts.lost) + " of them lost), restarts: " + format_count(counts.restarts) + "\n";
  }
  if (counts.malformed != 0 || counts.unknown != 0 || counts.ignored != 0) {
    text += "left out: " + format_count(counts.malformed) + " malformed, " + format_count(counts.unknown) +
            " of unknown kinds, " + format_count(counts.ignored) + " of more streams than are followed\n";
  }
  if (frame.too_many) text += "more blocks or mediums than are followed: the numbers of blocks are lower bounds\n";
  if (counts.messages == 0) text += "no event received yet\n";
  text += "\n" + table_of(frame);
  const auto used = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 2;
  const size_t room = lines == 0 ? frame.recent.size() : lines > used ? lines - used : 0;
  if (room != 0 && !frame.recent.empty()) text += "\nlast events\n";
  for (size_t i = 0; i < std::min(room, frame.recent.size()); ++i) text += frame.recent[i] + "\n";
  return text;
}

std::string render_events(const Message& message, bool with_tokens) {
  std::string text;
  if (message.restarted) text += line(about("Restarted", message));
  if (message.lost != 0) {
    ordered_json row = about("Lost", message);
    row["messages"] = message.lost;
    text += line(row);
  }
  for (const Event& event : message.batch.events) {
    ordered_json row = about(kind_name(event.kind), message);
    if (message.replayed) row["replayed"] = true;
    row.update(printable(event, with_tokens));
    text += line(row);
  }
  return text;
}

std::string render_summary(const Frame& frame) {
  ordered_json row = {{"type", "Summary"}, {"seconds", frame.seconds}, {"cleared", frame.cleared}};
  row.update(counts_of(frame.counts));
  row["mediums"] = ordered_json::array();
  for (const Row& one : frame.rows) {
    row["mediums"].push_back({{"stream", one.stream},
                              {"medium", one.medium},
                              {"blocks", one.blocks_known},
                              {"stored", one.stored},
                              {"removed", one.removed},
                              {"tokens", one.tokens}});
  }
  return line(row);
}

}  // namespace kvbm::watch
