// The header of a safetensors file: u64 length, JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]}},
// values.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/tensor_file.h"
#include "terminal/safe_text.h"

namespace kvbm::tensor {

namespace {

using HeaderJson = nlohmann::json;

struct ElementType {
  const char* name;
  Element element;
  uint64_t bytes;
};
// Types that are no element of KV caches are coded as opaque bytes: a file may have a few of them beside the cache.
constexpr ElementType kElementTypes[] = {
    {"BF16", Element::bf16, 2},        {"F16", Element::fp16, 2},         {"F32", Element::fp32, 4},
    {"F8_E4M3", Element::fp8_e4m3, 1}, {"F8_E5M2", Element::fp8_e5m2, 1}, {"I8", Element::int8, 1},
    {"U8", Element::bytes, 1},         {"BOOL", Element::bytes, 1},       {"I16", Element::bytes, 2},
    {"U16", Element::bytes, 2},        {"I32", Element::bytes, 4},        {"U32", Element::bytes, 4},
    {"I64", Element::bytes, 8},        {"U64", Element::bytes, 8},        {"F64", Element::bytes, 8}};

std::string shown(const std::string& name) { return "tensor \"" + terminal::safe_text(name, kShownName) + "\": "; }

Status bad_entry(const std::string& name, const char* why) {
  return Status(Code::damaged, "the safetensors header is wrong", shown(name) + why);
}

Result<Tensor> read_entry(const std::string& name, const HeaderJson& entry, uint64_t values_at, uint64_t values_bytes) {
  if (!entry.is_object()) return bad_entry(name, "not an object");
  const auto dtype = entry.find("dtype");
  const auto shape = entry.find("shape");
  const auto offsets = entry.find("data_offsets");
  if (dtype == entry.end() || !dtype->is_string()) return bad_entry(name, "no dtype");
  if (shape == entry.end() || !shape->is_array() || shape->size() > kMaxDimensions) return bad_entry(name, "no shape");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return bad_entry(name, "no data_offsets");
  }
  const auto word = dtype->get<std::string>();
  const auto* type = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                                  [&](const ElementType& t) { return word == t.name; });
  if (type == std::end(kElementTypes)) {
    return Status(Code::unsupported, "the safetensors file has a type that is not known",
                  shown(name) + terminal::safe_text(word, kShownName));
  }
  Tensor tensor;
  tensor.name = name;
  tensor.element = type->element;
  for (const HeaderJson& n : *shape) {
    if (!n.is_number_unsigned()) return bad_entry(name, "a shape that is not of whole numbers");
    tensor.shape.push_back(n.get<uint64_t>());
  }
  const auto begin = (*offsets)[0].get<uint64_t>();
  const auto end = (*offsets)[1].get<uint64_t>();
  if (begin > end) return bad_entry(name, "it ends before it begins");
  if (end > values_bytes) return bad_entry(name, "it ends behind the end of the file; the file is cut short");
  const auto values = values_of(tensor.shape);
  if (!values.has_value() || *values > (end - begin) / type->bytes || *values * type->bytes != end - begin) {
    return bad_entry(name, "its shape does not fit its bytes");
  }
  tensor.offset = values_at + begin;
  tensor.bytes = end - begin;
  return tensor;
}

}  // namespace

Result<TensorFile> read_safetensors(ConstBytes front, uint64_t file_bytes) {
  if (file_bytes < 8 || front.size() < 8) {
    return Status(Code::damaged, "not a safetensors file", "it is shorter than the length of its header");
  }
  const auto length = load_le<uint64_t>(front.data());
  if (length > file_bytes - 8 || length > kMaxSafetensorsHeader) {
    return Status(Code::damaged, "the safetensors header is larger than the file, or than any header",
                  std::to_string(length) + " bytes in a file of " + std::to_string(file_bytes));
  }
  if (front.size() < 8 + length) return Status(Code::internal, "the safetensors header was not read whole");
  const char* text = reinterpret_cast<const char*>(front.data()) + 8;
  const HeaderJson header = HeaderJson::parse(text, text + length, nullptr, false);
  if (!header.is_object()) return Status(Code::damaged, "the safetensors header is no JSON object");
  TensorFile file;
  file.kind = Kind::safetensors;
  file.bytes = file_bytes;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    auto tensor = read_entry(name, entry, 8 + length, file_bytes - 8 - length);
    if (!tensor.ok()) return tensor.status();
    if (tensor.value().bytes != 0) file.tensors.push_back(std::move(tensor).value());
  }
  std::sort(file.tensors.begin(), file.tensors.end(),
            [](const Tensor& a, const Tensor& b) { return a.offset < b.offset; });
  for (size_t i = 1; i < file.tensors.size(); ++i) {
    const Tensor& before = file.tensors[i - 1];
    if (before.offset + before.bytes > file.tensors[i].offset) {
      return bad_entry(file.tensors[i].name, "it overlaps the tensor before it");
    }
  }
  return file;
}

}  // namespace kvbm::tensor
