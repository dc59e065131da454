# What Debian asks of every package besides: its licence and its changes, and that pages are compressed. CPack runs it.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr/share)
  set(documents ${share}/doc/${package})
  file(READ ${CMAKE_CURRENT_LIST_DIR}/../NOTICE notice)
  file(WRITE ${documents}/copyright "The licence of attend is the Apache License, version 2.0: /usr/share/common-licenses/Apache-2.0\n\n${notice}")
  file(WRITE ${documents}/changelog.Debian "attend (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * attend ${CPACK_PACKAGE_VERSION}: CHANGELOG.md in its sources has what is new.

 -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${date}
")
  file(GLOB pages ${documents}/changelog.Debian ${share}/man/man1/*.1)
  execute_process(COMMAND gzip --no-name --best ${pages} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
