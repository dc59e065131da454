// Model.patch(), and how a Patching is looked at.
#include "analysis.h"

namespace attend::python {

namespace {

nb::object patch_(const Loaded& self, nb::handle clean_ids, nb::handle corrupt_ids, nb::handle token,
                  nb::handle against, const std::string& what, std::int64_t position, nb::handle progress,
                  const std::string& attention, nb::handle decoder_ids) {
  constexpr const char* function = "Model.patch";
  const std::vector<std::int64_t> clean = self.read_ids(function, "clean_ids", clean_ids),
                                  corrupt = self.read_ids(function, "corrupt_ids", corrupt_ids),
                                  decoder = Loaded::read_decoder_ids(function, decoder_ids);
  if (what != "heads" && what != "residual")
    throw Error(ErrorCode::bad_value, function, "what is '" + what + "', expected 'heads' or 'residual'");
  const auto of = [&](const char* name, nb::handle given) {
    const std::optional<std::int64_t> id = self.read_token(function, name, given);
    if (!id) throw Error(ErrorCode::bad_value, function, std::string(name) + " is None, expected a token");
    return *id;
  };
  const std::int64_t right = of("token", token), wrong = of("against", against);
  const PatchOptions options{.what = what == "heads" ? PatchOptions::What::heads : PatchOptions::What::residual,
                             .position = position,
                             .progress = progress_of(function, progress),
                             .attention = read_attention(function, attention),
                             .decoder_ids = decoder};
  const Patching found = call(function, [&] { return patch(self.model, clean, corrupt, right, wrong, options); });
  // The texts whose tokens a picture of the streams names.
  const bool own = decoder.empty() || options.attention == AttentionKind::encoder;
  Analysed texts = own ? analysed(self, clean, {}) : analysed(self, clean, decoder);
  texts.corrupt = own ? corrupt : decoder;
  texts.token = found.token, texts.against = found.against, texts.attention = found.attention;
  if (found.attention == AttentionKind::encoder) texts.encoder_ids = clean;  // whose names say the stack
  texts.residual = found.what == PatchOptions::What::residual;
  return found_as("Patching", texts, to_python({}, found.recovered), found.clean, found.corrupt);
}

constexpr const char* patch_doc =
    R"(How much of the clean text's answer comes back where the corrupt text's pass is given one activation of it.

(after - corrupt) / (clean - corrupt) of the difference of the logits of token and against, at position. what: "heads", each
head's z in all rows [L,H]; "residual", the stream before each layer, and at last after all, at each token [L+1,T]. Gives
recovered, clean and corrupt. The texts are of one length, or it raises ValueError; so it does where both answer alike. Of an
encoder-decoder the texts are the encoder's, decoder_ids are one text for both, and attention says whose heads, or with
"encoder" whose stream.)";

double number(const Found& found, const char* field) {
  return expect<double>(found.function.c_str(), field, "a number", found.result.attr(field));
}

struct PatchingLook {
  Patching x;

  explicit PatchingLook(const Found& found)
      : x{.recovered = found.tensor("recovered"),
          .what = found.of.residual ? PatchOptions::What::residual : PatchOptions::What::heads,
          .attention = found.of.attention,
          .token = found.of.token.value_or(-1),
          .against = found.of.against.value_or(-1)} {
    if (found.method == "to_json") x.clean = number(found, "clean"), x.corrupt = number(found, "corrupt");
  }
  Picture picture(const AnalysisOf& of) const { return patching_picture(x, of); }
  std::string csv(const AnalysisOf& of) const { return patching_csv(x, of); }
  std::string json() const { return to_json(x); }
};

}  // namespace

void bind_patch(nb::module_& m, nb::class_<Loaded>& model) {
  bind_look<PatchingLook>(m, "Patching");
  model.def(
      "patch", &patch_, nb::arg("clean_ids"), nb::arg("corrupt_ids"), nb::arg("token"), nb::arg("against"),
      nb::arg("what") = "heads", nb::arg("position") = -1, nb::arg("progress") = nb::none(),
      nb::arg("attention") = "self", nb::arg("decoder_ids") = nb::none(),
      nb::sig("def patch(self, clean_ids: str | Ids, corrupt_ids: str | Ids, token: int | str, against: int | str, "
              "what: Literal['heads', 'residual'] = 'heads', position: int = -1, "
              "progress: Callable[[float], object] | None = None, attention: Literal['self', 'cross', 'encoder'] = "
              "'self', decoder_ids: Ids | None = None) -> attend.Patching"),
      patch_doc);
}

}  // namespace attend::python
