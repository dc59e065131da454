// A call of the library from Python: without the GIL, ended by Ctrl-C, its errors in Python's terms.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "attend/error.h"
#include "attend/threads.h"

namespace attend::python {

// The detail of one of the library's errors, with Python's names of arguments. They are looked for in the text: only
// these two differ, and they are told by the library's checks of shapes, dtypes, values and overlap alike.
std::string translate_names(std::string_view detail);

// body() without the GIL. Every 20 ms Python looks for signals; KeyboardInterrupt (or what another handler raises) then
// ends the call.
template <class Body>
auto call(const char* function, Body body) {
  try {
    const nanobind::gil_scoped_release release;
    const InterruptCheck check([] {
      const nanobind::gil_scoped_acquire gil;
      return PyErr_CheckSignals() != 0;
    });
    return body();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::interrupted) throw nanobind::python_error();  // what PyErr_CheckSignals left
    throw Error(error.code(), function, translate_names(error.detail()));
  }
}

}  // namespace attend::python
