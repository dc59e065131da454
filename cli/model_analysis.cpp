// Why a model answers so: what --why, --without, --lens, --ablate and --patch ask for, and how it is computed and
// written.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "attend/error.h"
#include "attend/io.h"
#include "cli/attention_options.h"
#include "cli/command.h"
#include "cli/model.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

std::int64_t token_of(const char* option, const Tokenizer& tokenizer, const std::string& text) {
  try {
    return single_token(tokenizer, text);
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", option, error.detail()));
  }
}

AttentionKind attention_of(const Computed& x, const AnalysisArguments& arguments) {
  if (!x.info.encoder_decoder() || arguments.attention == "self") return AttentionKind::self;
  return arguments.attention == "encoder" ? AttentionKind::encoder : AttentionKind::cross;
}

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

// The tokens of --why and --against.
struct Tokens {
  std::optional<std::int64_t> token = {}, against = {};
};
Tokens tokens_of(const Tokenizer& tokenizer, const AnalysisArguments& x) {
  Tokens tokens;
  if (!x.why.empty()) tokens.token = token_of("--why", tokenizer, x.why);
  if (!x.against.empty()) tokens.against = token_of("--against", tokenizer, x.against);
  return tokens;
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

Without take_out(const Model& model, const Computed& x, const AnalysisArguments& arguments, const Tokens& tokens) {
  Without without{.token = !arguments.why.empty() ? arguments.why
                           : x.next.empty()       ? ""
                                                  : x.next[0].token,
                  .names = head_names(arguments.without)};
  AblateOptions options{.token = tokens.token, .attention = attention_of(x, arguments), .decoder_ids = x.decoder_ids};
  options.heads = read_heads(without.names, options.attention);
  without.ablation = ablate(model, x.encoding.ids, options);
  return without;
}

Patched patch_in(const Model& model, const Computed& x, const AnalysisArguments& arguments, const Tokens& tokens) {
  Patched patched{encoded(model, arguments.patch, x.recording.model, x.chat).ids};
  Progress progress;
  try {
    patched.patching =
        patch(model, x.encoding.ids, patched.corrupt, *tokens.token, *tokens.against,
              {.progress = progress.stage(), .attention = attention_of(x, arguments), .decoder_ids = x.decoder_ids});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_value) throw;
    throw UsageError(fmt::format("--patch: {}", error.detail()));
  }
  return patched;
}

}  // namespace

const char* AnalysisArguments::of_decoders() const {
  if (lens) return "--lens";
  if (!patch.empty()) return "--patch";
  return why.empty() ? nullptr : "--why";
}

void check_analysis(const AnalysisArguments& x, const ShowArguments& what, const std::vector<std::string>& files) {
  if (!x.against.empty() && x.why.empty()) throw UsageError("--against: nothing uses it without --why");
  if (!x.attention.empty() && !x.ablate && x.without.empty() && x.patch.empty())
    throw UsageError("--attention: nothing uses it without --ablate, --without or --patch");
  if (!x.patch.empty() && x.against.empty())
    throw UsageError("--patch: say between which tokens, with --why and --against");
  std::vector<const char*> one_of;
  const std::pair<const char*, bool> all[] = {
      {"--lens", x.lens}, {"--ablate", x.ablate}, {"--patch", !x.patch.empty()}, {"--without", !x.without.empty()}};
  for (const auto& [option, given] : all)
    if (given) one_of.push_back(option);
  if (one_of.size() > 1) throw UsageError(fmt::format("{} and {} can't stand together", one_of[1], one_of[0]));
  if (x.lens && !x.why.empty()) throw UsageError("--why and --lens can't stand together: the lens is of all tokens");
  // With --without alone, pictures and tables stay those of heads.
  const char* analysis = !one_of.empty() && x.without.empty() ? one_of[0] : x.why.empty() ? nullptr : "--why";
  // .json has both, and so has the terminal.
  const bool one = std::ranges::any_of(
      files, [](const std::string& file) { return ending_of(file) != ".attend" && ending_of(file) != ".json"; });
  if (analysis != nullptr && (what.any() || what.by != "weight") && (one || what.csv))
    throw UsageError(
        fmt::format("{}: what is written is of it, and not of heads, layers or labels that are chosen", analysis));
}

