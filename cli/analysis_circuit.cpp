// --circuit: which edges the answer needs, and how much of it they keep.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "attend/circuits.h"
#include "attend/error.h"
#include "cli/analyses.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {

namespace {

constexpr std::size_t most_edges = 12;
constexpr int bar_columns = 20;

struct Found {
  Edges edges;
  Circuit circuit;
};

std::string reader_text(const CircuitNode& node) {
  using Kind = CircuitNode::Kind;
  if (node.kind == Kind::key || node.kind == Kind::value)
    return fmt::format("{}.{} {}", node.layer, node.head, node.kind == Kind::key ? "keys" : "values");
  return node.kind == Kind::query ? fmt::format("{}.{} queries", node.layer, node.head) : name_of(node);
}

std::string words(const Computed& x, const Found& found) {
  const Circuit& c = found.circuit;
  const AnswerPair& pair = found.edges.pairs.front();
  std::string text = fmt::format(
      "A circuit for {}, and not {}: the difference of their logits is {:+.2f} after the\ntext and {:+.2f} after the "
      "corrupt one. With these {} of {} edges alone, and all others as in\nthe corrupt text, it is {:+.2f}: {:.1f} % "
      "of "
      "the way.\n",
      in_quotes(x.tokenizer, pair.token), in_quotes(x.tokenizer, pair.against), c.clean, c.corrupt, c.edges.size(),
      found.edges.count(), c.value, 100 * c.faithfulness);
  text += "The strongest, by what integrated gradients give each:\n";
  const std::size_t count = std::min(most_edges, c.edges.size());
  for (std::size_t n = 0; n < count; ++n) {
    const CircuitEdge& edge = c.edges[n];
    text += fmt::format("  {:<9} to {:<12} {:+8.2f}  {}\n",
                        name_of(found.edges.sources[static_cast<std::size_t>(edge.source)]),
                        reader_text(found.edges.receivers[static_cast<std::size_t>(edge.receiver)]), edge.score,
                        bar(std::abs(edge.score) / std::abs(c.edges.front().score), bar_columns));
  }
  if (count < c.edges.size())
    text += fmt::format("  and {} more: -o x.svg draws the strongest, -o x.csv lists all.\n", c.edges.size() - count);
  return text;
}

double share_of(const std::string& text) {
  double share = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, share);
  if (error != std::errc() || last != end || !(share <= 1))
    throw UsageError(fmt::format("--faithfulness: '{}', expected a number up to 1, such as 0.85", text));
  return share;
}

class CircuitOfAnswer : public Analysis {
 public:
  CircuitOfAnswer() : Analysis({.option = "--circuit", .of_decoders = true, .takes_token = true, .graph = true}) {}

  void add(App& app, AnalysisArguments& arguments) override {
    app.add_flag("--circuit", arguments.circuit,
                 "With --patch, instead of its heads: the edges between heads and MLPs that the difference needs, and "
                 "how much of the difference they keep");
    app.add_option("--edges", keep_, "With --circuit: keep N edges (default: 200)")->type_name("N");
    app.add_option("--faithfulness", faithfulness_,
                   "With --circuit: keep the fewest edges that keep this share of the difference, such as 0.85")
        ->type_name("SHARE");
  }
  bool asked(const AnalysisArguments& arguments) const override { return arguments.circuit; }

  void check(const AnalysisArguments& arguments) const override {
    if (!arguments.circuit && keep_) throw UsageError("--edges: nothing uses it without --circuit");
    if (!arguments.circuit && faithfulness_) throw UsageError("--faithfulness: nothing uses it without --circuit");
    if (faithfulness_) (void)share_of(*faithfulness_);
    if (keep_ && *keep_ < 0) throw UsageError(fmt::format("--edges: {}, expected 0 or more", *keep_));
    if (keep_ && faithfulness_) throw UsageError("--edges and --faithfulness can't stand together");
    if (arguments.circuit && arguments.patch.empty())
      throw UsageError("--circuit: needs the corrupt text, with --patch TEXT2");
  }

  Finding find(const Question& question, const PassOptions&, Pass&) const override {
    const Computed& x = question.computed;
    const std::vector<std::int64_t> corrupt =
        encoded(question.model, question.arguments.patch, x.recording.model, x.chat).ids;
    const auto found = std::make_shared<const Found>(searched(question, corrupt));
    return {.name = "circuit",
            .json = [=] { return with_corrupt_ids(attend::to_json(found->circuit, found->edges), corrupt); },
            .words = [=](const Computed& of) { return words(of, *found); },
            .picture = [=](const AnalysisOf& of) { return circuit_picture(found->circuit, found->edges, of); },
            .csv = [=](const AnalysisOf&) { return circuit_csv(found->circuit, found->edges); },
            .drawing = [](const AnalysisOf&, const TerminalStyle&) { return std::string(); },
            .corrupt = corrupt,
            .dot = [=] { return circuit_dot(found->circuit, found->edges); }};
  }

 private:
  Found searched(const Question& question, const std::vector<std::int64_t>& corrupt) const {
    const AnswerPair pair{.clean = question.computed.encoding.ids,
                          .corrupt = corrupt,
                          .token = *question.token,
                          .against = *question.against};
    Progress progress;
    try {
      Found found{.edges = edges(question.model, {&pair, 1},
                                 {.method = EdgeOptions::Method::eap_ig, .progress = progress.stage()}),
                  .circuit = {}};
      CircuitOptions options{.progress = progress.stage()};
      if (faithfulness_)
        options.faithfulness = share_of(*faithfulness_);
      else
        options.keep = keep_.value_or(200);
      found.circuit = circuit(question.model, found.edges, options);
      return found;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_value) throw;
      throw UsageError(fmt::format("--circuit: {}", error.detail()));
    }
  }

  std::optional<std::int64_t> keep_;
  std::optional<std::string> faithfulness_;
};

}  // namespace

std::unique_ptr<Analysis> analysis_circuit() {
  return std::make_unique<CircuitOfAnswer>();
}

}  // namespace attend::cli
