// Encodes a page of KV, changes a bit of the coded buffer, and gets an error instead of wrong bytes.
#include <cstdio>
#include <kvbm.hpp>
#include <random>

int main() try {
  constexpr uint32_t tokens = 256, heads = 8, dim = 128;
  std::vector<uint8_t> page(tokens * heads * dim * 2);  // [token][head][dim] of bf16
  std::minstd_rand random(1);
  for (std::size_t i = 0; i < page.size(); i += 2) {
    page[i] = static_cast<uint8_t>(random() % 128);
    page[i + 1] = static_cast<uint8_t>(59 + random() % 3 + random() % 2 * 128);
  }

  auto form = kvbm::codec::options();
  form.element = KVBM_ELEMENT_BF16, form.row_elements = heads * dim;
  std::vector<uint8_t> coded = kvbm::codec::encode(page, KVBM_CODEC_DEFAULT, form);
  std::vector<uint8_t> back(kvbm::codec::inspect(coded).raw_bytes);  // look before room is taken
  kvbm::codec::decode(coded, back);
  std::printf("%zu bytes as %zu and back\n", page.size(), coded.size());
  if (back != page) return 1;
  coded[coded.size() / 2] ^= 1;
  try {
    kvbm::codec::decode(coded, back);
  } catch (const kvbm::Error& error) {
    std::printf("a changed one: %s\n", error.name());
    return error.status() == KVBM_ERR_DAMAGED ? 0 : 1;
  }
  return 1;
} catch (const kvbm::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
