// Model.trace(), edges(), circuit() and path_patch().
#include "attend/circuits.h"

#include "attend/answer_trace.h"

#include <nanobind/stl/tuple.h>

#include <tuple>

#include "analysis.h"

namespace attend::python {

namespace {

nb::object circuit_made(const char* kind) {
  return nb::module_::import_("attend._circuits").attr(kind);
}

AnswerPair read_pair(const char* function, const Loaded& self, nb::handle clean, nb::handle corrupt, nb::handle token,
                     nb::handle against, nb::handle position) {
  return {.clean = self.read_ids(function, "clean_ids", clean),
          .corrupt = self.read_ids(function, "corrupt_ids", corrupt),
          .token = read_answer(function, self, "token", token),
          .against = read_answer(function, self, "against", against),
          .position = expect<std::int64_t>(function, "position", whole_number, position)};
}

std::vector<AnswerPair> read_pairs(const char* function, const Loaded& self, nb::handle clean, nb::handle corrupt,
                                   nb::handle token, nb::handle against, nb::handle position) {
  const std::optional<nb::list> several = read_several(clean), others = read_several(corrupt);
  if (several.has_value() != others.has_value())
    throw Error(ErrorCode::bad_value, function, "clean_ids and corrupt_ids: one is a text and the other several");
  if (!several) return {read_pair(function, self, clean, corrupt, token, against, position)};
  const std::size_t count = nb::len(*several);
  if (nb::len(*others) != count)
    throw Error(ErrorCode::bad_value, function,
                "clean_ids are " + std::to_string(count) + " texts and corrupt_ids " +
                    std::to_string(nb::len(*others)) + ", expected as many");
  std::vector<AnswerPair> pairs;
  for (std::size_t n = 0; n < count; ++n) {
    const auto each = [&](const char* name, nb::handle given) { return of_each(function, name, given, n, count); };
    pairs.push_back(read_pair(function, self, (*several)[n], (*others)[n], each("token", token),
                              each("against", against), each("position", position)));
  }
  return pairs;
}

nb::list names_of(const std::vector<CircuitNode>& nodes) {
  nb::list names;
  for (const CircuitNode& node : nodes) names.append(nb::str(name_of(node).c_str()));
  return names;
}

nb::list id_list(const std::vector<std::int64_t>& ids) {
  nb::list all;
  for (const std::int64_t id : ids) all.append(id);
  return all;
}

nb::object edges_(const Loaded& self, nb::handle clean_ids, nb::handle corrupt_ids, nb::handle token,
                  nb::handle against, const std::string& method, std::int64_t steps, const std::string& at,
                  nb::handle position, nb::handle progress) {
  constexpr const char* function = "Model.edges";
  if (method != "eap" && method != "eap-ig")
    throw Error(ErrorCode::bad_value, function, "method is '" + method + "', expected 'eap' or 'eap-ig'");
  if (at != "corrupt" && at != "clean")
    throw Error(ErrorCode::bad_value, function, "at is '" + at + "', expected 'corrupt' or 'clean'");
  const std::vector<AnswerPair> pairs = read_pairs(function, self, clean_ids, corrupt_ids, token, against, position);
  const EdgeOptions options{.method = method == "eap" ? EdgeOptions::Method::eap : EdgeOptions::Method::eap_ig,
                            .at = at == "clean" ? EdgeOptions::At::clean : EdgeOptions::At::corrupt,
                            .steps = steps,
                            .progress = progress_of(function, progress)};
  const Edges found = call(function, [&] { return edges(self.model, pairs, options); });
  nb::list given;
  for (const AnswerPair& pair : found.pairs)
    given.append(nb::make_tuple(id_list(pair.clean), id_list(pair.corrupt), pair.token, pair.against, pair.position));
  return circuit_made("Edges")(names_of(found.sources), names_of(found.receivers), to_python({}, found.scores),
                               found.clean, found.corrupt, given);
}

std::vector<CircuitNode> nodes_of(const char* function, const char* name, nb::handle given) {
  std::vector<CircuitNode> nodes;
  const std::string expected = std::string("a list of names such as '3.2'");
  if (nb::isinstance<nb::str>(given) || !nb::isinstance<nb::sequence>(given))
    throw Error(ErrorCode::bad_value, function,
                std::string(name) + " is " + nb::repr(given).c_str() + ", expected " + expected);
  for (const nb::handle each : read_list(function, name, expected.c_str(), given)) {
    const auto text = expect<std::string>(function, name, expected.c_str(), each);
    nodes.push_back(call(function, [&] { return node_named(text); }));
  }
  return nodes;
}

// An attend.Edges.
Edges read_edges(const char* function, const Loaded& self, nb::handle given) {
  if (!nb::isinstance(given, circuit_made("Edges")))
    throw nb::type_error((std::string(function) + ": edges is " + nb::repr(given.type()).c_str() +
                          ", expected an attend.Edges, as Model.edges() gives it")
                             .c_str());
  Edges out{.sources = nodes_of(function, "edges.sources", given.attr("sources")),
            .receivers = nodes_of(function, "edges.receivers", given.attr("receivers")),
            .scores = Array(function, "edges.scores", given.attr("scores")).view().to(DType::f32),
            .parallel = self.model.info().parallel};
  const Dims shape{std::ssize(out.sources), std::ssize(out.receivers)};
  if (out.scores.shape() != shape)
    throw Error(ErrorCode::bad_shape, function, "edges.scores have another shape than [sources,receivers]");
  for (const nb::handle pair : given.attr("pairs")) {
    const nb::tuple five = nb::cast<nb::tuple>(pair);
    out.pairs.push_back(read_pair(function, self, five[0], five[1], five[2], five[3], five[4]));
  }
  return out;
}

std::vector<CircuitEdge> read_only(const char* function, const Edges& edges, nb::handle only) {
  std::vector<CircuitEdge> all;
  const auto place = [&](const std::vector<CircuitNode>& nodes, const char* name, const nb::handle& of) {
    const auto text = expect<std::string>(function, name, "a name such as '3.2'", of);
    const auto node = call(function, [&] { return node_named(text); });
    const auto found = std::ranges::find(nodes, node);
    if (found == nodes.end())
      throw Error(ErrorCode::bad_value, function, std::string(name) + " '" + text + "' is not one of the edges'");
    return found - nodes.begin();
  };
  for (const nb::handle edge : only) {
    const auto names = nb::borrow<nb::sequence>(edge);
    if (!nb::isinstance<nb::sequence>(edge) || nb::isinstance<nb::str>(edge) || nb::len(names) < 2)
      throw Error(ErrorCode::bad_value, function,
                  std::string("only has ") + nb::repr(edge).c_str() + ", expected (source, receiver)");
    CircuitEdge& own = all.emplace_back();
    own.source = place(edges.sources, "source", names[0]), own.receiver = place(edges.receivers, "receiver", names[1]);
    own.score =
        static_cast<double>(edges.scores.data<float>()[own.source * std::ssize(edges.receivers) + own.receiver]);
  }
  return all;
}

nb::object circuit_(const Loaded& self, nb::handle edges, nb::handle keep, nb::handle faithfulness, nb::handle only,
                    nb::handle progress) {
  constexpr const char* function = "Model.circuit";
  const Edges of = read_edges(function, self, edges);
  CircuitOptions options{.progress = progress_of(function, progress)};
  std::vector<CircuitEdge> given;
  if (!keep.is_none()) options.keep = expect<std::int64_t>(function, "keep", whole_number, keep);
  if (!faithfulness.is_none())
    options.faithfulness = expect<double>(function, "faithfulness", "a number", faithfulness);
  if (!only.is_none()) {
    given = read_only(function, of, only);
    if (given.empty()) options.keep = 0;
    options.edges = given;
  }
  const Circuit found = call(function, [&] { return circuit(self.model, of, options); });
  nb::list kept, tried;
  for (const CircuitEdge& edge : found.edges)
    kept.append(nb::make_tuple(name_of(of.sources[static_cast<std::size_t>(edge.source)]),
                               name_of(of.receivers[static_cast<std::size_t>(edge.receiver)]), edge.score));
  for (const auto& [count, share] : found.tried) tried.append(nb::make_tuple(count, share));
  const std::string dot = call(function, [&] { return circuit_dot(found, of); });
  return circuit_made("Circuit")(kept, found.faithfulness, found.value, found.clean, found.corrupt, tried, dot,
                                 self.model.info().heads / self.model.info().kv_heads);
}

Drawn circuit_picture_(const nb::list& edges, double faithfulness, std::int64_t group, std::int64_t most,
                       const std::optional<std::string>& title) {
  constexpr const char* function = "Circuit.picture";
  Edges of;
  of.group = group;
  Circuit found;
  found.faithfulness = faithfulness;
  for (const nb::handle edge : edges) {
    const auto [source, receiver, score] = nb::cast<std::tuple<std::string, std::string, double>>(edge);
    const auto place = [&](std::vector<CircuitNode>& nodes, const std::string& name) {
      nodes.push_back(call(function, [&] { return node_named(name); }));
      return std::ssize(nodes) - 1;
    };
    const std::int64_t from = place(of.sources, source), to = place(of.receivers, receiver);
    found.edges.push_back({from, to, score});
  }
  return drawn(call(function, [&] { return circuit_picture(found, of, {.title = title}, most); }));
}

nb::object path_patch_(const Loaded& self, nb::handle clean_ids, nb::handle corrupt_ids, nb::handle token,
                       nb::handle against, nb::handle senders, nb::handle receivers, nb::handle position) {
  constexpr const char* function = "Model.path_patch";
  const AnswerPair pair = read_pair(function, self, clean_ids, corrupt_ids, token, against, position);
  const std::vector<CircuitNode> from = nodes_of(function, "senders", senders),
                                 to = nodes_of(function, "receivers", receivers);
  const PathPatching found = call(function, [&] { return path_patch(self.model, pair, from, to); });
  return circuit_made("PathPatching")(found.recovered, found.value, found.clean, found.corrupt);
}

nb::list parts_of(const std::vector<TracedPart>& parts) {
  nb::list all;
  for (const TracedPart& x : parts)
    all.append(circuit_made("TracedPart")(name_of(x.part, {}), x.part.value, x.share, x.without));
  return all;
}

nb::object trace_(const Loaded& self, nb::handle ids, nb::handle token, nb::handle against, nb::handle position,
                  std::int64_t heads, std::int64_t parts, bool measured, nb::handle decoder_ids, nb::handle progress) {
  constexpr const char* function = "Model.trace";
  const std::vector<std::int64_t> given = self.read_ids(function, "ids", ids),
                                  decoder = Loaded::read_decoder_ids(function, decoder_ids);
  const TraceOptions options{.token = self.read_token(function, "token", token),
                             .against = self.read_token(function, "against", against),
                             .position = expect<std::int64_t>(function, "position", whole_number, position),
                             .heads = heads,
                             .parts = parts,
                             .decoder_ids = decoder,
                             .measured = measured,
                             .progress = progress_of(function, progress)};
  const AnswerTrace found = call(function, [&] { return trace_answer(self.model, given, options); });
  nb::list all;
  for (const TracedHead& x : found.heads)
    all.append(circuit_made("TracedHead")(name_of(x.wrote.part, {}), x.wrote.part.key, x.wrote.part.value,
                                          x.wrote.share, x.wrote.without, x.score, x.value, parts_of(x.query),
                                          parts_of(x.key), parts_of(x.read)));
  return circuit_made("AnswerTrace")(found.token, found.against, found.position, found.logit, all);
}

constexpr const char* circuits_trace_doc =
    R"(From the answer back to the words, two steps deep: an attend.AnswerTrace.

It takes the strongest `heads` of attribute() (each by the token that it read) for the logit of token, by default the likeliest, or
its difference to against, at position. For each head it says what made it look at that token (explain_score(), above the mean of
what the row sees) and what in the row that it read made the value (explain_value()): the strongest `parts` of each side. The numbers
are direct effects. `without` is the answer's number in a pass where the part's writing into that row is 0, through all later layers.
With measured=False there are no such passes, and without is None.)";

constexpr const char* edges_doc =
    R"(How much of the difference between two answers goes along each edge of the model, as an estimate: an attend.Edges.

An edge leads from a part that writes into the stream (the embedding, a head "3.2", an MLP "mlp 3") to a part that reads it later (a
head's queries "4.1 q", keys "4.0 k" or values "4.0 v", an MLP, "output"). Its score is (what the source wrote in the clean text -
in the corrupt text) . gradient, summed over rows. The gradient is that of the difference of the logits of token and against, at
position, by what the reader reads, before its norm. A score above 0 is towards the clean answer.

method: "eap" (Syed et al. 2023) takes two passes forward and one backward, on the corrupt text, or with at="clean" on the clean
one. "eap-ig" (Hanna et al. 2024) takes the mean gradient over `steps` texts between the two.

Lists of texts give the mean over all pairs; token, against and position apply to all, or are lists with one entry for each. Raises
ValueError for texts of different lengths, for encoders and encoder-decoders, and for post-norm models.)";

