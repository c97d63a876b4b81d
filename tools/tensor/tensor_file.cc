#include "tensor/tensor_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace kvbm::tensor {

namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::string_view kOwnMagic = "KVBMZ";

bool begins_with(ConstBytes front, std::string_view magic) {
  return front.size() >= magic.size() && std::memcmp(front.data(), magic.data(), magic.size()) == 0;
}

// Looks for a length and an open brace, with which no other format begins by chance.
bool looks_like_safetensors(ConstBytes front, uint64_t file_bytes) {
  return front.size() >= 9 && front[8] == std::byte{'{'} && load_le<uint64_t>(front.data()) <= file_bytes - 8;
}

Result<TensorFile> read_raw(uint64_t file_bytes, const Claims& claims) {
  const Element element = claims.element.value_or(Element::bytes);
  const uint64_t size = layout::element_bytes(element);
  Tensor tensor;
  tensor.element = element;
  tensor.bytes = file_bytes;
  tensor.shape = claims.shape;
  if (tensor.shape.empty()) {
    if (file_bytes % size != 0) {
      return Status(Code::invalid_argument, "the file is not a whole number of values",
                    std::to_string(file_bytes) + " bytes of " + layout::element_name(element));
    }
    tensor.shape = {file_bytes / size};
  }
  const auto values = values_of(tensor.shape);
  if (!values.has_value() || *values > file_bytes / size || *values * size != file_bytes) {
    return Status(Code::invalid_argument, "the shape does not fit the file",
                  shape_text(tensor.shape) + " of " + layout::element_name(element) + " is not " +
                      std::to_string(file_bytes) + " bytes");
  }
  TensorFile file;
  file.bytes = file_bytes;
  if (file_bytes != 0) file.tensors.push_back(std::move(tensor));
  return file;
}

Result<Kind> kind_of(ConstBytes front, uint64_t file_bytes, const Claims& claims) {
  if (claims.kind.has_value()) return *claims.kind;
  if (begins_with(front, kNpyMagic)) return Kind::npy;
  if (begins_with(front, kOwnMagic)) {
    return Status(Code::invalid_argument, "the file is compressed by kvbm already", "kvbm codec decompress opens it");
  }
  if (looks_like_safetensors(front, file_bytes)) return Kind::safetensors;
  // Damaged files are taken for safetensors too, unless the caller claims another kind. Their reader then reports the
  // fault.
  const bool said = claims.element.has_value() || !claims.shape.empty();
  if (!said && front.size() >= 9 && front[8] == std::byte{'{'}) return Kind::safetensors;
  if (!claims.shape.empty() || claims.element.has_value()) return Kind::raw;
  return Status(Code::invalid_argument, "neither .npy nor safetensors",
                "for raw values say --element, and --shape if they have one");
}

}  // namespace

const char* kind_name(Kind kind) noexcept {
  constexpr std::array kNames{"raw", "npy", "safetensors"};
  return kNames.at(static_cast<size_t>(kind));
}

std::optional<Element> element_by_name(std::string_view name) {
  struct Alias {
    std::string_view name;
    Element element;
  };
  static constexpr Alias kAliases[] = {
      {"bytes", Element::bytes},       {"bf16", Element::bf16},        {"bfloat16", Element::bf16},
      {"fp16", Element::fp16},         {"f16", Element::fp16},         {"float16", Element::fp16},
      {"fp32", Element::fp32},         {"f32", Element::fp32},         {"float32", Element::fp32},
      {"fp8_e4m3", Element::fp8_e4m3}, {"f8_e4m3", Element::fp8_e4m3}, {"fp8_e5m2", Element::fp8_e5m2},
      {"f8_e5m2", Element::fp8_e5m2},  {"int8", Element::int8},        {"i8", Element::int8}};
  for (const Alias& alias : kAliases) {
    if (alias.name == name) return alias.element;
  }
  return std::nullopt;
}

std::optional<uint64_t> values_of(const std::vector<uint64_t>& shape) noexcept {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  uint64_t values = 1;
  // A dimension of zero makes any others harmless.
  if (std::find(shape.begin(), shape.end(), uint64_t{0}) != shape.end()) return 0;
  for (const uint64_t n : shape) {
    if (n > kMost / values) return std::nullopt;
    values *= n;
  }
  return values;
}

Result<std::vector<uint64_t>> parse_shape(std::string_view text) {
  std::vector<uint64_t> shape;
  const auto bad = [&] {
    return Status(Code::invalid_argument, "not a shape",
                  std::string(text) + "; say numbers with commas, as 30,2,512,192");
  };
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    uint64_t n = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
    if (error != std::errc() || end != word.data() + word.size() || n == 0 || shape.size() == kMaxDimensions)
      return bad();
    shape.push_back(n);
    if (comma == std::string_view::npos) return shape;
    text.remove_prefix(comma + 1);
  }
}

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string out = "(";
  for (const uint64_t n : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(n);
  return out + ")";
}

uint64_t header_bytes(ConstBytes front, uint64_t file_bytes) {
  uint64_t wanted = 64;
  if (begins_with(front, kNpyMagic) && front.size() >= 12) {
    const bool small = front[6] == std::byte{1};
    wanted = small ? 10 + load_le<uint16_t>(front.data() + 8) : 12 + uint64_t{load_le<uint32_t>(front.data() + 8)};
    wanted = std::min(wanted, kMaxNpyHeader + 12);
  } else if (front.size() >= 8) {
    wanted = std::min(load_le<uint64_t>(front.data()), kMaxSafetensorsHeader) + 8;
  }
  return std::min(wanted, file_bytes);
}

Result<TensorFile> read_tensors(ConstBytes front, uint64_t file_bytes, const Claims& claims) {
  if (file_bytes == 0) return Status(Code::invalid_argument, "the file is empty");
  const auto kind = kind_of(front, file_bytes, claims);
  if (!kind.ok()) return kind.status();
  if (kind.value() != Kind::raw && !claims.shape.empty()) {
    return Status(Code::invalid_argument, "--shape is for raw values; this file says its own shape",
                  std::string("it is taken for ") + kind_name(kind.value()) + "; --format raw says otherwise");
  }
  if (kind.value() == Kind::safetensors && claims.element.has_value()) {
    return Status(Code::invalid_argument, "--element is for raw values and .npy; safetensors say it themselves",
                  "--format raw says that it is no safetensors file");
  }
  if (kind.value() == Kind::npy) return read_npy(front, file_bytes, claims);
  if (kind.value() == Kind::safetensors) return read_safetensors(front, file_bytes);
  return read_raw(file_bytes, claims);
}

}  // namespace kvbm::tensor
