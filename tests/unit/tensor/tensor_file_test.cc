#include "tensor/tensor_file.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kvbm::tensor::tensor_file_test {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> out(text.size());
  std::memcpy(out.data(), text.data(), text.size());
  return out;
}

std::vector<std::byte> npy(const std::string& dictionary, size_t values, int version = 1) {
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) text += static_cast<char>(dictionary.size() >> (8 * i));
  return bytes_of(text + dictionary + std::string(values, 'v'));
}

std::vector<std::byte> safetensors(const std::string& json, size_t values) {
  std::string text(8, '\0');
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(json.size() >> (8 * i));
  return bytes_of(text + json + std::string(values, 'v'));
}

Result<TensorFile> read(const std::vector<std::byte>& bytes, const Claims& claims = {}) {
  return read_tensors(bytes, bytes.size(), claims);
}

Claims element(Element e) { return {std::nullopt, e, {}}; }

void expect_refused(const std::vector<std::byte>& bytes, Code code, const std::string& text,
                    const Claims& claims = {}) {
  const auto file = read(bytes, claims);
  ASSERT_FALSE(file.ok()) << text;
  EXPECT_EQ(file.status().code(), code) << file.status().message();
  EXPECT_NE(file.status().message().find(text), std::string::npos) << file.status().message();
}

TEST(Npy, of_every_version_says_type_shape_and_place) {
  for (const int version : {1, 2, 3}) {
    const auto file = read(npy("{'descr': '<f2', 'fortran_order': False, 'shape': (3, 5), }  \n", 30, version));
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_EQ(file.value().tensors.size(), 1U);
    const Tensor& tensor = file.value().tensors[0];
    EXPECT_EQ(tensor.element, Element::fp16);
    EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{3, 5}));
    EXPECT_EQ(tensor.bytes, 30U);
    EXPECT_EQ(tensor.offset + tensor.bytes, file.value().bytes);
    EXPECT_EQ(file.value().note, "");
  }
}

TEST(Npy, takes_bf16_in_the_dress_of_other_types_and_says_so) {
  for (const char* type : {"<u2", "|V2"}) {
    const std::string dictionary = std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (4,)}";
    const auto assumed = read(npy(dictionary, 8));
    ASSERT_TRUE(assumed.ok());
    EXPECT_EQ(assumed.value().tensors[0].element, Element::bf16);
    EXPECT_NE(assumed.value().note, "");
    const auto said = read(npy(dictionary, 8), element(Element::fp16));
    ASSERT_TRUE(said.ok());
    EXPECT_EQ(said.value().tensors[0].element, Element::fp16);
    EXPECT_EQ(said.value().note, "");
  }
  expect_refused(npy("{'descr': '<u2', 'fortran_order': False, 'shape': (4,)}", 8), Code::invalid_argument,
                 "--element does not fit", element(Element::fp32));
}

TEST(Npy, refuses_each_kind_of_bad_file_by_its_own_name) {
  const auto dictionary = [](const std::string& type, const std::string& order, const std::string& shape) {
    return "{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': " + shape + "}";
  };
  expect_refused(npy(dictionary("'>f2'", "False", "(4,)"), 8), Code::unsupported, "big-endian");
  expect_refused(npy(dictionary("'<f2'", "True", "(2, 2)"), 8), Code::unsupported, "Fortran order");
  expect_refused(npy(dictionary("'<f8'", "False", "(1,)"), 8), Code::unsupported, "<f8");
  expect_refused(npy(dictionary("[('a', '<f2')]", "False", "(4,)"), 8), Code::unsupported, "structured");
  expect_refused(npy(dictionary("'<f2'", "False", "(5,)"), 8), Code::damaged, "cut short");
  expect_refused(npy(dictionary("'<f2'", "False", "(3,)"), 8), Code::damaged, "longer than its shape");
  expect_refused(npy(dictionary("'<f2'", "False", "(4294967296, 4294967296)"), 8), Code::damaged, "impossible size");
  expect_refused(npy(dictionary("'<f2'", "False", "(9223372036854775807,)"), 8), Code::damaged, "impossible size");
  expect_refused(npy(dictionary("'<f2'", "False", "(99999999999999999999,)"), 8), Code::damaged, "cannot be read");
  expect_refused(npy(dictionary("'<f2'", "False", "(-4,)"), 8), Code::damaged, "cannot be read");
  expect_refused(npy("{'descr': '<f2', 'shape': (4,)}", 8), Code::damaged, "cannot be read");
  expect_refused(npy("{'descr': '<f2'", 8), Code::damaged, "cannot be read");
  expect_refused(npy(dictionary("'<f2'", "False", "(4,)"), 8, 4), Code::unsupported, "version");
  auto larger = npy(dictionary("'<f2'", "False", "(4,)"), 8);
  store_le<uint16_t>(larger.data() + 8, 60'000);
  expect_refused(larger, Code::damaged, "larger than the file");
  expect_refused(bytes_of("\x93NUMPY\x01"), Code::invalid_argument, "not an .npy");
}

// Names and types from a file are printed, and a terminal must not interpret them.
TEST(Headers, are_told_in_printable_words) {
  const std::string odd = "\\u001b[2J\\n\\u202e";
  const std::string name = "{\"" + odd + std::string(100'000, 'x') + "\":";
  const auto told = [](const std::vector<std::byte>& bytes) {
    const auto file = read(bytes);
    return file.ok() ? std::string("taken") : file.status().message();
  };
  for (const auto& bytes :
       {safetensors(name + R"({"dtype":"F16","shape":[3],"data_offsets":[0,8]}})", 8),
        safetensors(R"({"a":{"dtype":")" + odd + R"(","shape":[4],"data_offsets":[0,8]}})", 8),
        npy("{'descr': '\x1b[2J', 'fortran_order': False, 'shape': (4,)}", 8),
        npy("{'descr': '>\x1b[2J" + std::string(50'000, 'x') + "', 'fortran_order': False, 'shape': (4,)}", 8),
        npy("{'descr': '|V99999999', 'fortran_order': False, 'shape': (4,)}", 8)}) {
    const std::string text = told(bytes);
    EXPECT_LT(text.size(), 400U) << text.substr(0, 400);
    for (const char c : text) EXPECT_TRUE(c >= ' ' && c <= '~') << text;
  }
  EXPECT_NE(
      told(safetensors(name + R"({"dtype":"F16","shape":[3],"data_offsets":[0,8]}})", 8)).find("tensor \"?[2J????x"),
      std::string::npos);
}

TEST(Npy, of_any_type_is_taken_as_opaque_bytes_where_that_is_said) {
  const auto file = read(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}", 16), element(Element::bytes));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file.value().tensors[0].bytes, 16U);
}

TEST(Npy, no_cut_or_flip_of_its_header_reads_outside) {
  const auto good = npy("{'descr': '<f2', 'fortran_order': False, 'shape': (4,), }", 8);
  for (size_t n = 1; n < good.size(); ++n) {
    const std::vector<std::byte> cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(n));
    EXPECT_FALSE(read(cut).ok()) << n;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = good;
      changed[i] ^= static_cast<std::byte>(1 << bit);
      const auto file = read(changed);
      if (!file.ok()) continue;
      for (const Tensor& t : file.value().tensors) EXPECT_LE(t.offset + t.bytes, changed.size());
    }
  }
}

TEST(Safetensors, says_its_tensors_in_file_order) {
  const auto file =
      read(safetensors(R"({"__metadata__":{"a":"b"},"z":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},)"
                       R"("a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[8,12]},)"
                       R"("step":{"dtype":"I64","shape":[],"data_offsets":[16,24]}})",
                       24));
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file.value().tensors.size(), 3U);
  EXPECT_EQ(file.value().tensors[0].name, "z");
  EXPECT_EQ(file.value().tensors[0].element, Element::bf16);
  EXPECT_EQ(file.value().tensors[1].element, Element::fp8_e4m3);
  EXPECT_EQ(file.value().tensors[2].element, Element::bytes);  // no type of caches: coded as it is
  EXPECT_EQ(file.value().tensors[2].offset + 8, file.value().bytes);
}

