// Headers of .npy and safetensors files, and of .kvbmz ones: whatever is said, tensors lie inside the file.
#include <algorithm>

#include "target.h"
#include "tensor/container.h"

namespace tensor_file_fuzz {

KVBM_FUZZ_TARGET(tensor_file) {
  using namespace kvbm;
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const uint64_t wanted = tensor::header_bytes(bytes.first(std::min<size_t>(size, 64)), size);
  if (wanted > size) __builtin_trap();
  const tensor::Claims claims[] = {{},
                                   {tensor::Kind::npy, tensor::Element::fp16, {}},
                                   {tensor::Kind::safetensors, std::nullopt, {}},
                                   {tensor::Kind::raw, tensor::Element::bf16, {}}};
  for (const tensor::Claims& claim : claims) {
    const auto file = tensor::read_tensors(bytes, size, claim);
    if (!file.ok()) continue;
    uint64_t at = 0;
    for (const tensor::Tensor& tensor : file.value().tensors) {
      if (tensor.bytes == 0 || tensor.offset < at || tensor.bytes > size - tensor.offset) __builtin_trap();
      at = tensor.offset + tensor.bytes;
    }
    // An encoded index decodes to the same index.
    const tensor::Index index = tensor::make_index(file.value(), 0);
    const auto again = tensor::decode_index(tensor::encode_index(index));
    if (!again.ok() || again.value().bytes != size || again.value().segments.size() != index.segments.size())
      __builtin_trap();
    for (const tensor::Segment& segment : index.segments) {
      uint64_t done = 0;
      while (done < segment.tensor.bytes) {
        const uint64_t n = tensor::next_chunk(segment, done);
        if (n == 0 || n > tensor::kChunkBytes) __builtin_trap();
        done += n;
      }
    }
  }
  (void)tensor::decode_header(bytes);
  (void)tensor::decode_end(bytes.first(std::min<size_t>(size, tensor::kContainerEndBytes)));
  (void)tensor::decode_index({reinterpret_cast<const char*>(data), size});
  return 0;
}

}  // namespace tensor_file_fuzz