constexpr const char* circuit_doc =
    R"(The few edges that an answer needs, and how much of it they keep, measured: an attend.Circuit.

edges: what Model.edges() gave. One of the next three says which edges to keep; without any, keep is 200.
keep: keep this many edges. They are added from the output on, always the strongest whose reader is already in; edges that nothing
reaches are dropped.
faithfulness: keep the fewest edges that keep this share, found by doubling and halving.
only: keep these, [(source, receiver), ...].

To measure them, a pass gives each reader what the writer computes in that pass along the kept edges, and what the corrupt text has
along all others (Wang et al. 2022; Hanna et al. 2024). faithfulness is (value - corrupt) / (clean - corrupt): 1 with all edges and 0
with none.)";

constexpr const char* path_patch_doc =
    R"(What the answer becomes when receivers see what senders wrote in the clean text, measured: an attend.PathPatching.

In a pass over the corrupt text, only the edges between senders and receivers carry the clean text's values, and all else goes on from
there (Goldowsky-Dill et al. 2023). senders have names such as "embedding", "3.2" and "mlp 3"; receivers "4.1 q", "4.0 k", "4.0 v",
"mlp 4" and "output". recovered is (value - corrupt) / (clean - corrupt) of the difference of the logits of token and against, at
position.)";

void bind_circuits(nb::module_& m, nb::class_<Loaded>& model) {
  m.def("_circuit_picture", &circuit_picture_, nb::arg("edges"), nb::arg("faithfulness"), nb::arg("group"),
        nb::arg("most"), nb::arg("title").none());
  model.def("trace", &trace_, nb::arg("ids"), nb::arg("token") = nb::none(), nb::arg("against") = nb::none(),
            nb::arg("position") = -1, nb::arg("heads") = 3, nb::arg("parts") = 3, nb::arg("measured") = true,
            nb::arg("decoder_ids") = nb::none(), nb::arg("progress") = nb::none(),
            nb::sig("def trace(self, ids: str | Ids, token: int | str | None = None, against: int | str | None = None, "
                    "position: int = -1, heads: int = 3, parts: int = 3, measured: bool = True, decoder_ids: Ids | "
                    "None = None, progress: "
                    "Callable[[float], object] | None = None) -> attend.AnswerTrace"),
            circuits_trace_doc);
  model.def(
      "edges", &edges_, nb::arg("clean_ids"), nb::arg("corrupt_ids"), nb::arg("token"), nb::arg("against"),
      nb::arg("method") = "eap", nb::arg("steps") = 5, nb::arg("at") = "corrupt", nb::arg("position") = -1,
      nb::arg("progress") = nb::none(),
      nb::sig(
          "def edges(self, clean_ids: str | Ids | Sequence[str | Ids], corrupt_ids: str | Ids | Sequence[str | Ids], "
          "token: int | str | Sequence[int | str], against: int | str | Sequence[int | str], method: Literal['eap', "
          "'eap-ig'] = 'eap', steps: int = 5, at: Literal['corrupt', 'clean'] = 'corrupt', position: int | "
          "Sequence[int] = -1, progress: Callable[[float], object] | None = None) -> attend.Edges"),
      edges_doc);
  model.def(
      "circuit", &circuit_, nb::arg("edges"), nb::arg("keep") = nb::none(), nb::arg("faithfulness") = nb::none(),
      nb::arg("only") = nb::none(), nb::arg("progress") = nb::none(),
      nb::sig("def circuit(self, edges: attend.Edges, keep: int | None = None, faithfulness: float | None = None, "
              "only: Sequence[tuple[str, str] | tuple[str, str, float]] | None = None, progress: "
              "Callable[[float], object] | None = None) -> attend.Circuit"),
      circuit_doc);
  model.def(
      "path_patch", &path_patch_, nb::arg("clean_ids"), nb::arg("corrupt_ids"), nb::arg("token"), nb::arg("against"),
      nb::arg("senders"), nb::arg("receivers"), nb::arg("position") = -1,
      nb::sig("def path_patch(self, clean_ids: str | Ids, corrupt_ids: str | Ids, token: int | str, against: int | "
              "str, senders: Sequence[str], receivers: Sequence[str], position: int = -1) -> "
              "attend.PathPatching"),
      path_patch_doc);
}

const AnalysisBinding circuits_binding(bind_circuits);

}  // namespace

}  // namespace attend::python
