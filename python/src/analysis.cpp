// Model.attribute(), lens(), ablate() and patch().
#include "attend/analysis_look.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "analysis.h"
#include "attend/session.h"
#include "call.h"
#include "model.h"
#include "text.h"

namespace attend::python {

namespace {

// ---- attribute ----

nb::list top(const Explained& self, std::int64_t n) {
  constexpr const char* kinds[] = {"head",      "cross", "mlp",
                                   "embedding", "bias",  "rounding"};  // as AttributionPart::Kind
  const nb::object part = nb::module_::import_("attend._analysis").attr("Part");
  nb::list out;
  const auto number = [](std::int64_t of) { return of < 0 ? nb::object(nb::none()) : nb::object(nb::int_(of)); };
  const auto parts = call("Attribution.top", [&] { return strongest_parts(self, n); });
  const std::vector<PartWords> words = words_of(self, parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const AttributionPart& each = parts[i];
    const nb::object token = words[i].token.empty() ? nb::object(nb::none()) : nb::object(nb::cast(words[i].token));
    out.append(part(kinds[static_cast<int>(each.kind)], number(each.layer), number(each.head), number(each.key),
                    each.value, words[i].name, token));
  }
  return out;
}

Explained attribute_(const Loaded& self, nb::handle ids, nb::handle token, nb::handle against, std::int64_t position,
                     nb::handle cache, nb::handle decoder_ids) {
  constexpr const char* function = "Model.attribute";
  const std::vector<std::int64_t> given = self.read_ids(function, "ids", ids),
                                  decoder = Loaded::read_decoder_ids(function, decoder_ids);
  AttributeOptions options{.token = self.read_token(function, "token", token),
                           .against = self.read_token(function, "against", against),
                           .position = position,
                           .decoder_ids = decoder};
  nb::list one;
  if (!cache.is_none()) {
    read_instance<SequenceCache>(function, "cache", "a ModelCache", cache);
    one.append(cache);
  }
  const Caches caches(function, cache.is_none() ? nb::handle(nb::none()) : nb::handle(one));
  if (!cache.is_none()) options.cache = caches.get()[0];
  Explained found{call(function, [&] { return attribute(self.model, given, options); })};
  found.of = analysed(self, given, decoder);
  return found;
}

constexpr const char* attribution_doc = R"(What each part of a model wrote into a logit: Model.attribute() gives it.

heads [L,H,T]: of each head, by the token that it read; T = position + 1. mlps [L]; embedding; bias: the attentions' output
biases, the last norm's and the output layer's; rounding: what bfloat16 leaves, 0 for float32. They sum to `logit`: of
`token`, or its difference to that of `against`. Direct effects only, with the last norm's divisor held: what a part does
through later layers is theirs. Of an encoder-decoder cross [L,H,Tk] is a part too: of the cross-attention's heads, by the
encoder's token.

>>> import attend
>>> found = attend.Model.load("tiny").attribute([1, 2, 3], token=7)
>>> parts = found.heads.sum() + found.mlps.sum() + found.embedding + found.bias
>>> found.heads.shape[2], found.rounding, bool(abs(parts - found.logit) < 1e-4)
(3, 0.0, True))";

nb::tuple state_of_attribution(const Explained& self) {
  const auto array = [](const Tensor& x) { return to_python({}, x); };
  return nb::make_tuple(array(self.heads), array(self.cross), array(self.mlps), self.token, self.against, self.position,
                        self.logit, self.capped_logit, self.embedding, self.bias, self.rounding, state_of(self.of));
}

void restore_attribution(Explained& self, const nb::tuple& state) {
  const auto tensor = [&](std::size_t n) { return Array("Attribution", "state", state[n]).view().clone(); };
  const auto number = [&](std::size_t n) { return nb::cast<double>(state[n]); };
  new (&self) Explained{Attribution{.token = nb::cast<std::int64_t>(state[3]),
                                    .against = nb::cast<std::optional<std::int64_t>>(state[4]),
                                    .position = nb::cast<std::int64_t>(state[5]),
                                    .logit = number(6),
                                    .capped_logit = number(7),
                                    .heads = tensor(0),
                                    .cross = tensor(1),
                                    .mlps = tensor(2),
                                    .embedding = number(8),
                                    .bias = number(9),
                                    .rounding = number(10)},
                        analysed_from(nb::cast<nb::tuple>(state[11]))};
}

void bind_attribution(nb::module_& m) {
  const auto array = [](Tensor Attribution::*member) {
    return [member](const Explained& self) { return to_python({}, self.*member); };
  };
  nb::class_<Explained> attribution(m, "Attribution", attribution_doc);
  attribution.def("__getstate__", &state_of_attribution).def("__setstate__", &restore_attribution);
  attribution
      .def_prop_ro("heads", array(&Attribution::heads), nb::sig("def heads(self) -> numpy.ndarray"), "[L,H,T] float32")
      .def_prop_ro(
          "cross",
          [](const Explained& self) {
            return self.cross.count() == 0 ? nb::object(nb::none()) : to_python({}, self.cross);
          },
          nb::sig("def cross(self) -> numpy.ndarray | None"), "[L,H,Tk] float32 of an encoder-decoder, else None")
      .def_prop_ro("mlps", array(&Attribution::mlps), nb::sig("def mlps(self) -> numpy.ndarray"), "[L] float32")
      .def_ro("embedding", &Attribution::embedding, "of the row's own token (GPT-2: and position)")
      .def_ro("bias", &Attribution::bias, "of all biases")
      .def_ro("rounding", &Attribution::rounding, "what bfloat16 leaves")
      .def_ro("logit", &Attribution::logit, "the model's own before a final softcap, or the difference of two")
      .def_ro("capped_logit", &Attribution::capped_logit, "the same after a final softcap (Gemma 2)")
      .def_ro("token", &Attribution::token, "whose logit it is")
      .def_ro("against", &Attribution::against, "whose logit is taken from it, or None")
      .def_ro("position", &Attribution::position, "of the row whose next token it is")
      .def("top", &top, nb::arg("n") = 10, nb::sig("def top(self, n: int = 10) -> list[attend.Part]"),
           "The n parts of the largest magnitude, falling: named tuples of kind, layer, head, key, value, name and "
           "token.")
      .def(
          "to_pandas", [](nb::handle self) { return nb::module_::import_("attend._analysis").attr("table")(self); },
          "A pandas.DataFrame, a row for each part: kind, layer, head, name, key, token, value; ImportError without "
          "pandas.")
      .def("picture", &attribution_picture_, nb::arg("title") = nb::none(),
           nb::sig("def picture(self, title: str | None = None) -> Picture"),
           "The tokens on the colour of what heads wrote by reading them, and a map of all heads and MLPs, as an "
           "attend.Picture.")
      .def("to_csv", &attribution_csv_, nb::sig("def to_csv(self) -> str"),
           "The rows of to_pandas() as CSV, with the tokens.")
      .def(
          "to_json", [](const Explained& self) { return call("Attribution.to_json", [&] { return to_json(self); }); },
          nb::sig("def to_json(self) -> str"), "`why` of `attend model --json` (docs/json.md).")
      .def("__repr__", [](const Explained& self) {
        return "Attribution(token=" + std::to_string(self.token) + ", logit=" + std::to_string(self.logit) + ", " +
               std::to_string(self.heads.size(0)) + " layers, " + std::to_string(self.heads.size(1)) + " heads, " +
               std::to_string(self.heads.size(2)) + " tokens)";
      });
}

// ---- lens, ablate, patch ----

template <class... Values>
nb::object found_as(const char* kind, const Analysed& of, Values&&... values) {
  const nb::module_ module = nb::module_::import_("attend._analysis");
  return module.attr("found")(module.attr(kind), of, std::forward<Values>(values)...);
}

nb::object lens_(const Loaded& self, nb::handle ids, nb::handle positions, std::int64_t top, nb::handle decoder_ids) {
  constexpr const char* function = "Model.lens";
  const std::vector<std::int64_t> given = self.read_ids(function, "ids", ids),
                                  decoder = Loaded::read_decoder_ids(function, decoder_ids);
  std::vector<std::int64_t> at;
  if (!positions.is_none()) at = list_of(read_integers(function, "positions", positions));
  const Lens found = call(function, [&] { return lens(self.model, given, at, top, decoder); });
  Analysed of = analysed(self, given, decoder);
  for (const std::int64_t position : at)
    of.positions.push_back(position < 0 ? position + std::ssize(of.ids) : position);
  return found_as("Lens", of, to_python({}, found.ids), to_python({}, found.log_probabilities),
                  to_python({}, found.rank));
}

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

AttentionKind read_attention(const char* function, const std::string& name) {
  if (name == "self") return AttentionKind::self;
  if (name == "cross") return AttentionKind::cross;
  if (name == "encoder") return AttentionKind::encoder;
  throw Error(ErrorCode::bad_value, function, "attention is '" + name + "', expected 'self', 'cross' or 'encoder'");
}

nb::object ablate_(const Loaded& self, nb::handle ids, nb::handle token, nb::handle against, nb::handle rows,
                   nb::handle heads, const std::string& set, nb::handle progress, const std::string& attention,
                   nb::handle decoder_ids) {
  constexpr const char* function = "Model.ablate";
  const std::vector<std::int64_t> given = self.read_ids(function, "ids", ids),
                                  text = Loaded::read_decoder_ids(function, decoder_ids);
  AblateOptions options{.token = self.read_token(function, "token", token),
                        .against = self.read_token(function, "against", against),
                        .set = read_set(function, set, "'zero' or 'mean'"),
                        .progress = progress_of(function, progress),
                        .attention = read_attention(function, attention),
                        .decoder_ids = text};
  options.heads = read_heads(function, heads, options.attention);
  if (!rows.is_none()) options.rows = list_of(read_integers(function, "rows", rows));
  const Ablation found = call(function, [&] { return ablate(self.model, given, options); });
  const bool decoder = self.model.info().decoder(), one = !options.heads.empty();
  const auto array = [&](const Tensor& x, bool known) -> nb::object {
    if (!known) return nb::none();
    return one ? nb::object(nb::float_(static_cast<double>(x.data<float>()[0]))) : to_python({}, x);
  };
  Analysed of = analysed(self, given, text);
  of.token = found.token, of.against = found.against, of.heads = found.heads, of.attention = found.attention;
  return found_as("Ablation", of, array(found.logit, decoder), array(found.log_probability, decoder),
                  array(found.kl, decoder), array(found.cosine_distance, !decoder));
}

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
  texts.token = found.token, texts.against = found.against;
  texts.attention = found.attention;
  if (found.attention == AttentionKind::encoder) texts.encoder_ids = clean;  // whose names say the stack
  texts.residual = found.what == PatchOptions::What::residual;
  return found_as("Patching", texts, to_python({}, found.recovered), found.clean, found.corrupt);
}

