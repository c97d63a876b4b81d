// The header of an .npy file: a dictionary as Python writes it, with three keys. Format: NEP 1.
#include <charconv>
#include <cstring>

#include "tensor/tensor_file.h"
#include "terminal/safe_text.h"

namespace kvbm::tensor {

namespace {

// Reads `{'descr': '<u2', 'fortran_order': False, 'shape': (30, 2), }` and nothing more general.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  bool take(char c) {
    skip_space();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(0, word.size()) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  bool string(std::string& out) {
    skip_space();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) return false;
    const size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return true;
  }
  bool shape(std::vector<uint64_t>& out) {
    if (!take('(')) return false;
    while (!take(')')) {
      skip_space();
      uint64_t n = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), n);
      if (error != std::errc() || out.size() == kMaxDimensions) return false;
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      out.push_back(n);
      if (!take(',')) return take(')');
    }
    return true;
  }
  bool at_end() {
    skip_space();
    return text_.empty();
  }

 private:
  void skip_space() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n' || text_.front() == '\t'))
      text_.remove_prefix(1);
  }
  std::string_view text_;
};

struct Header {
  std::string descr;
  bool fields = false;  // a list: a structured type
  bool fortran = false;
  std::vector<uint64_t> shape;
};

bool parse_value(Literal& literal, const std::string& key, Header& out, unsigned& seen) {
  if (key == "descr") {
    seen |= 1;
    out.fields = literal.take('[');
    return out.fields || literal.string(out.descr);
  }
  if (key == "fortran_order") {
    seen |= 2;
    out.fortran = literal.take_word("True");
    return out.fortran || literal.take_word("False");
  }
  seen |= 4;
  return key == "shape" && out.shape.empty() && literal.shape(out.shape);
}

bool parse_literal(std::string_view text, Header& out) {
  Literal literal(text);
  unsigned seen = 0;
  if (!literal.take('{')) return false;
  while (!literal.take('}')) {
    std::string key;
    if (!literal.string(key) || !literal.take(':') || !parse_value(literal, key, out, seen)) return false;
    if (out.fields) return true;  // refused by name; the list is not read
    if (!literal.take(',')) {
      if (!literal.take('}')) return false;
      break;
    }
  }
  return seen == 7 && literal.at_end();
}

struct Type {
  const char* descr;
  Element element;
  bool stands_for;  // another type of the same size may be meant
};
constexpr Type kTypes[] = {{"<f2", Element::fp16, false}, {"<f4", Element::fp32, false}, {"<u2", Element::bf16, true},
                           {"|V2", Element::bf16, true},  {"<V2", Element::bf16, true},  {"|i1", Element::int8, false},
                           {"|u1", Element::bytes, true}, {"|V1", Element::bytes, true}};

Result<Element> element_of(const Header& header, const Claims& claims, std::string& note) {
  if (header.fields)
    return Status(Code::unsupported, "the .npy has a structured type", "give arrays of one plain type");
  const std::string shown = terminal::safe_text(header.descr, kShownName);
  if (!header.descr.empty() && header.descr.front() == '>') {
    return Status(Code::unsupported, "the .npy is big-endian",
                  shown + "; save it with numpy's astype('<" + shown.substr(1) + "')");
  }
  for (const Type& type : kTypes) {
    if (header.descr != type.descr) continue;
    if (!claims.element.has_value()) {
      if (type.stands_for && type.element == Element::bf16)
        note = header.descr + " is taken as bf16 (--element says otherwise)";
      return type.element;
    }
    const bool same_size = layout::element_bytes(*claims.element) == layout::element_bytes(type.element);
    if (*claims.element == Element::bytes || *claims.element == type.element || (type.stands_for && same_size)) {
      return *claims.element;
    }
    return Status(Code::invalid_argument, "--element does not fit the .npy",
                  header.descr + " cannot be " + layout::element_name(*claims.element));
  }
  if (claims.element == Element::bytes) return Element::bytes;
  return Status(Code::unsupported, "the .npy has a type that KV caches do not",
                shown + "; taken are <f2, <f4, <u2, |V2 (bf16), |i1, |u1, |V1, and anything with --element bytes");
}

