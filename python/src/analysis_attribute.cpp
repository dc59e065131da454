// Model.attribute(), and Attribution.
#include "analysis.h"
#include "attend/features.h"
#include "gradient.h"

namespace attend::python {

namespace {

struct Explained : Attribution {
  Analysed context = {};
};

Attribution attribution_copy(const Attribution& x) {
  return {.of = x.of,
          .token = x.token,
          .against = x.against,
          .position = x.position,
          .logit = x.logit,
          .capped_logit = x.capped_logit,
          .heads = x.heads.clone(),
          .cross = x.cross.clone(),
          .mlps = x.mlps.clone(),
          .neurons = x.neurons.clone(),
          .mlp_biases = x.mlp_biases.clone(),
          .features = x.features.clone(),
          .feature_bias = x.feature_bias,
          .feature_error = x.feature_error,
          .embedding = x.embedding,
          .bias = x.bias,
          .rounding = x.rounding};
}

// What a part is called, and the token that a head read; empty: nothing is known of it.
using PartWords = std::pair<std::string, std::string>;

PartWords words_of(const AttributionPart& part, const AnalysisOf& of) {
  const auto& ids = part.kind == AttributionPart::Kind::cross ? of.encoder_ids : of.ids;
  const bool read = of.tokenizer != nullptr && part.key >= 0 && part.key < std::ssize(ids);
  const auto token = read ? of.tokenizer->text(ids[static_cast<std::size_t>(part.key)]) : std::nullopt;
  const bool span = part.kind == AttributionPart::Kind::head && part.key < std::ssize(of.names);
  return {name_of(part, of), span ? of.names[static_cast<std::size_t>(part.key)] : token.value_or("")};
}

nb::list top(const Explained& self, std::int64_t n) {
  constexpr const char* kinds[] = {"head", "cross",    "mlp",    "embedding",
                                   "bias", "rounding", "neuron", "feature"};  // as AttributionPart::Kind
  const nb::object part = nb::module_::import_("attend._analysis").attr("Part");
  nb::list out;
  const auto number = [](std::int64_t of) { return of < 0 ? nb::object(nb::none()) : nb::object(nb::int_(of)); };
  const auto parts = call("Attribution.top", [&] { return strongest_parts(self, n); });
  std::vector<PartWords> words;
  with_names("Attribution.top", self.context, {}, [&](const AnalysisOf& of) {
    for (const AttributionPart& each : parts) words.push_back(words_of(each, of));
  });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const AttributionPart& each = parts[i];
    const auto& [name, token] = words[i];
    out.append(part(kinds[static_cast<int>(each.kind)], number(each.layer), number(each.head), number(each.key),
                    each.value, name, token.empty() ? nb::object(nb::none()) : nb::object(nb::cast(token)),
                    number(each.unit)));
  }
  return out;
}

Drawn picture(const Explained& self, const Text& title) {
  return with_names("Attribution.picture", self.context, title,
                    [&](const AnalysisOf& of) { return drawn(attribution_picture(self, of)); });
}

std::string to_csv(const Explained& self) {
  return with_names("Attribution.to_csv", self.context, {},
                    [&](const AnalysisOf& of) { return attribution_csv(self, of); });
}

// Of each text, or of all the same.
struct AttributeQuestion {
  nb::handle token, against, position, cache, decoder_ids, of, types;
  bool neurons = false;
  const SparseAutoencoder* features = nullptr;
};

std::vector<Explained> attribute_texts(const Loaded& self, nb::handle texts, const std::optional<nb::list>& several,
                                       const AttributeQuestion& asked) {
  constexpr const char* function = "Model.attribute";
  const std::size_t count = several ? nb::len(*several) : 1;
  const LogitOf logit(function, self, asked.of);
  const auto ids = read_texts(self, function, "ids", texts, several);
  const ReadCaches caches(function, {{"cache", asked.cache}}, count);
  std::vector<std::vector<std::int64_t>> decoder, types;
  std::vector<AttributeOptions> options;
  for (std::size_t n = 0; n < count; ++n) {
    const auto each = [&](const char* name, nb::handle given, bool many = false) {
      return several ? of_each(function, name, given, n, count, many) : nb::borrow(given);
    };
    decoder.push_back(Loaded::read_decoder_ids(function, each("decoder_ids", asked.decoder_ids, true)));
    types.push_back(read_types(function, each("types", asked.types, true)));
    options.push_back(
        {.of = logit.of(),
         .token = logit.read("token", each("token", asked.token)),
         .against = logit.read("against", each("against", asked.against)),
         .position = expect<std::int64_t>(function, "position", whole_number, each("position", asked.position)),
         .cache = caches.of(0, n),
         .neurons = asked.neurons,
         .features = asked.features});
  }
  for (std::size_t n = 0; n < count; ++n) options[n].decoder_ids = decoder[n], options[n].types = types[n];
  std::vector<Attribution> found = call(function, [&] {
    if (several) return attribute(self.model, ids, options);
    std::vector<Attribution> one;
    one.push_back(attribute(self.model, ids[0], options[0]));
    return one;
  });
  std::vector<Explained> all;
  for (std::size_t n = 0; n < count; ++n) {
    all.push_back({std::move(found[n]), analysed(self, ids[n], decoder[n])});
    all.back().context.labels = logit.labels();
  }
  return all;
}

nb::tuple average_attributions(const nb::list& found, nb::handle spans) {
  constexpr const char* function = "Results.average";
  std::vector<Attribution> all;
  std::vector<std::vector<Range>> ranges;
  std::vector<std::string> names;
  const std::size_t count = nb::len(found);
  for (std::size_t n = 0; n < count; ++n) {
    const auto& x = nb::cast<const Explained&>(found[n]);
    all.push_back(attribution_copy(x));
    if (!spans.is_none())
      ranges.push_back(
          read_spans(function, "spans", of_each(function, "spans", spans, n, count), x.heads.size(2), names));
  }
  Averaged<Attribution> of = call(function, [&] { return average(all, ranges); });
  const Analysed context = averaged_of(nb::cast<const Explained&>(found[0]).context, names);
  return nb::make_tuple(nb::cast(Explained{std::move(of.mean), context}, nb::rv_policy::move),
                        nb::cast(Explained{std::move(of.standard_error), context}, nb::rv_policy::move), of.texts);
}

nb::object attribute_(const Loaded& self, nb::handle ids, nb::handle token, nb::handle against, nb::handle position,
                      nb::handle cache, nb::handle decoder_ids, bool neurons, nb::handle features, nb::handle of,
                      nb::handle types) {
  const SparseAutoencoder* autoencoder =
      features.is_none()
          ? nullptr
          : &read_instance<SparseAutoencoder>("Model.attribute", "features", "a SparseAutoencoder or None", features);
  const std::optional<nb::list> several = read_several(ids);
  std::vector<Explained> found = attribute_texts(
      self, ids, several, {token, against, position, cache, decoder_ids, of, types, neurons, autoencoder});
  nb::list all;
  for (Explained& each : found) all.append(nb::cast(std::move(each), nb::rv_policy::move));
  return several ? results_of(all) : nb::object(all[0]);
}

constexpr const char* attribution_doc = R"(What each part of a model wrote into a logit: Model.attribute() gives it.

heads [L,H,T] has each head's part by the token that it read, where T = position + 1 (encoders: all tokens). mlps [L] and embedding
follow. bias is the part of the attentions' output biases, the last norm's and the output layer's. rounding is what bfloat16
leaves, 0 for float32. All sum to `logit`, the logit of `token` or its difference to that of `against`. An encoder-decoder adds
cross [L,H,Tk], the cross-attention's heads by the encoder's token.

These are direct effects only: what a part does through later layers counts as theirs. The last norm's divisor is held fixed, and
for a label so is the head's dense layer (docs/search.md).

>>> import attend
>>> found = attend.Model.load("tiny").attribute([1, 2, 3], token=7)
>>> parts = found.heads.sum() + found.mlps.sum() + found.embedding + found.bias
>>> found.heads.shape[2], found.rounding, bool(abs(parts - found.logit) < 1e-4)
(3, 0.0, True))";

