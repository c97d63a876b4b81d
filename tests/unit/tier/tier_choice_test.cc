#include "tier/coded/tier_choice.h"

#include <gtest/gtest.h>

namespace kvbm::test::tier_choice_test {
namespace {

using tier::coded::Goal;
using tier::coded::TierChoice;
using Level = TierChoice::Level;

constexpr uint64_t kMb = 1 << 20;
constexpr uint64_t kSecond = 1'000'000'000;

// Tells a choice what each level gives: stored share of a record, and ns a byte to decode and to encode.
// (max: 0 where the goal does not try it).
void teach(TierChoice& choice, FamilyId family, double fast, double standard, double max, double decode,
           double encode = 0) {
  const double stored[] = {fast, standard, max};
  for (int n = 0; n < 8; ++n) {
    for (int l = 0; l < (max == 0 ? 2 : 3); ++l) {
      choice.encoded(family, static_cast<Level>(l), kMb, static_cast<uint64_t>(stored[l] * kMb),
                     static_cast<uint64_t>(encode * kMb), static_cast<uint64_t>(decode * kMb) + 1);
    }
  }
}

TEST(TierChoice, measures_each_level_before_it_uses_one) {
  TierChoice choice(Goal::speed);
  const auto first = choice.plan(kSecond, 1, false, {1.0, 0});
  EXPECT_EQ(first.level, Level::off);
  ASSERT_TRUE(first.probe.has_value());
  const auto second = choice.plan(kSecond, 1, false, {1.0, 0});
  ASSERT_TRUE(second.probe.has_value());
  EXPECT_NE(*first.probe, *second.probe);
  EXPECT_FALSE(choice.plan(kSecond, 1, false, {1.0, 0}).probe.has_value());
  EXPECT_TRUE(choice.plan(12 * kSecond, 1, false, {1.0, 0}).probe.has_value());
}

TEST(TierChoice, codes_where_the_link_is_slower_than_decoding_wins_back) {
  TierChoice choice(Goal::speed);
  teach(choice, 1, 0.71, 0.67, 0, 0.1);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {1.0, 0}).level, Level::standard);  // 0.67 + 0.1 < 1
  EXPECT_EQ(choice.plan(kSecond, 1, false, {0.05, 0}).level, Level::off);      // the link beats the decoder
  EXPECT_EQ(choice.plan(kSecond, 2, false, {1.0, 0}).level, Level::off) << "another family is measured on its own";
}

// Sealing costs what is written plain as much as what is coded, and is no reason to leave either.
TEST(TierChoice, seals_count_on_both_sides) {
  constexpr double kSeal = 0.3;  // ns a byte, each way
  const auto bytes = [](double share) { return static_cast<uint64_t>(share * kMb); };
  const auto teach_sealed = [&](TierChoice& choice) {
    for (int n = 0; n < 8; ++n) {
      choice.encoded(1, Level::off, kMb, kMb, bytes(kSeal), bytes(kSeal));
      for (const Level level : {Level::fast, Level::standard}) {
        choice.encoded(1, level, kMb, bytes(0.7), bytes(0.05 + 0.7 * kSeal), bytes(0.05 + 0.7 * kSeal));
      }
    }
  };
  // Plain: 0.5 + 2 * 0.3. Coded: 0.35 + 2 * 0.26, which without a seal would be more than 0.94 of a plain byte.
  TierChoice sealing(Goal::speed, true);
  teach_sealed(sealing);
  EXPECT_NE(sealing.plan(kSecond, 1, false, {0.25, 0.25}).level, Level::off);
  for (int n = 0; n < 8; ++n) {
    sealing.encoded(1, Level::fast, kMb, bytes(0.7), bytes(0.05 + 0.7 * kSeal), 0);
    sealing.decoded(1, Level::fast, kMb, bytes(0.05 + 0.7 * kSeal));
    EXPECT_NE(sealing.plan(kSecond, 1, false, {0.25, 0.25}).level, Level::off)
        << "in use it costs what was measured before";
  }
  TierChoice space(Goal::space, true);
  teach_sealed(space);
  EXPECT_NE(space.plan(kSecond, 1, false, {0.1, 0}).level, Level::off)
      << "0.07 + 0.26 is not 1.25 of 0.1, but of 0.1 + 0.3";
}

TEST(TierChoice, measures_what_a_seal_takes_before_it_chooses) {
  TierChoice choice(Goal::speed, true);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {1.0, 0}).probe, Level::off);
  teach(choice, 1, 0.5, 0.5, 0, 0.01);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {1.0, 0}).level, Level::off);
  choice.encoded(1, Level::off, kMb, kMb, kMb / 100, kMb / 100);
  EXPECT_NE(choice.plan(kSecond, 1, false, {1.0, 0}).level, Level::off);
  EXPECT_EQ(choice.plan(20 * kSecond, 1, false, {1.0, 0}).probe, Level::off) << "measured again where it is not in use";
}

// Records of an earlier setting and merely sealed ones are read too: they say nothing of the level that is in use.
TEST(TierChoice, reading_teaches_of_the_level_that_was_read) {
  TierChoice choice(Goal::speed);
  teach(choice, 1, 0.7, 0.69, 0, 0.05);
  const Level level = choice.plan(kSecond, 1, false, {1.0, 0}).level;
  ASSERT_NE(level, Level::off);
  for (int n = 0; n < 32; ++n) choice.decoded(1, Level::max, kMb, 5 * kMb);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {1.0, 0}).level, level);
  for (int n = 0; n < 32; ++n) choice.decoded(1, level, kMb, 5 * kMb);
  EXPECT_NE(choice.plan(kSecond, 1, false, {1.0, 0}).level, level);
}

