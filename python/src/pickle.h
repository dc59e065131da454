// How objects are copied and pickled: each class of ours either does it or says why not.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

namespace attend::python {

// copy.copy() and copy.deepcopy() of what nothing changes: itself.
template <class Class>
Class& copies_are_itself(Class& c) {
  return c.def("__copy__", [](nanobind::handle self) { return nanobind::borrow(self); })
      .def(
          "__deepcopy__", [](nanobind::handle self, nanobind::handle) { return nanobind::borrow(self); },
          nanobind::arg("memo"));
}

// make(arguments) is called where it is unpickled.
template <class Class, class Make>
Class& pickles_as(Class& c, Make make) {
  return c.def("__reduce__", make, nanobind::sig("def __reduce__(self) -> tuple[Any, ...]"));
}

// Without this, an object without anything in it would come out.
template <class Class>
Class& refuses_pickle(Class& c, const std::string& why) {
  return c.def(
      "__reduce__",
      [why](nanobind::handle self) -> nanobind::object {
        const auto name = nanobind::cast<std::string>(self.type().attr("__name__"));
        throw nanobind::type_error((name + ": can't be pickled: " + why).c_str());
      },
      nanobind::sig("def __reduce__(self) -> tuple[Any, ...]"));
}

}  // namespace attend::python
