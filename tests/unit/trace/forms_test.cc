// The forms of traces that are read: what tells them apart, what each may leave out, their blocks, and compressed
// files.
#include <gtest/gtest.h>

#include <string>

#include "trace/array.h"
#include "trace/block_size.h"
#include "trace/csv.h"
#include "trace/mooncake.h"
#include "trace/read.h"
#include "trace/unpack.h"

namespace kvbm::trace::forms_test {
namespace {

std::string line(uint64_t length, uint64_t ids, const std::string& more = "") {
  std::string text = "{" + more + "\"input_length\": " + std::to_string(length) + ", \"hash_ids\": [";
  for (uint64_t i = 0; i < ids; ++i) text += (i == 0 ? "" : ", ") + std::to_string(i);
  return text + "]}\n";
}

// Returns the block size of a trace that is read; 0, and a failure, for others.
uint32_t block_of(const std::string& text, uint32_t said = 0) {
  ParseOptions options;
  options.tokens_per_block = said;
  const Result<Parsed> parsed = parse(text, options);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? parsed.value().trace.tokens_per_block : 0;
}

std::string refusal_of(const std::string& text, const ParseOptions& options = {}) {
  const Result<Parsed> parsed = parse(text, options);
  EXPECT_FALSE(parsed.ok()) << text;
  return parsed.status().message();
}

bool says(const std::string& text, const char* what) { return text.find(what) != std::string::npos; }

TEST(BlockSize, is_found_out_from_the_lengths) {
  EXPECT_EQ(block_of(line(600, 2)), 512U);
  EXPECT_EQ(block_of(line(521, 33)), 16U);
  EXPECT_EQ(block_of(line(521, 33) + line(545, 35)), 16U);
  EXPECT_EQ(block_of(line(10, 1) + line(20, 2)), 16U);
  EXPECT_EQ(block_of(line(1000, 10) + line(1001, 11)), 100U);  // no power of two, and no other number
  // These traces have no id for an incomplete last block.
  EXPECT_EQ(block_of(line(600, 1) + line(1000, 1) + line(1024, 2) + line(400, 0)), 512U);
  EXPECT_EQ(block_of(line(545, 34) + line(521, 32)), 16U);
  EXPECT_EQ(block_of(line(0, 0) + line(600, 2)), 512U);
}

TEST(BlockSize, is_refused_where_lines_contradict_each_other) {
  const std::string refusal = refusal_of(line(521, 33) + line(600, 38) + line(51200, 100));
  EXPECT_TRUE(says(refusal, "lines 1 and 3")) << refusal;
  EXPECT_TRUE(says(refusal, "--block-tokens")) << refusal;
  // With --block-tokens given, a line that does not fit it is bad and can be skipped.
  ParseOptions options;
  options.tokens_per_block = 16;
  EXPECT_TRUE(says(refusal_of(line(521, 33) + line(51200, 100), options), "line 2: 51200 tokens and 100 hash_ids"));
  options.skip_bad = true;
  const Result<Parsed> skipped = parse(line(521, 33) + line(51200, 100), options);
  ASSERT_TRUE(skipped.ok());
  EXPECT_EQ(skipped.value().trace.requests.size(), 1U);
  EXPECT_EQ(skipped.value().trace.hash_ids.size(), 33U);
}

TEST(BlockSize, is_refused_where_a_line_fits_none) {
  EXPECT_TRUE(says(refusal_of(line(3, 4)), "line 1: 3 tokens and 4 hash_ids do not fit blocks of any size"));
  EXPECT_TRUE(says(refusal_of(line(0, 1)), "line 1: 0 tokens and 1 hash_ids"));
}

TEST(BlockSize, is_asked_for_where_several_fit) {
  EXPECT_TRUE(says(refusal_of(line(600, 1)), "say it with --block-tokens"));
  EXPECT_EQ(block_of(line(600, 1), 1024), 1024U);
  EXPECT_EQ(block_of(line(300, 2)), 256U);  // the only power of two from 150 to 299
  EXPECT_TRUE(says(refusal_of(line(3000, 30)), "any from 100 to 103 tokens fits"));
}

TEST(Forms, mooncake_lines_may_leave_out_times_and_answers) {
  const Result<Parsed> parsed = parse(R"({"timestamp": 7.6, "input_length": 600.0, "hash_ids": [1, 2]})"
                                      "\n"
                                      R"({"session_id": "a", "delay": 5, "input_length": 600, "hash_ids": [1, 2]})"
                                      "\n",
                                      {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const std::vector<Request>& requests = parsed.value().trace.requests;
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].timestamp_ms, 8U);
  EXPECT_EQ(requests[1].timestamp_ms, 8U);  // comes with the one before it
  EXPECT_EQ(requests[0].input_length, 600U);
  EXPECT_EQ(requests[0].output_length, 0U);
  EXPECT_EQ(parsed.value().form, Form::mooncake);
}

TEST(Forms, mooncake_lines_need_lengths_and_ids) {
  EXPECT_TRUE(says(refusal_of(R"({"timestamp": 1, "hash_ids": [1]})"), "input_length is missing"));
  EXPECT_TRUE(says(refusal_of(R"({"timestamp": 1, "input_length": 5})"), "does not say which prompts begin alike"));
  EXPECT_TRUE(says(refusal_of(R"({"timestamp": -0.5, "input_length": 600, "hash_ids": [1, 2]})"), "timestamp must be"));
  EXPECT_TRUE(
      says(refusal_of(R"({"timestamp": 1e300, "input_length": 600, "hash_ids": [1, 2]})"), "timestamp is above"));
  EXPECT_TRUE(says(refusal_of(R"({"timestamp": "1", "input_length": 600, "hash_ids": [1, 2]})"), "timestamp must be"));
  EXPECT_TRUE(says(refusal_of(R"({"input_length": 600.5, "hash_ids": [1, 2]})"), "input_length must be a whole"));
  EXPECT_TRUE(says(refusal_of(R"({"input_length": 1e300, "hash_ids": [1, 2]})"), "input_length is above"));
  EXPECT_TRUE(says(refusal_of(R"({"input_length": 600, "hash_ids": ["a", "b"]})"), "hash_ids[0] must be"));
}

std::vector<std::string> elements_of(const std::string& text, bool* closed = nullptr, std::string* rest = nullptr) {
  Elements elements(text);
  std::vector<std::string> out;
  for (std::string_view element; elements.next(element);) out.emplace_back(element);
  if (closed != nullptr) *closed = elements.closed();
  if (rest != nullptr) *rest = elements.rest();
  return out;
}

using Texts = std::vector<std::string>;

TEST(Array, is_cut_into_its_elements) {
  bool closed = false;
  std::string rest;
  EXPECT_EQ(elements_of("1, [2,3] ,{\"a\":[4,5]}] more", &closed, &rest), (Texts{"1", " [2,3] ", "{\"a\":[4,5]}"}));
  EXPECT_TRUE(closed);
  EXPECT_EQ(rest, " more");
  EXPECT_EQ(elements_of(R"("a,]\"}",{"]\\":","}])", &closed), (Texts{R"("a,]\"}")", R"({"]\\":","})"}));
  EXPECT_TRUE(closed);
  EXPECT_EQ(elements_of(" ]", &closed), Texts{});
  EXPECT_TRUE(closed);
  EXPECT_EQ(elements_of(",1,]"), (Texts{"", "1", ""}));  // the text between commas, empty text included
}

TEST(Array, that_is_cut_off_gives_what_is_left) {
  bool closed = true;
  EXPECT_EQ(elements_of("1,{\"a\":", &closed), (Texts{"1", "{\"a\":"}));
  EXPECT_FALSE(closed);
  EXPECT_EQ(elements_of("1, ", &closed), Texts{"1"});
  EXPECT_FALSE(closed);
  for (const char* none : {"", " ", "\n"}) EXPECT_EQ(elements_of(none, &closed), Texts{}) << none;
  EXPECT_EQ(elements_of("\"a\\", &closed), Texts{"\"a\\"});
  EXPECT_FALSE(closed);
}

TEST(Forms, an_array_of_requests_is_read_as_lines_are) {
  const std::string lines = line(600, 2, R"("timestamp": 5, "note": "], [{\"",)") + line(1024, 2);
  const Result<Parsed> as_lines = parse(lines, {});
  ASSERT_TRUE(as_lines.ok());
  std::string array = lines;
  array[lines.find("}\n") + 1] = ',';
  for (const std::string& text : {"[" + array + "]", "\xef\xbb\xbf \r\n[\n" + array + "\n]\n\n"}) {
    const Result<Parsed> parsed = parse(text, {});
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(to_mooncake(parsed.value().trace), to_mooncake(as_lines.value().trace));
    EXPECT_EQ(parsed.value().lines, 2U);
    EXPECT_TRUE(parsed.value().array);
  }
  EXPECT_TRUE(parse("[]", {}).value().trace.requests.empty());
  const std::string chat = R"("chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, )";
  EXPECT_EQ(parse("[" + line(521, 33, chat) + "]", {}).value().form, Form::bailian);
}

TEST(Forms, what_is_bad_in_an_array_is_named_by_the_request) {
  const std::string good = line(600, 2);
  struct Bad {
    std::string text;
    const char* what;
    size_t good;
  };
  for (const auto& [text, what, left] : std::initializer_list<Bad>{
           {"[" + good + ",{\"input_length\": 600}," + good + "]", "request 2: hash_ids is missing", 2},
           {"[" + good + ",," + good + "]", "request 2: not valid JSON", 2},
           {"[" + good + ",]", "request 2: not valid JSON", 1},
           {"[" + good + ",[1],7]", "request 2: not a JSON object", 1},
           {"[{\"note\": \"" + std::string(size_t{1} << 20, 'x') + "\"}," + good + "]",
            "request 1: longer than 1048576", 1},
           {"[" + good + "," + good, "request 3: the array has no end", 2},
           {"[" + good + "," + good + ",", "request 3: the array has no end", 2},
           {"[", "request 1: the array has no end", 0},
           {"[" + good + "]\n" + good, "request 2: more text after the end", 1},
           {"[" + good + "][" + good + "]", "request 2: more text after the end", 1}}) {
    EXPECT_TRUE(says(refusal_of(text), what)) << what << ": " << refusal_of(text);
    ParseOptions skipping;
    skipping.skip_bad = true;
    const Result<Parsed> skipped = parse(text, skipping);
    ASSERT_TRUE(skipped.ok()) << what << ": " << skipped.status().message();
    EXPECT_EQ(skipped.value().trace.requests.size(), left) << what;
    EXPECT_GE(skipped.value().bad_lines, 1U) << what;
  }
  EXPECT_TRUE(says(refusal_of("[" + line(521, 33) + "," + line(51200, 100) + "]"), "requests 1 and 2"));
}

TEST(Forms, bailian_lines_have_seconds_and_blocks_of_sixteen) {
  const std::string chat = R"("chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "type": "text", "turn": 2, )";
  const Result<Parsed> parsed = parse(line(521, 33, chat), {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed.value().form, Form::bailian);
  EXPECT_EQ(parsed.value().trace.requests[0].timestamp_ms, 61114U);
  EXPECT_EQ(parsed.value().trace.tokens_per_block, 16U);
  // 16 is chosen if several sizes fit; another size must be given.
  EXPECT_EQ(block_of(line(10, 1, chat)), 16U);
  ParseOptions options;
  options.form = Form::mooncake;
  EXPECT_EQ(parse(line(521, 33, chat), options).value().trace.requests[0].timestamp_ms, 61U);
}

TEST(Forms, a_mark_of_utf_8_and_other_line_ends_are_passed_over) {
  EXPECT_EQ(block_of("\xef\xbb\xbf" + line(600, 2) + "\r\n" + line(600, 2)), 512U);
}

TEST(Forms, azure_tables_have_lengths_alone) {
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";
  const Result<Parsed> parsed =
      parse(header +
                "2023-12-31 23:59:59.5000000,374,44\r\n2024-01-01 00:00:00.750000+00:00,396,109\r\n"
                "2024-02-29T00:00:00,1,0\n",
            {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed.value().form, Form::azure);
  EXPECT_TRUE(parsed.value().trace.lengths_alone);
  const std::vector<Request>& requests = parsed.value().trace.requests;
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].timestamp_ms, 0U);
  EXPECT_EQ(requests[1].timestamp_ms, 1250U);
  EXPECT_EQ(requests[2].timestamp_ms, uint64_t{59} * 86400000 + 500);
  EXPECT_EQ(requests[1].input_length, 396U);
  EXPECT_EQ(requests[1].output_length, 109U);
  for (const char* bad :
       {"2023-11-16 18:15:46,374", "2023-11-16 18:15:46,374,44,1", "yesterday,374,44", "2023-13-16 18:15:46,374,44",
        "2023-11-16 25:15:46,374,44", "2023-11-16 18:15:46,-1,44", "2023-11-16 18:15:46,1.5,44",
        "2023-11-16 18:15:46,,44", "2023-11-16 18:15:46,99999999999,44"}) {
    EXPECT_TRUE(says(refusal_of(header + bad), "line 2: ")) << bad;
  }
}

