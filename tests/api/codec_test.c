/* kvbm_codec_*: round trips, detection of changes, refusal of lossy data without the flag. */
#include "check.h"

enum { TOKENS = 512, DIM = 64, VALUES = TOKENS * DIM, BYTES = 2 * VALUES };

static const uint32_t kLossless[] = {KVBM_CODEC_OFF, KVBM_CODEC_FAST, KVBM_CODEC_DEFAULT, KVBM_CODEC_MAX, KVBM_CODEC_ZSTD};
static const uint32_t kLossy[] = {KVBM_CODEC_FP8_E4M3,   KVBM_CODEC_FP8_E5M2,   KVBM_CODEC_INT8,
                                  KVBM_CODEC_INT6,       KVBM_CODEC_INT4,       KVBM_CODEC_INT8_CODED,
                                  KVBM_CODEC_INT6_CODED, KVBM_CODEC_INT4_CODED, KVBM_CODEC_DELTA};

static unsigned char raw[BYTES], back[BYTES];
static unsigned char room[BYTES + 16384];
static kvbm_error_t err;

/* Fills the page with bf16 values of few exponents, like KV. */
static void fill(uint64_t seed) {
  size_t i;
  for (i = 0; i < VALUES; ++i) {
    const uint64_t word = check_random(&seed);
    const unsigned value = (unsigned)(word >> 32 & 0x807F) | (unsigned)(122 + (word & 3) + i % DIM / 16) << 7;
    raw[2 * i] = (unsigned char)value;
    raw[2 * i + 1] = (unsigned char)(value >> 8);
  }
}

static void heads(kvbm_codec_options_t *out) {
  CHECK_STATUS(kvbm_codec_options_init(out, sizeof *out), KVBM_OK);
  out->element = KVBM_ELEMENT_BF16;
  out->row_elements = DIM;
  out->rows = TOKENS;
}

static size_t encode(uint32_t mode, const kvbm_codec_options_t *options) {
  uint64_t needed = 0;
  size_t n = 0;
  CHECK_STATUS(kvbm_codec_room(BYTES, options, &needed, &err), KVBM_OK);
  CHECK(needed <= sizeof room);
  CHECK_STATUS(kvbm_codec_encode(raw, BYTES, mode, options, room, needed, &n, &err), KVBM_OK);
  CHECK(n > 0 && n <= needed);
  return n;
}

/* Returns whether this library was built with zstd. Without it the mode leaves bytes as they are. */
static int with_zstd(void) {
  static const unsigned char zeros[4096];
  size_t n = 0;
  CHECK_STATUS(kvbm_codec_encode(zeros, sizeof zeros, KVBM_CODEC_ZSTD, NULL, room, sizeof room, &n, &err), KVBM_OK);
  return n < sizeof zeros;
}

static void lossless_modes_give_back_every_bit(void) {
  kvbm_codec_options_t options;
  kvbm_codec_info_t info;
  size_t i, n, got;
  const int zstd = with_zstd();
  heads(&options);
  fill(1);
  raw[0] = 0x01, raw[1] = 0xFF; /* a NaN with a payload, */
  raw[2] = 0x00, raw[3] = 0x80; /* a negative zero, */
  raw[4] = 0x80, raw[5] = 0x7F; /* an infinity, */
  raw[6] = 0x01, raw[7] = 0x00; /* and a denormal */
  for (i = 0; i < sizeof kLossless / sizeof kLossless[0]; ++i) {
    const int coded = kLossless[i] != KVBM_CODEC_OFF && (kLossless[i] != KVBM_CODEC_ZSTD || zstd);
    n = encode(kLossless[i], &options);
    info.struct_size = sizeof info;
    CHECK_STATUS(kvbm_codec_inspect(room, n, &info, &err), KVBM_OK);
    CHECK_U64(info.struct_size, sizeof info);
    CHECK_U64(info.mode, kLossless[i]);
    CHECK_U64(info.element, KVBM_ELEMENT_BF16);
    CHECK_U64(info.row_elements, DIM);
    CHECK_U64(info.rows, TOKENS);
    CHECK_U64(info.lossy, 0);
    CHECK_U64(info.leaves, 1);
    CHECK_U64(info.raw_leaves, coded ? 0 : 1);
    CHECK_U64(info.raw_bytes, BYTES);
    CHECK_U64(info.coded_bytes, n);
    CHECK_U64(info.error_ppb, 0);
    if (coded) CHECK(n < BYTES * 8 / 10);
    memset(back, 0xEE, sizeof back);
    got = 0;
    CHECK_STATUS(kvbm_codec_decode(room, n, 0, back, sizeof back, &got, &err), KVBM_OK);
    CHECK_U64(got, BYTES);
    CHECK(memcmp(raw, back, BYTES) == 0);
  }
}

