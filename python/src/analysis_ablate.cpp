// Model.ablate(), and how an Ablation is looked at.
#include "analysis.h"
#include "gradient.h"

namespace attend::python {

namespace {

// (layer, head), or "18.6"; of an encoder-decoder "decoder.3.cross.6" says the attention too.
std::vector<Head> read_heads(const char* function, nb::handle heads, AttentionKind& attention) {
  std::vector<Head> out;
  if (heads.is_none()) return out;
  std::vector<std::string> names;
  for (const nb::handle each : read_list(function, "heads", "a list of heads, \"18.6\" or (layer, head)", heads))
    if (nb::isinstance<nb::str>(each)) {
      names.push_back(text_of(each));
    } else {
      const auto [layer, head] = read_two(function, "heads", "\"18.6\" or (layer, head), two whole numbers", each);
      names.push_back(std::to_string(layer) + "." + std::to_string(head));
    }
  if (names.empty()) throw Error(ErrorCode::bad_value, function, "heads is empty: expected None, or some");
  return call(function, [&] { return heads_named(names, attention); });
}

// What one text's options point to.
struct Given {
  std::vector<std::int64_t> decoder_ids, types;
  std::optional<Array> values;
};

AblateOptions read_options(const char* function, const LogitOf& logit, Given& given, nb::handle token,
                           nb::handle against, nb::handle rows, nb::handle set, nb::handle first_row) {
  AblateOptions options{.of = logit.of(),
                        .token = logit.read("token", token),
                        .against = logit.read("against", against),
                        .types = given.types,
                        .decoder_ids = given.decoder_ids};
  if (nb::isinstance<nb::str>(set)) {
    options.set = read_set(function, text_of(set), "'zero', 'mean' or an array");
  } else {
    options.set = Edit::Set::values;
    options.values = given.values.emplace(function, "set", set).view();
  }
  if (!rows.is_none()) options.rows = list_of(read_integers(function, "rows", rows));
  if (!first_row.is_none()) options.first_row = expect<std::int64_t>(function, "first_row", whole_number, first_row);
  return options;
}

nb::object ablation_found(const Ablation& found, const Analysed& context) {
  const bool one = !found.heads.empty();
  const auto array = [&](const Tensor& x) -> nb::object {
    if (x.count() == 0) return nb::none();
    return one ? nb::object(nb::float_(static_cast<double>(x.data<float>()[0]))) : to_python({}, x);
  };
  Analysed of = context;
  of.token = found.token, of.against = found.against, of.heads = found.heads, of.attention = found.attention;
  return found_as("Ablation", of, array(found.logit), array(found.log_probability), array(found.kl),
                  array(found.cosine_distance));
}

Analysed analysed_as(const LogitOf& logit, Analysed of) {
  of.labels = logit.labels(), of.of_label = logit.of() == GradientOf::label;
  return of;
}

nb::object ablate_(const Loaded& self, nb::handle ids, nb::handle token, nb::handle against, nb::handle rows,
                   nb::handle heads, nb::handle set, nb::handle progress, const std::string& attention,
                   nb::handle decoder_ids, nb::handle first_row, nb::handle cache, nb::handle of, nb::handle types) {
  constexpr const char* function = "Model.ablate";
  const std::optional<nb::list> several = read_several(ids);
  const std::size_t count = several ? nb::len(*several) : 1;
  const LogitOf logit(function, self, of);
  const auto texts = read_texts(self, function, "ids", ids, several);
  const ReadCaches caches(function, {{"cache", cache}}, count);
  AttentionKind kind = read_attention(function, attention);
  const std::vector<Head> chosen = read_heads(function, heads, kind);
  std::vector<Given> given(count);
  std::vector<AblateOptions> options;
  for (std::size_t n = 0; n < count; ++n) {
    const auto each = [&](const char* name, nb::handle all, bool many = false) {
      return several ? of_each(function, name, all, n, count, many) : nb::borrow(all);
    };
    given[n].decoder_ids = Loaded::read_decoder_ids(function, each("decoder_ids", decoder_ids, true));
    given[n].types = read_types(function, each("types", types, true));
    options.push_back(read_options(function, logit, given[n], each("token", token), each("against", against),
                                   each("rows", rows, true), each("set", set), each("first_row", first_row)));
    options[n].heads = chosen, options[n].attention = kind, options[n].cache = caches.of(0, n);
  }
  options[0].progress = progress_of(function, progress);
  const std::vector<Ablation> found = call(function, [&] {
    if (several) return ablate(self.model, texts, options);
    std::vector<Ablation> one;
    one.push_back(ablate(self.model, texts[0], options[0]));
    return one;
  });
  nb::list all;
  for (std::size_t n = 0; n < count; ++n)
    all.append(ablation_found(found[n], analysed_as(logit, analysed(self, texts[n], given[n].decoder_ids))));
  return several ? results_of(all) : nb::object(all[0]);
}

constexpr const char* ablate_doc = R"(What changes when heads are taken out: each number is after - before.

heads: None takes out each head of the model by itself, and logit, log_probability and kl are arrays [L,H]; ["18.6", (16, 0), ...]
takes these out together, and the three are numbers. One head may hide behind another: two heads may change together what
neither changes alone.
set: what their z becomes in every row: "zero", its "mean" over the rows, or an array [L,H*Dv], as Model.means() gives for "z", or
[L,T,H*Dv], such as another text's z (resample ablation).
token: whose logit; None: the likeliest token, or with rows the token that follows each row in the text.
rows: the rows whose answers count, as a mean; None: the last row.
Encoders have cosine_distance, 1 - cosine of the mean hidden state before and after, instead of the three.
attention: which heads of an encoder-decoder: "self", the decoder's in its own text; "cross"; "encoder". It needs decoder_ids,
and rows are rows of these.
first_row: take heads out from this row on only (-1: the last). What comes before it is computed once, or taken from cache, a
ModelCache that holds the beginning of ids. This is another question: earlier rows keep what those heads wrote there.
progress: called with the share done.

of="label": the logit of a label of the model's task, which `token` says by name or number (None: the likeliest). It works for
encoders too; types are their token_type_ids. rows are then for models that tag or fill. log_probability and kl are None where
labels don't exclude each other.

A list of texts, or of lists of ids, gives attend.Results, a list of Ablation, computed several texts at a time. The other
arguments, except heads, apply to all texts, or are lists with one entry for each.)";

Tensor read(const Found& found, const char* field) {
  const nb::object given = found.result.attr(field);
  if (given.is_none()) return {};
  if (!nb::isinstance<nb::float_>(given)) return found.tensor(field);
  return Tensor::from({1}, {static_cast<float>(nb::cast<double>(given))});  // of heads that were taken out together
}

struct AblationLook {
  Ablation x;