nb::tuple state_of_attribution(const Explained& self) {
  const auto array = [](const Tensor& x) { return to_python({}, x); };
  return nb::make_tuple(array(self.heads), array(self.cross), array(self.mlps), self.token, self.against, self.position,
                        self.logit, self.capped_logit, self.embedding, self.bias, self.rounding, state_of(self.context),
                        array(self.neurons), array(self.mlp_biases), array(self.features), self.feature_bias,
                        self.feature_error, self.of == GradientOf::label);
}

void restore_attribution(Explained& self, const nb::tuple& state) {
  const auto tensor = [&](std::size_t n) { return Array("Attribution", "state", state[n]).view().clone(); };
  const auto number = [&](std::size_t n) { return nb::cast<double>(state[n]); };
  new (&self) Explained{Attribution{.of = nb::cast<bool>(state[17]) ? GradientOf::label : GradientOf::logit,
                                    .token = nb::cast<std::int64_t>(state[3]),
                                    .against = nb::cast<std::optional<std::int64_t>>(state[4]),
                                    .position = nb::cast<std::int64_t>(state[5]),
                                    .logit = number(6),
                                    .capped_logit = number(7),
                                    .heads = tensor(0),
                                    .cross = tensor(1),
                                    .mlps = tensor(2),
                                    .neurons = tensor(12),
                                    .mlp_biases = tensor(13),
                                    .features = tensor(14),
                                    .feature_bias = number(15),
                                    .feature_error = number(16),
                                    .embedding = number(8),
                                    .bias = number(9),
                                    .rounding = number(10)},
                        analysed_from(nb::cast<nb::tuple>(state[11]))};
}

