// --without: what changes where some heads put out zeros.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "attend/error.h"
#include "cli/analyses.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {

namespace {

using Json = nlohmann::ordered_json;

// "18.6,16.0"
std::vector<std::string> head_names(const std::string& given) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= given.size();) {
    const std::size_t end = std::min(given.find(',', begin), given.size());
    names.push_back(given.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

std::vector<Head> read_heads(const std::vector<std::string>& names, AttentionKind& attention) {
  try {
    return heads_named(names, attention);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--without: {}", error.detail()));
  }
}

std::string words(bool decoder, const std::string& token, const Ablation& a, const std::vector<std::string>& heads) {
  const std::string names = fmt::format("Without {} (their output set to zero)", fmt::join(heads, ", "));
  const auto value = [](const Tensor& of) { return of.view().item({0}); };
  if (!decoder)
    return fmt::format("{} the text's mean hidden state turns: 1 - cosine is {:.4f}.\n", names,
                       value(a.cosine_distance));
  return fmt::format("{} {} changes by {:+.3f} in its logit and {:+.3f} in its log-probability; KL {:.4f} nats.\n",
                     names, in_quotes(token), value(a.logit), value(a.log_probability), value(a.kl));
}

std::string json(bool decoder, const std::string& token, const Ablation& a, const std::vector<std::string>& heads) {
  const Json of = Json::parse(attend::to_json(a));
  Json found = {{"heads", heads}};
  if (decoder) found["token"] = token;
  for (const char* name : {"logit", "log_probability", "kl", "cosine_distance"})
    if (of.contains(name)) found[name] = of[name][0];
  return json_text(found);
}

class Without : public Analysis {
 public:
  Without() : Analysis({.option = "--without", .drawn = false, .takes_attention = true}) {}

  void add(App& app, AnalysisArguments&) override {
    app.add_option("--without", heads_,
                   "What changes if HEADS, such as 18.6,16.0, put out zeros. Decoders: for the --why TOKEN (default: "
                   "the likeliest token). Encoders: how far the mean hidden state turns")
        ->type_name("HEADS");
  }

  bool asked(const AnalysisArguments&) const override { return !heads_.empty(); }

  Finding find(const Question& question, const PassOptions&, Pass&) const override {
    const Computed& x = question.computed;
    const std::vector<std::string> names = head_names(heads_);
    AblateOptions options{.token = question.token, .attention = question.attention(), .decoder_ids = x.decoder_ids};
    options.heads = read_heads(names, options.attention);
    const std::string& why = question.arguments.why;
    const std::string token = !why.empty() ? why : x.next.empty() ? "" : x.next[0].token;
    const bool decoder = x.info.decoder();
    const auto found = std::make_shared<const Ablation>(ablate(question.model, x.encoding.ids, options));
    return {.name = "without",
            .json = [=] { return json(decoder, token, *found, names); },
            .words = [=](const Computed&) { return words(decoder, token, *found, names); }};
  }

 private:
  std::string heads_;
};

}  // namespace

std::unique_ptr<Analysis> analysis_without() {
  return std::make_unique<Without>();
}

}  // namespace attend::cli
