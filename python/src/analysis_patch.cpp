// Model.patch(), and how a Patching is looked at.
#include "analysis.h"

namespace attend::python {

namespace {

std::optional<PatchOptions::What> what_named(const std::string& name) {
  using What = PatchOptions::What;
  for (const What what : {What::heads, What::residual, What::q, What::k, What::v})
    if (name_of(what) == name) return what;
  return std::nullopt;
}

// The texts whose tokens a picture of the streams names.
Analysed texts_of(const Loaded& self, const std::vector<std::int64_t>& clean, const std::vector<std::int64_t>& corrupt,
                  const std::vector<std::int64_t>& decoder, const Patching& found) {
  const bool own = decoder.empty() || found.attention == AttentionKind::encoder;
  Analysed texts = own ? analysed(self, clean, {}) : analysed(self, clean, decoder);
  texts.corrupt = own ? corrupt : decoder;
  if (found.attention == AttentionKind::encoder) texts.encoder_ids = clean;  // whose names say the stack
  return texts;
}

nb::object patching_found(const Patching& found, const Analysed& context) {
  Analysed of = context;
  of.token = found.token, of.against = found.against, of.attention = found.attention, of.first_row = found.first_row;
  of.what = name_of(found.what), of.estimate = found.estimate;
  return found_as("Patching", of, to_python({}, found.recovered), found.clean, found.corrupt);
}

nb::object patch_(const Loaded& self, nb::handle clean_ids, nb::handle corrupt_ids, nb::handle token,
                  nb::handle against, const std::string& what, nb::handle position, nb::handle progress,
                  const std::string& attention, nb::handle decoder_ids, nb::handle spans, nb::handle first_row,
                  nb::handle clean_cache, nb::handle corrupt_cache, bool estimate) {
  constexpr const char* function = "Model.patch";
  const std::optional<nb::list> several = read_several(clean_ids), others = read_several(corrupt_ids);
  if (several.has_value() != others.has_value())
    throw Error(ErrorCode::bad_value, function, "clean_ids and corrupt_ids: one is a text and the other several");
  const std::size_t count = several ? nb::len(*several) : 1;
  const auto clean = read_texts(self, function, "clean_ids", clean_ids, several),
             corrupt = read_texts(self, function, "corrupt_ids", corrupt_ids, others);
  const std::optional<PatchOptions::What> taken = what_named(what);
  if (!taken)
    throw Error(ErrorCode::bad_value, function,
                "what is '" + what + "', expected 'heads', 'residual', 'q', 'k' or 'v'");
  const ReadCaches caches(function, {{"clean_cache", clean_cache}, {"corrupt_cache", corrupt_cache}}, count);
  std::vector<std::vector<std::int64_t>> decoder;
  std::vector<std::int64_t> right, wrong;
  std::vector<PatchOptions> options;
  std::vector<std::string> names;
  for (std::size_t n = 0; n < count; ++n) {
    const auto each = [&](const char* name, nb::handle of, bool many = false) {
      return several ? of_each(function, name, of, n, count, many) : nb::borrow(of);
    };
    decoder.push_back(Loaded::read_decoder_ids(function, each("decoder_ids", decoder_ids, true)));
    right.push_back(read_answer(function, self, "token", each("token", token)));
    wrong.push_back(read_answer(function, self, "against", each("against", against)));
    PatchOptions& own = options.emplace_back(
        PatchOptions{.what = *taken,
                     .estimate = estimate,
                     .position = expect<std::int64_t>(function, "position", whole_number, each("position", position)),
                     .attention = read_attention(function, attention),
                     .clean_cache = caches.of(0, n),
                     .corrupt_cache = caches.of(1, n)});
    const bool encoders = decoder[n].empty() || own.attention == AttentionKind::encoder;
    if (!spans.is_none())
      own.spans =
          read_spans(function, "spans", each("spans", spans), std::ssize(encoders ? clean[n] : decoder[n]), names);
    if (const nb::object first = each("first_row", first_row); !first.is_none())
      own.first_row = expect<std::int64_t>(function, "first_row", whole_number, first);
  }
  for (std::size_t n = 0; n < count; ++n) options[n].decoder_ids = decoder[n];
  options[0].progress = progress_of(function, progress);
  const std::vector<Patching> found = call(function, [&] {
    if (several) return patch(self.model, clean, corrupt, right, wrong, options);
    std::vector<Patching> one;
    one.push_back(patch(self.model, clean[0], corrupt[0], right[0], wrong[0], options[0]));
    return one;
  });
  nb::list all;
  for (std::size_t n = 0; n < count; ++n) {
    Analysed texts = texts_of(self, clean[n], corrupt[n], decoder[n], found[n]);
    texts.names = names;
    all.append(patching_found(found[n], texts));
  }
  return several ? results_of(all) : nb::object(all[0]);
}

constexpr const char* patch_doc =
    R"(How much of the clean text's answer comes back when the corrupt text's pass gets one activation from the clean one.

The answer is the difference between the logits of token and against, at position. recovered is (after - corrupt) /
(clean - corrupt) of these differences; clean and corrupt are given too.

what: "heads", each head's z in all rows [L,H]; "q", "k" or "v", its queries, keys or values, [L,H] or [L,Hkv]; "residual", the
stream at each token before each layer and after the last one [L+1,T].
spans: for "residual", {"subject": (3, 5), "verb": 6} takes the stream at all tokens of a span together, [L+1,spans].
attention, decoder_ids: for an encoder-decoder. The texts are the encoder's, and decoder_ids is one text for both. attention says
which heads, or with "encoder" which stream.
first_row: take only rows from this one on (-1: the last). What comes before it is computed once, or taken from clean_cache and
corrupt_cache, which hold the beginning of each text. This is another question: earlier rows stay the corrupt text's.
estimate: attribution patching (Nanda 2023). Nothing is put in; what would come back is estimated for all at once, by one pass over
the clean text and one forward and backward over the corrupt text. For q and k, weights are made again (AtP*, Kramár et al. 2024).
Caches are not read.

Lists of texts, or of lists of ids, give attend.Results, a list of Patching, computed several texts at a time. The other arguments
apply to all pairs, or are lists with one entry for each. Raises ValueError for texts of different lengths, and where both answer
alike.)";

double number(const Found& found, const char* field) {
  return expect<double>(found.function.c_str(), field, "a number", found.result.attr(field));
}

struct PatchingLook {
  Patching x;

