# nvcc where there is one, and the rule that compiles kernels to one fatbin. No CUDA library is linked and no header of
# CUDA's is needed: what nvcc makes is embedded as bytes, and the driver is loaded at run time.
#   KVBM_WITH_CUDA  off: no kernels; on: nvcc is required; auto: kernels are embedded where nvcc is found and works
#   KVBM_NVCC       which nvcc; else CUDACXX of the environment, as CMake's own languages have it (what begins with KVBM_
#                   there is an option of the library); else that of build/cuda (tools/setup --cuda), of CUDA_PATH, of
#                   PATH, of /usr/local/cuda
# Sets KVBM_HAVE_NVCC, KVBM_CUDA_TOOLKIT (13.0) and KVBM_CUDA_ARCHITECTURES (80 86 ...).
set(KVBM_WITH_CUDA auto CACHE STRING "Embed the CUDA kernels: off, on, or auto (where nvcc is found)")
set_property(CACHE KVBM_WITH_CUDA PROPERTY STRINGS off on auto)
set(KVBM_NVCC "" CACHE FILEPATH "The nvcc that compiles the kernels; empty: the first that is found")
string(TOLOWER "${KVBM_WITH_CUDA}" kvbm_with_cuda)
if(NOT kvbm_with_cuda MATCHES "^(auto|on|off|yes|no|true|false|1|0)$")
  message(FATAL_ERROR "KVBM_WITH_CUDA is ${KVBM_WITH_CUDA}; give off, on or auto")
endif()

# A100; A10 and RTX 30; L4, L40 and RTX 40; H100; B200; RTX 50. Machine code runs only on later minor versions of its
# own major version, so each major version needs its own. On their GPUs 86 and 89 schedule better than 80.
set(kvbm_wanted_architectures 80 86 89 90 100 120)
# Intermediate code for what is not named, compiled by the driver when it is loaded: the lowest reaches the most.
set(kvbm_ptx_architecture 80)
# CUDAARCHS of the environment restricts the list, in CMake's own form (80;90): each architecture takes the compiler ten
# seconds.
set(kvbm_all_architectures TRUE)
if("$ENV{CUDAARCHS}" MATCHES "^[0-9;]+$")
  set(kvbm_named_architectures "$ENV{CUDAARCHS}")
  foreach(architecture ${kvbm_wanted_architectures})
    if(NOT architecture IN_LIST kvbm_named_architectures)
      list(REMOVE_ITEM kvbm_wanted_architectures ${architecture})
      set(kvbm_all_architectures FALSE)
    endif()
  endforeach()
endif()
# C++20 on devices.
set(kvbm_oldest_toolkit 12.0)

set(KVBM_HAVE_NVCC FALSE)
set(KVBM_CUDA_TOOLKIT "")
set(KVBM_CUDA_ARCHITECTURES "")

