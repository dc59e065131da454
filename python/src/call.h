// A call of the library from Python: without the GIL, ended by Ctrl-C, its errors in Python's terms.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "attend/error.h"
#include "attend/threads.h"

namespace attend::python {

// The library's text with Python's names of dtypes (float32, not f32) and of the arguments that have another there.
std::string translate_names(std::string text);
// An error's message, in Python's names; a member function is Class.function.
std::string message_of(const Error& error);

enum class Gil : bool { released, held };

// While Python ends, a thread that waits for the GIL is ended by pthread_exit(), which C++ frames do not survive: the
// process aborts. So a thread that computes holds one of these when it asks for the GIL, or calls what may give it away
// and ask for it again (PyTorch's is_neg() does), and comes to hold none from then on that Python's atexit functions
// run: it stays where it is, as in Python 3.14, without the GIL, until the process is gone.
class MayAskForGil {
 public:
  // Whether this thread holds the GIL now: the stable ABI has no function that tells.
  explicit MayAskForGil(Gil now);
  ~MayAskForGil();
  MayAskForGil(const MayAskForGil&) = delete;
  MayAskForGil& operator=(const MayAskForGil&) = delete;
};
void keep_threads_when_python_ends();

struct WithoutGil {
  PyThreadState* state = PyEval_SaveThread();

  WithoutGil() = default;
  ~WithoutGil() {
    const MayAskForGil may(Gil::released);
    PyEval_RestoreThread(state);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
};

// The GIL, for a function of Python that a call tells something.
class WithGil {
 public:
  WithGil() {
    const MayAskForGil may(Gil::released);
    gil_.emplace();
  }

 private:
  std::optional<nanobind::gil_scoped_acquire> gil_;
};

// What a constructor was given, in the order of its signature, "def __init__(self, ...) -> None", which says of what
// types. nanobind calls constructors itself, past what stands before functions (function.cpp), so they are bound with
// *args and **keywords. Throws TypeError.
nanobind::list constructed_with(const char* name, const std::string& signature, const nanobind::args& args,
                                const nanobind::kwargs& keywords);

// body() without the GIL. Every 20 ms Python looks for signals; KeyboardInterrupt (or what another handler raises) then
// ends the call.
template <class Body>
auto call(const char* function, Body body) {
  try {
    const WithoutGil without;
    const InterruptCheck check([] {
      const MayAskForGil may(Gil::released);
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
