// --lens: what each layer would answer.
#include <fmt/format.h>

#include <algorithm>

#include "attend/jacobian_lens.h"
#include "cli/analyses.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {

namespace {

constexpr std::int64_t most_in_pictures = 32;

// How many positions the terminal has room for: a word of some letters each.
std::int64_t positions_in(int width) {
  return std::max(1, (width - 8) / 10);
}

class LensOfLayers : public Analysis {
 public:
  LensOfLayers() : Analysis({.option = "--lens", .of_decoders = true}) {}

  void add(App& app, AnalysisArguments&) override {
    app.add_flag("--lens", asked_, "Decoders: the next token that each layer would answer, at each token of the text");
    app.add_option("--with", jacobian_,
                   "With --lens: read the layers through a Jacobian lens, the FILE that attend lens fit wrote")
        ->type_name("FILE");
  }

  bool asked(const AnalysisArguments&) const override { return asked_; }

  void check(const AnalysisArguments& arguments) const override {
    if (!asked_ && !jacobian_.empty()) throw UsageError("--with: nothing uses it without --lens");
    if (asked_ && !arguments.why.empty())
      throw UsageError("--why and --lens can't stand together: the lens shows all tokens");
  }

  void ask(const Question& question, std::optional<int> width, PassOptions& asked) const override {
    const std::int64_t all = std::ssize(question.computed.answering_ids());
    const std::int64_t most = width ? std::max(most_in_pictures, positions_in(*width)) : all;
    LensOptions& options = asked.lens.emplace();
    if (!jacobian_.empty()) options.jacobian = &with_.emplace(JacobianLens::load(jacobian_));
    std::vector<std::int64_t>& of = options.positions;
    for (std::int64_t n = std::max<std::int64_t>(0, all - most); n < all; ++n) of.push_back(n);
  }

  Finding find(const Question&, const PassOptions& asked, Pass& pass) const override {
    const auto found = std::make_shared<const Lens>(std::move(*pass.lens));
    const std::vector<std::int64_t> positions = asked.lens->positions;
    const auto drawing = [=](const AnalysisOf& of, const TerminalStyle& style) {
      const std::int64_t all = std::ssize(of.ids), fit = std::min(all, positions_in(style.width));
      std::string text = "What the layers would answer";
      text +=
          fit < all ? fmt::format("\n(at the last {} of {} tokens: --width has the others, and --csv)", fit, all) : "";
      return text + ":\n" + *lens_picture(*found, positions, of, fit).terminal(style);
    };
    return {.name = "lens",
            .json = [=] { return attend::to_json(*found, positions); },
            .words = [](const Computed&) { return std::string(); },
            .picture = [=](const AnalysisOf& of) { return lens_picture(*found, positions, of); },
            .csv = [=](const AnalysisOf& of) { return lens_csv(*found, positions, of); },
            .drawing = drawing};
  }

 private:
  bool asked_ = false;
  std::string jacobian_;
  mutable std::optional<JacobianLens> with_;
};

}  // namespace

std::unique_ptr<Analysis> analysis_lens() {
  return std::make_unique<LensOfLayers>();
}

}  // namespace attend::cli
