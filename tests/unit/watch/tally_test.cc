// The sums over events, and their rendering.
#include "watch/tally.h"

#include <gtest/gtest.h>

#include "watch/render.h"

namespace kvbm::watch::tally_test {
namespace {

Event event(Kind kind, const std::string& medium, std::vector<uint64_t> hashes, uint64_t tokens = 0) {
  Event made;
  made.kind = kind;
  made.medium = medium;
  made.hashes = std::move(hashes);
  made.tokens = tokens;
  return made;
}

Message message(const std::string& stream, std::vector<Event> events) {
  Message made;
  made.stream = stream;
  made.batch.events = std::move(events);
  return made;
}

TEST(Tally, blocks_are_those_that_are_there) {
  Tally tally(10);
  tally.take(message("a", {event(Kind::stored, "GPU", {1, 2, 3}, 48), event(Kind::stored, "GPU", {3}),
                           event(Kind::stored, "CPU", {1}), event(Kind::removed, "GPU", {2, 9})}),
             1);
  tally.take(message("b", {event(Kind::stored, "GPU", {1})}), 1);
  Frame frame = tally.frame({}, 2, false);
  ASSERT_EQ(frame.rows.size(), 3U);
  EXPECT_EQ(frame.rows[0].medium, "CPU");
  EXPECT_EQ(frame.rows[1].blocks_known, 2U);
  EXPECT_EQ(frame.rows[1].stored, 4U);
  EXPECT_EQ(frame.rows[1].removed, 2U);
  EXPECT_EQ(frame.rows[1].tokens, 48U);
  EXPECT_EQ(frame.rows[1].stored_per_s, 2);
  tally.take(message("a", {event(Kind::cleared, "", {})}), 3);
  frame = tally.frame({}, 4, false);
  EXPECT_EQ(frame.rows[0].blocks_known + frame.rows[1].blocks_known, 0U);
  EXPECT_EQ(frame.rows[2].blocks_known, 1U);
  EXPECT_EQ(frame.rows[1].stored_per_s, 0);
  EXPECT_EQ(frame.cleared, 1U);
  EXPECT_EQ(tally.frame({}, 4, true).rows[1].stored_per_s, 1);
}

TEST(Tally, a_publisher_that_began_anew_has_nothing_until_it_says_so) {
  Tally tally(10);
  tally.take(message("a", {event(Kind::stored, "GPU", {1, 2})}), 1);
  Message again = message("a", {event(Kind::stored, "GPU", {7})});
  again.restarted = true;
  again.lost = 3;
  tally.take(again, 2);
  const Frame frame = tally.frame({}, 3, true);
  EXPECT_EQ(frame.rows[0].blocks_known, 1U);
  ASSERT_EQ(frame.recent.size(), 4U);
  EXPECT_NE(frame.recent[0].find("BlockStored GPU 1 block"), std::string::npos);
  EXPECT_NE(frame.recent[1].find("3 messages were lost"), std::string::npos);
  EXPECT_NE(frame.recent[2].find("began anew"), std::string::npos);
}

TEST(Tally, only_the_last_events_are_kept) {
  Tally tally(2);
  for (uint64_t i = 0; i < 5; ++i) tally.take(message("a", {event(Kind::stored, "GPU", {i})}), 1);
  EXPECT_EQ(tally.frame({}, 1, true).recent.size(), 2U);
}

TEST(Tally, more_mediums_than_are_followed_are_said) {
  Tally tally(0);
  for (size_t i = 0; i <= kMaxRows; ++i) tally.take(message("a", {event(Kind::stored, std::to_string(i), {1})}), 1);
  const Frame frame = tally.frame({}, 1, true);
  EXPECT_EQ(frame.rows.size(), kMaxRows);
  EXPECT_TRUE(frame.too_many);
  EXPECT_NE(render_text(frame, {}, 0).find("lower bounds"), std::string::npos);
}

TEST(WatchRender, text_from_outside_cannot_move_the_cursor) {
  Tally tally(5);
  tally.take(message("\x1b[2J", {event(Kind::stored, "\x1b]0;", {1})}), 1);
  EXPECT_EQ(render_text(tally.frame({}, 1, true), {}, 0).find('\x1b'), std::string::npos);
}

TEST(WatchRender, a_frame_fits_the_screen) {
  Tally tally(50);
  for (uint64_t i = 0; i < 50; ++i) tally.take(message("a", {event(Kind::stored, "GPU", {i})}), 1);
  const std::string text = render_text(tally.frame({}, 1, false), {}, 20);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 20);
  EXPECT_NE(text.find("last events"), std::string::npos);
}

TEST(WatchRender, every_event_and_every_loss_is_a_line_of_json) {
  Message one = message("\xff", {event(Kind::stored, "GPU", {1}), event(Kind::cleared, "", {})});
  one.lost = 2;
  one.restarted = true;
  one.replayed = true;
  const std::string text = render_events(one, false);
  std::vector<std::string> types;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const auto row = nlohmann::json::parse(text.substr(at, end - at), nullptr, false);
    ASSERT_TRUE(row.is_object());
    types.push_back(row["type"]);
    at = end + 1;
  }
  EXPECT_EQ(types, (std::vector<std::string>{"Restarted", "Lost", "BlockStored", "AllBlocksCleared"}));
}

}  // namespace
}  // namespace kvbm::watch::tally_test