void bind_attribution(nb::module_& m) {
  const auto array = [](Tensor Attribution::*member) {
    return [member](const Explained& self) { return to_python({}, self.*member); };
  };
  const auto maybe = [](Tensor Attribution::*member) {
    return [member](const Explained& self) {
      return (self.*member).count() == 0 ? nb::object(nb::none()) : to_python({}, self.*member);
    };
  };
  nb::class_<Explained> attribution(m, "Attribution", attribution_doc);
  attribution.def("__getstate__", &state_of_attribution).def("__setstate__", &restore_attribution);
  attribution
      .def_prop_ro("heads", array(&Attribution::heads), nb::sig("def heads(self) -> numpy.ndarray"), "[L,H,T] float32")
      .def_prop_ro("cross", maybe(&Attribution::cross), nb::sig("def cross(self) -> numpy.ndarray | None"),
                   "[L,H,Tk] float32 in an encoder-decoder, else None")
      .def_prop_ro("mlps", array(&Attribution::mlps), nb::sig("def mlps(self) -> numpy.ndarray"), "[L] float32")
      .def_prop_ro("neurons", maybe(&Attribution::neurons), nb::sig("def neurons(self) -> numpy.ndarray | None"),
                   "[L,F] float32, each hidden unit of the MLPs, if they were asked for, else None")
      .def_prop_ro("mlp_biases", maybe(&Attribution::mlp_biases),
                   nb::sig("def mlp_biases(self) -> numpy.ndarray | None"),
                   "[L] float32, the MLPs' output biases: with neurons, neurons.sum(1) + mlp_biases is mlps")
      .def_prop_ro("features", maybe(&Attribution::features), nb::sig("def features(self) -> numpy.ndarray | None"),
                   "[F] float32, each feature of the SparseAutoencoder, if one was given, else None")
      .def_ro("feature_bias", &Attribution::feature_bias,
              "the autoencoder's decoder bias, and what a skip transcoder passes by; 0 without an autoencoder")
      .def_ro("feature_error", &Attribution::feature_error,
              "what the features leave out: with features.sum() and feature_bias it is all that the place writes")
      .def_ro("embedding", &Attribution::embedding, "the embedding of the row's own token (GPT-2: and position)")
      .def_ro("bias", &Attribution::bias, "of all biases")
      .def_ro("rounding", &Attribution::rounding, "what bfloat16 leaves")
      .def_ro("logit", &Attribution::logit, "the model's own logit before a final softcap, or the difference of two")
      .def_ro("capped_logit", &Attribution::capped_logit, "the same after the final softcap (Gemma 2)")
      .def_ro("token", &Attribution::token,
              "whose logit it is: a token, or with of=\"label\" a label's number in Model.info.labels")
      .def_ro("against", &Attribution::against, "whose logit is taken off, or None")
      .def_ro("position", &Attribution::position,
              "the row whose next token it is, or that the head reads; -1: the mean of all rows")
      .def("top", &top, nb::arg("n") = 10, nb::sig("def top(self, n: int = 10) -> list[attend.Part]"),
           "The n parts of the largest magnitude, largest first: named tuples of kind, layer, head, key, value, name, "
           "token and unit.")
      .def(
          "to_pandas", [](nb::handle self) { return nb::module_::import_("attend._analysis").attr("table")(self); },
          "A pandas.DataFrame with a row for each part: kind, layer, head, name, key, token, value. ImportError "
          "without pandas.")
      .def("picture", &picture, nb::arg("title") = nb::none(),
           nb::sig("def picture(self, title: str | None = None) -> Picture"),
           "The tokens, each coloured by what heads wrote by reading it, above a map of all heads and MLPs: an "
           "attend.Picture.")
      .def("to_csv", &to_csv, nb::sig("def to_csv(self) -> str"), "The rows of to_pandas() as CSV, with the tokens.")
      .def(
          "to_json", [](const Explained& self) { return call("Attribution.to_json", [&] { return to_json(self); }); },
          nb::sig("def to_json(self) -> str"), "What `attend model --json` has as `why` (docs/json.md).")
      .def(
          "_repr_html_", [](const Explained& self) { return picture(self, std::nullopt).svg; },
          "The picture, which a notebook shows.")
      .def("__repr__", [](const Explained& self) {
        return "Attribution(token=" + std::to_string(self.token) + ", logit=" + std::to_string(self.logit) + ", " +
               std::to_string(self.heads.size(0)) + " layers, " + std::to_string(self.heads.size(1)) + " heads, " +
               std::to_string(self.heads.size(2)) + " tokens)";
      });
}