void ask_why(const Computed& x, const AnalysisArguments& arguments, std::int64_t positions, PassOptions& asked) {
  const Tokens tokens = tokens_of(x.tokenizer, arguments);
  if (arguments.lens) {
    const std::int64_t count = std::ssize(x.answering_ids());
    std::vector<std::int64_t>& of = asked.lens.emplace().positions;
    for (std::int64_t n = std::max<std::int64_t>(0, count - positions); n < count; ++n) of.push_back(n);
  }
  // Otherwise --why says whose answer changes.
  if (tokens.token && !arguments.ablate && arguments.patch.empty())
    asked.why = AttributeOptions{.token = tokens.token, .against = tokens.against};
}

Analyses analyse(const Model& model, const Computed& x, const AnalysisArguments& arguments, const PassOptions& asked,
                 Pass& pass) {
  Analyses found;
  const Tokens tokens = tokens_of(x.tokenizer, arguments);
  if (asked.lens) found.positions = asked.lens->positions, found.lens = std::move(pass.lens);
  if (asked.why)
    found.why = Why{.token = arguments.why,
                    .against = arguments.against,
                    .note = likelier_with_space(x, arguments.why, *tokens.token),
                    .attribution = std::move(*pass.why)};
  if (arguments.ablate) {
    Progress progress;
    found.ablation = ablate(model, x.encoding.ids,
                            {.token = tokens.token,
                             .against = tokens.against,
                             .progress = progress.stage(),
                             .attention = attention_of(x, arguments),
                             .decoder_ids = x.decoder_ids});
  }
  if (!arguments.patch.empty()) found.patched = patch_in(model, x, arguments, tokens);
  if (!arguments.without.empty()) found.without = take_out(model, x, arguments, tokens);
  return found;
}

AnalysisOf analysis_of(const Computed& x) {
  AnalysisOf of{.ids = x.answering_ids(), .tokenizer = &x.tokenizer, .model = x.recording.model};
  if (x.info.encoder_decoder())
    of.encoder_ids = x.encoding.ids;
  else if (x.analyses.patched)
    of.corrupt = x.analyses.patched->corrupt;
  return of;
}

Picture analysis_picture(const Computed& x, const AnalysisOf& of) {
  const Analyses& found = x.analyses;
  if (found.patched) return patching_picture(found.patched->patching, of);
  if (found.ablation) return ablation_picture(*found.ablation, of);
  if (found.lens) return lens_picture(*found.lens, found.positions, of);
  return attribution_picture(found.why->attribution, of);
}

std::string analysis_csv(const Computed& x) {
  const AnalysisOf of = analysis_of(x);
  const Analyses& found = x.analyses;
  return printable_lines(found.patched    ? patching_csv(found.patched->patching, of)
                         : found.ablation ? ablation_csv(*found.ablation, of)
                         : found.lens     ? lens_csv(*found.lens, found.positions, of)
                                          : attribution_csv(found.why->attribution, of));
}

void write_analysis(const std::string& file, const Computed& x) {
  if (ending_of(file) == ".csv") return writing([&] { write_file(file, analysis_csv(x)); });
  const Picture picture = analysis_picture(x, analysis_of(x));
  const std::string bytes = ending_of(file) == ".png" ? picture.png() : picture.svg();
  writing([&] { write_file(file, bytes); });
  warn_of_missing_characters(file, picture.text());
}

void add_analysis(App& app, AnalysisArguments& arguments) {
  app.begin_group("Why it answers so");
  app.add_option(
         "--why", arguments.why,
         "Decoders: what each head, by the token that it read, and each MLP wrote into the logit of TOKEN as the "
         "next one, such as \" Paris\"")
      ->type_name("TOKEN");
  app.add_option("--against", arguments.against, "With --why: of the difference to the logit of TOKEN")
      ->type_name("TOKEN");
  app.add_flag("--lens", arguments.lens,
               "Decoders: the likeliest next token that each layer would answer, at each token of the text");
  app.add_option("--without", arguments.without,
                 "What changes where HEADS, such as 18.6,16.0, put out zeros: for the token of --why or the likeliest; "
                 "of encoders how far the mean hidden state turns")
      ->type_name("HEADS");
  app.add_flag("--ablate", arguments.ablate, "The same of each head by itself");
  choose_one(app.add_option("--attention", arguments.attention,
                            "Encoder-decoders: whose heads --without, --ablate and --patch take, the decoder's in its "
                            "own text, the decoder's in the encoder's text (cross), or the encoder's"),
             "self|cross|encoder");
  app.add_option("--patch", arguments.patch,
                 "Decoders: with each head of TEXT put into a pass over TEXT2, of as many tokens, how much of the "
                 "difference between the tokens of --why and --against comes back")
      ->type_name("TEXT2");
}

}  // namespace attend::cli
