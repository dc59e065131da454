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
    if (part.key >= 0) name += " reading " + std::to_string(part.key);
    names.append(nb::str(name.c_str()));
  }
  return names;
}

NamedHead read_head(const char* function, nb::handle head) {
  if (nb::isinstance<nb::str>(head)) {
    const std::string name = text_of(head);
    return call(function, [&] { return head_named(name); });
  }
  const auto [layer, number] = read_two(function, "head", "a name, or (layer, head)", head);
  return {{layer, number}, std::nullopt};
}

// Heads of an own attention: of an encoder before a decoder, or of any other model and of its decoder.
std::vector<Head> read_heads(const char* function, nb::handle heads, bool of_encoder) {
  const AttentionKind own = of_encoder ? AttentionKind::encoder : AttentionKind::self;
  std::vector<Head> out;
  if (heads.is_none()) return out;
  for (const nb::handle head : expect<nb::list>(function, "by_token", "a list of heads", heads)) {
    const NamedHead named = read_head(function, head);
    if (named.attention.value_or(own) != own)
      throw Error(ErrorCode::bad_value, function,
                  std::string("by_token has a head of another attention, expected the own one of ") +
                      (of_encoder ? "the encoder" : "the decoder"));
    out.push_back(named.head);
  }
  return out;
}

nb::object explain_score_(const Loaded& self, nb::handle ids, nb::handle head, nb::handle query, nb::handle key,
                          nb::handle against, nb::handle decoder_ids, nb::handle cache, nb::handle sides,
                          nb::handle by_token) {
  constexpr const char* function = "Model.explain_score";
  const std::vector<std::int64_t> given = self.read_ids(function, "ids", ids),
                                  decoder = Loaded::read_decoder_ids(function, decoder_ids);
  const ReadCaches caches(function, {{"cache", cache}}, 1);
  const NamedHead named = read_head(function, head);
  const Head which = named.head;
  const AttentionKind attention = named.attention.value_or(AttentionKind::self);
  const std::vector<Head> heads = read_heads(function, by_token, attention == AttentionKind::encoder);
  ScoreOptions options{.by_token = heads, .cache = caches.of(0, 0), .decoder_ids = decoder, .attention = attention};
  if (const auto name = expect<std::string>(function, "sides", "'both' or 'query'", sides); name == "query")
    options.sides = ScoreOptions::Sides::query;
  else if (name != "both")
    throw Error(ErrorCode::bad_value, function, "sides is '" + name + "', expected 'both' or 'query'");
  if (against.is_none()) {
    options.against = ScoreOptions::Against::nothing;
  } else if (nb::isinstance<nb::str>(against)) {
    if (const std::string name = nb::cast<std::string>(against); name != "mean")
      throw Error(ErrorCode::bad_value, function, "against is '" + name + "', expected 'mean', a key or None");
  } else {
    options.against = ScoreOptions::Against::key;
    options.against_key = expect<std::int64_t>(function, "against", "'mean', a key or None", against);
  }
  const auto i = expect<std::int64_t>(function, "query", whole_number, query);
  const auto j = expect<std::int64_t>(function, "key", whole_number, key);
  const ScoreSplit found = call(function, [&] { return explain_score(self.model, given, which, i, j, options); });
  const AnalysisOf of{.encoder_ids = decoder.empty() ? std::span<const std::int64_t>() : std::span(given)};
  return nb::module_::import_("attend._analysis")
      .attr("ScoreSplit")(names_of(found.parts, of, options.attention == AttentionKind::encoder),
                          to_python({}, found.pairs), found.bias, found.rest, found.score,
                          names_of(found.key_parts, of, options.attention != AttentionKind::self));
}

