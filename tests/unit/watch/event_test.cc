// Events as the engines encode them, and bytes that are none.
#include "watch/event.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace kvbm::watch::event_test {
namespace {

using nlohmann::json;

std::string packed(const json& value) {
  const std::vector<uint8_t> bytes = json::to_msgpack(value);
  return {bytes.begin(), bytes.end()};
}

json digest(uint8_t last) {
  json::binary_t bytes(std::vector<uint8_t>(32, 0));
  bytes.back() = last;
  return bytes;
}

json map_batch() {
  return {1.5,
          {{{"type", "BlockStored"},
            {"block_hashes", {1, 18446744073709551615ULL, digest(7)}},
            {"parent_block_hash", nullptr},
            {"token_ids", {5, 6, 7}},
            {"block_size", 1},
            {"lora_id", nullptr},
            {"medium", nullptr},
            {"lora_name", "adapter"}},
           {{"type", "BlockRemoved"}, {"block_hashes", {-4}}, {"medium", "CPU"}, {"group_idx", 2}},
           {{"type", "AllBlocksCleared"}}},
          3};
}

TEST(KvEvents, maps_and_arrays_of_the_same_events_are_the_same) {
  const json array = {
      1.5,
      {{"BlockStored", {1, 18446744073709551615ULL, digest(7)}, nullptr, {5, 6, 7}, 1, nullptr, nullptr, "adapter"},
       {"BlockRemoved", {-4}, "CPU", 2},
       json::array({"AllBlocksCleared"})},
      3};
  for (const json& whole : {map_batch(), array}) {
    const auto decoded = decode(packed(whole));
    ASSERT_TRUE(decoded.ok());
    const Batch& batch = decoded.value();
    EXPECT_EQ(batch.ts, 1.5);
    EXPECT_EQ(batch.rank, 3);
    ASSERT_EQ(batch.events.size(), 3U);
    EXPECT_EQ(batch.events[0].kind, Kind::stored);
    EXPECT_EQ(batch.events[0].medium, "GPU");
    EXPECT_EQ(batch.events[0].hashes, (std::vector<uint64_t>{1, ~uint64_t{0}, 7}));
    EXPECT_EQ(batch.events[0].tokens, 3U);
    EXPECT_EQ(batch.events[0].fields["lora_name"], "adapter");
    EXPECT_EQ(batch.events[1].kind, Kind::removed);
    EXPECT_EQ(batch.events[1].medium, "CPU");
    EXPECT_EQ(batch.events[1].hashes, (std::vector<uint64_t>{~uint64_t{3}}));
    EXPECT_EQ(batch.events[1].fields["group_idx"], 2);
    EXPECT_EQ(batch.events[2].kind, Kind::cleared);
    EXPECT_EQ(batch.malformed + batch.unknown, 0U);
  }
}

TEST(KvEvents, a_batch_without_a_rank_and_with_later_fields_is_read) {
  EXPECT_EQ(decode(packed(json::array({1, json::array()}))).value().rank, std::nullopt);
  EXPECT_EQ(decode(packed({1, json::array(), nullptr, "later"})).value().rank, std::nullopt);
  const json later = {{"BlockRemoved", {1}, "CPU", 0, "LOCAL", "kvbm", "later", {1, 2}}};
  EXPECT_EQ(decode(packed({1, later})).value().events.size(), 1U);
}

TEST(KvEvents, an_event_that_is_wrong_is_left_out_and_the_rest_stays) {
  const json good = {{"type", "BlockRemoved"}, {"block_hashes", {1}}};
  const auto stored = [](const char* name, const json& value) {
    json event = {{"type", "BlockStored"}, {"block_hashes", {1}}};
    event[name] = value;
    return event;
  };
  const std::vector<json> wrong = {nullptr,
                                   7,
                                   json::array(),
                                   json::object(),
                                   {{"type", 5}},
                                   {{"type", "BlockStored"}},
                                   json::array({"BlockRemoved"}),
                                   stored("block_hashes", 5),
                                   stored("block_hashes", {nullptr}),
                                   stored("block_hashes", {true}),
                                   stored("block_hashes", {1.5}),
                                   stored("block_hashes", json::array({json::binary({})})),
                                   stored("block_hashes", json::array({json::binary(std::vector<uint8_t>(65, 1))})),
                                   stored("token_ids", {-1}),
                                   stored("token_ids", {{1, 2, 3}}),
                                   stored("token_ids", "x"),
                                   stored("block_size", -1),
                                   stored("medium", 5),
                                   stored("medium", std::string(5000, 'x')),
                                   stored("extra_keys", 5),
                                   stored("parent_block_hash", "x"),
                                   stored("group_idx", 1.5),
                                   stored("lora_id", "x"),
                                   stored("session_id", 1)};
  for (const json& event : wrong) {
    const auto decoded = decode(packed({1.0, {good, event, good}}));
    ASSERT_TRUE(decoded.ok()) << event;
    EXPECT_EQ(decoded.value().malformed, 1U) << event;
    EXPECT_EQ(decoded.value().events.size(), 2U) << event;
  }
}

TEST(KvEvents, kinds_that_are_not_known_are_counted) {
  const auto decoded = decode(packed({1.0, {{{"type", "BlockMoved"}}, {"BlockMoved", 5}}}));
  EXPECT_EQ(decoded.value().unknown, 2U);
  EXPECT_EQ(decoded.value().malformed, 0U);
}

TEST(KvEvents, bigrams_are_pairs) {
  const json event = {{"type", "BlockStored"}, {"block_hashes", {1}}, {"token_ids", {{1, 2}, {2, 3}}}};
  EXPECT_EQ(decode(packed({1.0, {event}})).value().events[0].tokens, 2U);
}

TEST(KvEvents, payloads_that_are_none_are_damaged) {
  using namespace std::string_literals;
  std::string nested(100'000, '\x91');
  for (const std::string& payload :
       {""s, "\xc1"s, "\xdd\xff\xff\xff\xff"s, "\xdf\xff\xff\xff\xff"s, "\xc6\xff\xff\xff\xff"s, "\x93"s, nested,
        packed(7), packed(json::array({1.0})), packed({"x", json::array()}), packed({1.0, json::object()}),
        packed({1.0, json::array(), "rank"}), packed({1.0, json::array(), -1}), packed({1.0, json::array()}) + "x"}) {
    const auto decoded = decode(payload);
    EXPECT_FALSE(decoded.ok()) << payload.size();
    EXPECT_EQ(decoded.status().code(), Code::damaged);
  }
}

TEST(KvEvents, more_values_than_a_message_may_have_are_refused_before_they_are_kept) {
  std::string payload = packed({1.0, json::array()});
  payload.pop_back();
  payload += std::string("\xdd\x00\x50\x00\x00", 5) + std::string(0x500000, '\xc0');
  EXPECT_FALSE(decode(payload).ok());
}

TEST(KvEvents, whatever_the_bytes_are_nothing_but_a_status_comes_of_it) {
  const unsigned seed = 31;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  const std::string sample = packed(map_batch());
  for (int turn = 0; turn < 20'000; ++turn) {
    std::string payload = sample;
    for (size_t i = random() % 6; i != 0; --i) payload[random() % payload.size()] = static_cast<char>(random());
    if (turn % 5 == 0) payload.resize(random() % payload.size());
    const auto decoded = decode(payload);
    if (!decoded.ok()) continue;
    for (const Event& event : decoded.value().events) {
      EXPECT_FALSE(printable(event, true).dump(-1, ' ', false, json::error_handler_t::replace).empty());
    }
  }
}

TEST(KvEvents, an_event_is_printed_with_its_bytes_as_digits_and_tokens_when_asked) {
  const auto decoded = decode(packed(map_batch()));
  const Event& stored = decoded.value().events[0];
  const auto row = printable(stored, false);
  EXPECT_EQ(row["block_hashes"][2].get<std::string>().substr(60), "0007");
  EXPECT_EQ(row["blocks"], 3);
  EXPECT_EQ(row["tokens"], 3);
  EXPECT_FALSE(row.contains("token_ids"));
  EXPECT_FALSE(row.contains("lora_id"));
  EXPECT_EQ(printable(stored, true)["token_ids"], (json{5, 6, 7}));
}

}  // namespace
}  // namespace kvbm::watch::event_test
