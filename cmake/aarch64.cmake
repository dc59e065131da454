# Cross-compiles for AArch64, with the libraries that scripts/test_aarch64.sh unpacks, and runs what it builds under qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(ATTEND_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-root ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${ATTEND_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# Files besides headers, such as the font, may be the building machine's.
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)

# What the libraries need of each other.
set(ATTEND_ROOT_LIBRARIES ${ATTEND_ROOT}/usr/lib/aarch64-linux-gnu:${ATTEND_ROOT}/lib/aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${ATTEND_ROOT_LIBRARIES})
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${ATTEND_ROOT_LIBRARIES})
