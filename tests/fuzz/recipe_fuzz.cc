// The text of a recipe, from configuration or a caller. An accepted one is equal after it was written and parsed again.
#include "../support/recipe_text.h"
#include "codec/coded/recipe.h"
#include "target.h"

namespace recipe_fuzz {

namespace {

void check(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

KVBM_FUZZ_TARGET(recipe) {
  using namespace kvbm;
  const auto recipe = codec::Recipe::parse({reinterpret_cast<const char*>(data), size});
  if (!recipe.ok()) {
    check(recipe.status().code() == Code::invalid_argument);
    return 0;
  }
  check(!recipe.value().rules.empty());
  const auto again = codec::Recipe::parse(test::text_of(recipe.value()));
  check(again.ok() && again.value() == recipe.value());
  for (const uint32_t layer : {0U, 3U, UINT32_MAX}) {
    for (uint32_t plane = 0; plane < 10; ++plane) {
      check(!codec::is_lossy(recipe.value().mode(layer, plane)) || recipe.value().lossy());
    }
  }
  return 0;
}

}  // namespace recipe_fuzz
