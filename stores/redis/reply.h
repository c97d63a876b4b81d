// The protocol of Redis (RESP2): writes requests, and reads replies piece by piece as they arrive.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace kvbm_redis {

// Appends a request of these words.
void append_request(std::string* out, std::initializer_list<std::string_view> words);
// Appends a request without its last word of `bytes` bytes and the line's end behind it, which the caller sends
// separately.
void append_request_head(std::string* out, std::initializer_list<std::string_view> words, uint64_t bytes);

struct Reply {
  enum class Type : uint8_t { none, status, error, integer, value, nothing, array };

  Type type = Type::none;
  std::string text;    // status, error, and a value that was not read elsewhere
  int64_t number = 0;  // integer; the length of a value that was read elsewhere
  std::vector<Reply> items;

  [[nodiscard]] bool is(Type other) const { return type == other; }
};

// Reads one reply after the other. The request bounds the length of its reply. A longer reply is a fault of the
// server, after which nothing more can be read.
class ReplyReader {
 public:
  // Must be called before each reply. With `room`, a value may have so many bytes, and is read to `into`, or dropped
  // if that is null. All other content of the reply may have `limit` bytes in total.
  void begin(char* into, uint64_t room, size_t limit);
  // Takes bytes up to the end of the reply, and returns how many. Returns 0 when the reply is whole or broken.
  size_t feed(const char* data, size_t bytes);
  // Returns the place and number of the value's next bytes, so that they can be read there directly. Null: use
  // feed().
  char* direct(size_t* out_room);
  void filled(size_t bytes) { value_left_ -= bytes; }
  // Drops the rest of the value. The memory of begin() is not touched any more.
  void forget_memory();

  [[nodiscard]] bool is_whole() const { return state_ == State::whole; }
  [[nodiscard]] bool is_broken() const { return state_ == State::broken; }
  // Returns whether no byte of the reply has arrived.
  [[nodiscard]] bool is_untouched() const { return state_ == State::line && line_.empty() && stack_.empty(); }
  // Returns the beginning of a broken reply.
  [[nodiscard]] const std::string& broken_line() const { return line_; }
  Reply& reply() { return root_; }

 private:
  enum class State : uint8_t { line, value, value_end, whole, broken };
  struct Level {
    size_t left;  // items that have not begun
    std::vector<Reply>* items;
  };

  void end_line();
  void begin_value(int64_t bytes);
  void begin_array(int64_t items);
  void end_item();
  void spend(size_t bytes);
  Reply* next_item();

  State state_ = State::line;
  Reply root_;
  Reply* item_ = nullptr;  // item that is being read
  std::vector<Level> stack_;
  std::string line_;
  char* into_ = nullptr;
  uint64_t room_ = 0;
  size_t budget_ = 0;
  uint64_t value_left_ = 0;
  bool is_elsewhere_ = false;  // the value goes to `into_`, or is dropped where that is null
  uint8_t ends_left_ = 0;
};

}  // namespace kvbm_redis
