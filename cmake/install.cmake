# Installs and packs (CPack, a .deb): libkvbm.so, kvbm.h and its chapters, kvbm.hpp and its parts, kvbm.pc, the CMake
# package, and the command with its manual page and completions.
include(CMakePackageConfigHelpers)

if(TARGET kvbm_shared)
  set(kvbm_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kvbm")
  install(TARGETS kvbm_shared EXPORT kvbmTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT kvbmTargets NAMESPACE kvbm:: DESTINATION "${kvbm_package_dir}")
  configure_package_config_file(cmake/kvbmConfig.cmake.in "${PROJECT_BINARY_DIR}/kvbmConfig.cmake"
    INSTALL_DESTINATION "${kvbm_package_dir}")
  # Before 1.0 a minor version may break the ABI, as the soname says.
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/kvbmConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/kvbmConfig.cmake" "${PROJECT_BINARY_DIR}/kvbmConfigVersion.cmake"
    DESTINATION "${kvbm_package_dir}")
  # The prefix may still change at install time (--prefix), so the file is made then.
  install(CODE "
    set(PROJECT_DESCRIPTION \"${PROJECT_DESCRIPTION}\")
    set(PROJECT_VERSION \"${PROJECT_VERSION}\")
    set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
    set(CMAKE_INSTALL_INCLUDEDIR \"${CMAKE_INSTALL_INCLUDEDIR}\")
    get_filename_component(CMAKE_INSTALL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
    configure_file(\"${PROJECT_SOURCE_DIR}/pkgconfig/kvbm.pc.in\" \"${PROJECT_BINARY_DIR}/kvbm.pc\" @ONLY)")
  install(FILES "${PROJECT_BINARY_DIR}/kvbm.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  file(GLOB kvbm_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/*.h")
  file(GLOB kvbm_wrapper CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bindings/cpp/include/*.hpp")
  install(FILES ${kvbm_headers} ${kvbm_wrapper} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
endif()

# A sanitized command can be run at install time too, but there is no reason to package it.
if(TARGET kvbm_command)
  install(TARGETS kvbm_command RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  install(CODE "
    execute_process(COMMAND \"$<TARGET_FILE:kvbm_command>\" man
      OUTPUT_FILE \"${PROJECT_BINARY_DIR}/kvbm.1\" RESULT_VARIABLE failed)
    foreach(shell bash zsh fish)
      execute_process(COMMAND \"$<TARGET_FILE:kvbm_command>\" completion \${shell}
        OUTPUT_FILE \"${PROJECT_BINARY_DIR}/kvbm.\${shell}\" RESULT_VARIABLE shell_failed)
      if(shell_failed)
        set(failed \${shell_failed})
      endif()
    endforeach()
    if(failed)
      message(FATAL_ERROR \"kvbm could not print its manual page or completions: \${failed}\")
    endif()")
  install(FILES "${PROJECT_BINARY_DIR}/kvbm.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  install(FILES "${PROJECT_BINARY_DIR}/kvbm.bash" RENAME kvbm
    DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  install(FILES "${PROJECT_BINARY_DIR}/kvbm.zsh" RENAME _kvbm
    DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions")
  # The unit names the command by its whole path, which --prefix may still change.
  install(CODE "
    get_filename_component(KVBM_BINDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\" ABSOLUTE)
    configure_file(\"${PROJECT_SOURCE_DIR}/tools/node/kvbm-node.service.in\" \"${PROJECT_BINARY_DIR}/kvbm-node.service\" @ONLY)")
  install(FILES "${PROJECT_BINARY_DIR}/kvbm-node.service" DESTINATION lib/systemd/system)
  install(FILES "${PROJECT_BINARY_DIR}/kvbm.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()
install(FILES LICENSE THIRD_PARTY.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME libkvbm)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_VENDOR "kvbm maintainers")
set(CPACK_PACKAGE_CONTACT "kvbm maintainers <maintainers@kvbm.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
# The package needs glibc alone: 2.35 has what the unwinder of gcc 12 asks for. A distribution's static libraries take
# more where glibc has it: libcrypto strtol() of C23 (2.38). (libevent's arc4random(), of 2.36, is tools/arc4random.cc.)
# integration.install compares.
include(CheckCSourceCompiles)
set(kvbm_glibc 2.35)
check_c_source_compiles("#include <features.h>
#if !__GLIBC_PREREQ(2, 38)
#error older
#endif
int main(void) { return 0; }" KVBM_GLIBC_2_38)
if(KVBM_GLIBC_2_38)
  set(kvbm_glibc 2.38)
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${kvbm_glibc})")
# `kvbm watch` loads it.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libzmq5")
# The UCX module is in the package and idle without UCX; nothing else needs it.
if(TARGET kvbm_ucx)
  list(APPEND kvbm_recommends "libucx0 (>= 1.13)")
endif()
# Libraries that the store for S3 loads.
if(TARGET kvbm_store_s3)
  list(APPEND kvbm_recommends "libcurl4 (>= 7.81)" "libssl3")
endif()
list(JOIN kvbm_recommends ", " CPACK_DEBIAN_PACKAGE_RECOMMENDS)
include(CPack)
