// attend.JacobianLens, and Model.jacobian_lens().
#include "attend/jacobian_lens.h"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "model.h"
#include "pickle.h"
#include "text.h"

// What has tensors in it can't be copied.
template <>
struct nanobind::detail::is_copy_constructible<attend::JacobianLens> : std::false_type {};

namespace attend::python {

namespace {

nb::object jacobians(const JacobianLens& self) {
  const std::int64_t L = std::ssize(self.jacobians), E = L == 0 ? 0 : self.jacobians[0].size(0);
  Tensor all({L, E, E});
  for (std::int64_t layer = 0; layer < L; ++layer)
    all.view().select(0, layer).copy_from(self.jacobians[static_cast<std::size_t>(layer)]);
  return to_python({}, std::move(all));
}

JacobianLens copy_of(const JacobianLens& lens) {
  JacobianLens out;
  out.merge(lens);
  return out;
}

JacobianLens of_arrays(const char* function, nb::handle given, std::int64_t prompts) {
  const Array array(function, "jacobians", given);
  const View& all = array.view();
  if (all.rank() != 3 || all.size(1) != all.size(2) || !is_floating(all.dtype()))
    refuse(function, "jacobians", "floating point [L-1,E,E]", given);
  if (prompts < 1)
    throw Error(ErrorCode::bad_value, function, "prompts is " + std::to_string(prompts) + ", expected at least 1");
  JacobianLens out{.jacobians = {}, .prompts = prompts, .texts = {}};
  for (std::int64_t layer = 0; layer < all.size(0); ++layer)
    out.jacobians.push_back(all.select(0, layer).to(DType::f32));
  return out;
}

JacobianLens fit(const Loaded& self, nb::handle ids, std::int64_t skip, std::int64_t block, nb::handle progress) {
  constexpr const char* function = "Model.jacobian_lens";
  const std::optional<nb::list> several = read_several(ids);
  const auto texts = read_texts(self, function, "ids", ids, several);
  const std::function<void(double)> tell = progress_of(function, progress);
  return call(function,
              [&] { return jacobian_lens(self.model, texts, {.skip = skip, .block = block, .progress = tell}); });
}

std::string jacobian_lens_describe(const JacobianLens& self) {
  const std::string size = self.jacobians.empty() ? "0" : std::to_string(self.jacobians[0].size(0));
  return "JacobianLens(" + std::to_string(self.jacobians.size()) + " layers of [" + size + "," + size + "], " +
         std::to_string(self.prompts) + " prompts)";
}

constexpr const char* jacobian_lens_class_doc =
    R"(What each layer's stream means for the last one (Gurnee et al. 2026): Model.jacobian_lens() finds it, and lens(jacobian=) uses it.

jacobians [L-1,E,E] has, for each layer but the last, the derivative of the stream after the last layer (before the last norm) by the
stream after that layer, as a mean over rows and prompts. JacobianLens(jacobians, prompts) makes a lens from arrays. merge() gives the
mean over the prompts of both, so that several machines can share the work. save() and load() use a .safetensors file, from_torch()
and to_torch() the .pt file of TransformerLens.

>>> import attend
>>> model = attend.Model.load("tiny")
>>> found = model.jacobian_lens([1, 2, 3, 4, 5, 6], skip=2)
>>> found.jacobians.shape, found.prompts
((1, 16, 16), 1)
>>> found.merge(model.jacobian_lens([6, 5, 4, 3, 2, 1], skip=2)).prompts
2
>>> model.lens([1, 2, 3], jacobian=found).rank.shape
(3, 3))";

constexpr const char* fit_doc =
    R"(The mean derivative of the stream after the last layer by the stream after each earlier layer: an attend.JacobianLens.

ids: a prompt, or a list of prompts to take the mean over. Each takes about as long as E passes over it. Longer prompts say more about
distant words.
skip: how many rows at the beginning are left out of the mean; the last row is left out too.
block: how many of the E numbers go back in one pass. More take more memory; the result is the same.
progress: called with the share done.
Raises ValueError for fewer than skip + 2 tokens, for encoders and for encoder-decoders.)";

}  // namespace

void bind_jacobian_lens(nb::module_& m, nb::class_<Loaded>& model) {
  nb::class_<JacobianLens> lens(m, "JacobianLens", jacobian_lens_class_doc);
  copies_are_itself(lens);
  pickles_as(lens, [](nb::handle self) {
    const auto& of = nb::cast<const JacobianLens&>(self);
    return nb::make_tuple(self.type(), nb::make_tuple(jacobians(of), of.prompts));
  });
  const auto torch_files = [] { return nb::module_::import_("attend._jacobian_torch"); };
  lens.def(
          "__init__",
          [](JacobianLens* self, nb::handle given, std::int64_t prompts) {
            new (self) JacobianLens(of_arrays("JacobianLens", given, prompts));
          },
          nb::arg("jacobians"), nb::arg("prompts"),
          nb::sig("def __init__(self, jacobians: Array, prompts: int) -> None"))
      .def_prop_ro("jacobians", &jacobians, nb::sig("def jacobians(self) -> numpy.ndarray"), "[L-1,E,E], a copy")
      .def_ro("prompts", &JacobianLens::prompts, "that they are means over")
      .def(
          "merge",
          [](const JacobianLens& self, const JacobianLens& other) {
            return call("JacobianLens.merge", [&] {
              JacobianLens out = copy_of(self);
              out.merge(other);
              return out;
            });
          },
          nb::arg("other"), "The mean over the prompts of both; ValueError for another model's.")
      .def(
          "save",
          [](const JacobianLens& self, nb::handle path) {
            const std::string to = path_of(path);
            call("JacobianLens.save", [&] { self.save(to); });
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str] | bytes) -> None"),
          "Writes a .safetensors file.")
      .def_static(
          "load",
          [](nb::handle path) {
            const std::string from = path_of(path);
            return call("JacobianLens.load", [&] { return JacobianLens::load(from); });
          },
          nb::arg("path"), nb::sig("def load(path: str | os.PathLike[str] | bytes) -> JacobianLens"),
          "Reads a .safetensors file; OSError where it is not a Jacobian lens.")
      .def(
          "to_torch",
          [torch_files](nb::handle_t<JacobianLens> self, nb::handle path) { torch_files().attr("write")(self, path); },
          nb::arg("path"), nb::sig("def to_torch(self, path: str | os.PathLike[str] | bytes) -> None"),
          "Writes the .pt file of TransformerLens, in float16; ImportError without torch.")
      .def_static(
          "from_torch", [torch_files](nb::handle path) { return nb::object(torch_files().attr("read")(path)); },
          nb::arg("path"), nb::sig("def from_torch(path: str | os.PathLike[str] | bytes) -> JacobianLens"),
          "Reads the .pt file of TransformerLens with torch's weights-only loader; ValueError where it is not one.")
      .def("__repr__", &jacobian_lens_describe);
  model.def("jacobian_lens", &fit, nb::arg("ids"), nb::arg("skip") = 16, nb::arg("block") = 32,
            nb::arg("progress") = nb::none(),
            nb::sig("def jacobian_lens(self, ids: str | Ids | Sequence[str | Ids], skip: int = 16, block: int = 32, "
                    "progress: Callable[[float], object] | None = None) -> JacobianLens"),
            fit_doc);
}

}  // namespace attend::python
