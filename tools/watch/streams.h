// Checks sequence numbers of publishers: finds missing messages and restarts.
//
// A stream is a topic and, if batches name one, a data-parallel rank. At most kMaxStreams are followed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace kvbm::watch {

inline constexpr size_t kMaxStreams = 1024;

struct Arrival {
  bool followed = true;    // false: there are too many streams
  bool first = false;      // of its stream
  bool restarted = false;  // numbers went back: the publisher restarted
  uint64_t missing_from = 0;
  uint64_t missing = 0;  // messages before this one that are missing; of the first: all before it
};

class Streams {
 public:
  Arrival arrive(const std::string& topic, std::optional<int64_t> rank, uint64_t sequence);
  // Records a message that could not be read, so that it is no gap, if its stream is clear.
  void skip(const std::string& topic, uint64_t sequence);

  static std::string name(const std::string& topic, std::optional<int64_t> rank);

 private:
  std::map<std::string, std::map<std::optional<int64_t>, uint64_t>> next_;  // by topic and rank
  size_t streams_ = 0;
};

}  // namespace kvbm::watch