TEST(Forms, burstgpt_tables_have_lengths_alone) {
  const std::string header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
  const Result<Parsed> parsed =
      parse(header + "5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087,230,1317,API log\n", {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed.value().form, Form::burstgpt);
  EXPECT_EQ(parsed.value().trace.requests[1].timestamp_ms, 40500U);
  EXPECT_EQ(parsed.value().trace.requests[1].input_length, 1087U);
  // The later version of the table has additional columns.
  const Result<Parsed> later = parse(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,abc,1.5,ChatGPT,472,18,490,Conversation log\n",
      {});
  ASSERT_TRUE(later.ok()) << later.status().message();
  EXPECT_EQ(later.value().trace.requests[0].input_length, 472U);
  EXPECT_TRUE(says(refusal_of(header + "x,ChatGPT,472,18,490,Conversation log\n"), "Timestamp must be seconds"));
  EXPECT_TRUE(says(refusal_of(header + "5,ChatGPT,472\n"), "3 fields, the header has 6"));
  ParseOptions options;
  options.form = Form::burstgpt;
  EXPECT_TRUE(says(refusal_of("TIMESTAMP,ContextTokens,GeneratedTokens\n", options), "not the header of this form"));
}

TEST(Forms, have_names) {
  for (const Form form : {Form::automatic, Form::mooncake, Form::bailian, Form::azure, Form::burstgpt}) {
    Form named = Form::automatic;
    EXPECT_TRUE(form_named(name_of(form), &named));
    EXPECT_EQ(named, form);
    EXPECT_NE(kFormNames.find(name_of(form)), std::string_view::npos);
  }
  Form named = Form::automatic;
  EXPECT_FALSE(form_named("csv", &named));
}

// "{}\n" as gzip packs it.
const std::string kGzip("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\xae\xe5\x02\x00\x06\xb0\xa1\xdd\x03\x00\x00\x00",
                        23);

TEST(Unpack, gives_plain_text_as_it_is_and_names_what_it_does_not_read) {
  EXPECT_EQ(unpacked("text", 10, "t").value(), "text");
  EXPECT_EQ(unpacked("", 10, "t").value(), "");
  for (const char* packed : {"BZh91",
                             "\xfd"
                             "7zXZ",
                             "PK\x03\x04"}) {
    const Result<std::string> refused = unpacked(packed, 10, "t.jsonl");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), Code::io_error);
    EXPECT_TRUE(says(refused.status().message(), "t.jsonl"));
  }
}

