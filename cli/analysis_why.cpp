// --why and --against: what each part of the model wrote into a logit.
#include <fmt/format.h>

#include <algorithm>

#include "cli/analyses.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {

namespace {

constexpr std::size_t most_parts = 8, most_tokens = 6;  // of each sign

std::string part_text(const Computed& x, const AttributionPart& part) {
  using Kind = AttributionPart::Kind;
  switch (part.kind) {
    case Kind::head:
      return fmt::format("layer {}, head {} read {}", part.layer, part.head,
                         in_quotes(x.answering()[static_cast<std::size_t>(part.key)]));
    case Kind::cross:
      return fmt::format("layer {}, cross head {} read {}", part.layer, part.head,
                         in_quotes(x.recording.tokens[0][static_cast<std::size_t>(part.key)]));
    case Kind::mlp:
      return fmt::format("layer {}, MLP", part.layer);
    case Kind::embedding:
      return "the last token's embedding";
    case Kind::bias:
      return "biases";
    case Kind::neuron:
      return fmt::format("layer {}, unit {} of the MLP", part.layer, part.unit);
    case Kind::feature:
      return fmt::format("feature {}", part.unit);
    case Kind::rounding:
      return "what rounding to bf16 leaves";
  }
  return "";
}

// Where the text without a space before it is a token, and with one another, which the model finds likelier.
std::string likelier_with_space(const Computed& x, const std::string& text, std::int64_t token) {
  const std::optional<std::int64_t> word = token_of_word(x.tokenizer, text);
  const auto place = [&](std::int64_t id) { return std::ranges::find(x.next, id, &NextToken::id); };
  if (!word || place(*word) >= place(token)) return "";
  return fmt::format(
      "\"{}\" goes on with a word; \" {}\", which begins one, is likelier here ({:.1f} %): --why \" {}\".\n",
      printable(text), printable(text), 100 * place(*word)->probability, printable(text));
}

class Why : public Analysis {
 public:
  Why() : Analysis({.option = "--why", .of_decoders = true, .alone = false}) {}

  void add(App& app, AnalysisArguments& arguments) override {
    app.add_option("--why", arguments.why,
                   "Decoders: why TOKEN, such as \" Paris\", comes next: what each head (by the token that it read) "
                   "and each MLP wrote into its logit")
        ->type_name("TOKEN");
    app.add_option("--against", arguments.against, "With --why: explain the difference to the logit of this TOKEN")
        ->type_name("TOKEN");
    app.add_flag("--neurons", neurons_, "With --why: show each hidden unit of the MLPs instead of whole MLPs");
  }

  bool asked(const AnalysisArguments& arguments) const override {
    return !arguments.why.empty() && std::ranges::none_of(arguments.all, [&](const auto& other) {
      return other->takes_token && other->asked(arguments);
    });
  }

  void check(const AnalysisArguments& arguments) const override {
    if (neurons_ && !asked(arguments))
      throw UsageError(
          "--neurons: nothing uses it without --why, or where --why only names the token for another analysis");
  }

  void ask(const Question& question, std::optional<int>, PassOptions& asked) const override {
    asked.why = AttributeOptions{.token = question.token, .against = question.against, .neurons = neurons_};
  }

  Finding find(const Question& question, const PassOptions&, Pass& pass) const override {
    const auto found = std::make_shared<const Attribution>(std::move(*pass.why));
    const std::string token = question.arguments.why, against = question.arguments.against;
    const std::string note = likelier_with_space(question.computed, token, *question.token);
    return {.name = "why",
            .json = [=] { return attend::to_json(*found); },
            .words = [=](const Computed& x) { return note + attribution_words(x, *found, token, against); },
            .picture = [=](const AnalysisOf& of) { return attribution_picture(*found, of); },
            .csv = [=](const AnalysisOf& of) { return attribution_csv(*found, of); }};
  }

 private:
  bool neurons_ = false;
};

}  // namespace

std::string attribution_words(const Computed& x, const Attribution& a, const std::string& token,
                              const std::string& against) {
  std::string text = fmt::format("Why {}", in_quotes(token));
  text += a.against ? fmt::format(", and not {}: the difference of their logits, {:+.2f}", in_quotes(against), a.logit)
                    : fmt::format(": its logit, {:.2f}", a.logit);
  text += ",\nis the sum of what each part wrote (% of all they wrote, whatever the sign):\n";
  const auto parts = strongest_parts(a, a.heads.count() + a.cross.count() + a.mlps.count() + a.neurons.count() + 3);
  std::vector<double> values(parts.size());
  std::ranges::transform(parts, values.begin(), &AttributionPart::value);
  text += signed_lines(values, most_parts, [&](std::size_t n) { return part_text(x, parts[n]); });

  const auto by_token = [&](bool cross, const std::vector<std::string>& tokens) {
    const Tensor sums = sums_by_token(a, cross);
    const std::vector<double> of_token(sums.data<float>(), sums.data<float>() + sums.count());
    return signed_lines(of_token, most_tokens, [&](std::size_t n) { return in_quotes(tokens[n]); });
  };
  text += "By the token that heads read:\n" + by_token(false, x.answering());
  if (a.cross.count() > 0)
    text += "By the encoder's token that cross heads read:\n" + by_token(true, x.recording.tokens[0]);
  return text + "Direct effects alone: what a part does through later layers counts as theirs.\n";
}

std::unique_ptr<Analysis> analysis_why() {
  return std::make_unique<Why>();
}

}  // namespace attend::cli