TEST(Safetensors, refuses_each_kind_of_bad_file_by_its_own_name) {
  expect_refused(safetensors(R"({"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})", 7), Code::damaged,
                 "cut short");
  expect_refused(safetensors(R"({"a":{"dtype":"F16","shape":[3],"data_offsets":[0,8]}})", 8), Code::damaged,
                 "shape does not fit");
  expect_refused(safetensors(R"({"a":{"dtype":"F17","shape":[4],"data_offsets":[0,8]}})", 8), Code::unsupported, "F17");
  expect_refused(safetensors(R"({"a":{"dtype":"F16","shape":[4],"data_offsets":[8,0]}})", 8), Code::damaged,
                 "ends before");
  expect_refused(safetensors(R"({"a":{"dtype":"F16","shape":[4]}})", 8), Code::damaged, "data_offsets");
  expect_refused(safetensors(R"({"a":{"dtype":"F16","shape":[-4],"data_offsets":[0,8]}})", 8), Code::damaged,
                 "whole numbers");
  expect_refused(safetensors(R"({"a":{"dtype":"F16","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8),
                 Code::damaged, "shape does not fit");
  expect_refused(
      safetensors(
          R"({"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]},"b":{"dtype":"F16","shape":[4],"data_offsets":[4,12]}})",
          12),
      Code::damaged, "overlaps");
  const Claims said{Kind::safetensors, std::nullopt, {}};
  expect_refused(safetensors("[1]", 8), Code::damaged, "no JSON object", said);
  expect_refused(safetensors("{\"a\":", 8), Code::damaged, "no JSON object", said);
  expect_refused(bytes_of("short"), Code::damaged, "shorter", said);
  auto larger = safetensors("{}", 8);
  store_le<uint64_t>(larger.data(), UINT64_MAX);
  expect_refused(larger, Code::damaged, "larger than the file", said);
  expect_refused(safetensors("{}", 8), Code::invalid_argument, "--element is for raw", element(Element::bf16));
}

TEST(Raw, is_what_the_caller_says_if_it_fits) {
  const std::vector<std::byte> bytes(48);
  const auto file = read(bytes, {std::nullopt, Element::bf16, {2, 12}});
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file.value().tensors[0].shape, (std::vector<uint64_t>{2, 12}));
  expect_refused(bytes, Code::invalid_argument, "shape does not fit", {std::nullopt, Element::bf16, {2, 13}});
  expect_refused(bytes, Code::invalid_argument, "shape does not fit",
                 {std::nullopt, Element::bf16, {1ULL << 40, 1ULL << 40}});
  expect_refused(std::vector<std::byte>(47), Code::invalid_argument, "whole number", element(Element::bf16));
  expect_refused(bytes, Code::invalid_argument, "neither .npy nor safetensors");
  expect_refused({}, Code::invalid_argument, "empty");
  expect_refused(bytes_of("KVBMZ\r\n\x1a and more"), Code::invalid_argument, "already");
}

TEST(Shapes, are_read_from_words) {
  EXPECT_EQ(parse_shape("30,2,512").value(), (std::vector<uint64_t>{30, 2, 512}));
  for (const char* bad : {"", "3,", ",3", "a", "0", "-1", "1 2", "99999999999999999999"})
    EXPECT_FALSE(parse_shape(bad).ok()) << bad;
}

}  // namespace
}  // namespace kvbm::tensor::tensor_file_test
