/* A page of KV coded in the caller's own buffers, and back: no context, no manager.
 *   codec       prints sizes; exit code 0 when the same bytes came back */
#include <kvbm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 256, HEADS = 8, DIM = 128, VALUES = TOKENS * HEADS * DIM };

static void stop(const char *what, const kvbm_error_t *err) {
  fprintf(stderr, "%s: %s\n", what, err->message);
  exit(1);
}

/* bf16: channels of different size, any mantissa. */
static void compute(uint16_t *page) {
  uint32_t state = 1, i;
  for (i = 0; i < VALUES; ++i) {
    state = state * 1664525u + 1013904223u;
    page[i] = (uint16_t)((state >> 16 & 0x807F) | (118 + i % 4 + (state >> 9 & 3)) << 7);
  }
}

int main(void) {
  static uint16_t page[VALUES], back[VALUES];
  kvbm_codec_options_t form;
  kvbm_codec_info_t info;
  kvbm_error_t err;
  uint64_t room = 0;
  size_t coded_bytes = 0, bytes = 0;
  void *coded;
  compute(page);

  /* [token][head][dim]: the same channel comes again after all heads of a token. */
  kvbm_codec_options_init(&form, sizeof form);
  form.element = KVBM_ELEMENT_BF16;
  form.row_elements = HEADS * DIM;
  if (kvbm_codec_room(sizeof page, &form, &room, &err) < 0) stop("room", &err);
  coded = malloc(room);
  if (coded == NULL) return 1;
  if (kvbm_codec_encode(page, sizeof page, KVBM_CODEC_DEFAULT, &form, coded, room, &coded_bytes, &err) < 0) stop("encode", &err);
  printf("%zu bytes became %zu (%s)\n", sizeof page, coded_bytes, kvbm_codec_kernel());

  /* Inspects the bytes before memory is allocated for them: they may come from another machine. */
  info.struct_size = sizeof info;
  if (kvbm_codec_inspect(coded, coded_bytes, &info, &err) < 0) stop("inspect", &err);
  if (info.raw_bytes != sizeof back || info.lossy) return 1;
  if (kvbm_codec_decode(coded, coded_bytes, 0, back, sizeof back, &bytes, &err) < 0) stop("decode", &err);
  free(coded);
  return memcmp(page, back, sizeof page) == 0 ? 0 : 1;
}
