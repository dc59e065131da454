// Model.gradient().
#include "attend/gradient.h"

#include <nanobind/stl/optional.h>

#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "call.h"
#include "gradient.h"
#include "model.h"

namespace attend::python {

namespace {

constexpr const char* function = "Model.gradient";

// [K * N,C], or of all layers [L,K * N,C] -> [K,N,C], [K,L,N,C].
nb::object by_number(const nb::object& array, std::size_t K) {
  const nb::tuple shape = nb::cast<nb::tuple>(array.attr("shape"));
  const auto size = [&](std::size_t axis) { return nb::cast<std::size_t>(shape[axis]); };
  if (nb::len(shape) == 2) return array.attr("reshape")(K, size(0) / K, size(1));
  return array.attr("reshape")(size(0), K, size(1) / K, size(2)).attr("swapaxes")(0, 1);
}

nb::object gradient_(const Loaded& self, nb::handle ids, nb::handle token, nb::handle against, nb::handle position,
                     nb::handle of, nb::handle at, nb::handle edits, nb::handle types, nb::handle decoder_ids,
                     nb::handle observe, nb::handle memory) {
  const std::vector<std::int64_t> given = self.read_ids(function, "ids", ids),
                                  decoder = Loaded::read_decoder_ids(function, decoder_ids);
  const Number number(function, self, of, token, against);
  const Edits read_edits(function, edits);
  if (!read_edits.knockouts().empty())
    throw Error(ErrorCode::bad_value, function, "edits: a pass back takes no Knockout");
  std::vector<std::int64_t> of_types;
  if (!types.is_none()) of_types = list_of(read_integers(function, "types", types));
  nb::list embeddings;
  embeddings.append("embeddings");
  Watching watching(function, self.model.info(), at.is_none() ? nb::handle(embeddings) : at, observe, "at");
  GradientOptions options{.position = expect<std::int64_t>(function, "position", whole_number, position),
                          .types = of_types,
                          .decoder_ids = decoder,
                          .edits = read_edits.get()};
  if (!memory.is_none()) options.memory = expect<std::int64_t>(function, "memory", whole_number, memory);
  number.say(options);
  const Watching::Observer shown = watching.observer();
  options.observe = [&](ModelPlace place, std::int64_t layer, const View& d) {
    shown(place, layer, d.rank() == 3 ? d.reshape({d.size(0) * d.size(1), d.size(2)}) : d);
  };
  const Gradient found = call(function, [&] { return gradient(self.model, given, options); });
  const nb::dict arrays = nb::cast<nb::dict>(watching.with_kept(nb::none())[1]);
  if (number.several())
    for (const nb::handle key : nb::list(arrays.keys())) arrays[key] = by_number(arrays[key], found.values.size());
  nb::object value = nb::float_(found.values.front());
  if (number.several()) {
    Tensor all = Tensor::uninitialized({std::ssize(found.values)}, DType::f64);
    std::ranges::copy(found.values, all.data<double>());
    value = to_python({}, std::move(all));
  }
  const bool answers = options.of == GradientOf::logit || options.of == GradientOf::log_probability;
  const nb::object made = nb::module_::import_("attend._gradient").attr("Gradient");
  return made(arrays, value, found.token ? nb::object(nb::int_(*found.token)) : nb::none(),
              answers ? nb::object(nb::int_(found.position)) : nb::none());
}

constexpr const char* doc =
    R"(The gradient of a number that the model computes, by what stands at the places of its pass: an attend.Gradient.

One pass forward and one back; nothing of N x N is stored, and quantized weights are the numbers that the pass computes with.
ids [N], or a text; types, edits and decoder_ids as forward() has them.

of: "logit" (None) of `token` (an id, or its text; None: the likeliest) as the next one at the row `position`, less that of
`against`; "log_probability" of `token`, or the sum of those of a list of tokens, the first at `position` and each at the row after;
an array [V]: the cosine of the text's embed() to it; an array [N,E]: the sum of it times the hidden states; a dict
{("z", 3): array, ...}: the sum of arrays times what stands at places, "hidden" the hidden states. Arrays [K,N,...] are K numbers.

at: places as forward(keep=) names them; None: ["embeddings"], the rows of the table. observe is called with each place's name, its
layer and its gradient, from the last layer to the first. memory: bytes for what the pass back needs of the forward one
(gradient_bytes()); layers for which there is no room are computed a second time. None: as much as it needs.

Raises ValueError for what forward() refuses, for a logit of an encoder, and for NaN or infinity in a gradient.

>>> import attend, numpy
>>> model = attend.Model.load("tiny")
>>> g = model.gradient([1, 2, 3], token=4, against=5)
>>> words = (g["embeddings"] * model.weights()["embeddings"][[1, 2, 3]]).sum(1)  # gradient times input
>>> words.shape
(3,)
>>> model.gradient([1, 2, 3], of="log_probability", token=[2, 3], position=0).position
0)";

nb::tuple gradient_bytes_(const Loaded& self, nb::handle tokens, nb::handle decoder_tokens) {
  constexpr const char* of = "Model.gradient_bytes";
  const GradientBytes bytes = call(of, [&, n = expect<std::int64_t>(of, "tokens", whole_number, tokens),
                                        m = expect<std::int64_t>(of, "decoder_tokens", whole_number, decoder_tokens)] {
    return gradient_bytes(self.model, n, m);
  });
  return nb::make_tuple(bytes.all, bytes.least);
}

}  // namespace

void bind_gradient(nb::class_<Loaded>& model) {
  model.def(
      "gradient", &gradient_, nb::arg("ids"), nb::arg("token") = nb::none(), nb::arg("against") = nb::none(),
      nb::arg("position") = -1, nb::arg("of") = nb::none(), nb::arg("at") = nb::none(), nb::arg("edits") = nb::none(),
      nb::arg("types") = nb::none(), nb::arg("decoder_ids") = nb::none(), nb::arg("observe") = nb::none(),
      nb::arg("memory") = nb::none(),
      nb::sig("def gradient(self, ids: str | Ids, token: int | str | Ids | None = None, against: int | str | None = "
              "None, position: int = -1, of: str | Array | Mapping[Any, Array] | None = None, at: "
              "Sequence[str | tuple[str, int]] | None = None, edits: Sequence[Edit] | None = None, types: Ids | "
              "None = None, decoder_ids: Ids | None = None, observe: Callable[[str, int, numpy.ndarray], object] "
              "| None = None, memory: int | None = None) -> Gradient"),
      doc);
  model.def(
      "gradient_bytes", &gradient_bytes_, nb::arg("tokens"), nb::arg("decoder_tokens") = 0,
      nb::sig("def gradient_bytes(self, tokens: int, decoder_tokens: int = 0) -> tuple[int, int]"),
      "(all, least): the bytes that gradient() keeps of a text of so many tokens, and the least that `memory` can\n"
      "bring that down to, but for one layer.");
}

}  // namespace attend::python