constexpr const char* attribute_doc =
    R"(Why this token: what each part of the model wrote into its logit, an Attribution.

ids [N], or a text where the model has its tokenizer. token: whose logit, an id, or a text that is one token; None: the
likeliest. against: the difference to this token's logit is explained. position: of the row whose next token it is; -1: the
last. cache: a ModelCache that holds the beginning of ids, or all; it is not changed. decoder_ids: of an
encoder-decoder, its decoder's text so far, which position is of. Raises ValueError for encoders.)";

constexpr const char* lens_doc =
    R"(What the layers think: the tokens that the stream before each layer, and at last, would answer.

The model's own last norm and output layer read it. positions: rising; None: all. Gives ids and log_probabilities
[L+1,P,top], and rank [L+1,P], the place, from 0, of the token that the model answers at last.
decoder_ids: of an encoder-decoder, whose decoder's layers these are. ValueError for encoders.)";

constexpr const char* ablate_doc = R"(What changes where heads are taken out: after less before.

Of each head of the model by itself: logit, log_probability and kl [L,H]; with heads=["18.6", (16, 0), ...] of all these at
once, three numbers. set: their z in every row becomes "zero", or its "mean" over the rows. rows: whose answers count, the
mean of them; None: the last one's. token: whose logit; None: with rows the token that follows each in the text, else the
likeliest. One head may hide behind another: what neither changes alone, both together may. Encoders: cosine_distance, 1 -
cosine of the mean hidden state before and after, in place of the others. Of an encoder-decoder, with decoder_ids, which
rows are of, attention says whose heads: "self", its decoder's among their own text; "cross"; "encoder". progress is called
with the share done.)";

