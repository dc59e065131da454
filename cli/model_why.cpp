// Why a model answers so: --why and --without.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "attend/error.h"
#include "cli/attention_options.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {
namespace {

constexpr std::size_t most_parts = 8, most_tokens = 6;  // of each sign
constexpr int bar_width = 20;

std::int64_t token_of(const char* option, const Tokenizer& tokenizer, const std::string& text) {
  try {
    return single_token(tokenizer, text);
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", option, error.detail()));
  }
}

std::string in_quotes(std::string_view token) {
  return "\"" + printable(token) + "\"";
}

std::string part_text(const Computed& x, const AttributionPart& part) {
  using Kind = AttributionPart::Kind;
  switch (part.kind) {
    case Kind::head:
      return fmt::format("layer {}, head {} read {}", part.layer, part.head,
                         in_quotes(x.recording.tokens[0][static_cast<std::size_t>(part.key)]));
    case Kind::mlp:
      return fmt::format("layer {}, MLP", part.layer);
    case Kind::embedding:
      return "the last token's embedding";
    case Kind::bias:
      return "biases";
    case Kind::rounding:
      return "what rounding to bf16 leaves";
  }
  return "";
}

struct Line {
  std::string text;
  double value = 0;
};

// Of each sign the largest, as bars of one scale, and how much the others are together.
std::string signed_lines(const std::vector<Line>& all, std::size_t most) {
  std::vector<Line> shown;
  for (const double sign : {1.0, -1.0}) {
    std::vector<Line> these;
    std::ranges::copy_if(all, std::back_inserter(these), [&](const Line& line) { return line.value * sign > 0; });
    std::ranges::stable_sort(these, [](const Line& a, const Line& b) { return std::abs(a.value) > std::abs(b.value); });
    these.resize(std::min(these.size(), most));
    shown.insert(shown.end(), these.begin(), these.end());
  }
  const std::string others = fmt::format("the {} others", all.size() - shown.size());
  std::size_t room = others.size();
  double largest = 0, total = 0, told = 0, size = 0;
  for (const Line& line : all) total += line.value, size += std::abs(line.value);
  for (const Line& line : shown) {
    room = std::max(room, columns_of(line.text)), largest = std::max(largest, std::abs(line.value));
    told += line.value;
  }
  std::string text;
  const auto add = [&](const std::string& name, double value, std::string_view end) {
    text += fmt::format("  {}{}  {:+7.2f}{}\n", name, std::string(room - columns_of(name), ' '), value, end);
  };
  for (const Line& line : shown)
    add(line.text, line.value,
        fmt::format("  {:3.0f} %  {}", 100 * std::abs(line.value) / size,
                    bar(std::abs(line.value) / largest, bar_width)));
  if (shown.size() < all.size()) add(others, total - told, "");
  return text;
}

}  // namespace

std::string why_text(const Computed& x, const Why& why) {
  const Attribution& a = why.attribution;
  std::string text = fmt::format("Why {}", in_quotes(why.token));
  text += a.against
              ? fmt::format(", and not {}: the difference of their logits, {:+.2f}", in_quotes(why.against), a.logit)
              : fmt::format(": its logit, {:.2f}", a.logit);
  text += ", is the sum of what each part wrote\n(% of all that they wrote, whatever the sign):\n";
  std::vector<Line> parts;
  for (const AttributionPart& part : strongest_parts(a, a.heads.count() + a.mlps.count() + 3))
    parts.push_back({part_text(x, part), part.value});
  text += signed_lines(parts, most_parts);

  std::vector<Line> tokens;
  for (std::int64_t key = 0; key < a.heads.size(2); ++key) {
    Line line{in_quotes(x.recording.tokens[0][static_cast<std::size_t>(key)])};
    for (std::int64_t l = 0; l < a.heads.size(0); ++l)
      for (std::int64_t h = 0; h < a.heads.size(1); ++h) line.value += a.heads.view().item({l, h, key});
    tokens.push_back(std::move(line));
  }
  text += "By the token that heads read:\n" + signed_lines(tokens, most_tokens);
  return text + "Direct effects alone: what a part does through later layers is counted as theirs.\n";
}

std::string without_text(const Computed& x, const Without& without) {
  const Ablation& a = without.ablation;
  const std::string names = fmt::format("Without {} (their output set to zero)", fmt::join(without.names, ", "));
  const auto value = [](const Tensor& of) { return of.view().item({0}); };
  if (!x.info.decoder())
    return fmt::format("{} the text's mean hidden state turns: 1 - cosine is {:.4f}.\n", names,
                       value(a.cosine_distance));
  return fmt::format("{} {} changes by {:+.3f} in its logit and {:+.3f} in its log-probability; KL {:.4f} nats.\n",
                     names, in_quotes(without.token), value(a.logit), value(a.log_probability), value(a.kl));
}

Why explain_why(const Model& model, const Tokenizer& tokenizer, std::span<const std::int64_t> ids,
                const std::string& token, const std::string& against) {
  Why why{.token = token, .against = against};
  AttributeOptions options{.token = token_of("--why", tokenizer, token)};
  if (!against.empty()) options.against = token_of("--against", tokenizer, against);
  why.attribution = attribute(model, ids, options);
  return why;
}

Without take_out(const Model& model, const Tokenizer& tokenizer, std::span<const std::int64_t> ids,
                 const std::string& heads, const std::string& token, const std::string& likeliest) {
  Without without{.token = token.empty() ? likeliest : token};
  AblateOptions options;
  for (std::size_t begin = 0; begin <= heads.size();) {
    const std::size_t end = std::min(heads.find(',', begin), heads.size());
    without.names.push_back(heads.substr(begin, end - begin));
    const std::string& name = without.names.back();
    const std::size_t dot = name.find('.');
    const auto layer = parse_whole_numbers(name.substr(0, dot));
    const auto head = dot == std::string::npos ? layer : parse_whole_numbers(name.substr(dot + 1));
    if (dot == std::string::npos || !layer || !head || layer->size() != 1 || head->size() != 1)
      throw UsageError(fmt::format("--without: expected heads such as 18.6,16.0, got '{}'", heads));
    options.heads.emplace_back(layer->front(), head->front());
    begin = end + 1;
  }
  if (!token.empty()) options.token = token_of("--why", tokenizer, token);
  without.ablation = ablate(model, ids, options);
  return without;
}

}  // namespace attend::cli
