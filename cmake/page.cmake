# What src/explain/page.S takes into the library: the style sheet of a page's static steps, and the page that computes
# (docs/page.md), where `make page` has made it.
set(default_page ${PROJECT_SOURCE_DIR}/build/page/lesson.html)
set(ATTEND_PAGE ${default_page} CACHE FILEPATH "The page that computes, built in where it is there; empty: none")
set(ATTEND_STYLE ${PROJECT_SOURCE_DIR}/page/src/static.css)
set(page_definitions "ATTEND_STYLE_FILE=\"${ATTEND_STYLE}\"")
set(page_files ${ATTEND_STYLE})

# to_html() puts a text in the place of each mark.
function(check_marks file)
  file(READ ${file} page)
  foreach(name title static request)
    set(mark "<!--attend:${name}-->")
    string(FIND "${page}" "${mark}" first)
    string(FIND "${page}" "${mark}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
      message(FATAL_ERROR "${file} should have the mark ${mark} exactly once")
    endif()
    string(REPLACE "${mark}" "" page "${page}")
  endforeach()
  if(page MATCHES "<!--attend:[^>]*>")
    message(FATAL_ERROR "${file} has a mark that to_html() does not know: ${CMAKE_MATCH_0}")
  endif()
endfunction()

if(EXISTS "${ATTEND_PAGE}" AND NOT IS_DIRECTORY "${ATTEND_PAGE}")
  message(STATUS "The page that computes is built in: ${ATTEND_PAGE}")
  check_marks(${ATTEND_PAGE})
  list(APPEND page_definitions "ATTEND_PAGE_FILE=\"${ATTEND_PAGE}\"")
  list(APPEND page_files ${ATTEND_PAGE})
  # A page that is made again is checked again; one that is gone is left out.
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ATTEND_PAGE})
elseif(ATTEND_PAGE AND NOT ATTEND_PAGE STREQUAL default_page)
  message(FATAL_ERROR "ATTEND_PAGE is ${ATTEND_PAGE}, which is no file")
else()
  message(STATUS "Built without the page that computes: `make page` makes it")
endif()

set_source_files_properties(explain/page.S PROPERTIES COMPILE_DEFINITIONS "${page_definitions}"
                            OBJECT_DEPENDS "${page_files}")
