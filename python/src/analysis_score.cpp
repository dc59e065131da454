// Model.explain_score() and explain_value().
#include "attend/analysis_look.h"
#include "attend/score_split.h"

#include "analysis.h"

namespace attend::python {

namespace {

nb::list names_of(const std::vector<AttributionPart>& parts, const AnalysisOf& of, bool of_encoder = false) {
  nb::list names;
  for (const AttributionPart& part : parts) {
    std::string name = name_of(part, of);
    if (of_encoder && part.kind == AttributionPart::Kind::head)
      name = "encoder." + std::to_string(part.layer) + ".self." + std::to_string(part.head);
    names.append(nb::str(name.c_str()));
  }
  return names;
}

// attention: null where it is one of the model's, or of its decoder's, own.
Head read_head(const char* function, nb::handle head, AttentionKind* attention = nullptr) {
  if (nb::isinstance<nb::str>(head)) {
    const std::string name = text_of(head);
    const NamedHead named = call(function, [&] { return head_named(name); });
    const AttentionKind kind = named.attention.value_or(AttentionKind::self);
    if (attention) *attention = kind;
    if (kind != AttentionKind::self && (!attention || kind == AttentionKind::cross))
      throw Error(ErrorCode::bad_value, function,
                  "head is '" + name + "', expected one of the model's or its decoder's own attention");
    return named.head;
  }
  const auto [layer, number] = read_two(function, "head", "a name, or (layer, head)", head);
  return {layer, number};
}

nb::object explain_score_(const Loaded& self, nb::handle ids, nb::handle head, nb::handle query, nb::handle key,
                          nb::handle against, nb::handle decoder_ids, nb::handle cache) {
  constexpr const char* function = "Model.explain_score";
  const std::vector<std::int64_t> given = self.read_ids(function, "ids", ids),
                                  decoder = Loaded::read_decoder_ids(function, decoder_ids);
  const ReadCaches caches(function, {{"cache", cache}}, 1);
  ScoreOptions options{.cache = caches.of(0, 0), .decoder_ids = decoder};
  if (against.is_none()) {
    options.against = ScoreOptions::Against::nothing;
  } else if (nb::isinstance<nb::str>(against)) {
    if (const std::string name = nb::cast<std::string>(against); name != "mean")
      throw Error(ErrorCode::bad_value, function, "against is '" + name + "', expected 'mean', a key or None");
  } else {
    options.against = ScoreOptions::Against::key;
    options.against_key = expect<std::int64_t>(function, "against", "'mean', a key or None", against);
  }
  const Head which = read_head(function, head, &options.attention);
  const auto i = expect<std::int64_t>(function, "query", whole_number, query);
  const auto j = expect<std::int64_t>(function, "key", whole_number, key);
  const ScoreSplit found = call(function, [&] { return explain_score(self.model, given, which, i, j, options); });
  const AnalysisOf of{.encoder_ids = decoder.empty() ? std::span<const std::int64_t>() : std::span(given)};
  return nb::module_::import_("attend._analysis")
      .attr("ScoreSplit")(names_of(found.parts, of, options.attention == AttentionKind::encoder),
                          to_python({}, found.pairs), found.bias, found.rest, found.score);
}

nb::object explain_value_(const Loaded& self, nb::handle ids, nb::handle head, nb::handle key, nb::handle token,
                          nb::handle against, nb::handle position, nb::handle direction, nb::handle decoder_ids,
                          nb::handle cache) {
  constexpr const char* function = "Model.explain_value";
  const std::vector<std::int64_t> given = self.read_ids(function, "ids", ids),
                                  decoder = Loaded::read_decoder_ids(function, decoder_ids);
  const ReadCaches caches(function, {{"cache", cache}}, 1);
  ValueOptions options{.token = self.read_token(function, "token", token),
                       .against = self.read_token(function, "against", against),
                       .position = expect<std::int64_t>(function, "position", whole_number, position),
                       .cache = caches.of(0, 0),
                       .decoder_ids = decoder};
  std::optional<Array> along;
  if (!direction.is_none()) along.emplace(function, "direction", direction), options.direction = along->view();
  const Head which = read_head(function, head);
  const auto j = expect<std::int64_t>(function, "key", whole_number, key);
  const ValueSplit found = call(function, [&] { return explain_value(self.model, given, which, j, options); });
  Tensor values({std::ssize(found.parts)});
  for (std::size_t n = 0; n < found.parts.size(); ++n)
    values.data<float>()[n] = static_cast<float>(found.parts[n].value);
  const AnalysisOf of{.encoder_ids = decoder.empty() ? std::span<const std::int64_t>() : std::span(given)};
  return nb::module_::import_("attend._analysis")
      .attr("ValueSplit")(names_of(found.parts, of), to_python({}, values), found.rest, found.value);
}

constexpr const char* value_doc =
    R"(What a head reads at a key, along a direction, as a sum over what the key's row is made of: an attend.ValueSplit.

head and key as explain_score() has them. direction [E]: of the stream, by what the head's output makes of the value; None: along
which the answer reads it, as attribute() has it for token, against and position. values.sum() + rest is value, and the head's
weight on the key times value is the head's number there in attribute(). cache: as explain_score() has it. ValueError for a key that the position
does not see.)";

constexpr const char* doc =
    R"(Why a head gives a key its score: q . k as a sum over pairs of what the two rows are made of, an attend.ScoreSplit.

head: "18.6" or (18, 6). query and key: rows of ids [N] or of a text, of an encoder-decoder of decoder_ids, whose decoder's own
attention it is; of its encoder's "encoder.1.self.6" rows of ids. Each row before the layer is the sum of what the embedding, each earlier head, each MLP and all biases wrote
(Elhage et al. 2021); norms divide as they do there, and rotary positions turn. against: "mean", less the mean score of all keys
that the query sees, as softmax sees differences alone; a key, less that one's; None, the score itself. pairs.sum() + bias + rest is
score, before a softcap. cache: of decoders, what a pass over ids or their beginning has filled: against a key or None the rows that
are looked at are computed alone. ValueError for a key that the query does not see.)";

}  // namespace

void bind_score(nb::module_&, nb::class_<Loaded>& model) {
  model.def(
      "explain_score", &explain_score_, nb::arg("ids"), nb::arg("head"), nb::arg("query"), nb::arg("key"),
      nb::arg("against").none() = "mean", nb::arg("decoder_ids") = nb::none(), nb::arg("cache") = nb::none(),
      nb::sig("def explain_score(self, ids: str | Ids, head: str | tuple[int, int], query: int, key: int, against: "
              "Literal['mean'] | int | None = 'mean', decoder_ids: Ids | None = None, cache: ModelCache | None = None) "
              "-> attend.ScoreSplit"),
      doc);
  model.def(
      "explain_value", &explain_value_, nb::arg("ids"), nb::arg("head"), nb::arg("key"), nb::arg("token") = nb::none(),
      nb::arg("against") = nb::none(), nb::arg("position") = -1, nb::arg("direction") = nb::none(),
      nb::arg("decoder_ids") = nb::none(), nb::arg("cache") = nb::none(),
      nb::sig(
          "def explain_value(self, ids: str | Ids, head: str | tuple[int, int], key: int, token: int | str | None = "
          "None, against: int | str | None = None, position: int = -1, direction: numpy.ndarray | None = None, "
          "decoder_ids: Ids | None = None, cache: ModelCache | None = None) -> attend.ValueSplit"),
      value_doc);
}

}  // namespace attend::python
