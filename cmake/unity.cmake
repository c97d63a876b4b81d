# Unity builds (CMAKE_UNITY_BUILD, on in all presets but debug): the sources of one folder are compiled together, up to so
# many at once, since most of the compiler's time goes into the headers that they share. So no two sources of a folder
# define the same name, in a namespace without a name either.
set(KVBM_UNITY_SOURCES 24 CACHE STRING "How many sources of one folder a unity build compiles at once")

# Groups the sources of a target by folder. A source with options of its own is compiled alone, as CMake has it.
function(kvbm_group_by_folder target)
  get_target_property(sources ${target} SOURCES)
  list(SORT sources)
  foreach(source ${sources})
    if(NOT source MATCHES "\\.cc$")
      continue()
    endif()
    get_filename_component(folder "${source}" ABSOLUTE)
    get_filename_component(folder "${folder}" DIRECTORY)
    file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${folder}")
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    list(APPEND of_${folder} "${source}")
    list(APPEND folders ${folder})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    list(LENGTH of_${folder} count)
    # Parts of equal size.
    math(EXPR parts "(${count} + ${KVBM_UNITY_SOURCES} - 1) / ${KVBM_UNITY_SOURCES}")
    math(EXPR size "(${count} + ${parts} - 1) / ${parts}")
    set(at 0)
    foreach(source ${of_${folder}})
      math(EXPR part "${at} / ${size}")
      set_property(SOURCE "${source}" PROPERTY UNITY_GROUP "${folder}_${part}")
      math(EXPR at "${at} + 1")
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # A type of a source's own namespace may be a member of a class of that source: gcc holds it for a header's.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()
