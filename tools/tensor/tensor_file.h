// Finds the tensors of a file: .npy (versions 1 to 3), safetensors, or raw values. Headers are hostile input: every
// size is checked against the file before it is used, and refusals name the cause.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "layout/element.h"

namespace kvbm::tensor {

using layout::Element;

enum class Kind { raw, npy, safetensors };
[[nodiscard]] const char* kind_name(Kind kind) noexcept;

struct Tensor {
  std::string name;  // "" if the file has none
  Element element = Element::bytes;
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
};

// Tensors in file order, inside the file, none overlapping. Bytes between them belong to no tensor.
struct TensorFile {
  Kind kind = Kind::raw;
  uint64_t bytes = 0;
  std::vector<Tensor> tensors;
  std::string note;  // assumptions that the file does not confirm; "" for none
};

// Facts that the caller states about a file that does not contain them.
struct Claims {
  std::optional<Kind> kind;        // none: detected from the file
  std::optional<Element> element;  // raw, and .npy of a type that stands for another (uint16 for bf16)
  std::vector<uint64_t> shape;     // raw; empty: one row of all values
};

inline constexpr uint64_t kMaxNpyHeader = 1 << 20;
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // the format's own limit
inline constexpr size_t kMaxDimensions = 32;
inline constexpr size_t kShownName = 60;  // limit of a file's name or type in a message

// Returns how many bytes of the front of a file read_tensors() must see. `front`: its first 64 (fewer if it is
// shorter).
[[nodiscard]] uint64_t header_bytes(ConstBytes front, uint64_t file_bytes);
// Reads the tensors from `front`, at least header_bytes() of the file. invalid_argument: a foreign file, or claims
// that do not fit; damaged: cut short or inconsistent; unsupported: a type or order that is not accepted.
Result<TensorFile> read_tensors(ConstBytes front, uint64_t file_bytes, const Claims& claims);

// Parses "bf16", "fp16", "f32", "fp8_e4m3", ... and "bytes"; none for another text.
std::optional<Element> element_by_name(std::string_view name);
// Parses "30,2,512,192".
Result<std::vector<uint64_t>> parse_shape(std::string_view text);
std::string shape_text(const std::vector<uint64_t>& shape);
// Returns the number of values of a shape; none if it is more than 2^62.
std::optional<uint64_t> values_of(const std::vector<uint64_t>& shape) noexcept;

// The parsers of one kind, as read_tensors() calls them.
Result<TensorFile> read_npy(ConstBytes front, uint64_t file_bytes, const Claims& claims);
Result<TensorFile> read_safetensors(ConstBytes front, uint64_t file_bytes);

}  // namespace kvbm::tensor
