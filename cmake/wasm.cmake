# Compiles to WebAssembly with Debian's emscripten: the engine of the page (page/engine), and what tests it under Node.
find_path(EMSCRIPTEN_ROOT_PATH emranlib.py PATHS /usr/share/emscripten NO_DEFAULT_PATH
          DOC "emscripten's folder (Debian: emscripten)" REQUIRED)
include(${EMSCRIPTEN_ROOT_PATH}/cmake/Modules/Platform/Emscripten.cmake)

# Its linker runs Node with Debian's acorn, which a Node that is not Debian's does not look for.
set(CMAKE_CXX_LINKER_LAUNCHER ${CMAKE_COMMAND} -E env NODE_PATH=/usr/share/nodejs)
# Vectors of 16 bytes, which the baseline target's SSE2 becomes, and WebAssembly's own exceptions: Node 18, and every browser
# since 2022.
set(CMAKE_CXX_FLAGS_INIT "-msimd128 -msse2 -fwasm-exceptions")
