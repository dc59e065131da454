// --ablate: what changes without each head, and whose heads.
#include <fmt/format.h>

#include "cli/analyses.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {

namespace {

std::string words(const Computed& x, const Ablation& a) {
  if (!x.info.decoder())
    return "How far the text's mean hidden state turns without each head (1 - cosine):\n" +
           head_lines(a.cosine_distance);
  return fmt::format("The log-probability of {} without each head (its output set to zero), after less\nbefore:\n{}",
                     in_quotes(x.tokenizer, *a.token), head_lines(a.log_probability));
}

class Ablate : public Analysis {
 public:
  Ablate() : Analysis({.option = "--ablate", .takes_attention = true, .takes_token = true}) {}

  void add(App& app, AnalysisArguments& arguments) override {
    app.add_flag("--ablate", asked_, "The same as --without, for each head by itself");
    choose_one(
        app.add_option(
            "--attention", arguments.attention,
            "Encoder-decoders: which heads --without, --ablate and --patch take: the decoder's that read its own text "
            "(self), the decoder's that read the encoder's text (cross), or the encoder's (default: self)"),
        "self|cross|encoder");
  }

  bool asked(const AnalysisArguments&) const override { return asked_; }

  Finding find(const Question& question, const PassOptions&, Pass&) const override {
    const Computed& x = question.computed;
    Progress progress;
    const auto found = std::make_shared<const Ablation>(ablate(question.model, x.encoding.ids,
                                                               {.token = question.token,
                                                                .against = question.against,
                                                                .progress = progress.stage(),
                                                                .attention = question.attention(),
                                                                .decoder_ids = x.decoder_ids}));
    return {.name = "ablation",
            .json = [=] { return attend::to_json(*found); },
            .words = [=](const Computed& of) { return words(of, *found); },
            .picture = [=](const AnalysisOf& of) { return ablation_picture(*found, of); },
            .csv = [=](const AnalysisOf& of) { return ablation_csv(*found, of); }};
  }

 private:
  bool asked_ = false;
};

}  // namespace

std::unique_ptr<Analysis> analysis_ablate() {
  return std::make_unique<Ablate>();
}

}  // namespace attend::cli
