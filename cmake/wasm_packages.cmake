# fmt and nlohmann-json as headers alone, which is what Debian has of them for every architecture: through links, since
# the rest of /usr/include is this machine's own.
function(attend_headers target folder)
  find_path(ATTEND_${folder}_HEADERS ${folder} PATHS /usr/include NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH REQUIRED)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/headers)
  file(CREATE_LINK ${ATTEND_${folder}_HEADERS}/${folder} ${CMAKE_BINARY_DIR}/headers/${folder} SYMBOLIC)
  add_library(${target} INTERFACE IMPORTED)
  target_include_directories(${target} SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/headers)
endfunction()

attend_headers(fmt::fmt fmt)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY FMT_STATIC_THOUSANDS_SEPARATOR=',')
attend_headers(nlohmann_json::nlohmann_json nlohmann)
target_compile_definitions(nlohmann_json::nlohmann_json INTERFACE JSON_NO_IO)
