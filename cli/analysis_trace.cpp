// --trace: from the answer back to the words.
#include <fmt/format.h>

#include <algorithm>

#include "attend/answer_trace.h"
#include "cli/analyses.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {

namespace {

std::string part_text(const AttributionPart& part) {
  using Kind = AttributionPart::Kind;
  if (part.kind == Kind::head) return fmt::format("layer {}, head {}", part.layer, part.head);
  if (part.kind == Kind::cross) return fmt::format("layer {}, cross head {}", part.layer, part.head);
  if (part.kind == Kind::mlp) return fmt::format("layer {}, MLP", part.layer);
  return part.kind == Kind::embedding ? "embedding" : "biases";
}

std::string without_text(const TracedPart& x, double logit) {
  if (!x.without) return "";
  return fmt::format("without it {:+.2f} ({:+.2f})", *x.without, *x.without - logit);
}

std::string lines(const std::vector<TracedPart>& parts, double logit) {
  std::string text;
  for (const TracedPart& x : parts) {
    const std::string line = fmt::format("      {:<18}{:+8.2f}  {:3.0f} %   {}", part_text(x.part), x.part.value,
                                         100 * x.share, without_text(x, logit));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string words(const Computed& x, const AnswerTrace& trace) {
  const auto token = [&](std::int64_t row) { return in_quotes(x.answering()[static_cast<std::size_t>(row)]); };
  std::string text = fmt::format("Where {}", in_quotes(x.tokenizer, trace.token));
  if (trace.against) text += fmt::format(", and not {},", in_quotes(x.tokenizer, *trace.against));
  text += fmt::format(" comes from: {} is {:+.2f}.\n", trace.against ? "the difference of their logits" : "its logit",
                      trace.logit);
  text += "Numbers are direct effects, % of their side; \"without it\" is the answer with that part 0 in that row.\n";
  for (const TracedHead& head : trace.heads) {
    const AttributionPart& part = head.wrote.part;
    text += fmt::format("\nlayer {}, head {} wrote {:+.2f} of it ({:.0f} %), reading {}; {}\n", part.layer, part.head,
                        part.value, 100 * head.wrote.share, token(part.key), without_text(head.wrote, trace.logit));
    text += fmt::format("  It looked there, {:+.2f} above the mean of what it sees:\n", head.score);
    text += fmt::format("    its own row {}\n{}", token(trace.position), lines(head.query, trace.logit));
    text += fmt::format("    the row {}\n{}", token(part.key), lines(head.key, trace.logit));
    text += fmt::format("  What it read there, {:+.2f} for all of its weight, was written by\n{}", head.value,
                        lines(head.read, trace.logit));
  }
  return text;
}

class TraceOfAnswer : public Analysis {
 public:
  TraceOfAnswer() : Analysis({.option = "--trace", .of_decoders = true, .drawn = false, .takes_token = true}) {}

  void add(App& app, AnalysisArguments&) override {
    app.add_flag("--trace", asked_,
                 "With --why, instead of its answer: the strongest heads, why each looked at the token that it read, "
                 "and which parts wrote what it read there");
  }
  bool asked(const AnalysisArguments&) const override { return asked_; }

  Finding find(const Question& question, const PassOptions&, Pass&) const override {
    const Computed& x = question.computed;
    Progress progress;
    const TraceOptions options{.token = question.token,
                               .against = question.against,
                               .decoder_ids = x.decoder_ids,
                               .progress = progress.stage()};
    const auto found = std::make_shared<const AnswerTrace>(trace_answer(question.model, x.encoding.ids, options));
    return {.name = "trace",
            .json = [=] { return attend::to_json(*found); },
            .words = [=](const Computed& of) { return words(of, *found); }};
  }

 private:
  bool asked_ = false;
};

}  // namespace

std::unique_ptr<Analysis> analysis_trace() {
  return std::make_unique<TraceOfAnswer>();
}

}  // namespace attend::cli
