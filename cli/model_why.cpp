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

// Of each sign the largest of `values`, as bars of one scale, and how much the others are together. name(n): what the
// n-th is called.
template <class Name>
std::string signed_lines(const std::vector<double>& values, std::size_t most, Name name) {
  std::vector<std::pair<std::string, double>> shown;
  for (const double sign : {1.0, -1.0}) {
    std::vector<std::size_t> these;
    for (std::size_t n = 0; n < values.size(); ++n)
      if (values[n] * sign > 0) these.push_back(n);
    std::ranges::stable_sort(these, std::greater(), [&](std::size_t n) { return std::abs(values[n]); });
    these.resize(std::min(these.size(), most));
    for (const std::size_t n : these) shown.emplace_back(name(n), values[n]);
  }
  const std::string others = fmt::format("the {} others", values.size() - shown.size());
  std::size_t room = others.size();
  double largest = 0, rest = 0, size = 0;
  for (const double value : values) rest += value, size += std::abs(value);
  for (const auto& [text, value] : shown) {
    room = std::max(room, columns_of(text)), largest = std::max(largest, std::abs(value));
    rest -= value;
  }
  std::string lines;
  const auto add = [&](const std::string& text, double value, std::string_view end) {
    lines += fmt::format("  {}{}  {:+7.2f}{}\n", text, std::string(room - columns_of(text), ' '), value, end);
  };
  for (const auto& [text, value] : shown)
    add(text, value,
        fmt::format("  {:3.0f} %  {}", 100 * std::abs(value) / size, bar(std::abs(value) / largest, bar_width)));
  if (shown.size() < values.size()) add(others, rest, "");
  return lines;
}

}  // namespace

std::string why_text(const Computed& x, const Why& why) {
  const Attribution& a = why.attribution;
  std::string text = fmt::format("Why {}", in_quotes(why.token));
  text += a.against
              ? fmt::format(", and not {}: the difference of their logits, {:+.2f}", in_quotes(why.against), a.logit)
              : fmt::format(": its logit, {:.2f}", a.logit);
  text += ", is the sum of what each part wrote\n(% of all that they wrote, whatever the sign):\n";
  const auto parts = strongest_parts(a, a.heads.count() + a.mlps.count() + 3);
  std::vector<double> values(parts.size());
  std::ranges::transform(parts, values.begin(), &AttributionPart::value);
  text += signed_lines(values, most_parts, [&](std::size_t n) { return part_text(x, parts[n]); });

  const std::int64_t T = a.heads.size(2);
  std::vector<double> of_token(static_cast<std::size_t>(T));
  for (std::int64_t n = 0; n < a.heads.count(); ++n)
    of_token[static_cast<std::size_t>(n % T)] += static_cast<double>(a.heads.data<float>()[n]);
  text += "By the token that heads read:\n";
  text += signed_lines(of_token, most_tokens, [&](std::size_t n) { return in_quotes(x.recording.tokens[0][n]); });
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
