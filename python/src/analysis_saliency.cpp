// Model.saliency(), and how a Saliency is looked at.
#include "analysis.h"
#include "attend/saliency.h"
#include "gradient.h"

namespace attend::python {

namespace {

constexpr const char* saliency_function = "Model.saliency";

struct Path {
  nb::handle method, baseline, steps;
};

nb::object of_one(const Loaded& self, nb::handle ids, const Number& number, nb::handle position, const Path& path,
                  nb::handle types, nb::handle decoder_ids, const std::function<void(double)>& progress) {
  const std::vector<std::int64_t> given = self.read_ids(saliency_function, "ids", ids),
                                  decoder = Loaded::read_decoder_ids(saliency_function, decoder_ids);
  const std::vector<std::int64_t> of_types = read_types(saliency_function, types);
  const std::string method = expect<std::string>(saliency_function, "method", "'integrated' or 'input'", path.method);
  if (method != "integrated" && method != "input")
    throw Error(ErrorCode::bad_value, saliency_function,
                "method is '" + method + "', expected 'integrated' or 'input'");
  SaliencyOptions options;
  options.number.position = expect<std::int64_t>(saliency_function, "position", whole_number, position);
  options.number.types = of_types, options.number.decoder_ids = decoder;
  number.say(options.number);
  options.method = method == "input" ? SaliencyMethod::input : SaliencyMethod::integrated;
  const bool of_token = nb::isinstance<nb::str>(path.baseline) ||
                        (PyIndex_Check(path.baseline.ptr()) && !PySequence_Check(path.baseline.ptr()));
  const OptionalArray base(saliency_function, "baseline", of_token ? nb::handle(nb::none()) : path.baseline);
  options.baseline = base.view();
  if (of_token) options.baseline_token = self.read_token(saliency_function, "baseline", path.baseline);
  options.steps = expect<std::int64_t>(saliency_function, "steps", whole_number, path.steps);
  options.progress = progress;
  const Saliency found = call(saliency_function, [&] { return saliency(self.model, given, options); });
  Analysed context = analysed(self, given, decoder);
  context.token = found.token, context.against = found.against;
  return found_as("Saliency", context, to_python({}, found.tokens),
                  found.encoder.count() > 0 ? to_python({}, found.encoder) : nb::object(nb::none()), found.value,
                  found.baseline_value, found.missing, found.steps);
}

nb::object saliency_(const Loaded& self, nb::handle ids, nb::handle token, nb::handle against, nb::handle position,
                     nb::handle of, nb::handle method, nb::handle baseline, nb::handle steps, nb::handle types,
                     nb::handle decoder_ids, nb::handle progress) {
  return of_texts(saliency_function, ids, progress, [&](const auto& each, const nb::object& text, const auto& told) {
    const Number number(saliency_function, self, of, each("token", token), each("against", against));
    return of_one(self, text, number, each("position", position), {method, baseline, steps}, each("types", types, true),
                  each("decoder_ids", decoder_ids, true), told);
  });
}

constexpr const char* saliency_doc =
    R"(Which tokens of the text a number comes from, through all layers: an attend.Saliency.

token, against, position and of say the number, as for gradient(): a logit, log-probabilities, a head's label with of="label", or
for encoders, with of=vector, the cosine between that vector and the text's embed().

method: "integrated" for integrated gradients (Sundararajan et al. 2017) along a path from a baseline to the text; tokens + encoder +
missing = value - baseline_value. "input" for gradient times input at the text alone, whose sum means nothing.
baseline: an embedding [input_size] or a token; None: the mean over the table.
steps: how many points of the path are computed at most. They lie closer where the gradient turns, and end once they miss less than
0.5 % of the change. missing says what they miss; more than 5 % is much.
types, decoder_ids: as for forward(). progress: called with the share done.

A list of texts, or of lists of ids, gives attend.Results, a list of Saliency; token, against, position, types and decoder_ids apply
to all texts, or are lists with one entry for each. Raises ValueError for what gradient() refuses.)";

struct SaliencyLook {
  Saliency x;

