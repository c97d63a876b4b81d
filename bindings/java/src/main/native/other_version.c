/* A libkvbm of the next major version, as far as the check at load can see. SPDX-License-Identifier: Apache-2.0 */
unsigned int kvbm_version(void);
const char *kvbm_version_string(void);

__attribute__((visibility("default"))) unsigned int kvbm_version(void) { return 9000001U; }
__attribute__((visibility("default"))) const char *kvbm_version_string(void) { return "9.0.1"; }
