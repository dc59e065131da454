// Model.gradient().
#include "attend/gradient.h"

#include <nanobind/stl/optional.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "analysis.h"
#include "array.h"
#include "call.h"
#include "gradient.h"
#include "model.h"

namespace attend::python {

namespace {

constexpr const char* gradient_function = "Model.gradient";

// [K * N,C], or of all layers [L,K * N,C] -> [K,N,C], [K,L,N,C].
nb::object by_number(const nb::object& array, std::size_t K) {
  const nb::tuple shape = nb::cast<nb::tuple>(array.attr("shape"));
  const auto size = [&](std::size_t axis) { return nb::cast<std::size_t>(shape[axis]); };
  if (nb::len(shape) == 2) return array.attr("reshape")(K, size(0) / K, size(1));
  return array.attr("reshape")(size(0), K, size(1) / K, size(2)).attr("swapaxes")(0, 1);
}

// What one text is asked, and what is kept of it.
class GradientQuestion {
 public:
  GradientQuestion(const Loaded& self, std::vector<std::int64_t> ids, nb::handle token, nb::handle against,
                   nb::handle position, nb::handle of, nb::handle at, nb::handle edits, nb::handle types,
                   nb::handle decoder_ids, nb::handle observe, nb::handle memory)
      : ids_(std::move(ids)),
        decoder_(Loaded::read_decoder_ids(gradient_function, decoder_ids)),
        types_(read_types(gradient_function, types)),
        number_(gradient_function, self, of, token, against),
        edits_(gradient_function, edits),
        watching_(gradient_function, self.model.info(), at, observe, "at"),
        shown_(watching_.observer()) {
    if (!edits_.knockouts().empty())
      throw Error(ErrorCode::bad_value, gradient_function, "edits: a backward pass takes no Knockout");
    options_.position = expect<std::int64_t>(gradient_function, "position", whole_number, position);
    options_.types = types_, options_.decoder_ids = decoder_, options_.edits = edits_.get();
    if (!memory.is_none()) options_.memory = expect<std::int64_t>(gradient_function, "memory", whole_number, memory);
    number_.say(options_);
    options_.observe = [this](ModelPlace place, std::int64_t layer, const View& d) {
      shown_(place, layer, d.rank() == 3 ? d.reshape({d.size(0) * d.size(1), d.size(2)}) : d);
    };
  }
  GradientQuestion(const GradientQuestion&) = delete;
  GradientQuestion& operator=(const GradientQuestion&) = delete;

  const std::vector<std::int64_t>& ids() const { return ids_; }
  const GradientOptions& options() const { return options_; }

  nb::object result(const Gradient& found) {
    const nb::dict arrays = nb::cast<nb::dict>(watching_.with_kept(nb::none())[1]);
    if (number_.several())
      for (const nb::handle key : nb::list(arrays.keys())) arrays[key] = by_number(arrays[key], found.values.size());
    nb::object value = nb::float_(found.values.front());
    if (number_.several()) {
      Tensor all = Tensor::uninitialized({std::ssize(found.values)}, DType::f64);
      std::ranges::copy(found.values, all.data<double>());
      value = to_python({}, std::move(all));
    }
    const bool answers = options_.of != GradientOf::cosine && options_.of != GradientOf::sum;
    const nb::object made = nb::module_::import_("attend._gradient").attr("Gradient");
    return made(arrays, value, found.token ? nb::object(nb::int_(*found.token)) : nb::none(),
                answers ? nb::object(nb::int_(found.position)) : nb::none());
  }

