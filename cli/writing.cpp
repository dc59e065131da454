#include "cli/writing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/attention_options.h"
#include "cli/command.h"

namespace attend::cli {
namespace {

std::optional<double> real(const char* option, const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(parse_real(option, text));
}

std::optional<std::vector<std::int64_t>> ids(const char* option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  if (auto found = parse_whole_numbers(text)) return found;
  throw UsageError(fmt::format("{}: expected ids with commas between, such as 11,12, got '{}'", option, text));
}

// " Paris=-5": of the text's tokens.
SequenceBias bias_of(const std::string& given, const Tokenizer& tokenizer) {
  const std::size_t equals = given.rfind('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(fmt::format("--sequence-bias: expected TEXT=NUMBER, such as \" Paris=-5\", got '{}'", given));
  return {tokenizer.encode(given.substr(0, equals), false).ids,
          parse_real("--sequence-bias", given.substr(equals + 1))};
}

// Of --early-stopping.
std::optional<EarlyStopping> early(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text == "never" ? EarlyStopping::never : text == "yes" ? EarlyStopping::yes : EarlyStopping::no;
}

}  // namespace

bool WritingArguments::any() const {
  return !(temperature.empty() && top_p.empty() && min_p.empty() && repetition_penalty.empty() &&
           begin_suppress_tokens.empty() && !top_k && !no_repeat_ngram_size && !min_new_tokens &&
           !forced_eos_token_id && !num_beams && length_penalty.empty() && early_stopping.empty() && !seed &&
           stop.empty() && sequence_bias.empty());
}

void add_writing(App& app, WritingArguments& x) {
  app.begin_group("How it writes (default: as the model's generation_config.json says)");
  app.add_option("--temperature", x.temperature,
                 "0 takes the likeliest token; above 0 a token is drawn, and a higher T gives more surprising ones "
                 "(default: 0)")
      ->type_name("T");
  whole_number(
      app.add_option("--top-k", x.top_k, "Draw only from the N likeliest tokens; 0 draws from all (default: 0)"), 0);
  app.add_option("--top-p", x.top_p, "Draw from the fewest tokens that have probability P together (default: 1)")
      ->type_name("P");
  app.add_option("--min-p", x.min_p,
                 "Draw only from tokens with at least P times the likeliest token's probability (default: 0)")
      ->type_name("P");
  whole_number(app.add_option("--seed", x.seed, "Seed of the draws: the same seed gives the same text (default: 0)"),
               0);
  app.add_option(
         "--repetition-penalty", x.repetition_penalty,
         "Divide the logits of tokens that are in the text already by X; negative ones are multiplied (default: 1)")
      ->type_name("X");
  whole_number(app.add_option("--no-repeat-ngram-size", x.no_repeat_ngram_size,
                              "Never repeat a run of N tokens; 0 allows it (default: 0)"),
               0);
  whole_number(
      app.add_option("--min-new-tokens", x.min_new_tokens, "Do not end before N tokens are written (default: 0)"), 0);
  app.add_option("--stop", x.stop, "End just before TEXT would appear. May be given several times")->type_name("TEXT");
  app.add_option("--begin-suppress-tokens", x.begin_suppress_tokens, "Never begin with these tokens")
      ->type_name("ID,ID");
  app.add_option("--sequence-bias", x.sequence_bias,
                 "Add NUMBER to the logit of the token that completes TEXT. May be given several times")
      ->type_name("TEXT=NUMBER");
  whole_number(
      app.add_option(
          "--num-beams", x.num_beams,
          "Beam search: keep the N texts with the largest sums of log probabilities, and show the best (default: 1)"),
      1, 1024);
  app.add_option("--length-penalty", x.length_penalty,
                 "With beams: divide that sum by the number of tokens to the power of X (default: 1)")
      ->type_name("X");
  choose_one(app.add_option("--early-stopping", x.early_stopping,
                            "With beams: stop once N texts have ended (yes), once no growing text is better now (no), "
                            "or once none can become better (never) (default: no)"),
             "yes|no|never");
  whole_number(app.add_option("--forced-eos-token-id", x.forced_eos_token_id,
                              "The last token of a text that is cut at its limit"),
               0);
}

GenerateOptions generate_options(const WritingArguments& x, const Tokenizer& tokenizer) {
  GenerateOptions options{.settings = {.temperature = real("--temperature", x.temperature),
                                       .top_k = x.top_k,
                                       .top_p = real("--top-p", x.top_p),
                                       .min_p = real("--min-p", x.min_p),
                                       .repetition_penalty = real("--repetition-penalty", x.repetition_penalty),
                                       .no_repeat_ngram_size = x.no_repeat_ngram_size,
                                       .min_new_tokens = x.min_new_tokens,
                                       .begin_suppress_tokens = ids("--begin-suppress-tokens", x.begin_suppress_tokens),
                                       .forced_eos_token_id = x.forced_eos_token_id,
                                       .num_beams = x.num_beams,
                                       .length_penalty = real("--length-penalty", x.length_penalty),
                                       .early_stopping = early(x.early_stopping)},
                          .seed = x.seed.value_or(0)};
  if (!x.stop.empty()) options.settings.stop_strings = x.stop;
  if (!x.sequence_bias.empty()) {
    auto& biases = options.settings.sequence_bias.emplace();
    for (const std::string& given : x.sequence_bias) biases.push_back(bias_of(given, tokenizer));
  }
  return options;
}

WrittenText write_text(const Model& model, std::span<const std::int64_t> ids, GenerateOptions options,
                       const Told& told) {
  WrittenText written;
  options.on_text = [&](std::string_view more) {
    written.text += more;
    told(more);
    return true;
  };
  written.ids = model.generate(ids, options);
  return written;
}

void show_at_once(std::string_view text) {
  print(printable_lines(text));
  close_output();
}

void announce_generation(const ModelInfo& info, const std::string& name) {
  if (!info.not_followed.empty())
    tell(fmt::format("attend: {} asks for {}, which is not followed", name, fmt::join(info.not_followed, ", ")));
}

}  // namespace attend::cli