constexpr const char* patch_doc =
    R"(How much of the clean text's answer comes back where the corrupt text's pass is given one activation of it.

(after - corrupt) / (clean - corrupt) of the difference of the logits of token and against, at position. what: "heads", each
head's z in all rows [L,H]; "residual", the stream before each layer, and at last after all, at each token [L+1,T]. Gives
recovered, clean and corrupt. The texts are of one length, or it raises ValueError; so it does where both answer alike. Of an
encoder-decoder the texts are the encoder's, decoder_ids are one text for both, and attention says whose heads, or with
"encoder" whose stream.)";

}  // namespace

void bind_analysis(nb::module_& m, nb::class_<Loaded>& model) {
  bind_attribution(m);
  bind_analysis_look(m);
  model
      .def("attribute", &attribute_, nb::arg("ids"), nb::arg("token") = nb::none(), nb::arg("against") = nb::none(),
           nb::arg("position") = -1, nb::arg("cache") = nb::none(), nb::arg("decoder_ids") = nb::none(),
           nb::sig(
               "def attribute(self, ids: str | Ids, token: int | str | None = None, against: int | str | None = None, "
               "position: int = -1, cache: ModelCache | None = None, decoder_ids: Ids | None = None) -> Attribution"),
           attribute_doc)
      .def("lens", &lens_, nb::arg("ids"), nb::arg("positions") = nb::none(), nb::arg("top") = 5,
           nb::arg("decoder_ids") = nb::none(),
           nb::sig("def lens(self, ids: str | Ids, positions: Ids | None = None, top: int = 5, decoder_ids: Ids | None "
                   "= None) -> "
                   "attend.Lens"),
           lens_doc)
      .def(
          "ablate", &ablate_, nb::arg("ids"), nb::arg("token") = nb::none(), nb::arg("against") = nb::none(),
          nb::arg("rows") = nb::none(), nb::arg("heads") = nb::none(), nb::arg("set") = "zero",
          nb::arg("progress") = nb::none(), nb::arg("attention") = "self", nb::arg("decoder_ids") = nb::none(),
          nb::sig(
              "def ablate(self, ids: str | Ids, token: int | str | None = None, against: int | str | None = None, "
              "rows: "
              "Ids | None = None, heads: Sequence[str | tuple[int, int]] | None = None, set: Literal['zero', 'mean'] = "
              "'zero', "
              "progress: Callable[[float], object] | None = None, attention: Literal['self', 'cross', 'encoder'] = "
              "'self', decoder_ids: Ids | None = None) -> attend.Ablation"),
          ablate_doc)
      .def("patch", &patch_, nb::arg("clean_ids"), nb::arg("corrupt_ids"), nb::arg("token"), nb::arg("against"),
           nb::arg("what") = "heads", nb::arg("position") = -1, nb::arg("progress") = nb::none(),
           nb::arg("attention") = "self", nb::arg("decoder_ids") = nb::none(),
           nb::sig("def patch(self, clean_ids: str | Ids, corrupt_ids: str | Ids, token: int | str, against: int | "
                   "str, what: "
                   "Literal['heads', 'residual'] = 'heads', position: int = -1, progress: Callable[[float], object] | "
                   "None = None, attention: Literal['self', 'cross', 'encoder'] = 'self', decoder_ids: Ids | None = "
                   "None) -> "
                   "attend.Patching"),
           patch_doc);
}

}  // namespace attend::python
