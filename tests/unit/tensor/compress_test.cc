#include "tensor/compress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include "base/crypto/random.h"
#include "codec/lossless/zstd_leaf.h"
#include "support/temp_dir.h"

namespace kvbm::tensor::compress_test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  Bytes out(text.size());
  std::memcpy(out.data(), text.data(), text.size());
  return out;
}

void write_file(const std::string& path, ConstBytes bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// A safetensors file with a gap between its tensors and one of a type that no codec knows.
Bytes some_file() {
  SeededRandom random(11);
  const std::string json = R"({"k":{"dtype":"BF16","shape":[4,128,64],"data_offsets":[0,65536]},)"
                           R"("ids":{"dtype":"I64","shape":[9],"data_offsets":[65543,65615]},)"
                           R"("s":{"dtype":"F32","shape":[33],"data_offsets":[65615,65747]}})";
  Bytes out(8 + json.size() + 65747);
  store_le<uint64_t>(out.data(), json.size());
  std::ranges::copy(std::as_bytes(std::span(json)), out.begin() + 8);
  const size_t begin = 8 + json.size();
  for (size_t i = begin; i < out.size(); ++i) {
    out[i] = static_cast<std::byte>((i - begin) % 2 == 0 ? random.next() : 0x3E + (random.next() & 3));
  }
  return out;
}

class Compress : public ::testing::Test {
 protected:
  [[nodiscard]] std::string at(const char* name) const { return dir_.path() + "/" + name; }
  Result<Summary> pack(const std::string& from, const std::string& to, codec::Mode mode = codec::Mode::standard) {
    const auto input = Input::open(from);
    if (!input.ok()) return input.status();
    const auto file = describe(input.value(), {});
    if (!file.ok()) return file.status();
    auto out = NewFile::create(to, false);
    if (!out.ok()) return out.status();
    auto summary = compress(input.value(), file.value(), mode, 0, out.value(), {});
    if (!summary.ok()) return summary;
    const Status done = out.value().commit();
    return done.ok() ? std::move(summary) : Result<Summary>(done);
  }
  Result<Summary> unpack(const std::string& from, const std::string& to, bool allow_lossy = false) {
    const auto input = Input::open(from);
    if (!input.ok()) return input.status();
    auto out = NewFile::create(to, true);
    if (!out.ok()) return out.status();
    auto summary = decompress(input.value(), allow_lossy, out.value(), {});
    if (!summary.ok()) return summary;
    const Status done = out.value().commit();
    return done.ok() ? std::move(summary) : Result<Summary>(done);
  }
  [[nodiscard]] size_t files() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(dir_.path()), std::filesystem::directory_iterator()));
  }
  test::TempDir dir_;
};

TEST_F(Compress, gives_back_the_same_file_in_every_lossless_mode) {
  const Bytes file = some_file();
  write_file(at("in"), file);
  for (const codec::Mode mode :
       {codec::Mode::off, codec::Mode::fast, codec::Mode::standard, codec::Mode::max, codec::Mode::zstd}) {
    const std::string packed = at(std::string(codec::mode_name(mode)).c_str());
    const auto summary = pack(at("in"), packed, mode);
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    EXPECT_EQ(summary.value().index.segments.size(), 5U);  // header, k, gap, ids, s
    EXPECT_EQ(summary.value().container_bytes, std::filesystem::file_size(packed));
    if (mode != codec::Mode::off && (mode != codec::Mode::zstd || codec::has_zstd())) {
      EXPECT_LT(summary.value().container_bytes, file.size() * 9 / 10);
    }
    const auto back = unpack(packed, at("back"));
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_TRUE(read_file(at("back")) == file);
  }
}

// The statement of docs/codec.md on data that does not become smaller.
TEST_F(Compress, noise_grows_by_24_bytes_a_leaf_and_some_500) {
  SeededRandom random(12);
  Bytes file(33 << 20);  // two chunks
  random.fill(file);
  write_file(at("in"), file);
  const auto input = Input::open(at("in"));
  ASSERT_TRUE(input.ok());
  for (const Element element : {Element::bytes, Element::bf16}) {
    const auto raw = describe(input.value(), {Kind::raw, element, {}});
    ASSERT_TRUE(raw.ok());
    for (const codec::Mode mode : {codec::Mode::off, codec::Mode::fast, codec::Mode::standard}) {
      auto out = NewFile::create(at("out"), false);
      ASSERT_TRUE(out.ok());
      const auto summary = compress(input.value(), raw.value(), mode, 0, out.value(), {});
      ASSERT_TRUE(summary.ok());
      EXPECT_LE(out.value().written(), file.size() + file.size() / 65536 * 24 + 500) << codec::mode_name(mode);
    }
  }
}