// Returns whether this build reads the format. If it does not, the refusal must name it.
bool reads(const std::string& packed, const char* what) {
  const Result<std::string> read = unpacked(packed, 100, "t");
  if (!read.ok() && says(read.status().message(), what)) return false;
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok();
}

void damage_is_refused(const std::string& packed, const std::string& plain) {
  EXPECT_EQ(unpacked(packed, 100, "t").value(), plain);
  EXPECT_EQ(unpacked(packed + packed, 100, "t").value(), plain + plain);
  for (size_t length = 4; length < packed.size(); ++length) {
    EXPECT_FALSE(unpacked(packed.substr(0, length), 100, "t").ok()) << length;
  }
  EXPECT_TRUE(says(unpacked(packed, plain.size() - 1, "t").status().message(), "too long"));
  EXPECT_FALSE(unpacked(packed + "and more", 100, "t").ok());
}

TEST(Unpack, gzip) {
  if (!reads(kGzip, "this build reads no gzip")) GTEST_SKIP() << "built without zlib";
  damage_is_refused(kGzip, "{}\n");
}

TEST(Unpack, zstd) {
  // A frame with one raw block.
  const std::string packed("\x28\xb5\x2f\xfd\x20\x03\x19\x00\x00{}\n", 12);
  if (!reads(packed, "this build reads no zstd")) GTEST_SKIP() << "built without zstd";
  damage_is_refused(packed, "{}\n");
}

}  // namespace
}  // namespace kvbm::trace::forms_test
