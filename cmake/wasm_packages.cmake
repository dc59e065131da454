# fmt and nlohmann-json by their headers, which is what Debian has of them for every architecture: through links, since
# the rest of /usr/include is this machine's own.
function(attend_headers target folder)
  find_path(ATTEND_${folder}_HEADERS ${folder} PATHS /usr/include NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH REQUIRED)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/headers)
  file(CREATE_LINK ${ATTEND_${folder}_HEADERS}/${folder} ${CMAKE_BINARY_DIR}/headers/${folder} SYMBOLIC)
  add_library(${target} INTERFACE IMPORTED)
  target_include_directories(${target} SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/headers)
endfunction()

attend_headers(attend_fmt_headers fmt)
target_compile_definitions(attend_fmt_headers INTERFACE FMT_STATIC_THOUSANDS_SEPARATOR=',')
# Compiled once: in each source of a message fmt's functions took half of its time.
add_library(attend_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/wasm_fmt.cpp)
target_link_libraries(attend_fmt PUBLIC attend_fmt_headers)
target_compile_options(attend_fmt PRIVATE -w)
add_library(fmt::fmt ALIAS attend_fmt)
attend_headers(nlohmann_json::nlohmann_json nlohmann)
target_compile_definitions(nlohmann_json::nlohmann_json INTERFACE JSON_NO_IO)
