#include "watch/tally.h"

#include <cstdio>

#include "terminal/quantity.h"
#include "terminal/safe_text.h"

namespace kvbm::watch {

namespace {

using terminal::safe_text;

std::string describe(const Event& event) {
  if (event.kind == Kind::cleared) return kind_name(event.kind);
  std::string text = std::string(kind_name(event.kind)) + " " + safe_text(event.medium, 24) + " " +
                     terminal::format_count(event.hashes.size()) + (event.hashes.size() == 1 ? " block" : " blocks");
  if (event.kind == Kind::stored && event.tokens != 0) text += ", " + terminal::format_count(event.tokens) + " tokens";
  return text;
}

}  // namespace

void Tally::take(const Message& message, double seconds) {
  if (message.restarted) {
    clear(message.stream);
    remember(seconds, message.stream, "began anew");
  }
  if (message.lost != 0) {
    remember(seconds, message.stream, terminal::format_count(message.lost) + " messages were lost");
  }
  for (const Event& event : message.batch.events) {
    apply(message.stream, event);
    remember(seconds, message.stream, describe(event) + (message.replayed ? " (replayed)" : ""));
  }
}

void Tally::apply(const std::string& stream, const Event& event) {
  if (event.kind == Kind::cleared) {
    ++cleared_;
    clear(stream);
    return;
  }
  Known* known_row = known(stream, event.medium);
  if (known_row == nullptr) return;
  if (event.kind == Kind::removed) {
    known_row->row.removed += event.hashes.size();
    for (const uint64_t hash : event.hashes) blocks_ -= known_row->blocks.erase(hash);
    return;
  }
  known_row->row.stored += event.hashes.size();
  known_row->row.tokens += event.tokens;
  for (const uint64_t hash : event.hashes) {
    if (blocks_ >= kMaxBlocks) {
      too_many_ = true;
      return;
    }
    blocks_ += known_row->blocks.insert(hash).second ? 1 : 0;
  }
}

void Tally::clear(const std::string& stream) {
  for (auto row = rows_.lower_bound({stream, ""}); row != rows_.end() && row->first.first == stream; ++row) {
    blocks_ -= row->second.blocks.size();
    row->second.blocks.clear();
  }
}

Tally::Known* Tally::known(const std::string& stream, const std::string& medium) {
  const auto found = rows_.find({stream, medium});
  if (found != rows_.end()) return &found->second;
  if (rows_.size() >= kMaxRows) {
    too_many_ = true;
    return nullptr;
  }
  Known& made = rows_[{stream, medium}];
  made.row.stream = stream;
  made.row.medium = medium;
  return &made;
}

void Tally::remember(double seconds, const std::string& stream, const std::string& text) {
  if (keep_ == 0) return;
  char at[32];
  std::snprintf(at, sizeof at, "%8.2f s", seconds);
  recent_.push_front(std::string(at) + "  " + safe_text(stream.empty() ? "(no topic)" : stream, 40) + "  " + text);
  if (recent_.size() > keep_) recent_.pop_back();
}

Frame Tally::frame(const ReaderCounts& counts, double seconds, bool last) {
  Frame frame;
  frame.last = last;
  frame.seconds = seconds;
  frame.cleared = cleared_;
  frame.too_many = too_many_;
  frame.counts = counts;
  frame.recent.assign(recent_.begin(), recent_.end());
  // The last frame covers the whole time.
  const double interval = last ? seconds : seconds - frame_at_;
  for (auto& [key, one] : rows_) {
    one.row.blocks_known = one.blocks.size();
    if (interval > 0) {
      one.row.stored_per_s = static_cast<double>(one.row.stored - (last ? 0 : one.stored_before)) / interval;
      one.row.removed_per_s = static_cast<double>(one.row.removed - (last ? 0 : one.removed_before)) / interval;
    }
    one.stored_before = one.row.stored;
    one.removed_before = one.row.removed;
    frame.rows.push_back(one.row);
  }
  frame_at_ = seconds;
  return frame;
}

}  // namespace kvbm::watch