  explicit SaliencyLook(const Found& found) {
    x.tokens = found.tensor("tokens");
    if (!found.result.attr("encoder").is_none()) x.encoder = found.tensor("encoder");
    x.value = nb::cast<double>(found.result.attr("value"));
    x.baseline_value = nb::cast<double>(found.result.attr("baseline_value"));
    x.missing = nb::cast<double>(found.result.attr("missing"));
    x.steps = nb::cast<std::int64_t>(found.result.attr("steps"));
    x.token = found.of.token, x.against = found.of.against;
  }
  Picture picture(const AnalysisOf& of) const { return saliency_picture(x, of); }
  std::string csv(const AnalysisOf& of) const { return saliency_csv(x, of); }
  std::string json() const { return to_json(x); }
};

nb::list words_(nb::handle result, bool encoder) {
  const Found found{"Saliency", "words", result};
  const SaliencyLook look(found);
  const auto words = with_names(found.function, found.of, {},
                                [&](const AnalysisOf& of) { return saliency_words(look.x, of, encoder); });
  nb::list all;
  for (const WordValue& word : words) all.append(nb::make_tuple(word.word, word.value));
  return all;
}

void bind_saliency(nb::module_& m, nb::class_<Loaded>& model) {
  bind_look<SaliencyLook>(m, "Saliency");
  m.def("_saliency_words", &words_, nb::arg("found"), nb::arg("encoder"));
  model.def(
      "saliency", &saliency_, nb::arg("ids"), nb::arg("token") = nb::none(), nb::arg("against") = nb::none(),
      nb::arg("position") = -1, nb::arg("of") = nb::none(), nb::arg("method") = "integrated",
      nb::arg("baseline") = nb::none(), nb::arg("steps") = 512, nb::arg("types") = nb::none(),
      nb::arg("decoder_ids") = nb::none(), nb::arg("progress") = nb::none(),
      nb::sig(
          "@overload\n"
          "def saliency(self, ids: str | Ids, token: int | str | Ids | None = None, against: int | str | None = "
          "None, position: int = -1, of: str | Array | None = None, method: Literal['integrated', 'input'] = "
          "'integrated', baseline: Array | int | str | None = None, steps: int = 512, types: Ids | None = None, "
          "decoder_ids: Ids | None = None, progress: Callable[[float], object] | None = None) -> "
          "attend.Saliency: ...\n"
          "@overload\n"
          "def saliency(self, ids: list[str] | tuple[str, ...] | Sequence[Sequence[int] | numpy.ndarray], token: int "
          "| str | None | Sequence[int | str | None] = None, against: int | str | None | Sequence[int | str | None] "
          "= None, position: int | Sequence[int] = -1, of: str | Array | None = None, method: "
          "Literal['integrated', 'input'] = 'integrated', baseline: Array | int | str | None = None, steps: int = "
          "512, types: Sequence[Ids] | None = None, decoder_ids: Ids | None | Sequence[Ids] = None, progress: "
          "Callable[[float], object] | None = None) -> attend.Results[attend.Saliency]: ...\n"
          "def saliency(self, ids: str | Ids | Sequence[str | Ids], token: int | str | Ids | None | Sequence[int | "
          "str | None] = None, against: int | str | None | Sequence[int | str | None] = None, position: int | "
          "Sequence[int] = -1, of: str | Array | None = None, method: Literal['integrated', 'input'] = "
          "'integrated', baseline: Array | int | str | None = None, steps: int = 512, types: Ids | Sequence[Ids] | "
          "None = None, decoder_ids: Ids | None | Sequence[Ids] = None, progress: Callable[[float], object] | None "
          "= None) -> attend.Saliency | attend.Results[attend.Saliency]"),
      saliency_doc);
}

const AnalysisBinding saliency_binding(bind_saliency);

}  // namespace

}  // namespace attend::python