TEST(TierChoice, does_not_flap_between_entering_and_leaving) {
  TierChoice choice(Goal::speed);
  teach(choice, 1, 0.8, 0.8, 0, 0.1);
  // Worth 0.2 L - 0.1: 6 % at L = 0.714, 2 % at L = 0.556.
  EXPECT_EQ(choice.plan(kSecond, 1, false, {0.65, 0}).level, Level::off);
  EXPECT_NE(choice.plan(kSecond, 1, false, {0.8, 0}).level, Level::off);
  EXPECT_NE(choice.plan(kSecond, 1, false, {0.65, 0}).level, Level::off);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {0.5, 0}).level, Level::off);
}

TEST(TierChoice, counts_the_way_down_too) {
  TierChoice choice(Goal::speed);
  teach(choice, 1, 0.7, 0.7, 0, 0.1, 0.3);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {1.0, 0}).level, Level::off);    // 0.7 + 0.1 + 0.3
  EXPECT_NE(choice.plan(kSecond, 1, false, {1.0, 1.0}).level, Level::off);  // 1.4 + 0.1 + 0.3 < 2
  EXPECT_NE(choice.plan(kSecond, 1, false, {5.0, 0}).level, Level::off);    // worth it for reading alone
  EXPECT_EQ(choice.plan(kSecond, 1, false, {0.5, 0.5}).level, Level::off);
}

TEST(TierChoice, leaves_what_does_not_become_shorter) {
  TierChoice choice(Goal::speed);
  teach(choice, 1, 1.0, 1.0, 1.0, 0.01);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {10.0, 0}).level, Level::off);
}

TEST(TierChoice, space_takes_the_best_ratio_that_decoding_bears) {
  TierChoice choice(Goal::space);
  teach(choice, 1, 0.71, 0.67, 0.65, 0.1);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {1.0, 0}).level, Level::max);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {0.2, 0}).level, Level::max);  // 0.13 + 0.1 <= 1.25 * 0.2
  EXPECT_EQ(choice.plan(kSecond, 1, false, {0.01, 0}).level, Level::off);
}

TEST(TierChoice, steps_down_when_encoding_holds_writing_up_and_comes_back) {
  TierChoice choice(Goal::speed);
  teach(choice, 1, 0.71, 0.67, 0, 0.05);
  ASSERT_EQ(choice.plan(kSecond, 1, false, {1.0, 0}).level, Level::standard);
  EXPECT_TRUE(choice.held_up(kSecond));
  EXPECT_EQ(choice.plan(2 * kSecond, 1, false, {1.0, 0}).level, Level::fast);
  EXPECT_TRUE(choice.held_up(2 * kSecond));
  EXPECT_EQ(choice.plan(3 * kSecond, 1, false, {1.0, 0}).level, Level::off);
  EXPECT_FALSE(choice.held_up(4 * kSecond));
  EXPECT_EQ(choice.plan(30 * kSecond, 1, false, {1.0, 0}).level, Level::off);
  EXPECT_EQ(choice.plan(100 * kSecond, 1, false, {1.0, 0}).level, Level::fast);
  EXPECT_EQ(choice.plan(200 * kSecond, 1, false, {1.0, 0}).level, Level::standard);
}

TEST(TierChoice, a_namespace_that_names_its_coding_has_one_level) {
  TierChoice choice(Goal::space);
  const auto plan = choice.plan(kSecond, 1, true, {1.0, 0});
  EXPECT_EQ(plan.probe, Level::standard);
  EXPECT_FALSE(choice.plan(kSecond, 1, true, {1.0, 0}).probe.has_value());
}

// Space bears reading that takes a quarter longer, but not where loads would then be late.
TEST(TierChoice, records_that_would_come_late_stay_plain) {
  TierChoice choice(Goal::space);
  teach(choice, 1, 0.7, 0.66, 0.65, 0.5);  // a plain byte 1 ns, coded 1.15 to 1.2
  EXPECT_EQ(choice.plan(kSecond, 1, false, {1.0, 0}).level, Level::max);
  choice.asked(kMb, 10 * kMb);  // 10 ns a byte: time enough
  EXPECT_EQ(choice.plan(kSecond, 1, false, {1.0, 0}).level, Level::max);
  choice.asked(kMb, 2 * kMb);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {1.0, 0}).level, Level::off);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {4.0, 0}).level, Level::max) << "coded is read faster than plain there";
  for (int i = 0; i < 100; ++i) choice.asked(kMb, 10 * kMb);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {1.0, 0}).level, Level::max) << "what once was near is forgotten";
}

TEST(TierChoice, speed_does_not_make_loads_late_for_writing_faster) {
  TierChoice choice(Goal::speed);
  teach(choice, 1, 0.7, 0.7, 0, 0.5);
  EXPECT_NE(choice.plan(kSecond, 1, false, {1.0, 10.0}).level, Level::off);  // writing gains 3 ns a byte
  choice.asked(kMb, 2 * kMb);
  EXPECT_EQ(choice.plan(kSecond, 1, false, {1.0, 10.0}).level, Level::off);
}

}  // namespace
}  // namespace kvbm::test::tier_choice_test
