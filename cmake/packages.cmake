# The libraries that libattend is made with.
# A program links a static libattend's libraries too, in whatever folder of a project around this one it stands.
if(NOT BUILD_SHARED_LIBS)
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  set(global GLOBAL)
endif()

find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Threads REQUIRED) # which a static oneTBB links and does not look for
find_package(TBB REQUIRED)
if(ATTEND_PICTURES)
  enable_language(ASM)
  find_package(PNG REQUIRED)
  find_package(Freetype REQUIRED)
endif()
if(ATTEND_MODELS)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(ATTEND_PCRE2 REQUIRED IMPORTED_TARGET ${global} libpcre2-8>=10.40)
  pkg_check_modules(ATTEND_UTF8PROC REQUIRED IMPORTED_TARGET ${global} libutf8proc)
  # -DUTF8PROC_EXPORTS, which means something on Windows alone, would be in every compilation.
  set_property(TARGET PkgConfig::ATTEND_UTF8PROC PROPERTY INTERFACE_COMPILE_OPTIONS "")
endif()
if(ATTEND_MPI)
  set(MPI_DETERMINE_LIBRARY_VERSION ON)
  set(MPI_CXX_SKIP_MPICXX ON) # its classes for C++ are gone from MPI 3, not from all that have it
  find_package(MPI 3.0 REQUIRED COMPONENTS CXX)
endif()
