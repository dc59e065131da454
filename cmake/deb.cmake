# Debian packages by CPack, of the preset deb: the library, what a program is built with, the command; and of each what is
# over MPI, which so needs no MPI where it is not used.
set(library_package libattend${attend_soversion})
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(mpi_package libattend-mpi${attend_soversion})
string(REPLACE "-rc" "~rc" CPACK_PACKAGE_VERSION ${attend_version}) # Debian: a candidate is older than its release
set(this_version "(= ${CPACK_PACKAGE_VERSION}-1)")
set(CPACK_COMPONENTS_ALL library dev command)
if(ATTEND_MPI)
  list(APPEND CPACK_COMPONENTS_ALL mpi mpi_dev mpi_command)
endif()
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/deb_documents.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "attend <attend@example.org>" CACHE STRING "Who makes the packages")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library_package})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "The library: attention, its gradients, the layers around it and models made
of them, on a CPU; summaries and pictures of what they look at.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libattend-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${library_package} (= ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_DEV_DESCRIPTION "What a program is built with: headers, a CMake package and a pkg-config file.")

set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME attend)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "${library_package} (= ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_COMMAND_DESCRIPTION "The command: it explains attention on a sentence, computes it from files, and
shows what the heads of a model look at, in the terminal and as pictures.")

set(CPACK_DEBIAN_MPI_PACKAGE_NAME ${mpi_package})
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_MPI_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "${library_package} ${this_version}")
set(CPACK_DEBIAN_MPI_DESCRIPTION "The library over MPI: attention over a sequence that no single machine holds.")

set(CPACK_DEBIAN_MPI_DEV_PACKAGE_NAME libattend-mpi-dev)
set(CPACK_DEBIAN_MPI_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_MPI_DEV_PACKAGE_DEPENDS
  "libattend-dev ${this_version}, ${mpi_package} ${this_version}, libopenmpi-dev")
set(CPACK_DEBIAN_MPI_DEV_DESCRIPTION "What a program over MPI is built with: attend/mpi.h, the component mpi of the
CMake package, a pkg-config file.")

set(CPACK_DEBIAN_MPI_COMMAND_PACKAGE_NAME attend-mpi)
set(CPACK_DEBIAN_MPI_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MPI_COMMAND_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_MPI_COMMAND_PACKAGE_DEPENDS "attend ${this_version}, ${mpi_package} ${this_version}, openmpi-bin")
set(CPACK_DEBIAN_MPI_COMMAND_DESCRIPTION "The command where mpirun starts it: each process computes its rows of
attention on files, and writes its slice of the result.")
include(CPack)
