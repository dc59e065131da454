// attend.Steering, and Model.steering().
#include "attend/steering.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "model.h"
#include "pickle.h"
#include "text.h"

// A map of what can't be copied says that it can.
template <>
struct nanobind::detail::is_copy_constructible<attend::Steering> : std::false_type {};

namespace attend::python {

namespace {

nb::dict directions(const Steering& self) {
  nb::dict all;
  for (const auto& [layer, direction] : self.directions) all[nb::int_(layer)] = to_python({}, direction.clone());
  return all;
}

nb::list edits(const Steering& self, double scale) {
  const Steering scaled = call("Steering.edits", [&] { return self.scaled(scale); });
  nb::list all;
  for (const auto& [layer, direction] : scaled.directions)
    all.append(nb::type<GivenEdit>()(nb::arg("layer") = layer + 1, nb::arg("at") = "residual",
                                     nb::arg("add") = to_python({}, direction.clone())));
  return all;
}

std::vector<TextPair> read_pairs(const char* function, nb::handle given) {
  std::vector<TextPair> pairs;
  for (const nb::handle each : read_list(function, "pairs", "a list of pairs of texts", given)) {
    const std::string place = "pairs[" + std::to_string(pairs.size()) + "]";
    const bool two = (nb::isinstance<nb::tuple>(each) || nb::isinstance<nb::list>(each)) && nb::len(each) == 2;
    if (!two || !nb::isinstance<nb::str>(each[0]) || !nb::isinstance<nb::str>(each[1]))
      refuse(function, place, "two texts, what to say more and what less", each);
    pairs.emplace_back(text_of(each[0]), text_of(each[1]));
  }
  return pairs;
}

Steering steering(const Loaded& self, nb::handle pairs, const std::string& method,
                  const std::optional<std::pair<std::int64_t, std::int64_t>>& layers, nb::handle progress) {
  constexpr const char* function = "Model.steering";
  SteeringOptions options{.progress = progress_of(function, progress)};
  if (method != "mean" && method != "principal")
    throw Error(ErrorCode::bad_value, function, "method is '" + method + "', expected 'mean' or 'principal'");
  if (method == "principal") options.method = SteeringOptions::Method::principal;
  if (layers) options.first = layers->first, options.last = layers->second;
  const std::vector<TextPair> given = read_pairs(function, pairs);
  (void)self.tokenizer(function);
  return call(function, [&] { return make_steering(self.model, given, options); });
}

nb::tuple steering_state_of(const Steering& self) {
  return nb::make_tuple(self.model, directions(self));
}

void steering_restore(Steering& self, const nb::tuple& state) {
  Steering out{.directions = {}, .model = nb::cast<std::string>(state[0])};
  for (const auto& [layer, direction] : nb::cast<nb::dict>(state[1]))
    out.directions.emplace(nb::cast<std::int64_t>(layer), Array("Steering", "state", direction).view().clone());
  new (&self) Steering(std::move(out));
}

std::string steering_describe(const Steering& self) {
  if (self.directions.empty()) return "Steering()";
  return "Steering(layers " + std::to_string(self.directions.begin()->first) + " to " +
         std::to_string(self.directions.rbegin()->first) + ", of " +
         std::to_string(self.directions.begin()->second.count()) + " numbers)";
}

constexpr const char* steering_class_doc =
    R"(A direction in a decoder's stream that makes it say more of one thing. Model.steering() finds it, and load() reads it.

directions is a dict of arrays [E] by layer, counted as in llama.cpp: the direction for layer n is added to that layer's output, so
layer 0 has none. edits(scale) gives the edits that forward(), generate() and others take. save() writes llama.cpp's control vector.

>>> import attend
>>> model = attend.Model.load("tiny")
>>> calm = model.steering([("the cat", "cat the"), ("the mat", "mat the")])
>>> calm
Steering(layers 1 to 1, of 16 numbers)
>>> calm.edits(0.5)
[Edit(layer=2, at='residual', add=an array)])";

constexpr const char* steering_doc =
    R"(The direction that tells the first text of each pair from the second, an attend.Steering (Turner et al. 2023).

pairs: pairs of texts; the first text of each has what is wanted.
method: "mean" takes the mean of the differences between the two texts' streams at their last tokens, after each layer (Rimsky et al.
2023). "principal" takes their first principal component, not centred, as long as their mean is along it.
layers: the first and the last layer, counted from 1; None: all.
progress: called with the share done.
Raises ValueError for encoders.)";

}  // namespace

void bind_steering(nb::module_& m, nb::class_<Loaded>& model) {
  nb::class_<Steering> steered(m, "Steering", steering_class_doc);
  copies_are_itself(steered);
  steered.def("__getstate__", &steering_state_of).def("__setstate__", &steering_restore);
  steered
      .def_prop_ro("directions", &directions, nb::sig("def directions(self) -> dict[int, numpy.ndarray]"),
                   "[E] by layer")
      .def_ro("model", &Steering::model, "the type of the model that it was made with")
      .def("edits", &edits, nb::arg("scale") = 1.0, nb::sig("def edits(self, scale: float = 1.0) -> list[Edit]"),
           "The edits that add scale times the directions to every row, also for the tokens that generate() writes.")
      .def(
          "save",
          [](const Steering& self, nb::handle path) {
            const std::string to = path_of(path);
            call("Steering.save", [&] { self.save(to); });
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str] | bytes) -> None"),
          "Writes llama.cpp's control-vector file (.gguf).")
      .def_static(
          "load",
          [](nb::handle path) {
            const std::string from = path_of(path);
            return call("Steering.load", [&] { return Steering::load(from); });
          },
          nb::arg("path"), nb::sig("def load(path: str | os.PathLike[str] | bytes) -> Steering"),
          "Reads a control-vector file, from attend or llama.cpp; OSError where it is not one.")
      .def("__repr__", &steering_describe);
  model.def(
      "steering", &steering, nb::arg("pairs"), nb::arg("method") = "mean", nb::arg("layers") = nb::none(),
      nb::arg("progress") = nb::none(),
      nb::sig("def steering(self, pairs: Sequence[tuple[str, str]], method: Literal['mean', 'principal'] = 'mean', "
              "layers: tuple[int, int] | None = None, progress: Callable[[float], object] | None = None) -> Steering"),
      steering_doc);
}

}  // namespace attend::python