nb::object explain_value_(const Loaded& self, nb::handle ids, nb::handle head, nb::handle key, nb::handle token,
                          nb::handle against, nb::handle position, nb::handle direction, nb::handle decoder_ids,
                          nb::handle cache, nb::handle by_token) {
  constexpr const char* function = "Model.explain_value";
  const std::vector<std::int64_t> given = self.read_ids(function, "ids", ids),
                                  decoder = Loaded::read_decoder_ids(function, decoder_ids);
  const ReadCaches caches(function, {{"cache", cache}}, 1);
  const NamedHead named = read_head(function, head);
  const Head which = named.head;
  const AttentionKind attention = named.attention.value_or(AttentionKind::self);
  const std::vector<Head> heads = read_heads(function, by_token, attention != AttentionKind::self);
  ValueOptions options{.token = self.read_token(function, "token", token),
                       .against = self.read_token(function, "against", against),
                       .position = expect<std::int64_t>(function, "position", whole_number, position),
                       .by_token = heads,
                       .cache = caches.of(0, 0),
                       .decoder_ids = decoder,
                       .attention = attention};
  std::optional<Array> along;
  if (!direction.is_none()) along.emplace(function, "direction", direction), options.direction = along->view();
  const auto j = expect<std::int64_t>(function, "key", whole_number, key);
  const ValueSplit found = call(function, [&] { return explain_value(self.model, given, which, j, options); });
  Tensor values({std::ssize(found.parts)});
  for (std::size_t n = 0; n < found.parts.size(); ++n)
    values.data<float>()[n] = static_cast<float>(found.parts[n].value);
  const AnalysisOf of{.encoder_ids = decoder.empty() ? std::span<const std::int64_t>() : std::span(given)};
  return nb::module_::import_("attend._analysis")
      .attr("ValueSplit")(names_of(found.parts, of, options.attention != AttentionKind::self), to_python({}, values),
                          found.rest, found.value);
}

constexpr const char* value_doc =
    R"(What a head reads at a key along a direction, split by what the key's row is made of: an attend.ValueSplit.

head, key: as for explain_score().
direction: [E], a direction of the stream, read from what the head's output makes of the value; None: the direction along which the
answer reads it, as attribute() has it for token, against and position. values.sum() + rest is value. The head's weight on the key
times value is the head's number there in attribute().
cache, by_token: as for explain_score(), where by_token is for the key's text.

Raises ValueError for a key that the position does not see, and without a direction for a head of an encoder-decoder's encoder,
which the answer does not read.)";

constexpr const char* score_doc =
    R"(Why a head gives a key its score: q . k as a sum over pairs of the parts of the two rows, an attend.ScoreSplit.

Each row before the layer is a sum of what the embedding, each earlier head, each MLP and all biases wrote (Elhage et al. 2021).
Norms divide as they do in the pass, and rotary positions turn. pairs.sum() + bias + rest is score, before a softcap.

head: "18.6" or (18, 6).
query, key: rows of ids [N] or of a text. In an encoder-decoder they are rows of decoder_ids; for "decoder.1.cross.6" the key is a row
of ids, and for "encoder.1.self.6" both are.
against: "mean" takes off the mean score of all keys that the query sees, as softmax sees differences only; a key takes off that
key's score; None gives the score itself.
sides: "query" gives pairs [A,1], the query's parts with the whole key.
by_token: earlier heads, such as ["16.0"], that are split by the token that they read: "16.0 reading 3".
cache: for decoders, a ModelCache that a pass over ids or their beginning has filled. Only the rows looked at are then computed,
except with both sides against the mean.

Raises ValueError for a key that the query does not see.)";

void bind_score(nb::module_&, nb::class_<Loaded>& model) {
  model.def(
      "explain_score", &explain_score_, nb::arg("ids"), nb::arg("head"), nb::arg("query"), nb::arg("key"),
      nb::arg("against").none() = "mean", nb::arg("decoder_ids") = nb::none(), nb::arg("cache") = nb::none(),
      nb::arg("sides") = "both", nb::arg("by_token") = nb::none(),
      nb::sig("def explain_score(self, ids: str | Ids, head: str | tuple[int, int], query: int, key: int, against: "
              "Literal['mean'] | int | None = 'mean', decoder_ids: Ids | None = None, cache: ModelCache | None = None, "
              "sides: Literal['both', 'query'] = 'both', by_token: list[str | tuple[int, int]] | None = None) "
              "-> attend.ScoreSplit"),
      score_doc);
  model.def(
      "explain_value", &explain_value_, nb::arg("ids"), nb::arg("head"), nb::arg("key"), nb::arg("token") = nb::none(),
      nb::arg("against") = nb::none(), nb::arg("position") = -1, nb::arg("direction") = nb::none(),
      nb::arg("decoder_ids") = nb::none(), nb::arg("cache") = nb::none(), nb::arg("by_token") = nb::none(),
      nb::sig(
          "def explain_value(self, ids: str | Ids, head: str | tuple[int, int], key: int, token: int | str | None = "
          "None, against: int | str | None = None, position: int = -1, direction: numpy.ndarray | None = None, "
          "decoder_ids: Ids | None = None, cache: ModelCache | None = None, "
          "by_token: list[str | tuple[int, int]] | None = None) -> attend.ValueSplit"),
      value_doc);
}

const AnalysisBinding score_binding(bind_score);

}  // namespace

}  // namespace attend::python
