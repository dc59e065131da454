#include "text.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace attend::python {

namespace {

std::string text_by(PyObject* (*make)(PyObject*), nb::handle object) {
  const nb::object text = nb::steal(make(object.ptr()));
  if (!text.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw nb::python_error();  // Ctrl-C
    PyErr_Clear();
  }
  std::string result;
  if (text.is_valid() && nb::try_cast(text, result)) return result;
  return "<" + nb::cast<std::string>(object.type().attr("__name__")) + ">";
}

}  // namespace

std::string text_of(nb::handle object) {
  return text_by(PyObject_Str, object);
}

std::string repr_of(nb::handle object) {
  return text_by(PyObject_Repr, object);
}

std::string path_of(nb::handle path) {
  const auto encoded = nb::cast<nb::bytes>(nb::module_::import_("os").attr("fsencode")(path));
  return {encoded.c_str(), encoded.size()};
}

}  // namespace attend::python