static void lossy_modes_ask_first_and_say_what_they_lost(void) {
  kvbm_codec_options_t options;
  kvbm_codec_info_t info;
  size_t i, n, got;
  heads(&options);
  fill(2);
  for (i = 0; i < sizeof kLossy / sizeof kLossy[0]; ++i) {
    n = encode(kLossy[i], &options);
    info.struct_size = sizeof info;
    CHECK_STATUS(kvbm_codec_inspect(room, n, &info, &err), KVBM_OK);
    got = 77;
    if (info.lossy) {
      CHECK(info.error_ppb > 0 && info.error_ppb < 100000000); /* below a tenth */
      CHECK_STATUS(kvbm_codec_decode(room, n, 0, back, sizeof back, &got, &err), KVBM_ERR_PERMISSION);
      CHECK_U64(got, 77);
      CHECK(strstr(err.message, "lossy") != NULL);
      CHECK_STATUS(kvbm_codec_decode(room, n, KVBM_CODEC_ALLOW_LOSSY, back, sizeof back, &got, &err), KVBM_OK);
      CHECK(memcmp(raw, back, BYTES) != 0);
    } else {
      CHECK_STATUS(kvbm_codec_decode(room, n, 0, back, sizeof back, &got, &err), KVBM_OK);
      CHECK(memcmp(raw, back, BYTES) == 0);
    }
    CHECK_U64(got, BYTES);
  }
  n = encode(KVBM_CODEC_INT8, &options);
  CHECK_STATUS(kvbm_codec_inspect(room, n, &info, &err), KVBM_OK);
  CHECK_U64(info.lossy, 1);
  CHECK_STATUS(kvbm_codec_options_init(&options, sizeof options), KVBM_OK);
  options.element = KVBM_ELEMENT_FP8_E4M3; /* is not made smaller by int8, so nothing is lost */
  n = encode(KVBM_CODEC_INT8, &options);
  CHECK_STATUS(kvbm_codec_decode(room, n, 0, back, sizeof back, &got, &err), KVBM_OK);
  CHECK(memcmp(raw, back, BYTES) == 0);
}

static void a_changed_buffer_gives_the_right_bytes_or_none(void) {
  kvbm_codec_options_t options;
  kvbm_codec_info_t info;
  size_t n, i, got, refused = 0;
  heads(&options);
  fill(3);
  n = encode(KVBM_CODEC_DEFAULT, &options);
  for (i = 0; i < n; i += i < 256 ? 1 : 97) {
    room[i] ^= 0x24;
    if (kvbm_codec_decode(room, n, 0, back, sizeof back, &got, &err) == KVBM_OK) {
      CHECK(memcmp(raw, back, BYTES) == 0);
    } else {
      ++refused;
    }
    room[i] ^= 0x24;
  }
  CHECK(refused > n / 97 / 2);
  for (i = 0; i < n; i += i < 128 ? 1 : 1009) {
    info.struct_size = sizeof info;
    CHECK_STATUS(kvbm_codec_inspect(room, i, &info, &err), KVBM_ERR_DAMAGED);
    CHECK_STATUS(kvbm_codec_decode(room, i, 0, back, sizeof back, &got, &err), KVBM_ERR_DAMAGED);
  }
  room[4] = 9;
  CHECK_STATUS(kvbm_codec_decode(room, n, 0, back, sizeof back, &got, &err), KVBM_ERR_VERSION);
}

static void noise_grows_by_no_more_than_its_room(void) {
  kvbm_codec_options_t options;
  size_t i, n, got;
  heads(&options);
  check_fill(raw, BYTES, 4);
  for (i = 0; i < sizeof kLossless / sizeof kLossless[0]; ++i) {
    n = encode(kLossless[i], &options);
    CHECK(n <= BYTES + 256);
    CHECK_STATUS(kvbm_codec_decode(room, n, 0, back, sizeof back, &got, &err), KVBM_OK);
    CHECK(memcmp(raw, back, BYTES) == 0);
  }
}

static void opaque_and_empty_buffers_are_coded_too(void) {
  uint64_t needed = 0;
  size_t n = 0, got = 1;
  fill(5);
  n = encode(KVBM_CODEC_DEFAULT, NULL);
  CHECK_STATUS(kvbm_codec_decode(room, n, 0, back, sizeof back, &got, &err), KVBM_OK);
  CHECK(memcmp(raw, back, BYTES) == 0);
  CHECK_STATUS(kvbm_codec_room(0, NULL, &needed, &err), KVBM_OK);
  CHECK_STATUS(kvbm_codec_encode(NULL, 0, KVBM_CODEC_DEFAULT, NULL, room, needed, &n, &err), KVBM_OK);
  CHECK_STATUS(kvbm_codec_decode(room, n, 0, NULL, 0, &got, &err), KVBM_OK);
  CHECK_U64(got, 0);
}

