// --passages: which paragraphs of the text made the answer.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "attend/passages.h"
#include "cli/analyses.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {

namespace {

constexpr std::size_t text_columns = 44;
constexpr int passage_bar_columns = 12;

// What a passage gave, as a number and a bar.
std::string gave(double value, double largest) {
  return fmt::format("{:+9.2f} {:<{}}", value, bar(std::abs(value) / largest, passage_bar_columns),
                     passage_bar_columns);
}

std::string beginning_of(const std::string& text) {
  return columns_of(text) > text_columns ? fmt::format("{:.{}}…", text, text_columns - 1) : text;
}

std::string words(const Computed& x, const Passages& p) {
  std::string text = fmt::format("Which passages make {}", in_quotes(x.tokenizer, *p.token));
  if (p.against) text += fmt::format(", and not {}", in_quotes(x.tokenizer, *p.against));
  text += fmt::format(
      ":\n{} {:.2f}. What each passage gave to it, estimated for all,\nand measured for {} by hiding the passage from "
      "all that comes after it:\n",
      p.against ? "the difference of the two logits is" : "its logit is", p.value, p.hidden.size());
  const std::vector<std::string> texts = passage_texts(p, analysis_of(x));
  double largest = 0;
  for (const Tensor* of : {&p.estimated, &p.measured})
    for (std::int64_t n = 0; n < of->count(); ++n)
      largest = std::max(largest, std::abs(static_cast<double>(of->data<float>()[n])));
  if (largest == 0) largest = 1;
  text += fmt::format("{:>5}  {:<{}} {:<{}} {}\n", "", "estimated", passage_bar_columns + 10, "measured",
                      passage_bar_columns + 9, "");
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const auto at = std::ranges::find(p.hidden, static_cast<std::int64_t>(n));
    const std::string measured =
        at == p.hidden.end() ? "" : gave(static_cast<double>(p.measured.data<float>()[at - p.hidden.begin()]), largest);
    text += fmt::format("{:5}  {} {:<{}} {}\n", n, gave(static_cast<double>(p.estimated.data<float>()[n]), largest),
                        measured, passage_bar_columns + 10, beginning_of(printable(texts[n])));
  }
  if (p.spans.size() == 1) text += "It is one passage, after which nothing comes. --lines makes one of each line.\n";
  return text;
}

class PassagesOfText : public Analysis {
 public:
  PassagesOfText() : Analysis({.option = "--passages", .of_decoders = true, .takes_token = true}) {}

  void add(App& app, AnalysisArguments&) override {
    app.add_flag(
        "--passages", asked_,
        "Decoders: which paragraphs of the text made the logit of the --why TOKEN (default: the likeliest token)");
    app.add_flag("--lines", lines_, "With --passages: lines instead of paragraphs");
    app.add_option("--hide", hide_,
                   "With --passages: how many of the strongest passages to measure by hiding them (default: 5)")
        ->type_name("N");
  }

  bool asked(const AnalysisArguments&) const override { return asked_; }

  void check(const AnalysisArguments&) const override {
    if (asked_) {
      if (hide_ && *hide_ < 0) throw UsageError(fmt::format("--hide: {}, expected 0 or more", *hide_));
      return;
    }
    if (hide_) throw UsageError("--hide: nothing uses it without --passages");
    if (lines_) throw UsageError("--lines: nothing uses it without --passages");
  }

  Finding find(const Question& question, const PassOptions&, Pass&) const override {
    const Computed& x = question.computed;
    const std::string text = x.chat ? x.tokenizer.chat(std::array{Message{"user", x.text}}) : x.text;
    Progress progress;
    const PassagesOptions options{
        .number = {.token = question.token, .against = question.against, .decoder_ids = x.decoder_ids},
        .spans = passages_of(text, x.encoding, lines_ ? PassageBy::line : PassageBy::paragraph),
        .hide = hide_.value_or(PassagesOptions().hide),
        .progress = progress.stage()};
    const auto found = std::make_shared<const Passages>(passages(question.model, x.encoding.ids, options));
    return {.name = "passages",
            .json = [=] { return attend::to_json(*found); },
            .words = [=](const Computed& of) { return words(of, *found); },
            .picture = [=](const AnalysisOf& of) { return passages_picture(*found, of); },
            .csv = [=](const AnalysisOf& of) { return passages_csv(*found, of); },
            .drawing = [](const AnalysisOf&, const TerminalStyle&) { return std::string(); }};
  }

 private:
  bool asked_ = false, lines_ = false;
  std::optional<std::int64_t> hide_;
};

}  // namespace

std::unique_ptr<Analysis> analysis_passages() {
  return std::make_unique<PassagesOfText>();
}

}  // namespace attend::cli
