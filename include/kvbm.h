/* kvbm: see below; the sections grow with the library. */
#ifndef KVBM_H
#define KVBM_H
#define KVBM_VERSION_MAJOR 0
#define KVBM_VERSION_MINOR 1
#define KVBM_VERSION_PATCH 0
#endif