# Sets kvbm_nvcc, or kvbm_nvcc_why with what is missing.
function(kvbm_find_nvcc)
  set(given "${KVBM_NVCC}")
  if(NOT given)
    set(given "$ENV{CUDACXX}")
  endif()
  if(given)
    set(candidates "${given}")
  else()
    set(wheels "")
    if(EXISTS "${PROJECT_SOURCE_DIR}/build/cuda/made_of")  # written last: the installation is whole
      file(GLOB wheels "${PROJECT_SOURCE_DIR}/build/cuda/lib/python3*/site-packages/nvidia/cu1*/bin/nvcc")
    endif()
    find_program(in_path nvcc NO_CACHE NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH NO_CMAKE_SYSTEM_PATH)
    set(candidates ${wheels} "$ENV{CUDA_PATH}/bin/nvcc" "${in_path}" /usr/local/cuda/bin/nvcc)
  endif()
  foreach(nvcc ${candidates})
    if(EXISTS "${nvcc}" AND NOT IS_DIRECTORY "${nvcc}")
      set(kvbm_nvcc "${nvcc}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(kvbm_nvcc "" PARENT_SCOPE)
  if(given)
    set(kvbm_nvcc_why "${given} is named as nvcc, and there is no such program" PARENT_SCOPE)
  else()
    set(kvbm_nvcc_why "there is no nvcc here" PARENT_SCOPE)
  endif()
endfunction()

# Asks kvbm_nvcc for its version and architectures and has it compile a kernel, once a compiler; kvbm_nvcc_why where it
# will not do.
function(kvbm_probe_nvcc)
  execute_process(COMMAND "${kvbm_nvcc}" --version OUTPUT_VARIABLE said ERROR_QUIET RESULT_VARIABLE failed)
  if(failed OR NOT said MATCHES "release ([0-9]+\\.[0-9]+)")
    set(kvbm_nvcc_why "${kvbm_nvcc} does not run" PARENT_SCOPE)
    return()
  endif()
  set(toolkit "${CMAKE_MATCH_1}")
  if(toolkit VERSION_LESS kvbm_oldest_toolkit)
    set(kvbm_nvcc_why "${kvbm_nvcc} is of CUDA ${toolkit}, and ${kvbm_oldest_toolkit} is the oldest that will do" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND "${kvbm_nvcc}" --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
  set(architectures "")
  foreach(architecture ${kvbm_wanted_architectures})
    if(known MATCHES "sm_${architecture}[^0-9a-z]")
      list(APPEND architectures ${architecture})
    endif()
  endforeach()
  if(NOT "${kvbm_nvcc} ${toolkit}" STREQUAL "${KVBM_NVCC_WORKS}")
    execute_process(COMMAND "${kvbm_nvcc}" ${kvbm_nvcc_flags} "-gencode=arch=compute_${kvbm_ptx_architecture},code=sm_${kvbm_ptx_architecture}"
      -o "${PROJECT_BINARY_DIR}/nvcc_probe.fatbin" "${PROJECT_SOURCE_DIR}/cmake/nvcc_probe.cu" OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE failed)
    if(failed)
      string(REGEX REPLACE "\n.*" "" said "${said}")
      set(kvbm_nvcc_why "${kvbm_nvcc} does not compile a kernel: ${said}" PARENT_SCOPE)
      return()
    endif()
    set(KVBM_NVCC_WORKS "${kvbm_nvcc} ${toolkit}" CACHE INTERNAL "the nvcc that has compiled a kernel")
  endif()
  set(KVBM_HAVE_NVCC TRUE PARENT_SCOPE)
  set(KVBM_CUDA_TOOLKIT "${toolkit}" PARENT_SCOPE)
  set(KVBM_CUDA_ARCHITECTURES "${architectures}" PARENT_SCOPE)
endfunction()

# -fmad=false: a product and a sum stay two roundings, as on the CPU. Kernels must give the CPU's results bit for bit.
# Kernels that want the fused one (none that moves or codes KV does) say __fmaf_rn.
set(kvbm_nvcc_flags -fatbin -std=c++20 -O3 -fmad=false -Werror=all-warnings)
# The host's compiler does no more than preprocess; clang 14 does not get through CUDA 13's headers.
find_program(KVBM_CUDA_HOST_COMPILER g++)
mark_as_advanced(KVBM_CUDA_HOST_COMPILER)
if(KVBM_CUDA_HOST_COMPILER)
  list(APPEND kvbm_nvcc_flags -ccbin "${KVBM_CUDA_HOST_COMPILER}")
endif()

if(kvbm_with_cuda STREQUAL "auto" OR KVBM_WITH_CUDA)
  kvbm_find_nvcc()
  if(kvbm_nvcc)
    kvbm_probe_nvcc()
  endif()
  if(KVBM_HAVE_NVCC)
    # The form is one that tests read (tests/support/fatbin), and a tenth in size where nvcc can.
    if(KVBM_CUDA_TOOLKIT VERSION_LESS 12.8)
      set(kvbm_nvcc_compression -no-compress)
    else()
      set(kvbm_nvcc_compression -compress-mode=size)
    endif()
    string(REPLACE ";" " " said "${KVBM_CUDA_ARCHITECTURES}")
    message(STATUS "CUDA ${KVBM_CUDA_TOOLKIT}: the kernels are embedded for sm ${said} and as PTX ${kvbm_ptx_architecture} (${kvbm_nvcc})")
  elseif(kvbm_with_cuda STREQUAL "auto")
    message(STATUS "No CUDA kernels are embedded: ${kvbm_nvcc_why} (tools/setup --cuda fetches one that does)")
  else()
    message(FATAL_ERROR "KVBM_WITH_CUDA is on: ${kvbm_nvcc_why}; run tools/setup --cuda, name an nvcc by KVBM_NVCC, or set KVBM_WITH_CUDA=off")
  endif()
endif()

# kvbm_add_fatbin(OUTPUT INCLUDE_DIRECTORY SOURCES...): a rule that compiles all sources, as one unit (the driver takes
# one image an architecture, and linking several would lose the PTX), to OUTPUT. Looked at again when a source or a header
# that it includes has changed, and compiled only where no preset has compiled that text (build/kernels).
function(kvbm_add_fatbin output include_directory)
  set(lines "// Written by cmake/cuda.cmake.\n")
  list(SORT ARGN)
  foreach(source ${ARGN})
    string(APPEND lines "#include \"${source}\"\n")
  endforeach()
  set(unit "${output}.cu")
  file(CONFIGURE OUTPUT "${unit}" CONTENT "${lines}" @ONLY)
  set(code "")
  foreach(architecture ${KVBM_CUDA_ARCHITECTURES})
    list(APPEND code "-gencode=arch=compute_${architecture},code=sm_${architecture}")
  endforeach()
  list(APPEND code "-gencode=arch=compute_${kvbm_ptx_architecture},code=compute_${kvbm_ptx_architecture}")
  get_filename_component(name "${output}" NAME)
  add_custom_command(OUTPUT "${output}" "${output}.h"
    COMMAND "${PROJECT_SOURCE_DIR}/cmake/compile_kernels" "${PROJECT_SOURCE_DIR}/build/kernels" "${output}" "${unit}"
      "${kvbm_nvcc}" ${kvbm_nvcc_flags} ${kvbm_nvcc_compression} --threads 2 ${code} "-I${include_directory}"
    DEPENDS "${unit}" ${ARGN} "${kvbm_nvcc}" "${PROJECT_SOURCE_DIR}/cmake/compile_kernels"
    DEPFILE "${output}.d" COMMENT "Compiling kernels to ${name}" VERBATIM)
endfunction()
