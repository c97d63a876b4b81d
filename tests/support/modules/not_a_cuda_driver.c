/* Libraries that are no usable driver, one per KVBM_CASE, for device/driver/driver_library. */
#define NO_VERSION 1
#define LACKS_ENTRIES 2
#define OLD 3

int cuInit(unsigned flags);
int cuInit(unsigned flags) { return (void)flags, 0; }

#if KVBM_CASE != NO_VERSION
int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
  *version = KVBM_CASE == OLD ? 11040 : 12080;
  return 0;
}
#endif
