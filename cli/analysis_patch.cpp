// --patch: how much of the answer each head of the text brings back into a corrupt text.
#include <fmt/format.h>

#include "attend/error.h"
#include "cli/analyses.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {

namespace {

std::string words(const Computed& x, const Patching& p) {
  return fmt::format(
      "The logit of {} less that of {}:\n"
      "{:+.2f} after the text, {:+.2f} after the corrupt one. Of the difference, each head\n"
      "of the text brings back into the corrupt one{}:\n{}",
      in_quotes(x.tokenizer, p.token), in_quotes(x.tokenizer, p.against), p.clean, p.corrupt,
      p.estimate ? ", estimated" : "", head_lines(p.recovered));
}

class Patch : public Analysis {
 public:
  Patch() : Analysis({.option = "--patch", .of_decoders = true, .takes_attention = true, .takes_token = true}) {}

  void add(App& app, AnalysisArguments& arguments) override {
    app.add_option("--patch", arguments.patch,
                   "Decoders: put each head's output for TEXT into a pass over TEXT2, which has as many tokens. How "
                   "much of the difference between the --why and --against tokens comes back?")
        ->type_name("TEXT2");
    app.add_flag("--estimate", estimate_,
                 "With --patch: estimate all heads from three passes, instead of a pass for each head");
  }

  bool asked(const AnalysisArguments& arguments) const override {
    return !arguments.patch.empty() && !arguments.circuit;
  }

  void check(const AnalysisArguments& arguments) const override {
    if (estimate_ && !asked(arguments)) throw UsageError("--estimate: nothing uses it without --patch");
    if (!arguments.patch.empty() && arguments.against.empty())
      throw UsageError("--patch: needs two tokens, with --why and --against");
  }

  Finding find(const Question& question, const PassOptions&, Pass&) const override {
    const Computed& x = question.computed;
    const std::vector<std::int64_t> corrupt =
        encoded(question.model, question.arguments.patch, x.recording.model, x.chat).ids;
    const auto found = std::make_shared<const Patching>(patched(question, corrupt));
    return {.name = "patching",
            .json = [=] { return with_corrupt_ids(attend::to_json(*found), corrupt); },
            .words = [=](const Computed& of) { return words(of, *found); },
            .picture = [=](const AnalysisOf& of) { return patching_picture(*found, of); },
            .csv = [=](const AnalysisOf& of) { return patching_csv(*found, of); },
            .corrupt = corrupt};
  }

 private:
  Patching patched(const Question& question, const std::vector<std::int64_t>& corrupt) const {
    const Computed& x = question.computed;
    Progress progress;
    try {
      return patch(question.model, x.encoding.ids, corrupt, *question.token, *question.against,
                   {.estimate = estimate_,
                    .progress = progress.stage(),
                    .attention = question.attention(),
                    .decoder_ids = x.decoder_ids});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_value) throw;
      throw UsageError(fmt::format("--patch: {}", error.detail()));
    }
  }

  bool estimate_ = false;
};

}  // namespace

std::unique_ptr<Analysis> analysis_patch() {
  return std::make_unique<Patch>();
}

}  // namespace attend::cli