  explicit PatchingLook(const Found& found)
      : x{.recovered = found.tensor("recovered"),
          .what = what_named(found.of.what).value_or(PatchOptions::What::heads),
          .attention = found.of.attention,
          .token = found.of.token.value_or(-1),
          .against = found.of.against.value_or(-1),
          .first_row = found.of.first_row,
          .estimate = found.of.estimate} {
    if (found.method == "to_json" || found.method == "average")
      x.clean = number(found, "clean"), x.corrupt = number(found, "corrupt");
  }
  Picture picture(const AnalysisOf& of) const { return patching_picture(x, of); }
  std::string csv(const AnalysisOf& of) const { return patching_csv(x, of); }
  std::string json() const { return to_json(x); }
};

nb::tuple average_patchings(const nb::list& found) {
  return average_found<PatchingLook>("Patching", found, patching_found);
}

void bind_patch(nb::module_& m, nb::class_<Loaded>& model) {
  bind_look<PatchingLook>(m, "Patching");
  m.def("_average_patchings", &average_patchings);
  model.def(
      "patch", &patch_, nb::arg("clean_ids"), nb::arg("corrupt_ids"), nb::arg("token"), nb::arg("against"),
      nb::arg("what") = "heads", nb::arg("position") = -1, nb::arg("progress") = nb::none(),
      nb::arg("attention") = "self", nb::arg("decoder_ids") = nb::none(), nb::arg("spans") = nb::none(),
      nb::arg("first_row") = nb::none(), nb::arg("clean_cache") = nb::none(), nb::arg("corrupt_cache") = nb::none(),
      nb::arg("estimate") = false,
      nb::sig(
          "@overload\n"
          "def patch(self, clean_ids: str | Ids, corrupt_ids: str | Ids, token: int | str, against: int | "
          "str, what: Literal['heads', 'residual', 'q', 'k', 'v'] = 'heads', position: int = -1, progress: "
          "Callable[[float], object] | None = None, attention: Literal['self', 'cross', 'encoder'] = "
          "'self', decoder_ids: Ids | None = None, spans: dict[str, int | tuple[int, int]] | None = None, "
          "first_row: int | None = None, clean_cache: ModelCache | None = None, corrupt_cache: ModelCache "
          "| None = None, estimate: bool = False) -> attend.Patching: ...\n"
          "@overload\n"
          "def patch(self, clean_ids: list[str] | tuple[str, ...] | Sequence[Sequence[int] | "
          "numpy.ndarray], corrupt_ids: list[str] | tuple[str, ...] | Sequence[Sequence[int] | "
          "numpy.ndarray], token: int | str | Sequence[int | str], against: int | str | Sequence[int | "
          "str], what: Literal['heads', 'residual', 'q', 'k', 'v'] = 'heads', position: int | Sequence[int] = -1, "
          "progress: Callable[[float], object] | None = None, attention: Literal['self', 'cross', "
          "'encoder'] = 'self', decoder_ids: Ids | None | Sequence[Ids] = None, spans: dict[str, int | "
          "tuple[int, int]] | None | Sequence[dict[str, int | tuple[int, int]]] = None, first_row: int | "
          "None | Sequence[int | None] = None, clean_cache: ModelCache | None | Sequence[ModelCache | "
          "None] = None, corrupt_cache: ModelCache | None | Sequence[ModelCache | None] = None, estimate: bool "
          "= False) -> attend.Results[attend.Patching]: ...\n"
          "def patch(self, clean_ids: str | Ids | Sequence[str | Ids], corrupt_ids: str | Ids | "
          "Sequence[str | Ids], token: int | str | Sequence[int | str], against: int | str | Sequence[int "
          "| str], what: Literal['heads', 'residual', 'q', 'k', 'v'] = 'heads', position: int | Sequence[int] = -1, "
          "progress: Callable[[float], object] | None = None, attention: Literal['self', 'cross', "
          "'encoder'] = 'self', decoder_ids: Ids | None | Sequence[Ids] = None, spans: dict[str, int | "
          "tuple[int, int]] | None | Sequence[dict[str, int | tuple[int, int]]] = None, first_row: int | "
          "None | Sequence[int | None] = None, clean_cache: ModelCache | None | Sequence[ModelCache | "
          "None] = None, corrupt_cache: ModelCache | None | Sequence[ModelCache | None] = None, estimate: bool "
          "= False) -> attend.Patching | attend.Results[attend.Patching]"),
      patch_doc);
}

const AnalysisBinding patch_binding(bind_patch);

}  // namespace

}  // namespace attend::python
