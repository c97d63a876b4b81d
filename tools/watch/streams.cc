#include "watch/streams.h"

namespace kvbm::watch {

Arrival Streams::arrive(const std::string& topic, std::optional<int64_t> rank, uint64_t sequence) {
  Arrival arrival;
  const auto of_topic = next_.find(topic);
  if (of_topic == next_.end() || !of_topic->second.contains(rank)) {
    if (streams_ >= kMaxStreams) {
      arrival.followed = false;
      return arrival;
    }
    ++streams_;
    next_[topic][rank] = sequence + 1;
    arrival.first = true;
    arrival.missing = sequence;
    return arrival;
  }
  uint64_t& next = of_topic->second[rank];
  arrival.restarted = sequence < next;
  arrival.missing_from = arrival.restarted ? 0 : next;
  arrival.missing = sequence - arrival.missing_from;
  next = sequence + 1;
  return arrival;
}

void Streams::skip(const std::string& topic, uint64_t sequence) {
  const auto of_topic = next_.find(topic);
  if (of_topic == next_.end()) return;
  for (auto& [rank, next] : of_topic->second) {
    if (next == sequence) ++next;
  }
}

std::string Streams::name(const std::string& topic, std::optional<int64_t> rank) {
  return rank.has_value() ? topic + "/" + std::to_string(*rank) : topic;
}

}  // namespace kvbm::watch
