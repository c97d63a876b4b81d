# Parts of the library that can be left out: -DKVBM_WITH_<PART>=OFF. Of a part that is left out the sources below are not
# compiled; lib/capi/absent/<part>_absent.cc is compiled instead, which has what the rest still calls, and says what is
# missing.
# The C interface stays whole: calls of an absent part answer KVBM_ERR_UNSUPPORTED.
option(KVBM_WITH_SESSIONS "Build prefill to decode sessions between nodes" ON)
option(KVBM_WITH_CLUSTER "Build nodes, pools and shared tier sets" ON)
option(KVBM_WITH_DEVICE "Build caches in the memory of GPUs" ON)
option(KVBM_WITH_CODING "Build codecs and sealing" ON)
option(KVBM_WITH_DISK "Build the disk tier; without it, liburing is not needed" ON)
option(KVBM_WITH_PLUGINS "Build stores, and tiers and eviction policies of callers" ON)
# Sessions run between nodes, nodes use the classes of devices, and both use codecs. So these four can be left out in
# this order. Disks and plug-ins can be left out of any build.
if(KVBM_WITH_SESSIONS AND NOT KVBM_WITH_CLUSTER)
  message(FATAL_ERROR "KVBM_WITH_CLUSTER=OFF needs KVBM_WITH_SESSIONS=OFF: sessions run between nodes")
endif()
if(KVBM_WITH_CLUSTER AND NOT KVBM_WITH_DEVICE)
  message(FATAL_ERROR "KVBM_WITH_DEVICE=OFF needs KVBM_WITH_CLUSTER=OFF: nodes use devices")
endif()
if(KVBM_WITH_DEVICE AND NOT KVBM_WITH_CODING)
  message(FATAL_ERROR "KVBM_WITH_CODING=OFF needs KVBM_WITH_CLUSTER=OFF and KVBM_WITH_DEVICE=OFF: links and devices use codecs")
endif()

# Patterns of paths below lib/.
set(KVBM_PART_SESSIONS "cluster/session/.*" "cluster/mesh/session_host" "cluster/coding/slice_coder" "manager/session/.*"
  "manager/device/stream_waits" "capi/(offer|session|session_state)")
set(KVBM_PART_CLUSTER "cluster/.*" "copy/(tcp|local)/.*" "copy/transport[a-z_]*" "copy/frame_guard" "manager/(node|share)/.*"
  "manager/operation/(ask_other_sizes|lend|load_in_place)" "manager/stack/unflushed" "capi/(join|node|share)")
set(KVBM_PART_DEVICE "device/.*" "manager/device/(device_caches|device_flight|layer_waits)" "manager/operation/(load_(device|storage)|store_device|device_mover)"
  "capi/device")
set(KVBM_PART_CODING "codec/(coded|leaf|lossless|lossy|seal)/.*" "tier/coded/.*"
  "manager/operation/cache_coding" "manager/stack/coded_landing" "manager/lower/coded_tiers" "manager/common/(key_file|seal_keys)"
  "copy/codec_choice" "capi/(codec|cache_coding)")
set(KVBM_PART_DISK "tier/disk/.*" "base/io/uring_io" "manager/lower/open_disk")
set(KVBM_PART_PLUGINS "tier/store/.*" "capi/plugin/.*")
set(KVBM_PARTS SESSIONS CLUSTER DEVICE CODING DISK PLUGINS)

set(KVBM_PARTS_LEFT_OUT "")
foreach(part ${KVBM_PARTS})
  if(NOT KVBM_WITH_${part})
    list(APPEND KVBM_PARTS_LEFT_OUT ${part})
  endif()
endforeach()

# Removes the sources of parts that are left out from a list of sources of lib/.
function(kvbm_leave_out list)
  set(sources ${${list}})
  foreach(part ${KVBM_PARTS})
    string(TOLOWER "${part}" name)
    if(NOT KVBM_WITH_${part})
      foreach(pattern ${KVBM_PART_${part}})
        list(FILTER sources EXCLUDE REGEX "/lib/${pattern}\\.cc$")
      endforeach()
    else()
      list(FILTER sources EXCLUDE REGEX "/lib/capi/absent/${name}_absent\\.cc$")
    endif()
  endforeach()
  set(${list} "${sources}" PARENT_SCOPE)
endfunction()
