// A call of the library from Python: without the GIL, ended by Ctrl-C, its errors in Python's terms.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "attend/error.h"
#include "attend/threads.h"

namespace attend::python {

// The library's text with Python's names of dtypes (float32, not f32) and of the arguments that have another there.
std::string translate_names(std::string text);
// An error's message, in Python's names; a member function is Class.function.
std::string message_of(const Error& error);

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
    throw Error(error.code(), function, error.detail());
  }
}

}  // namespace attend::python
