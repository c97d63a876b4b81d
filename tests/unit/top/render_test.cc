// Rendering of frames: the lists shrink to the screen, and JSON is one line.
#include "top/render.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kvbm::top::render_test {
namespace {

Frame frame_of(uint32_t blocks) {
  Frame frame;
  frame.progress.requests = 3;
  frame.progress.block_refs = 8;
  frame.progress.hits = 2;
  frame.stats.n_tiers = 2;
  frame.stats.tiers[0].capacity_bytes = 1 << 20;
  frame.stats.tiers[0].used_bytes = 1 << 19;
  frame.scanned_blocks = blocks;
  for (uint32_t i = 0; i < blocks; ++i) {
    Block block;
    block.key.bytes[0] = static_cast<uint8_t>(i);
    block.tiers = 1 + i % 3;
    if (i % 2 == 0) block.age = i;
    frame.hottest.push_back(block);
  }
  frame.coldest = frame.hottest;
  return frame;
}

Run some_run() { return {"trace.jsonl", 12, {"host", "disk"}, Order::age, false}; }

TEST(RenderText, fits_the_screen_and_lists_all_without_one) {
  const auto lines = [](size_t screen) {
    const std::string text = render_text(frame_of(50), some_run(), {false, screen});
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  };
  for (const size_t screen : {24U, 25U, 40U, 80U}) EXPECT_LE(lines(screen), screen);
  EXPECT_GE(lines(40), 39U);
  EXPECT_GT(lines(0), 100U);
  EXPECT_GT(lines(3), 3U);  // one block each, whatever the screen; the screen cuts the rest
}

TEST(RenderText, names_tiers_hit_rate_evictions_and_order) {
  Frame frame = frame_of(3);
  frame.stats.tiers[1].evictions = 4711;
  const std::string text = render_text(frame, some_run(), {false, 0});
  for (const char* part :
       {"3 of 12 requests", "2 hits (25.00 %)", "host+disk", "####.... 50%", "coldest by age", "evicted", "4,711"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("stopped"), std::string::npos);
  Frame last = frame_of(3);
  last.last = true;
  top::Run stopped = some_run();
  stopped.stopped = true;
  EXPECT_NE(render_text(last, stopped, {false, 0}).find("stopped"), std::string::npos);
}

// A store without a set capacity has no limit.
TEST(RenderText, says_of_a_tier_without_a_capacity_that_it_has_no_limit) {
  Frame frame = frame_of(1);
  frame.stats.tiers[1].capacity_bytes = 0;
  frame.stats.tiers[1].used_bytes = 3 << 20;
  const std::string text = render_text(frame, some_run(), {false, 0});
  EXPECT_NE(text.find("3.00 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("no limit"), std::string::npos) << text;
}

TEST(RenderJson, is_one_line_with_an_unknown_age_as_null) {
  const std::string json = render_json(frame_of(2), some_run());
  EXPECT_EQ(json.find('\n'), std::string::npos);
  EXPECT_NE(json.find("\"age_requests\":0"), std::string::npos) << json;
  EXPECT_NE(json.find("\"age_requests\":null"), std::string::npos) << json;
  EXPECT_NE(json.find("\"hit_rate\":25.0"), std::string::npos) << json;
}

}  // namespace
}  // namespace kvbm::top::render_test