TEST_F(Compress, lossy_needs_a_permission) {
  write_file(at("in"), some_file());
  const auto summary = pack(at("in"), at("packed"), codec::Mode::int8);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  ASSERT_TRUE(summary.value().lossy);
  EXPECT_EQ(unpack(at("packed"), at("back")).status().code(), Code::not_permitted);
  EXPECT_FALSE(std::filesystem::exists(at("back")));
  const auto back = unpack(at("packed"), at("back"), true);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::filesystem::file_size(at("back")), std::filesystem::file_size(at("in")));
}

TEST_F(Compress, tells_why_a_lossy_mode_was_not_used) {
  Bytes file = some_file();
  const size_t begin = file.size() - 65747;
  write_file(at("a"), file);
  const auto fine = pack(at("a"), at("fine"), codec::Mode::int8);
  ASSERT_TRUE(fine.ok());
  EXPECT_EQ(fine.value().kept.all().no_float, 1U)
      << "the tensor of I64; what lies between tensors was never to be lossy";
  EXPECT_EQ(fine.value().kept.all().not_finite, 0U);
  store_le<uint16_t>(file.data() + begin + 100, 0x7FC0);  // a NaN in K
  write_file(at("b"), file);
  const auto odd = pack(at("b"), at("odd"), codec::Mode::int8);
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(odd.value().kept.all().not_finite, 1U);
  EXPECT_EQ(odd.value().kept.all().blocks, fine.value().kept.all().blocks);
  EXPECT_EQ(odd.value().kept.all().lossless(), fine.value().kept.all().lossless() + 1);
  const std::string text = odd.value().kept.text("int8");
  EXPECT_NE(text.find("int8 was not used for "), std::string::npos) << text;
  EXPECT_NE(text.find("1 with an infinity or a NaN"), std::string::npos) << text;
  EXPECT_NE(text.find("; in \"k\" (1 of "), std::string::npos) << text;
  EXPECT_NE(text.find("\"ids\" (1 of 1)"), std::string::npos) << text;
  ASSERT_EQ(odd.value().kept.tensors().size(), fine.value().kept.tensors().size() + 1);
  EXPECT_EQ(odd.value().kept.tensors()[0].name, "k");
  EXPECT_EQ(odd.value().kept.tensors()[0].counts.not_finite, 1U);
  EXPECT_EQ(fine.value().kept.tensors()[0].name, "ids");
  // Decoding reports the wrong bytes, too.
  const auto back = unpack(at("odd"), at("back"), true);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value().kept.all(), odd.value().kept.all());
  EXPECT_EQ(back.value().kept.text("int8"), text);
  EXPECT_EQ(pack(at("b"), at("max"), codec::Mode::max).value().kept.all().blocks, 0U);
}

TEST_F(Compress, a_damaged_file_gives_the_right_bytes_or_nothing) {
  const Bytes file = some_file();
  write_file(at("in"), file);
  ASSERT_TRUE(pack(at("in"), at("packed")).ok());
  Bytes packed = read_file(at("packed"));
  for (size_t i = 0; i < packed.size(); i += i < 1024 || i + 100 > packed.size() ? 7 : 1999) {
    packed[i] ^= std::byte{0x40};
    write_file(at("changed"), packed);
    if (unpack(at("changed"), at("back")).ok()) {
      EXPECT_TRUE(read_file(at("back")) == file) << i;
      std::filesystem::remove(at("back"));
    } else {
      EXPECT_FALSE(std::filesystem::exists(at("back"))) << i;
    }
    packed[i] ^= std::byte{0x40};
  }
  for (size_t n = 0; n < packed.size(); n += n < 1024 ? 31 : 4001) {
    write_file(at("changed"), ConstBytes(packed).first(n));
    EXPECT_FALSE(unpack(at("changed"), at("back")).ok()) << n;
  }
  packed.resize(packed.size() + 64);
  write_file(at("changed"), packed);
  EXPECT_EQ(unpack(at("changed"), at("back")).status().code(), Code::damaged);
  EXPECT_EQ(files(), 3U);  // in, packed, changed: no temporary one is left
}

