// Why a model answers so, in words, bars and small pictures.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {
namespace {

constexpr std::size_t most_parts = 8, most_tokens = 6;  // of each sign
constexpr int bar_width = 20;

std::string in_quotes(std::string_view token) {
  return "\"" + printable(token) + "\"";
}

std::string part_text(const Computed& x, const AttributionPart& part) {
  using Kind = AttributionPart::Kind;
  switch (part.kind) {
    case Kind::head:
      return fmt::format("layer {}, head {} read {}", part.layer, part.head,
                         in_quotes(x.answering()[static_cast<std::size_t>(part.key)]));
    case Kind::cross:
      return fmt::format("layer {}, cross head {} read {}", part.layer, part.head,
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
// n-th is called. of_sum: they are parts of one, of which shares and the others' are told.
template <class Name>
std::string signed_lines(const std::vector<double>& values, std::size_t most, Name name, bool of_sum = true) {
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
  const int decimals = largest < 0.1 ? 4 : 2;
  const auto add = [&](const std::string& text, double value, std::string_view end) {
    lines +=
        fmt::format("  {}{}  {:+7.{}f}{}\n", text, std::string(room - columns_of(text), ' '), value, decimals, end);
  };
  for (const auto& [text, value] : shown) {
    const std::string share = of_sum ? fmt::format("  {:3.0f} %", 100 * std::abs(value) / size) : "";
    add(text, value, fmt::format("{}  {}", share, bar(std::abs(value) / largest, bar_width)));
  }
  if (of_sum && shown.size() < values.size()) add(others, rest, "");
  return lines;
}

std::string why_text(const Computed& x, const Why& why) {
  const Attribution& a = why.attribution;
  std::string text = why.note + fmt::format("Why {}", in_quotes(why.token));
  text += a.against
              ? fmt::format(", and not {}: the difference of their logits, {:+.2f}", in_quotes(why.against), a.logit)
              : fmt::format(": its logit, {:.2f}", a.logit);
  text += ",\nis the sum of what each part wrote (% of all they wrote, whatever the sign):\n";
  const auto parts = strongest_parts(a, a.heads.count() + a.cross.count() + a.mlps.count() + 3);
  std::vector<double> values(parts.size());
  std::ranges::transform(parts, values.begin(), &AttributionPart::value);
  text += signed_lines(values, most_parts, [&](std::size_t n) { return part_text(x, parts[n]); });

  const auto by_token = [&](bool cross, const std::vector<std::string>& tokens) {
    const Tensor sums = sums_by_token(a, cross);
    const std::vector<double> of_token(sums.data<float>(), sums.data<float>() + sums.count());
    return signed_lines(of_token, most_tokens, [&](std::size_t n) { return in_quotes(tokens[n]); });
  };
  text += "By the token that heads read:\n" + by_token(false, x.answering());
  if (a.cross.count() > 0)
    text += "By the encoder's token that cross heads read:\n" + by_token(true, x.recording.tokens[0]);
  return text + "Direct effects alone: what a part does through later layers counts as theirs.\n";
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

// The L heads of each layer, those that change most first.
std::string head_lines(const Tensor& values) {
  const std::int64_t H = values.size(1);
  const std::vector<double> all(values.data<float>(), values.data<float>() + values.count());
  const auto name = [&](std::size_t n) {
    const auto head = static_cast<std::int64_t>(n);
    return fmt::format("layer {}, head {}", head / H, head % H);
  };
  return signed_lines(all, most_parts, name, false);
}

std::string ablation_text(const Computed& x, const Ablation& a) {
  if (!x.info.decoder())
    return "How far the text's mean hidden state turns without each head (1 - cosine):\n" +
           head_lines(a.cosine_distance);
  const std::string token = in_quotes(x.tokenizer.decode(std::array{*a.token}, false));
  return fmt::format("The log-probability of {} without each head (its output set to zero), after less\nbefore:\n{}",
                     token, head_lines(a.log_probability));
}

std::string patching_text(const Computed& x, const Patched& patched) {
  const Patching& p = patched.patching;
  const auto token = [&](std::int64_t id) { return in_quotes(x.tokenizer.decode(std::array{id}, false)); };
  return fmt::format(
      "The logit of {} less that of {}:\n"
      "{:+.2f} after the text, {:+.2f} after the corrupt one. Of the difference, each head\n"
      "of the text brings back into the corrupt one:\n{}",
      token(p.token), token(p.against), p.clean, p.corrupt, head_lines(p.recovered));
}

// A screen has no room for more.
void keep_last(TokenStrip& strip) {
  constexpr std::int64_t most = 150;
  const std::int64_t count = strip.values.count(), first = count - most;
  if (first <= 0) return;
  strip.tokens.erase(strip.tokens.begin(), strip.tokens.begin() + first);
  strip.values = strip.values.slice(0, first, count);
  strip.title = fmt::format("The last {} of {} tokens:", most, count);
}

// Layers x heads, and with --why the tokens; the lens's table.
std::string map_text(const Computed& x, const TerminalStyle& style) {
  AnalysisOf of = analysis_of(x);
  of.title = "";
  if (!x.analyses.lens) {
    Picture picture = analysis_picture(x, of);
    if (auto* stack = std::get_if<PictureStack>(&picture.drawing)) keep_last(std::get<TokenStrip>(stack->parts[0]));
    return *picture.terminal(style);
  }
  const std::int64_t all = std::ssize(x.encoding.ids), fit = std::min(all, lens_columns(style.width));
  std::string text = "What the layers would answer";
  text += fit < all ? fmt::format("\n(at the last {} of {} tokens: --width has the others, and --csv)", fit, all) : "";
  return text + ":\n" + *lens_picture(*x.analyses.lens, x.analyses.positions, of, fit).terminal(style);
}

}  // namespace

// A word of some letters each.
std::int64_t lens_columns(int width) {
  return std::max(1, (width - 8) / 10);
}

std::string analyses_text(const Computed& x, const TerminalStyle& style) {
  const Analyses& found = x.analyses;
  std::vector<std::string> parts;
  if (found.why) parts.push_back(why_text(x, *found.why));
  if (found.without) parts.push_back(without_text(x, *found.without));
  if (found.ablation) parts.push_back(ablation_text(x, *found.ablation));
  if (found.patched) parts.push_back(patching_text(x, *found.patched));
  if (found.any()) parts.push_back(map_text(x, style));
  return fmt::format("{}", fmt::join(parts, "\n"));
}

}  // namespace attend::cli
