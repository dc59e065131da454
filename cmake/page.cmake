# What src/html/page.S takes into the library: the style sheet of a page's static part, and the pages that compute
# (docs/page.md), lesson.html, explorer.html and class.html, where `make page` has made them.
set(ATTEND_STYLE ${PROJECT_SOURCE_DIR}/page/src/static.css)
set(page_definitions "ATTEND_STYLE_FILE=\"${ATTEND_STYLE}\"")
set(page_files ${ATTEND_STYLE})

# fill_page() puts a text in the place of each mark.
function(check_marks file)
  file(READ ${file} page)
  foreach(name ${ARGN})
    set(mark "<!--attend:${name}-->")
    string(FIND "${page}" "${mark}" first)
    string(FIND "${page}" "${mark}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
      message(FATAL_ERROR "${file} should have the mark ${mark} exactly once")
    endif()
    string(REPLACE "${mark}" "" page "${page}")
  endforeach()
  if(page MATCHES "<!--attend:[^>]*>")
    message(FATAL_ERROR "${file} has a mark that is not known: ${CMAKE_MATCH_0}")
  endif()
endfunction()

# The cache variable names the template, by default a file of build/page/; what follows are its marks.
macro(take_page variable name what)
  set(default_page ${PROJECT_SOURCE_DIR}/build/page/${name})
  set(${variable} ${default_page} CACHE FILEPATH "The page that ${what}, built in where it is there; empty: none")
  if(EXISTS "${${variable}}" AND NOT IS_DIRECTORY "${${variable}}")
    message(STATUS "The page that ${what} is built in: ${${variable}}")
    check_marks(${${variable}} ${ARGN})
    list(APPEND page_definitions "${variable}_FILE=\"${${variable}}\"")
    list(APPEND page_files ${${variable}})
    # A page that is made again is checked again; one that is gone is left out.
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${${variable}})
  elseif(${variable} AND NOT ${variable} STREQUAL default_page)
    message(FATAL_ERROR "${variable} is ${${variable}}, which is no file")
  else()
    message(STATUS "Built without the page that ${what}: `make page` makes it")
  endif()
endmacro()

take_page(ATTEND_PAGE lesson.html "computes" title static request)
take_page(ATTEND_EXPLORER explorer.html "shows recordings and models" title static request file)
take_page(ATTEND_CLASS class.html "guides experiments" title static request)

set_source_files_properties(html/page.S PROPERTIES COMPILE_DEFINITIONS "${page_definitions}"
                            OBJECT_DEPENDS "${page_files}")
