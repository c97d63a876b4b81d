# Warnings of all our own code; they are errors.
add_library(kvbm_warnings INTERFACE)
target_compile_options(kvbm_warnings INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Werror
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>
  # gcc 12 reports both falsely for inlined standard containers and strings.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict -Wno-free-nonheap-object>)
if(KVBM_SANITIZE)
  # Instrumented code confuses gcc's flow analysis.
  target_compile_options(kvbm_warnings INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endif()