// Returns the bytes of a value, from the digits of its type: '<f8' has 8.
uint64_t value_bytes(const std::string& descr) {
  uint64_t n = 0;
  if (descr.size() < 3) return 0;
  const auto [end, error] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), n);
  if (error != std::errc() || end != descr.data() + descr.size() || n == 0 || n > 1 << 20) return 0;
  return descr[1] == 'U' ? 4 * n : n;
}

// Returns the dictionary's text, and sets the offset of the values.
Result<std::string_view> literal_text(ConstBytes front, uint64_t file_bytes) {
  if (front.size() < 12 || std::memcmp(front.data(), "\x93NUMPY", 6) != 0) {
    return Status(Code::invalid_argument, "not an .npy file", "it does not begin with \\x93NUMPY");
  }
  const auto version = static_cast<unsigned>(front[6]);
  if (version < 1 || version > 3) {
    return Status(Code::unsupported, "an .npy version that is not known",
                  std::to_string(version) + "; known are 1 to 3");
  }
  const uint64_t begin = version == 1 ? 10 : 12;
  const uint64_t length = version == 1 ? load_le<uint16_t>(front.data() + 8) : load_le<uint32_t>(front.data() + 8);
  if (length > file_bytes - begin || length > kMaxNpyHeader) {
    return Status(Code::damaged, "the .npy header is larger than the file, or than any header",
                  std::to_string(length) + " bytes in a file of " + std::to_string(file_bytes));
  }
  if (front.size() < begin + length) return Status(Code::internal, "the .npy header was not read whole");
  return std::string_view(reinterpret_cast<const char*>(front.data()) + begin, length);
}

}  // namespace

Result<TensorFile> read_npy(ConstBytes front, uint64_t file_bytes, const Claims& claims) {
  const auto text = literal_text(front, file_bytes);
  if (!text.ok()) return text.status();
  Header header;
  if (!parse_literal(text.value(), header)) {
    return Status(Code::damaged, "the .npy header cannot be read",
                  "it must have descr, fortran_order and shape, once each");
  }
  TensorFile file;
  const auto element = element_of(header, claims, file.note);
  if (!element.ok()) return element.status();
  if (header.fortran && header.shape.size() > 1) {
    return Status(Code::unsupported, "the .npy is in Fortran order", "save it with numpy's ascontiguousarray");
  }
  Tensor tensor;
  tensor.element = element.value();
  tensor.shape = header.shape;
  tensor.offset = static_cast<uint64_t>(reinterpret_cast<const std::byte*>(text.value().data()) - front.data()) +
                  text.value().size();
  const uint64_t size = value_bytes(header.descr);
  const uint64_t present = file_bytes - tensor.offset;
  const auto values = values_of(header.shape);
  if (size == 0 || !values.has_value() || *values > (uint64_t{1} << 62) / size) {
    return Status(Code::damaged, "the .npy claims an impossible size",
                  shape_text(header.shape) + " of " + terminal::safe_text(header.descr, kShownName));
  }
  tensor.bytes = *values * size;
  if (tensor.bytes > present) {
    return Status(Code::damaged, "the .npy is cut short",
                  std::to_string(tensor.bytes) + " bytes are declared, " + std::to_string(present) + " are there");
  }
  if (tensor.bytes < present) {
    return Status(Code::damaged, "the .npy is longer than its shape",
                  std::to_string(present - tensor.bytes) + " bytes too many");
  }
  file.kind = Kind::npy;
  file.bytes = file_bytes;
  if (tensor.bytes != 0) file.tensors.push_back(std::move(tensor));
  return file;
}

}  // namespace kvbm::tensor
