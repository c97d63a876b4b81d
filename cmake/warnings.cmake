# Warnings of all our own code; lib builds with them as errors.
add_library(kvbm_warnings INTERFACE)
target_compile_options(kvbm_warnings INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Werror
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${KVBM_SANITIZE}>>:-Wno-maybe-uninitialized>)
