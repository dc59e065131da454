// attend.VectorFile.
#include "attend/vectors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <array>

#include "array.h"
#include "bindings.h"
#include "call.h"
#include "pickle.h"
#include "text.h"

namespace attend::python {

namespace {

struct OpenVectors {
  VectorFile file;
  nb::object path;
};

constexpr const char* vectors_signature = "def __init__(self, path: str | os.PathLike[str] | bytes) -> None";

void vectors_construct(OpenVectors* self, const nb::args& args, const nb::kwargs& keywords) {
  const std::string path = path_of(constructed_with("VectorFile", vectors_signature, args, keywords)[0]);
  new (self) OpenVectors{call("VectorFile", [&] { return VectorFile(path); }), lasting_path(path)};
}

// Looks into the file, and keeps it open.
nb::object rows(nb::handle self) {
  const View rows = nb::cast<const OpenVectors&>(self).file.rows();
  const std::array sizes{static_cast<std::size_t>(rows.size(0)), static_cast<std::size_t>(rows.size(1))};
  return nb::cast(nb::ndarray<nb::numpy, const float>(rows.data<float>(), sizes.size(), sizes.data(), self));
}

nb::list listed(const std::vector<Near>& found) {
  const nb::object near = nb::module_::import_("attend._vectors").attr("Near");
  nb::list list;
  for (const Near& each : found) list.append(near(each.row, each.similarity));
  return list;
}

nb::list vectors_nearest(const OpenVectors& self, nb::handle query, std::int64_t k) {
  constexpr const char* function = "VectorFile.nearest";
  const Array given(function, "query", query);
  return listed(call(function, [&] { return self.file.nearest(given.view(), k); }));
}

nb::list nearest_each(const OpenVectors& self, nb::handle queries, std::int64_t k) {
  constexpr const char* function = "VectorFile.nearest_each";
  const Array given(function, "queries", queries);
  nb::list all;
  for (const auto& each : call(function, [&] { return self.file.nearest_each(given.view(), k); }))
    all.append(listed(each));
  return all;
}

std::string vectors_describe(const OpenVectors& self) {
  const View rows = self.file.rows();
  return "<attend.VectorFile: " + std::to_string(rows.size(0)) + " vectors of " + std::to_string(rows.size(1)) + ">";
}

constexpr const char* vectors_class_doc =
    R"(The vectors of many texts in an .npy file [N,V], float32, searched in place. `attend embed` and numpy.save() write it.

The file must not change while it is open.

>>> import attend, numpy
>>> numpy.save("vectors.npy", numpy.eye(3, 4, dtype=numpy.float32))
>>> vectors = attend.VectorFile("vectors.npy")
>>> len(vectors), vectors.rows.shape
(3, (3, 4))
>>> vectors.nearest(numpy.array([0, 3, 4, 0], numpy.float32), k=2)
[Near(row=2, similarity=0.8), Near(row=1, similarity=0.6)])";

constexpr const char* vectors_nearest_doc =
    R"(The k rows nearest to query [V], float32, by cosine, nearest first: a list of attend.Near. Of equal rows, the first comes first.

All rows are read, so the result is exact. A row of zeros has similarity 0, and a row with NaN comes last.)";

constexpr const char* nearest_each_doc =
    R"(What nearest() gives for each of the queries [Q,V], float32, in one pass over the rows: a list of lists.)";

}  // namespace

void bind_vectors(nb::module_& m) {
  nb::class_<OpenVectors> file(m, "VectorFile", vectors_class_doc);
  copies_are_itself(file);
  pickles_as(
      file, [](const OpenVectors& self) { return nb::make_tuple(nb::type<OpenVectors>(), nb::make_tuple(self.path)); });
  file.def("__init__", &vectors_construct, nb::sig(vectors_signature))
      .def_prop_ro("rows", &rows, nb::sig("def rows(self) -> numpy.ndarray"),
                   "[N,V] float32, read only: the file's own")
      .def("nearest", &vectors_nearest, nb::arg("query").none(), nb::arg("k") = 10,
           nb::sig("def nearest(self, query: Array, k: int = 10) -> list[attend.Near]"), vectors_nearest_doc)
      .def("nearest_each", &nearest_each, nb::arg("queries").none(), nb::arg("k") = 10,
           nb::sig("def nearest_each(self, queries: Array, k: int = 10) -> list[list[attend.Near]]"), nearest_each_doc)
      .def("__len__", [](const OpenVectors& self) { return self.file.rows().size(0); })
      .def("__repr__", &vectors_describe);
}

}  // namespace attend::python