 private:
  std::vector<std::int64_t> ids_, decoder_, types_;
  Number number_;
  Edits edits_;
  Watching watching_;
  Watching::Observer shown_;
  GradientOptions options_ = {};
};

nb::object gradient_(const Loaded& self, nb::handle ids, nb::handle token, nb::handle against, nb::handle position,
                     nb::handle of, nb::handle at, nb::handle edits, nb::handle types, nb::handle decoder_ids,
                     nb::handle observe, nb::handle memory) {
  const std::optional<nb::list> several = read_several(ids);
  const auto texts = read_texts(self, gradient_function, "ids", ids, several);
  nb::list embeddings;
  embeddings.append("embeddings");
  std::deque<GradientQuestion> asked;
  std::vector<GradientOptions> options;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const auto each = [&](const char* name, nb::handle given, bool many = false) {
      return several ? of_each(gradient_function, name, given, n, texts.size(), many) : nb::borrow(given);
    };
    asked.emplace_back(self, texts[n], each("token", token), each("against", against), each("position", position), of,
                       at.is_none() ? nb::handle(embeddings) : at, edits, each("types", types, true),
                       each("decoder_ids", decoder_ids, true), observe, memory);
    options.push_back(asked.back().options());
  }
  const std::vector<Gradient> found = call(gradient_function, [&] {
    if (several) return gradient(self.model, texts, options);
    return std::vector<Gradient>{gradient(self.model, texts[0], options[0])};
  });
  nb::list all;
  for (std::size_t n = 0; n < found.size(); ++n) all.append(asked[n].result(found[n]));
  return several ? results_of(all) : nb::object(all[0]);
}

constexpr const char* gradient_doc =
    R"(The gradient of a number that the model computes, by what stands at places of its pass: an attend.Gradient.

It takes one pass forward and one backward. Nothing of N x N is stored. Quantized weights count as the numbers that the pass computes
with. ids [N], or a text; types, edits and decoder_ids are as for forward().

of says which number:
- "logit" (or None): the logit of `token` (an id or its text; None: the likeliest) as the next token after the row `position`, less
  that of `against`
- "log_probability": that of `token`; or for a list of tokens the sum, the first at `position` and each next one a row later
- "label": the logit of the label `token` of a task's head, by name or number (None: the highest), less that of `against`. For models
  that tag or fill, at the row `position`
- an array [V]: the cosine between it and the text's embed()
- an array [N,E]: the sum of the array times the hidden states
- a dict {("z", 3): array, ...}: the sum of the arrays times what stands at these places; "hidden" are the hidden states
Arrays [K,N,...] ask for K numbers at once.

at: places, named as for forward(keep=); None: ["embeddings"], the rows of the table.
observe: called with each place's name, its layer and its gradient, from the last layer to the first.
memory: bytes for what the backward pass needs from the forward pass (gradient_bytes()). Layers that find no room are computed a
second time. None: as much as it needs.

A list of texts, or of lists of ids, gives attend.Results, a list of Gradient, computed several texts at a time; token, against,
position, types and decoder_ids apply to all texts, or are lists with one entry for each.

Raises ValueError for what forward() refuses, for an encoder's logit, and for NaN or infinity in a gradient.

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
      nb::sig("@overload\n"
              "def gradient(self, ids: str | Ids, token: int | str | Ids | None = None, against: int | str | None = "
              "None, position: int = -1, of: str | Array | Mapping[Any, Array] | None = None, at: "
              "Sequence[str | tuple[str, int]] | None = None, edits: Sequence[Edit] | None = None, types: Ids | "
              "None = None, decoder_ids: Ids | None = None, observe: Callable[[str, int, numpy.ndarray], object] "
              "| None = None, memory: int | None = None) -> Gradient: ...\n"
              "@overload\n"
              "def gradient(self, ids: list[str] | tuple[str, ...] | Sequence[Sequence[int] | numpy.ndarray], token: "
              "int | str | None | Sequence[int | str | None] = None, against: int | str | None | Sequence[int | str | "
              "None] = None, position: int | Sequence[int] = -1, of: str | Array | Mapping[Any, Array] | None = None, "
              "at: Sequence[str | tuple[str, int]] | None = None, edits: Sequence[Edit] | None = None, types: "
              "Sequence[Ids] | None = None, decoder_ids: Ids | None | Sequence[Ids] = None, observe: "
              "Callable[[str, int, numpy.ndarray], object] | None = None, memory: int | None = None) -> "
              "attend.Results[Gradient]: ...\n"
              "def gradient(self, ids: str | Ids | Sequence[str | Ids], token: int | str | Ids | None | Sequence[int | "
              "str | None] = None, against: int | str | None | Sequence[int | str | None] = None, position: int | "
              "Sequence[int] = -1, of: str | Array | Mapping[Any, Array] | None = None, at: Sequence[str | tuple[str, "
              "int]] | None = None, edits: Sequence[Edit] | None = None, types: Ids | Sequence[Ids] | None = None, "
              "decoder_ids: Ids | None | Sequence[Ids] = None, observe: Callable[[str, int, numpy.ndarray], object] | "
              "None = None, memory: int | None = None) -> Gradient | attend.Results[Gradient]"),
      gradient_doc);
  model.def("gradient_bytes", &gradient_bytes_, nb::arg("tokens"), nb::arg("decoder_tokens") = 0,
            nb::sig("def gradient_bytes(self, tokens: int, decoder_tokens: int = 0) -> tuple[int, int]"),
            "(all, least): the bytes that gradient() keeps for a text with that many tokens, and the least that "
            "`memory` can\nbring this down to, apart from one layer.");
}

}  // namespace attend::python
