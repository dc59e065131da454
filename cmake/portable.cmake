# Compiles for Linux of any distribution with Zig's Clang and libc++, which know old C libraries: glibc 2.17 and musl, x86-64 and
# AArch64. scripts/portable.sh passes the target (x86_64-gnu, ...), the compilers and the libraries that it has made.
set(CMAKE_SYSTEM_NAME Linux)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ATTEND_PORTABLE_TARGET)
string(REGEX REPLACE "-.*" "" CMAKE_SYSTEM_PROCESSOR ${ATTEND_PORTABLE_TARGET})

get_filename_component(ATTEND_PORTABLE ${CMAKE_CURRENT_LIST_DIR}/../build/portable/${ATTEND_PORTABLE_TARGET} ABSOLUTE)
set(CMAKE_C_COMPILER ${ATTEND_PORTABLE}/bin/cc)
set(CMAKE_CXX_COMPILER ${ATTEND_PORTABLE}/bin/c++)
set(CMAKE_AR ${ATTEND_PORTABLE}/bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${ATTEND_PORTABLE}/bin/ranlib CACHE FILEPATH "")

set(CMAKE_FIND_ROOT_PATH ${ATTEND_PORTABLE}/root)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# Files besides headers, such as the font, may be the building machine's.
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)

# What nothing calls is left out.
set(CMAKE_C_FLAGS_INIT "-ffunction-sections -fdata-sections")
set(CMAKE_CXX_FLAGS_INIT ${CMAKE_C_FLAGS_INIT})
