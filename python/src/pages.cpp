// attend.Page: what Recording.show() and Model.show() give.
#include "attend/pages.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <string>

#include "attend/io.h"
#include "bindings.h"
#include "call.h"
#include "frame.h"
#include "text.h"

namespace nb = nanobind;

namespace attend::python {

namespace {

constexpr const char* page_doc =
    R"(An HTML page that shows a recording or has a model in it. Recording.show() and Model.show() make it.

At the end of a notebook's cell it is shown in a frame of its own. save() writes it as a file, which opens without a network. It
computes if attend was built with that page (wheels are); else it is a picture with words, and note says so.)";

Page recording_page_(const Recording& recording, const std::string& function, const std::string& head,
                     std::int64_t item, std::int64_t budget, bool strict) {
  return call(function.c_str(), [&] {
    return recording_page(recording, {.item = item, .head = head, .budget = budget, .strict = strict});
  });
}

std::string describe(const Page& self) {
  const std::string size = std::to_string((self.html.size() + 50'000) / 100'000);  // tenths of a MB
  const std::string places = size.size() < 2 ? "0" + size : size;
  return "<attend.Page: " + places.substr(0, places.size() - 1) + "." + places.back() + " MB>";
}

}  // namespace

void bind_pages(nb::module_& m) {
  nb::class_<Page> page(m, "Page", page_doc);
  page.def("__getstate__", [](const Page& self) { return nb::make_tuple(self.html, self.left_out, self.note); });
  page.def("__setstate__", [](Page& self, const std::tuple<std::string, std::string, std::string>& state) {
    const auto& [html, left_out, note] = state;
    new (&self) Page{html, left_out, note};
  });
  page.def_ro("html", &Page::html, "the page, as text")
      .def_ro("left_out", &Page::left_out, "what it leaves out of the recording, in words; '' if it has everything")
      .def_ro("note", &Page::note, "why it does not compute; '' if it does")
      .def(
          "save",
          [](const Page& self, nb::handle path) {
            const std::string name = path_of(path);
            call("Page.save", [&] { write_file(name, self.html); });
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Write it, as .html by custom.")
      .def("_repr_html_", [](const Page& self) { return in_a_frame("Attention, head by head", self.html); })
      .def("__repr__", &describe);
  m.def("_recording_page", &recording_page_);
}

}  // namespace attend::python
