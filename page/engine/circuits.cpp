// From the answer back to the words, of the text that was run or grows: why a head looks where it looks, where the
// answer comes from, and which edges it needs.
#include <emscripten.h>

#include "attend/answer_trace.h"
#include "attend/score_split.h"
#include "page/engine/models.h"

// The share that is done, to whom the module was given: its `progress`, where it has one.
EM_JS(void, attend_progress, (double share), {
  if (Module["progress"]) Module["progress"](share);
});

namespace attend::page {

namespace {

AttributionPart take_part(Request& request) {
  using Kind = AttributionPart::Kind;
  const auto name = request.need<std::string>("kind");
  AttributionPart part;
  if (name != "head" && name != "cross" && name != "mlp")
    request.refuse("kind", "\"head\", \"cross\" or \"mlp\"", name);
  part.kind = name == "head" ? Kind::head : name == "cross" ? Kind::cross : Kind::mlp;
  request.take("layer", part.layer), request.take("head", part.head);
  return part;
}

// Which answer: as `why` takes them.
TraceOptions take_answer(Request& request) {
  TraceOptions options{.token = take_token(request, "token"), .against = take_token(request, "against")};
  request.take("position", options.position);
  options.decoder_ids = state.text.decoder_ids;
  return options;
}

// Why a head looks at a key: against the mean of the keys that the query sees.
void score(Request& request) {
  const auto head = request.need<Head>("head");
  const auto query = request.need<std::int64_t>("query"), key = request.need<std::int64_t>("key");
  request.end();
  add_json(explain_score(model(), state.text.ids, head, query, key, {.decoder_ids = state.text.decoder_ids}));
}

// The sums; what each part really changes is asked for part by part.
void trace(Request& request) {
  TraceOptions options = take_answer(request);
  request.take("heads", options.heads), request.take("parts", options.parts);
  request.end();
  options.measured = false;
  answer.json = Json::parse(to_json(trace_answer(model(), state.text.ids, options)));
}

void without(Request& request) {
  const AttributionPart part = take_part(request);
  std::optional<std::int64_t> row;
  request.take("row", row);
  const TraceOptions options = take_answer(request);
  request.end();
  answer.json["value"] = answer_without(model(), state.text.ids, part, row, options);
}

// What a text says next behind a row; -1: the last.
std::int64_t answer_of(Ids ids, std::int64_t position) {
  if (position >= 0 && position < std::ssize(ids)) ids.resize(static_cast<std::size_t>(position) + 1);
  return attend::run(model(), {.ids = std::move(ids)}, {.next = 1}).next.at(0).id;
}

// Beside another text of as many tokens, and its likeliest answer where none is given: what `circuit` is of.
void edges(Request& request) {
  const auto text = request.need<std::string>("corrupt");
  bool chat = false;
  request.take("chat", chat);
  const std::optional<std::int64_t> token = take_token(request, "token");
  if (!token) fail(ErrorCode::bad_value, function, "token is missing");
  std::optional<std::int64_t> against = take_token(request, "against");
  std::int64_t position = -1;
  request.take("position", position);
  request.end();
  state.edges.reset();
  const Ids corrupt = encode(model(), text, {.chat = chat}).ids;
  if (!against && !model().info().encoder_decoder()) against = answer_of(corrupt, position);
  if (against == token)
    fail(ErrorCode::bad_value, function, "the other text has the same answer, say rather than which word");
  const AnswerPair pair{.clean = state.text.ids,
                        .corrupt = corrupt,
                        .token = *token,
                        .against = against.value_or(0),
                        .position = position};
  state.edges =
      attend::edges(model(), {&pair, 1}, {.method = EdgeOptions::Method::eap_ig, .progress = attend_progress});
  answer.json = {{"clean", state.edges->clean},   {"corrupt", state.edges->corrupt},
                 {"count", state.edges->count()}, {"group", state.edges->group},
                 {"against", *against},           {"against_token", model().tokenizer().text(*against).value_or("")}};
  add_tokens("corrupt_", corrupt);
}

void circuit(Request& request) {
  const auto keep = request.need<std::int64_t>("keep");
  request.end();
  if (!state.edges) fail(ErrorCode::bad_value, function, "nobody has asked for the edges");
  const Circuit x = attend::circuit(model(), *state.edges, {.keep = keep, .progress = attend_progress});
  answer.json = Json::parse(to_json(x, *state.edges));
}

constexpr Asked all_asked[] = {
    {"score", score}, {"trace", trace}, {"without", without}, {"edges", edges}, {"circuit", circuit}};

}  // namespace

std::span<const Asked> asked_of_circuits() {
  return all_asked;
}

}  // namespace attend::page
