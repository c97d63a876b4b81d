#include "tensor/container.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "codec/hash/leaf_hash.h"

namespace kvbm::tensor {

namespace {

using Json = nlohmann::ordered_json;

// The last two bytes reveal a file that was transferred as text.
constexpr char kMagic[8] = {'K', 'V', 'B', 'M', 'Z', '\r', '\n', '\x1a'};
constexpr char kEndMagic[8] = {'K', 'V', 'B', 'M', 'Z', 'E', 'N', 'D'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHashAt = 56;

bool is_zero(ConstBytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

void seal(MutableBytes out) { store_le(out.data() + kHashAt, codec::leaf_hash(out.first(kHashAt))); }
bool sealed(ConstBytes bytes) {
  return load_le<uint64_t>(bytes.data() + kHashAt) == codec::leaf_hash(bytes.first(kHashAt));
}

Segment gap(uint64_t offset, uint64_t bytes) {
  Segment segment;
  segment.tensor.offset = offset;
  segment.tensor.bytes = bytes;
  return segment;
}

template <class T>
bool read_number(const Json& from, const char* name, T& out) {
  const auto at = from.find(name);
  if (at == from.end() || !at->is_number_unsigned() || at->get<uint64_t>() > std::numeric_limits<T>::max())
    return false;
  out = at->get<T>();
  return true;
}

bool read_segment(const Json& from, Segment& out) {
  if (!from.is_object() || !read_number(from, "bytes", out.tensor.bytes) || out.tensor.bytes == 0) return false;
  const auto element = from.find("element");
  if (element == from.end()) return true;
  out.is_tensor = true;
  const auto name = from.find("name");
  const auto shape = from.find("shape");
  if (!element->is_string() || name == from.end() || !name->is_string() || shape == from.end() || !shape->is_array() ||
      shape->size() > kMaxDimensions || !read_number(from, "row", out.form.row) ||
      !read_number(from, "rows", out.form.rows)) {
    return false;
  }
  const auto known = element_by_name(element->get_ref<const std::string&>());
  if (!known.has_value()) return false;
  out.tensor.element = *known;
  out.form.element = static_cast<codec::Element>(*known);
  out.tensor.name = name->get<std::string>();
  for (const Json& n : *shape) {
    if (!n.is_number_unsigned()) return false;
    out.tensor.shape.push_back(n.get<uint64_t>());
  }
  return true;
}

}  // namespace

std::string row_refusal(const Tensor& tensor, uint64_t row) {
  const uint64_t width = layout::element_bytes(tensor.element);
  const uint64_t values = tensor.bytes / width;
  if (tensor.element == Element::bytes) return "bytes, which have no channels";
  if (row > values) return std::to_string(values) + " values, which are fewer";
  if (values % row != 0) return std::to_string(values) + " values, which are no multiple of it";
  if (row > codec::kMaxLeafBytes / width) {
    return std::string(layout::element_name(tensor.element)) +
           " values, of which a block that is coded has no more than " + std::to_string(codec::kMaxLeafBytes / width);
  }
  return {};
}

codec::LeafForm form_of(const Tensor& tensor, uint64_t row) {
  codec::LeafForm form;
  form.element = static_cast<codec::Element>(tensor.element);
  if (tensor.element == Element::bytes) return form;
  uint64_t width = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    const uint64_t n = tensor.shape[i];
    if (n == 0 || width > UINT32_MAX / n) break;
    width *= n;
    if (row != 0 && width != row) continue;
    form.row = static_cast<uint32_t>(width);
    const uint64_t above = i > 0 ? tensor.shape[i - 1] : 0;
    form.rows = above <= UINT32_MAX ? static_cast<uint32_t>(above) : 0;
    return form;
  }
  // The row is not made of complete dimensions, so the number of rows of a head is not known.
  if (row != 0 && row_refusal(tensor, row).empty()) form.row = static_cast<uint32_t>(row);
  return form;
}

Index make_index(const TensorFile& file, uint64_t row) {
  Index index;
  index.kind = file.kind;
  index.bytes = file.bytes;
  uint64_t at = 0;
  for (const Tensor& tensor : file.tensors) {
    if (tensor.offset > at) index.segments.push_back(gap(at, tensor.offset - at));
    const bool own = row == 0 || !row_refusal(tensor, row).empty();
    index.segments.push_back({tensor, true, form_of(tensor, own ? 0 : row)});
    at = tensor.offset + tensor.bytes;
  }
  if (at < file.bytes) index.segments.push_back(gap(at, file.bytes - at));
  return index;
}

uint64_t next_chunk(const Segment& segment, uint64_t at, uint64_t most) noexcept {
  const uint64_t row = uint64_t{segment.form.row} * layout::element_bytes(segment.tensor.element);
  uint64_t step = most;
  if (row != 0 && row <= most) {
    const uint64_t head = row * std::max<uint64_t>(segment.form.rows, 1);
    step = most / (head <= most ? head : row) * (head <= most ? head : row);
  }
  return std::min(step, segment.tensor.bytes - at);
}

std::string encode_index(const Index& index) {
  Json segments = Json::array();
  for (const Segment& segment : index.segments) {
    Json out;
    if (segment.is_tensor) {
      out["name"] = segment.tensor.name;
      out["element"] = layout::element_name(segment.tensor.element);
      out["shape"] = segment.tensor.shape;
      out["row"] = segment.form.row;
      out["rows"] = segment.form.rows;
    }
    out["bytes"] = segment.tensor.bytes;
    segments.push_back(std::move(out));
  }
  const Json all{{"format", kind_name(index.kind)}, {"bytes", index.bytes}, {"segments", std::move(segments)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Index> decode_index(std::string_view text) {
  const Status bad(Code::damaged, "damaged: the index of the file cannot be read");
  const Json all = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!all.is_object()) return bad;
  const auto kind = all.find("format");
  const auto segments = all.find("segments");
  Index index;
  if (kind == all.end() || !kind->is_string() || segments == all.end() || !segments->is_array() ||
      !read_number(all, "bytes", index.bytes)) {
    return bad;
  }
  const auto& word = kind->get_ref<const std::string&>();
  if (word == kind_name(Kind::npy)) {
    index.kind = Kind::npy;
  } else if (word == kind_name(Kind::safetensors)) {
    index.kind = Kind::safetensors;
  } else if (word != kind_name(Kind::raw)) {
    return bad;
  }
  uint64_t at = 0;
  for (const Json& from : *segments) {
    Segment segment;
    if (!read_segment(from, segment) || segment.tensor.bytes > index.bytes - at) return bad;
    segment.tensor.offset = at;
    at += segment.tensor.bytes;
    index.segments.push_back(std::move(segment));
  }
  return at == index.bytes ? Result<Index>(std::move(index)) : Result<Index>(bad);
}

void encode_header(const ContainerHeader& header, MutableBytes out) {
  std::memset(out.data(), 0, kContainerHeaderBytes);
  std::memcpy(out.data(), kMagic, sizeof kMagic);
  store_le(out.data() + 8, kVersion);
  store_le(out.data() + 16, header.file_bytes);
  store_le(out.data() + 24, header.index_bytes);
  store_le(out.data() + 32, header.index_hash);
  seal(out);
}

Result<ContainerHeader> decode_header(ConstBytes bytes) {
  if (bytes.size() < sizeof kMagic || std::memcmp(bytes.data(), kMagic, 5) != 0) {
    return Status(Code::invalid_argument, "not a .kvbmz file", "it does not begin with KVBMZ");
  }
  if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    return Status(Code::damaged, "damaged: the file was changed on its way, as by a transfer as text");
  }
  if (bytes.size() < kContainerHeaderBytes) return Status(Code::damaged, "damaged: the file ends in its header");
  const auto version = load_le<uint32_t>(bytes.data() + 8);
  if (version != kVersion) {
    return Status(Code::newer_version, "a .kvbmz of a version that is not known", std::to_string(version));
  }
  if (!sealed(bytes) || !is_zero(bytes.subspan(12, 4)) || !is_zero(bytes.subspan(40, 16))) {
    return Status(Code::damaged, "damaged: the header of the file was changed");
  }
  const ContainerHeader header{load_le<uint64_t>(bytes.data() + 16), load_le<uint64_t>(bytes.data() + 24),
                               load_le<uint64_t>(bytes.data() + 32)};
  if (header.index_bytes > kMaxIndexBytes) {
    return Status(Code::damaged, "the file claims an index that is too large",
                  std::to_string(header.index_bytes) + " bytes");
  }
  return header;
}

void encode_end(const ContainerEnd& end, MutableBytes out) {
  std::memset(out.data(), 0, kContainerEndBytes);
  std::memcpy(out.data(), kEndMagic, sizeof kEndMagic);
  store_le(out.data() + 8, end.chunks);
  store_le(out.data() + 16, end.file_bytes);
  store_le(out.data() + 24, end.chain);
  seal(out);
}

Result<ContainerEnd> decode_end(ConstBytes bytes) {
  if (bytes.size() != kContainerEndBytes || std::memcmp(bytes.data(), kEndMagic, sizeof kEndMagic) != 0 ||
      !sealed(bytes) || !is_zero(bytes.subspan(32, 24))) {
    return Status(Code::damaged, "damaged: the end of the file is missing or changed");
  }
  return ContainerEnd{load_le<uint64_t>(bytes.data() + 8), load_le<uint64_t>(bytes.data() + 16),
                      load_le<uint64_t>(bytes.data() + 24)};
}

uint64_t chain_next(uint64_t chain, uint64_t stream_checksum) noexcept {
  std::byte both[16];
  store_le(both, chain);
  store_le(both + 8, stream_checksum);
  return codec::leaf_hash(both);
}

}  // namespace kvbm::tensor