  explicit AblationLook(const Found& found)
      : x{.of = found.of.of_label ? GradientOf::label : GradientOf::logit,
          .logit = read(found, "logit"),
          .log_probability = read(found, "log_probability"),
          .kl = read(found, "kl"),
          .cosine_distance = read(found, "cosine_distance"),
          .token = found.of.token,
          .against = found.of.against,
          .heads = found.of.heads,
          .attention = found.of.attention} {}
  Picture picture(const AnalysisOf& of, const Text& change) const {
    return ablation_picture(x, of, change.value_or(""));
  }
  std::string csv(const AnalysisOf& of) const { return ablation_csv(x, of); }
  std::string json() const { return to_json(x); }
};

nb::tuple average_ablations(const nb::list& found) {
  return average_found<AblationLook>("Ablation", found, ablation_found);
}

void bind_ablate(nb::module_& m, nb::class_<Loaded>& model) {
  bind_look<AblationLook, Text>(m, "Ablation", nb::arg("change").none());
  m.def("_average_ablations", &average_ablations);
  model.def("ablate", &ablate_, nb::arg("ids"), nb::arg("token") = nb::none(), nb::arg("against") = nb::none(),
            nb::arg("rows") = nb::none(), nb::arg("heads") = nb::none(), nb::arg("set") = "zero",
            nb::arg("progress") = nb::none(), nb::arg("attention") = "self", nb::arg("decoder_ids") = nb::none(),
            nb::arg("first_row") = nb::none(), nb::arg("cache") = nb::none(), nb::arg("of") = nb::none(),
            nb::arg("types") = nb::none(),
            nb::sig("@overload\n"
                    "def ablate(self, ids: str | Ids, token: int | str | None = None, against: int | str | None = "
                    "None, rows: Ids | None = None, heads: Sequence[str | tuple[int, int]] | None = None, set: Array "
                    "| Literal['zero', 'mean'] = 'zero', progress: Callable[[float], object] | None = None, "
                    "attention: Literal['self', 'cross', 'encoder'] = 'self', decoder_ids: Ids | None = None, "
                    "first_row: int | None = None, cache: ModelCache | None = None, of: Literal['logit', 'label'] | "
                    "None = None, types: Ids | None = None) -> attend.Ablation: ...\n"
                    "@overload\n"
                    "def ablate(self, ids: list[str] | tuple[str, ...] | Sequence[Sequence[int] | numpy.ndarray], "
                    "token: int | str | None | Sequence[int | str | None] = None, against: int | str | None | "
                    "Sequence[int | str | None] = None, rows: Ids | None | Sequence[Ids] = None, heads: Sequence[str "
                    "| tuple[int, int]] | None = None, set: Array | Literal['zero', 'mean'] | Sequence[Array] = "
                    "'zero', progress: Callable[[float], object] | None = None, attention: Literal['self', 'cross', "
                    "'encoder'] = 'self', decoder_ids: Ids | None | Sequence[Ids] = None, first_row: int | None | "
                    "Sequence[int | None] = None, cache: ModelCache | None | Sequence[ModelCache | None] = None, of: "
                    "Literal['logit', 'label'] | None = None, types: Sequence[Ids] | None = None) -> "
                    "attend.Results[attend.Ablation]: ...\n"
                    "def ablate(self, ids: str | Ids | Sequence[str | Ids], token: int | str | None | Sequence[int | "
                    "str | None] = None, against: int | str | None | Sequence[int | str | None] = None, rows: Ids | "
                    "None | Sequence[Ids] = None, heads: Sequence[str | tuple[int, int]] | None = None, set: Array | "
                    "Literal['zero', 'mean'] | Sequence[Array] = 'zero', progress: Callable[[float], object] | None "
                    "= None, attention: Literal['self', 'cross', 'encoder'] = 'self', decoder_ids: Ids | None | "
                    "Sequence[Ids] = None, first_row: int | None | Sequence[int | None] = None, cache: ModelCache | "
                    "None | Sequence[ModelCache | None] = None, of: Literal['logit', 'label'] | None = None, types: "
                    "Ids | Sequence[Ids] | None = None) -> attend.Ablation | attend.Results[attend.Ablation]"),
            ablate_doc);
}

const AnalysisBinding ablate_binding(bind_ablate);

}  // namespace

}  // namespace attend::python
