#include "text.h"

#include <nanobind/stl/string.h>

#include <filesystem>

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
  constexpr std::size_t most = 120;
  std::string text = text_by(PyObject_Repr, object);
  if (text.size() <= most) return text;
  std::size_t end = most - 4;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // within a character
  return text.substr(0, end) + " ...";
}

void refuse(const char* function, const std::string& name, const char* expected, nb::handle object) {
  throw nb::type_error(
      (std::string(function) + ": " + name + ": expected " + expected + ", got " + repr_of(object)).c_str());
}

std::string path_of(nb::handle path) {
  const auto encoded = nb::cast<nb::bytes>(nb::module_::import_("os").attr("fsencode")(path));
  return {encoded.c_str(), encoded.size()};
}

nb::str lasting_path(const std::string& path) {
  std::error_code none;
  const bool there = std::filesystem::exists(path, none);
  const std::string lasting = there ? std::filesystem::absolute(path, none).string() : path;
  return nb::borrow<nb::str>(nb::module_::import_("os").attr("fsdecode")(nb::bytes(lasting.data(), lasting.size())));
}

}  // namespace attend::python
