# PCRE2 (without its JIT, which WebAssembly can't have) and utf8proc, from the sources that scripts/sources.sh has
# fetched. Debian has neither for WebAssembly.
enable_language(C)
set(sources ${PROJECT_SOURCE_DIR}/build/sources)
if(NOT EXISTS ${sources}/pcre2/.pinned OR NOT EXISTS ${sources}/utf8proc/.pinned)
  message(FATAL_ERROR "ATTEND_PAGE_MODELS=ON needs the sources of PCRE2 and utf8proc: scripts/setup.sh page-models fetches them")
endif()

set(made ${CMAKE_BINARY_DIR}/pcre2)
configure_file(${sources}/pcre2/src/config.h.generic ${made}/config.h COPYONLY)
configure_file(${sources}/pcre2/src/pcre2.h.generic ${made}/pcre2.h COPYONLY)
configure_file(${sources}/pcre2/src/pcre2_chartables.c.dist ${made}/pcre2_chartables.c COPYONLY)
set(parts)
foreach(part auto_possess compile config context error extuni find_bracket jit_compile match match_data newline ord2utf
        pattern_info script_run string_utils study tables ucd valid_utf xclass)
  list(APPEND parts ${sources}/pcre2/src/pcre2_${part}.c)
endforeach()
add_library(attend_pcre2 STATIC ${parts} ${made}/pcre2_chartables.c)
target_include_directories(attend_pcre2 SYSTEM PUBLIC ${made} PRIVATE ${sources}/pcre2/src)
target_compile_definitions(attend_pcre2 PUBLIC PCRE2_STATIC PRIVATE PCRE2_CODE_UNIT_WIDTH=8 HAVE_CONFIG_H SUPPORT_UNICODE)

add_library(attend_utf8proc STATIC ${sources}/utf8proc/utf8proc.c)
target_include_directories(attend_utf8proc SYSTEM PUBLIC ${sources}/utf8proc)
target_compile_definitions(attend_utf8proc PUBLIC UTF8PROC_STATIC)

foreach(library attend_pcre2 attend_utf8proc)
  target_compile_options(${library} PRIVATE -w)
  set_target_properties(${library} PROPERTIES EXCLUDE_FROM_ALL ON)
endforeach()
