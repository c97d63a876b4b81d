// Compiled when a build is configured, to see whether nvcc and its host compiler go together.
#include <stdint.h>

extern "C" __global__ void probe(uint32_t* out) { *out = threadIdx.x; }
