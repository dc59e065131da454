// --saliency: which tokens of the text an answer comes from.
#include <fmt/format.h>

#include "attend/saliency.h"
#include "cli/analyses.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {

namespace {

constexpr std::size_t most_lit_tokens = 10;  // of each sign
constexpr double much = 0.05;                // of the change: what is missed and told before the numbers

std::string words(const Computed& x, const Saliency& s) {
  std::string text = fmt::format("Which tokens make {}", in_quotes(x.tokenizer, *s.token));
  if (s.against)
    text += fmt::format(", and not {}: the difference of their logits", in_quotes(x.tokenizer, *s.against));
  text += fmt::format(",\nfrom {:.2f} where each token is the mean embedding to {:.2f}", s.baseline_value, s.value);
  text += missing_share(s) > much
              ? fmt::format(".\nThese numbers miss {:.0f} % of that change, with {} points of the path (--steps):\n",
                            100 * missing_share(s), s.steps)
              : fmt::format(" ({} points of the path miss {:.1f} %):\n", s.steps, 100 * missing_share(s));
  const auto lines = [&](const Tensor& values, const std::vector<std::string>& tokens) {
    const std::vector<double> all(values.data<float>(), values.data<float>() + values.count());
    return signed_lines(all, most_lit_tokens, [&](std::size_t n) { return in_quotes(tokens[n]); });
  };
  if (s.encoder.count() > 0) text += "Of the encoder's text:\n" + lines(s.encoder, x.recording.tokens[0]);
  return text + (s.encoder.count() > 0 ? "Of the decoder's:\n" : "") + lines(s.tokens, x.answering());
}

class SaliencyOfTokens : public Analysis {
 public:
  SaliencyOfTokens() : Analysis({.option = "--saliency", .of_decoders = true, .takes_token = true}) {}

  void add(App& app, AnalysisArguments&) override {
    app.add_flag("--saliency", asked_,
                 "Decoders: which tokens of the text the logit of the --why TOKEN comes from, through all layers "
                 "(default: the likeliest token)");
    app.add_option("--steps", steps_,
                   "With --saliency: how many points to compute at most on the path from the mean embedding to the "
                   "text (default: 512)")
        ->type_name("N");
  }

  bool asked(const AnalysisArguments&) const override { return asked_; }

  void check(const AnalysisArguments&) const override {
    if (steps_ && !asked_) throw UsageError("--steps: nothing uses it without --saliency");
    if (steps_ && *steps_ < 3) throw UsageError(fmt::format("--steps: {}, expected at least 3", *steps_));
  }

  Finding find(const Question& question, const PassOptions&, Pass&) const override {
    const Computed& x = question.computed;
    Progress progress;
    const SaliencyOptions options{
        .number = {.token = question.token, .against = question.against, .decoder_ids = x.decoder_ids},
        .steps = steps_.value_or(SaliencyOptions().steps),
        .progress = progress.stage()};
    const auto found = std::make_shared<const Saliency>(saliency(question.model, x.encoding.ids, options));
    return {.name = "saliency",
            .json = [=] { return attend::to_json(*found); },
            .words = [=](const Computed& of) { return words(of, *found); },
            .picture = [=](const AnalysisOf& of) { return saliency_picture(*found, of); },
            .csv = [=](const AnalysisOf& of) { return saliency_csv(*found, of); }};
  }

 private:
  bool asked_ = false;
  std::optional<std::int64_t> steps_;
};

}  // namespace

std::unique_ptr<Analysis> analysis_saliency() {
  return std::make_unique<SaliencyOfTokens>();
}

}  // namespace attend::cli
