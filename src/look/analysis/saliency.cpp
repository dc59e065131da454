// What saliency() found, as a picture and as CSV.
#include <algorithm>
#include <cmath>

#include "core/message.h"
#include "look/analysis/shared.h"
#include "look/csv.h"

namespace attend::inline v1 {

namespace {

void check_saliency(const char* function, const Saliency& x) {
  check_numbers(function, "tokens", x.tokens, 1);
  if (x.encoder.count() > 0) check_numbers(function, "encoder", x.encoder, 1);
}

TokenStrip strip_of(const View& values, std::vector<std::string> tokens, std::string name) {
  TokenStrip strip;
  strip.tokens = all_seen(std::move(tokens));
  strip.values = values;
  strip.name = std::move(name);
  strip.scale = PictureScale::diverging;
  return strip;
}

}  // namespace

double missing_share(const Saliency& x) {
  const double change = x.value - x.baseline_value;
  return change == 0 ? 0 : std::abs(x.missing / change);
}

std::vector<WordValue> saliency_words(const Saliency& x, const AnalysisOf& of, bool encoder) {
  constexpr const char* function = "saliency_words";
  const Tensor& values = encoder ? x.encoder : x.tokens;
  check_numbers(function, encoder ? "encoder" : "tokens", values, 1);
  const std::vector<std::string> tokens = token_texts(function, of, encoder ? of.encoder_ids : of.ids, values.count());
  const bool spaced = std::ranges::any_of(tokens, [](const std::string& token) { return token.starts_with(' '); });
  std::vector<WordValue> words;
  for (std::int64_t n = 0; n < values.count(); ++n) {
    const std::string& token = tokens[static_cast<std::size_t>(n)];
    const bool goes_on = spaced ? !token.starts_with(' ') && !token.starts_with('\n') : token.starts_with("##");
    if (words.empty() || !goes_on) words.push_back({.tokens = {n, n}});
    WordValue& word = words.back();
    word.word += !spaced && goes_on ? token.substr(2) : token;
    word.tokens.end = n + 1;
    word.value += static_cast<double>(values.data<float>()[n]);
  }
  for (WordValue& word : words)
    if (const std::size_t first = word.word.find_first_not_of(' '); first != std::string::npos)
      word.word.erase(0, first);
  return words;
}

Picture saliency_picture(const Saliency& x, const AnalysisOf& of) {
  constexpr const char* function = "saliency_picture";
  check_saliency(function, x);
  Picture picture;
  const bool both = x.encoder.count() > 0;
  if (both) picture.numbers.push_back(x.encoder.clone());
  picture.numbers.push_back(x.tokens.clone());
  const std::string what = x.token ? answer_of(of, *x.token, x.against) : "the number";
  std::vector<TokenStrip> strips;
  if (both)
    strips.push_back(strip_of(picture.numbers[0], token_texts(function, of, of.encoder_ids, x.encoder.size(0)),
                              "saliency, of the encoder's text"));
  strips.push_back(strip_of(picture.numbers.back(), token_texts(function, of, of.ids, x.tokens.size(0)), "saliency"));
  strips.front().title = titled(of, fmt::format("which tokens make {}", what));
  strips.back().caption =
      x.steps == 1 ? fmt::format("Gradient times input; the number is {:.2f}.", x.value)
                   : fmt::format("From {:.2f} at the baseline to {:.2f}; {} points of the path miss {:.1f} %.",
                                 x.baseline_value, x.value, x.steps, 100 * missing_share(x));
  PictureStack& stack = picture.drawing.emplace<PictureStack>();
  for (TokenStrip& strip : strips) stack.parts.emplace_back(std::move(strip));
  return picture;
}

std::string saliency_csv(const Saliency& x, const AnalysisOf& of) {
  constexpr const char* function = "saliency_csv";
  check_saliency(function, x);
  std::string text = "text,position,token,value\n";
  const auto add = [&](std::string_view name, const Tensor& values, std::span<const std::int64_t> ids) {
    const std::vector<std::string> tokens = token_texts(function, of, ids, values.count());
    for (std::int64_t n = 0; n < values.count(); ++n)
      text +=
          fmt::format("{},{},{},{}\n", name, n, csv_cell(tokens[static_cast<std::size_t>(n)]), values.data<float>()[n]);
  };
  if (x.encoder.count() > 0) add("encoder", x.encoder, of.encoder_ids);
  add(x.encoder.count() > 0 ? "decoder" : "", x.tokens, of.ids);
  return text;
}

}  // namespace attend::inline v1
