#include "reply.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace kvbm_redis {
namespace {

constexpr size_t kMaxLine = 4096;
constexpr size_t kMaxDepth = 6;
// Memory of one item beyond its bytes, which counts in a reply of many small items.
constexpr size_t kItemCost = 16;

bool read_number(std::string_view text, int64_t* out) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), *out);
  return !text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size();
}

void append_word_head(std::string* out, char kind, uint64_t number) {
  char text[24];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  *out += kind;
  out->append(text, end);
  *out += "\r\n";
}

void append_words(std::string* out, std::initializer_list<std::string_view> words, size_t more) {
  append_word_head(out, '*', words.size() + more);
  for (const std::string_view word : words) {
    append_word_head(out, '$', word.size());
    out->append(word).append("\r\n");
  }
}

}  // namespace

void append_request(std::string* out, std::initializer_list<std::string_view> words) { append_words(out, words, 0); }

void append_request_head(std::string* out, std::initializer_list<std::string_view> words, uint64_t bytes) {
  append_words(out, words, 1);
  append_word_head(out, '$', bytes);
}

void ReplyReader::begin(char* into, uint64_t room, size_t limit) {
  state_ = State::line;
  root_ = Reply();
  item_ = &root_;
  stack_.clear();
  line_.clear();
  into_ = into;
  room_ = room;
  budget_ = limit;
  is_elsewhere_ = room > 0;
}

void ReplyReader::forget_memory() { into_ = nullptr; }

void ReplyReader::spend(size_t bytes) {
  if (bytes > budget_) {
    state_ = State::broken;
  } else {
    budget_ -= bytes;
  }
}

size_t ReplyReader::feed(const char* data, size_t bytes) {
  size_t at = 0;
  while (at < bytes && state_ != State::whole && state_ != State::broken) {
    switch (state_) {
      case State::line: {
        const auto* end = static_cast<const char*>(std::memchr(data + at, '\n', std::min(bytes - at, kMaxLine)));
        const size_t piece = end != nullptr ? static_cast<size_t>(end - data) - at + 1 : std::min(bytes - at, kMaxLine);
        line_.append(data + at, piece);
        at += piece;
        if (end != nullptr) {
          end_line();
        } else if (line_.size() >= kMaxLine) {
          state_ = State::broken;
        } else if (std::string_view("+-:$*").find(line_[0]) == std::string_view::npos) {
          state_ = State::broken;  // the end of the line may never arrive
        }
        break;
      }
      case State::value: {
        const size_t piece = std::min<uint64_t>(bytes - at, value_left_);
        if (!is_elsewhere_) {
          item_->text.append(data + at, piece);
        } else if (into_ != nullptr) {
          std::memcpy(into_ + (static_cast<uint64_t>(item_->number) - value_left_), data + at, piece);
        }
        at += piece;
        value_left_ -= piece;
        if (value_left_ == 0) state_ = State::value_end;
        break;
      }
      case State::value_end:
        if (data[at++] != (ends_left_ == 2 ? '\r' : '\n')) {
          state_ = State::broken;
        } else if (--ends_left_ == 0) {
          end_item();
        }
        break;
      case State::whole:
      case State::broken:
        break;
    }
  }
  return at;
}

char* ReplyReader::direct(size_t* out_room) {
  if (state_ != State::value || !is_elsewhere_ || into_ == nullptr) return nullptr;
  if (value_left_ == 0) {  // the value is complete
    state_ = State::value_end;
    return nullptr;
  }
  *out_room = value_left_;
  return into_ + (static_cast<uint64_t>(item_->number) - value_left_);
}

void ReplyReader::end_line() {
  if (line_.size() < 3 || line_[line_.size() - 2] != '\r') {
    state_ = State::broken;
    return;
  }
  const std::string_view rest(line_.data() + 1, line_.size() - 3);
  spend(rest.size() + kItemCost);
  if (state_ == State::broken) return;
  int64_t number = 0;
  switch (line_[0]) {
    case '+':
    case '-':
      item_->type = line_[0] == '+' ? Reply::Type::status : Reply::Type::error;
      item_->text = rest;
      return end_item();
    case ':':
      item_->type = Reply::Type::integer;
      if (read_number(rest, &item_->number)) return end_item();
      break;
    case '$':
      if (read_number(rest, &number) && number >= -1) return begin_value(number);
      break;
    case '*':
      if (read_number(rest, &number) && number >= -1) return begin_array(number);
      break;
    default:
      break;
  }
  state_ = State::broken;
}

void ReplyReader::begin_value(int64_t bytes) {
  if (bytes < 0) {
    item_->type = Reply::Type::nothing;
    return end_item();
  }
  item_->type = Reply::Type::value;
  // Only a reply that is itself a value goes to `into_`.
  if (is_elsewhere_ && !stack_.empty()) is_elsewhere_ = false;
  if (is_elsewhere_) {
    item_->number = bytes;
    if (static_cast<uint64_t>(bytes) > room_) state_ = State::broken;
  } else {
    spend(static_cast<uint64_t>(bytes) > budget_ ? budget_ + 1 : static_cast<size_t>(bytes));
  }
  if (state_ == State::broken) return;
  line_.clear();
  value_left_ = static_cast<uint64_t>(bytes);
  ends_left_ = 2;
  state_ = bytes == 0 ? State::value_end : State::value;
}

void ReplyReader::begin_array(int64_t items) {
  if (items < 0) {
    item_->type = Reply::Type::nothing;
    return end_item();
  }
  item_->type = Reply::Type::array;
  if (items == 0) return end_item();
  // Each item takes bytes that have not arrived, so no more items are reserved than the budget allows.
  if (stack_.size() >= kMaxDepth || static_cast<uint64_t>(items) > budget_ / kItemCost) {
    state_ = State::broken;
    return;
  }
  item_->items.reserve(static_cast<size_t>(items));
  stack_.push_back({static_cast<size_t>(items), &item_->items});
  item_ = next_item();
  line_.clear();
}

Reply* ReplyReader::next_item() {
  Level& top = stack_.back();
  --top.left;
  return &top.items->emplace_back();
}

void ReplyReader::end_item() {
  line_.clear();
  while (!stack_.empty() && stack_.back().left == 0) stack_.pop_back();
  if (stack_.empty()) {
    state_ = State::whole;
  } else {
    item_ = next_item();
    state_ = State::line;
  }
}

}  // namespace kvbm_redis
