#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "terminal/quantity.h"
#include "terminal/safe_text.h"
#include "terminal/table.h"

namespace kvbm::terminal::text_test {
namespace {

TEST(SafeText, cannot_move_the_cursor) {
  EXPECT_EQ(safe_text("a\x1b[2J\n\xc2\x9b", 40), "a?[2J???");
  EXPECT_EQ(safe_text("abcdefgh", 6), "abc...");
  EXPECT_EQ(safe_text("", 6), "");
}

TEST(Quantity, sizes_need_a_unit_that_says_which) {
  EXPECT_EQ(parse_size("64GiB").value(), uint64_t{64} << 30);
  EXPECT_EQ(parse_size("1.5 TB").value(), 1500000000000U);
  EXPECT_EQ(parse_size("4096").value(), 4096U);
  EXPECT_FALSE(parse_size("64G").ok());
  EXPECT_FALSE(parse_size("").ok());
  EXPECT_FALSE(parse_size("-1GB").ok());
  EXPECT_FALSE(parse_size("1.2.3GB").ok());
  EXPECT_FALSE(parse_size("99999999999999999999").ok());
  EXPECT_FALSE(parse_size("20000000PiB").ok());
}

TEST(Quantity, counts_are_decimal) {
  EXPECT_EQ(parse_count("3M").value(), 3000000U);
  EXPECT_EQ(parse_counts("1k,2.5k").value(), (std::vector<uint64_t>{1000, 2500}));
  EXPECT_FALSE(parse_counts("1k,,3k").ok());
}

TEST(Quantity, sizes_are_printed_in_both_units) {
  EXPECT_EQ(format_size(32768000000.0), "32.77 GB (30.52 GiB)");
  EXPECT_EQ(format_size(512), "512 B");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(999), "999");
}

TEST(Table, aligns_columns_and_leaves_no_trailing_blanks) {
  Table table({{"name"}, {"value", Align::right}, {"note"}});
  table.add_row({"é", "7", ""});
  table.add_row({"long name", "1,000", "x"});
  EXPECT_EQ(table.render(),
            "name       value  note\n"
            "---------  -----  ----\n"
            "é              7\n"
            "long name  1,000  x\n");
}

TEST(Table, a_width_wraps_the_widest_texts_and_nothing_else) {
  Table table({{"name"}, {"value", Align::right}, {"note"}});
  table.add_row({"a", "1,000,000", "a long sentence goes on in as many lines as it takes"});
  table.add_row({"b", "2", "short"});
  EXPECT_EQ(table.render(40),
            "name      value  note\n"
            "----  ---------  -----------------------\n"
            "a     1,000,000  a long sentence goes on\n"
            "                 in as many lines as it\n"
            "                 takes\n"
            "b             2  short\n");
  EXPECT_EQ(table.render(1000), table.render());
}

TEST(Wrapped, cuts_at_blanks_and_long_words_between_code_points) {
  EXPECT_EQ(wrapped("", 5), (std::vector<std::string>{""}));
  EXPECT_EQ(wrapped("one two", 7), (std::vector<std::string>{"one two"}));
  EXPECT_EQ(wrapped("one two", 5), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(wrapped("one  two", 3), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(wrapped("éééé", 3), (std::vector<std::string>{"ééé", "é"}));
  EXPECT_EQ(wrapped("/ab/cdefgh", 6), (std::vector<std::string>{"/ab/", "cdefgh"}));
  EXPECT_EQ(wrapped("/abcdef", 4), (std::vector<std::string>{"/abc", "def"}));
  EXPECT_EQ(wrapped("/a/long/path x", 8), (std::vector<std::string>{"/a/long/", "path x"}));
}

}  // namespace
}  // namespace kvbm::terminal::text_test