static void names_and_numbers_are_one_set(void) {
  uint32_t mode, back_again, known = 0;
  for (mode = 0; mode < 300; ++mode) {
    const char *name = kvbm_codec_mode_name(mode);
    if (name == NULL) continue;
    ++known;
    CHECK_STATUS(kvbm_codec_mode_by_name(name, &back_again, &err), KVBM_OK);
    CHECK_U64(back_again, mode);
  }
  CHECK_U64(known, 14);
  CHECK(strcmp(kvbm_codec_mode_name(KVBM_CODEC_DEFAULT), "default") == 0);
  CHECK(strcmp(kvbm_codec_mode_name(KVBM_CODEC_INT8_CODED), "int8_coded") == 0);
  CHECK_STATUS(kvbm_codec_mode_by_name("lz77", &mode, &err), KVBM_ERR_INVALID);
  CHECK(strstr(err.message, "lz77") != NULL && strstr(err.message, "int4_coded") != NULL);
  CHECK_STATUS(kvbm_codec_mode_by_name(NULL, &mode, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_codec_mode_by_name("zstd", NULL, &err), KVBM_ERR_INVALID);
  CHECK(kvbm_codec_kernel() != NULL && kvbm_codec_kernel()[0] != '\0');
}

static void wrong_calls_are_refused_by_name(void) {
  kvbm_codec_options_t options;
  kvbm_codec_info_t info;
  uint64_t needed = 0;
  size_t n = 0;
  heads(&options);
  CHECK_STATUS(kvbm_codec_encode(raw, BYTES, 5, &options, room, sizeof room, &n, &err), KVBM_ERR_INVALID);
  CHECK(strstr(err.message, "mode") != NULL);
  options.element = 99;
  CHECK_STATUS(kvbm_codec_room(BYTES, &options, &needed, &err), KVBM_ERR_INVALID);
  CHECK(strstr(err.message, "element") != NULL);
  heads(&options);
  options.row_elements = 0;
  CHECK_STATUS(kvbm_codec_encode(raw, BYTES, 2, &options, room, sizeof room, &n, &err), KVBM_ERR_INVALID);
  CHECK(strstr(err.message, "rows") != NULL);
  CHECK_STATUS(kvbm_codec_room((uint64_t)1 << 41, NULL, &needed, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_codec_room(1, NULL, NULL, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_codec_encode(raw, BYTES, 2, NULL, room, BYTES, &n, &err), KVBM_ERR_NO_ROOM);
  CHECK(strstr(err.message, "needed") != NULL);
  CHECK_STATUS(kvbm_codec_encode(NULL, BYTES, 2, NULL, room, sizeof room, &n, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_codec_encode(raw, BYTES, 2, NULL, NULL, sizeof room, &n, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_codec_encode(raw, BYTES, 2, NULL, room, sizeof room, NULL, &err), KVBM_ERR_INVALID);
  n = encode(KVBM_CODEC_ZSTD, NULL);
  CHECK_STATUS(kvbm_codec_decode(room, n, 2, back, sizeof back, &n, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_codec_decode(room, n, 0, back, BYTES - 1, &n, &err), KVBM_ERR_NO_ROOM);
  CHECK_STATUS(kvbm_codec_decode(room, n, 0, back, sizeof back, NULL, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_codec_decode(raw, BYTES, 0, back, sizeof back, &n, &err), KVBM_ERR_DAMAGED);
  info.struct_size = 0;
  CHECK_STATUS(kvbm_codec_inspect(room, n, &info, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_codec_inspect(room, n, NULL, &err), KVBM_ERR_INVALID);
}

static void shorter_and_longer_infos_of_other_headers_are_filled(void) {
  union {
    kvbm_codec_info_t info;
    unsigned char bytes[256];
  } space;
  const size_t n = encode(KVBM_CODEC_ZSTD, NULL);
  memset(&space, 0xEE, sizeof space);
  space.info.struct_size = offsetof(kvbm_codec_info_t, raw_bytes);
  CHECK_STATUS(kvbm_codec_inspect(room, n, &space.info, &err), KVBM_OK);
  CHECK_U64(space.info.leaves, 1);
  CHECK(space.bytes[offsetof(kvbm_codec_info_t, raw_bytes)] == 0xEE);
  space.info.struct_size = 128;
  CHECK_STATUS(kvbm_codec_inspect(room, n, &space.info, &err), KVBM_OK);
  CHECK_U64(space.info.raw_bytes, BYTES);
  CHECK(space.bytes[127] == 0 && space.bytes[128] == 0xEE);
}

int main(void) {
  RUN(lossless_modes_give_back_every_bit);
  RUN(lossy_modes_ask_first_and_say_what_they_lost);
  RUN(a_changed_buffer_gives_the_right_bytes_or_none);
  RUN(noise_grows_by_no_more_than_its_room);
  RUN(opaque_and_empty_buffers_are_coded_too);
  RUN(names_and_numbers_are_one_set);
  RUN(wrong_calls_are_refused_by_name);
  RUN(shorter_and_longer_infos_of_other_headers_are_filled);
  FINISH();
}