TEST_F(Compress, chunks_of_another_file_are_found_though_whole_in_themselves) {
  Bytes file = some_file();
  write_file(at("a"), file);
  for (size_t i = file.size() - 100; i < file.size(); ++i) file[i] ^= std::byte{1};
  write_file(at("b"), file);
  ASSERT_TRUE(pack(at("a"), at("a.z"), codec::Mode::off).ok());
  ASSERT_TRUE(pack(at("b"), at("b.z"), codec::Mode::off).ok());
  Bytes mixed = read_file(at("a.z"));
  const Bytes other = read_file(at("b.z"));
  ASSERT_EQ(mixed.size(), other.size());
  // Cuts the file within the last chunk, near its end.
  const size_t from = mixed.size() - kContainerEndBytes - 384;
  std::copy(other.begin() + static_cast<ptrdiff_t>(from), other.end() - kContainerEndBytes,
            mixed.begin() + static_cast<ptrdiff_t>(from));
  write_file(at("mixed"), mixed);
  EXPECT_EQ(unpack(at("mixed"), at("back")).status().code(), Code::damaged);
}

TEST_F(Compress, a_stop_leaves_nothing) {
  write_file(at("in"), some_file());
  const auto input = Input::open(at("in"));
  ASSERT_TRUE(input.ok());
  const auto file = describe(input.value(), {});
  ASSERT_TRUE(file.ok());
  const std::atomic<bool> stop{true};
  {
    auto out = NewFile::create(at("out"), false);
    ASSERT_TRUE(out.ok());
    const auto summary = compress(input.value(), file.value(), codec::Mode::zstd, 0, out.value(), {{}, &stop});
    EXPECT_EQ(summary.status().code(), Code::cancelled);
  }
  EXPECT_EQ(files(), 1U);
}

TEST_F(Compress, nothing_is_overwritten_unless_that_is_said) {
  write_file(at("there"), some_file());
  EXPECT_EQ(NewFile::create(at("there"), false).status().code(), Code::exists);
  auto late = NewFile::create(at("new"), false);
  ASSERT_TRUE(late.ok());
  write_file(at("new"), some_file());  // came in between
  EXPECT_EQ(late.value().commit().code(), Code::exists);
  EXPECT_EQ(std::filesystem::file_size(at("new")), some_file().size());
  auto forced = NewFile::create(at("there"), true);
  ASSERT_TRUE(forced.ok());
  ASSERT_TRUE(forced.value().commit().ok());
  EXPECT_EQ(std::filesystem::file_size(at("there")), 0U);
  EXPECT_EQ(NewFile::create(dir_.path(), true).status().code(), Code::exists);
  EXPECT_FALSE(NewFile::create(at("no/such/place"), false).ok());
}

// While a file is written it has no name, so after a full disk, a signal or a kill there is no file that could be taken
// for the result.
TEST_F(Compress, a_file_that_is_being_written_has_no_name) {
  const int probe = ::open(dir_.path().c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (probe < 0) GTEST_SKIP() << "files without a name: the file system of " << dir_.path() << " has none";
  ::close(probe);
  for (const bool force : {false, true}) {
    if (force) write_file(at("out"), some_file());
    auto out = NewFile::create(at("out"), force);
    ASSERT_TRUE(out.ok()) << out.status().message();
    ASSERT_TRUE(out.value().write(Bytes(1000)).ok());
    EXPECT_EQ(files(), force ? 1U : 0U);
    ASSERT_TRUE(out.value().commit().ok());
    EXPECT_EQ(files(), 1U);
    EXPECT_EQ(std::filesystem::file_size(at("out")), 1000U);
    EXPECT_EQ(std::filesystem::status(at("out")).permissions() & std::filesystem::perms::owner_all,
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::filesystem::remove(at("out"));
  }
}

TEST_F(Compress, what_is_no_plain_file_is_refused_by_its_kind_at_once) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);  // without a writer
  for (const auto& [path, kind] :
       {std::pair{at("pipe"), "a pipe"}, {dir_.path(), "a folder"}, {std::string("/dev/zero"), "a device"}}) {
    const auto input = Input::open(path);
    EXPECT_EQ(input.status().code(), Code::invalid_argument) << path;
    EXPECT_NE(input.status().message().find(kind), std::string::npos) << input.status().message();
  }
  EXPECT_EQ(NewFile::create(at("pipe"), true).status().code(), Code::exists);
  EXPECT_EQ(NewFile::create(dir_.path() + "/", true).status().code(), Code::invalid_argument);
}

