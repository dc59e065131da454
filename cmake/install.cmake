# What `cmake --install` puts where: the library, its headers, a CMake package, a pkg-config file; the command, its man page
# and completions. The tree may be moved afterwards: nothing in it names its own place.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS attend EXPORT attend-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/attend DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/attend)

set(made ${PROJECT_BINARY_DIR}/cmake)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attend)
install(EXPORT attend-targets NAMESPACE attend:: DESTINATION ${package_dir})
configure_package_config_file(cmake/attend-config.cmake.in ${made}/attend-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${made}/attend-config-version.cmake VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${made}/attend-config.cmake ${made}/attend-config-version.cmake DESTINATION ${package_dir})

# pkg-config knows where its file lies, so the file can point from there; an absolute folder stays as it was given.
function(pkg_config_path folder variable)
  if(IS_ABSOLUTE ${folder})
    set(${variable} ${folder} PARENT_SCOPE)
  else()
    set(${variable} "\${prefix}/${folder}" PARENT_SCOPE)
  endif()
endfunction()
pkg_config_path(${CMAKE_INSTALL_INCLUDEDIR} ATTEND_PC_INCLUDEDIR)
pkg_config_path(${CMAKE_INSTALL_LIBDIR} ATTEND_PC_LIBDIR)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(ATTEND_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" up ${up})
  set(ATTEND_PC_PREFIX "\${pcfiledir}/${up}")
endif()
if(NOT BUILD_SHARED_LIBS)
  set(ATTEND_PC_PRIVATE "Requires.private: fmt libpng zlib tbb freetype2 libpcre2-8 libutf8proc\nLibs.private: -lstdc++ -lm")
endif()
configure_file(cmake/attend.pc.in ${made}/attend.pc @ONLY)
install(FILES ${made}/attend.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(NOT TARGET attend_command)
  return()
endif()
# The installed command finds its library beside itself, wherever the tree stands.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(library_path ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH library_path /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set(library_path "$ORIGIN/${library_path}")
endif()
set_target_properties(attend_command PROPERTIES INSTALL_RPATH ${library_path})
install(TARGETS attend_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES docs/attend.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

# The command itself writes its completions, so a build for another machine goes without.
if(NOT CMAKE_CROSSCOMPILING)
  set(completions)
  function(add_completion shell file folder)
    set(made ${PROJECT_BINARY_DIR}/completions/${file})
    add_custom_command(OUTPUT ${made} COMMAND attend_command completion ${shell} > ${made} DEPENDS attend_command
      COMMENT "Writing the ${shell} completion" VERBATIM)
    install(FILES ${made} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder})
    set(completions ${completions} ${made} PARENT_SCOPE)
  endfunction()
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/completions)
  add_completion(bash attend bash-completion/completions)
  add_completion(zsh _attend zsh/site-functions)
  add_completion(fish attend.fish fish/vendor_completions.d)
  add_custom_target(attend_completions ALL DEPENDS ${completions})
endif()