constexpr const char* attribute_doc =
    R"(Why this token: what each part of the model wrote into its logit, as an Attribution.

ids: [N], or a text where the model has its tokenizer.
token: whose logit, as an id or a text that is one token; None: the likeliest.
against: explain the difference to this token's logit instead.
position: the row whose next token it is; -1: the last.
cache: a ModelCache that holds the beginning of ids, or all of it. It is not changed.
decoder_ids: for an encoder-decoder, its decoder's text so far. position counts in it.
neurons: also give what each hidden unit of the MLPs wrote (Geva et al. 2022).
features: a SparseAutoencoder; also give what each of its features wrote.
of="label": the logit of a label of the model's task, by name or number, instead of a token's. It works for encoders too; types
are their token_type_ids. position is then for a head that reads each row.

A list of texts, or of lists of ids, gives attend.Results, a list of Attribution, computed several texts at a time. The other
arguments apply to all texts, or are lists with one entry for each. Raises ValueError for encoders, except with of="label".)";

void bind_attribute(nb::module_& m, nb::class_<Loaded>& model) {
  bind_attribution(m);
  m.def("_average_attributions", &average_attributions, nb::arg("found"), nb::arg("spans").none());
  model.def("attribute", &attribute_, nb::arg("ids"), nb::arg("token") = nb::none(), nb::arg("against") = nb::none(),
            nb::arg("position") = -1, nb::arg("cache") = nb::none(), nb::arg("decoder_ids") = nb::none(),
            nb::arg("neurons") = false, nb::arg("features") = nb::none(), nb::arg("of") = nb::none(),
            nb::arg("types") = nb::none(),
            nb::sig("@overload\n"
                    "def attribute(self, ids: str | Ids, token: int | str | None = None, against: int | str | None = "
                    "None, position: int = -1, cache: ModelCache | None = None, decoder_ids: Ids | None = None, "
                    "neurons: bool = False, features: SparseAutoencoder | None = None, of: Literal['logit', 'label'] | "
                    "None = None, types: Ids | None = None) -> Attribution: ...\n"
                    "@overload\n"
                    "def attribute(self, ids: list[str] | tuple[str, ...] | Sequence[Sequence[int] | numpy.ndarray], "
                    "token: int | str | None | Sequence[int | str | None] = None, against: int | str | None | "
                    "Sequence[int | str | None] = None, position: int | Sequence[int] = -1, cache: ModelCache | None "
                    "| Sequence[ModelCache | None] = None, decoder_ids: Ids | None | Sequence[Ids] = None, neurons: "
                    "bool = False, features: SparseAutoencoder | None = None, of: Literal['logit', 'label'] | None = "
                    "None, types: Sequence[Ids] | None = None) -> attend.Results[Attribution]: ...\n"
                    "def attribute(self, ids: str | Ids | Sequence[str | Ids], token: int | str | None | "
                    "Sequence[int | str | None] = None, against: int | str | None | Sequence[int | str | None] = "
                    "None, position: int | Sequence[int] = -1, cache: ModelCache | None | Sequence[ModelCache | "
                    "None] = None, decoder_ids: Ids | None | Sequence[Ids] = None, neurons: bool = False, features: "
                    "SparseAutoencoder | None = None, of: Literal['logit', 'label'] | None = None, types: Ids | "
                    "Sequence[Ids] | None = None) -> Attribution | attend.Results[Attribution]"),
            attribute_doc);
}

const AnalysisBinding attribute_binding(bind_attribute);

}  // namespace

}  // namespace attend::python