TEST(Forms, rows_that_are_no_dimensions_must_divide_the_values) {
  Tensor tensor;
  tensor.shape = {1 << 20};
  for (const auto& [element, most] : {std::pair{Element::bf16, 32768U},
                                      {Element::fp32, 16384U},
                                      {Element::fp8_e4m3, 65536U},
                                      {Element::int8, 65536U}}) {
    tensor.element = element;
    tensor.bytes = (1 << 20) * layout::element_bytes(element);
    for (const uint64_t row : {uint64_t{1}, uint64_t{64}, uint64_t{most}}) {
      EXPECT_EQ(row_refusal(tensor, row), "");
      EXPECT_EQ(form_of(tensor, row),
                (codec::LeafForm{static_cast<codec::Element>(element), static_cast<uint32_t>(row), 0}));
    }
    EXPECT_NE(row_refusal(tensor, 2 * most).find("no more than " + std::to_string(most)), std::string::npos);
    EXPECT_NE(row_refusal(tensor, 3).find("no multiple"), std::string::npos);
    EXPECT_NE(row_refusal(tensor, UINT64_MAX).find("fewer"), std::string::npos);
  }
  tensor.element = Element::bytes;
  EXPECT_NE(row_refusal(tensor, 1).find("no channels"), std::string::npos);
}

TEST(Forms, a_tensor_that_a_row_does_not_fit_keeps_its_last_dimension) {
  TensorFile file;
  file.tensors = {{"k", Element::bf16, {16, 128}, 0, 4096}, {"scale", Element::fp32, {10, 5}, 4096, 200}};
  file.bytes = 4296;
  const Index index = make_index(file, 64);
  ASSERT_EQ(index.segments.size(), 2U);
  EXPECT_EQ(index.segments[0].form, (codec::LeafForm{codec::Element::bf16, 64, 0}));
  EXPECT_EQ(index.segments[1].form, (codec::LeafForm{codec::Element::fp32, 5, 10}));
}

TEST(Forms, rows_are_the_last_dimension_or_a_product_of_the_last) {
  Tensor tensor;
  tensor.element = Element::bf16;
  tensor.shape = {30, 2, 512, 3, 64};
  EXPECT_EQ(form_of(tensor, 0), (codec::LeafForm{codec::Element::bf16, 64, 3}));
  EXPECT_EQ(form_of(tensor, 192), (codec::LeafForm{codec::Element::bf16, 192, 512}));
  EXPECT_EQ(form_of(tensor, 100), (codec::LeafForm{codec::Element::bf16, 0, 0}));
  tensor.element = Element::bytes;
  EXPECT_EQ(form_of(tensor, 0), codec::LeafForm{});
}

TEST(Chunks, end_where_heads_end) {
  Segment segment;
  segment.tensor.element = Element::bf16;
  segment.form = {codec::Element::bf16, 192, 512};
  segment.tensor.bytes = 1ULL << 30;
  EXPECT_EQ(next_chunk(segment, 0), kChunkBytes / 196608 * 196608);
  segment.form.rows = 1U << 30;  // a head larger than a chunk
  EXPECT_EQ(next_chunk(segment, 0), kChunkBytes / 384 * 384);
  EXPECT_EQ(next_chunk(segment, 0, 1000), 768U);
  EXPECT_EQ(next_chunk(segment, 0, 64), 64U);
  EXPECT_EQ(next_chunk(segment, (1ULL << 30) - 5), 5U);
  EXPECT_EQ(next_chunk(segment, 1ULL << 30), 0U);
}

TEST(Index, refuses_segments_that_do_not_add_up) {
  const auto text = [](const char* segments, int bytes) {
    return R"({"format":"raw","bytes":)" + std::to_string(bytes) + R"(,"segments":[)" + segments + "]}";
  };
  EXPECT_TRUE(decode_index(text(R"({"bytes":3},{"bytes":4})", 7)).ok());
  for (const auto& bad :
       {text(R"({"bytes":3},{"bytes":4})", 8), text(R"({"bytes":3},{"bytes":4})", 6), text(R"({"bytes":0})", 0),
        text(R"({"bytes":-1})", 1), text(R"({"bytes":18446744073709551615},{"bytes":2})", 1), text(R"([])", 0),
        text(R"({"bytes":2,"element":"f17","name":"","shape":[],"row":0,"rows":0})", 2), std::string("{}"),
        std::string("[")}) {
    EXPECT_EQ(decode_index(bad).status().code(), Code::damaged) << bad;
  }
}

}  // namespace
}  // namespace kvbm::tensor::compress_test
