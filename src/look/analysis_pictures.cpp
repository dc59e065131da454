// Pictures of what analyses found.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/message.h"
#include "look/analysis_tokens.h"
#include "look/maps.h"

namespace attend::inline v0 {

namespace {

std::string titled(const AnalysisOf& of, const std::string& what) {
  if (of.title) return *of.title;
  return of.model.empty() ? what : fmt::format("{}: {}", of.model, what);
}

// No line of a title ends within.
std::string in_quotes(const AnalysisOf& of, std::int64_t token) {
  std::string text = seen(token_text(of, token));
  for (std::size_t at = 0; (at = text.find(' ', at)) != std::string::npos;) text.replace(at, 1, "\u00a0");
  return "“" + text + "”";
}

// "“ Paris”, not “ London”"
std::string answer_of(const AnalysisOf& of, std::int64_t token, const std::optional<std::int64_t>& against) {
  std::string text = in_quotes(of, token);
  if (against) text += fmt::format(", not {}", in_quotes(of, *against));
  return text;
}

// "“The capital of France is”, 5 tokens."; without ids nothing.
std::string text_caption(const AnalysisOf& of) {
  if (of.ids.empty()) return "";
  const auto tokens = token_texts("", of, of.ids, std::ssize(of.ids));
  return fmt::format("“{}”, {} tokens.", caption_text(tokens), tokens.size());
}

std::vector<std::string> seen_texts(const char* function, const AnalysisOf& of, std::span<const std::int64_t> ids,
                                    std::int64_t count) {
  std::vector<std::string> texts = token_texts(function, of, ids, count);
  std::ranges::transform(texts, texts.begin(), seen);
  return texts;
}

std::vector<std::string> numbers_to(std::int64_t count, std::string_view last) {
  std::vector<std::string> labels;
  for (std::int64_t n = 0; n < count; ++n) labels.push_back(fmt::format("{}", n));
  if (!last.empty()) labels.emplace_back(last);
  return labels;
}

double sum_of(const Tensor& x) {
  return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0);
}

// One map of so many layers and heads, on the diverging scale.
HeatMap head_map(const View& values) {
  HeatMap map;
  map.values = values;
  map.row_axis = "layers", map.column_axis = "heads";
  map.scale = PictureScale::diverging;
  map.wide = true;
  return map;
}

Picture picture_of(Tensor values, HeatMap map, std::string title) {
  Picture picture;
  picture.numbers.push_back(std::move(values));
  map.values = picture.numbers[0];
  HeatMaps& drawn = picture.drawing.emplace<HeatMaps>();
  drawn.title = std::move(title);
  drawn.maps.push_back(std::move(map));
  return picture;
}

// ---- attribute() ----

bool has_cross(const Attribution& x) {
  return x.cross.count() > 0;
}

// [L,H+1]: what each head wrote, those of a cross-attention too, and each MLP.
Tensor by_layer(const Attribution& x) {
  const std::int64_t L = x.heads.size(0), columns = x.heads.size(1) + (has_cross(x) ? x.cross.size(1) : 0) + 1;
  Tensor out({L, columns});
  for (std::int64_t l = 0; l < L; ++l) {
    float* to = out.data<float>() + l * columns;
    for (const Tensor* parts : {&x.heads, &x.cross}) {
      if (parts->count() == 0) continue;
      const std::int64_t H = parts->size(1), T = parts->size(2);
      for (std::int64_t h = 0; h < H; ++h) {
        const float* from = parts->data<float>() + (l * H + h) * T;
        *to++ = static_cast<float>(std::accumulate(from, from + T, 0.0));
      }
    }
    *to = x.mlps.data<float>()[l];
  }
  return out;
}

double largest_of_heads(const Tensor& by_layer) {
  const View heads = by_layer.view().slice(1, 0, by_layer.size(1) - 1);
  double largest = 0;
  for (std::int64_t l = 0; l < heads.size(0); ++l)
    for (std::int64_t h = 0; h < heads.size(1); ++h) largest = std::max(largest, std::abs(heads.item({l, h})));
  return std::isfinite(largest) ? largest : 0;
}

TokenStrip token_strip(const View& sums, std::vector<std::string> tokens, std::string name) {
  TokenStrip strip;
  strip.tokens = std::move(tokens);
  strip.values = sums;
  strip.name = std::move(name);
  strip.scale = PictureScale::diverging;
  return strip;
}

// "Logit 17.34: heads 9.01, MLPs 8.20, embedding -0.10, biases 0.00."
std::string sums_caption(const Attribution& x) {
  std::string text = fmt::format("{} {:.2f}: heads {:.2f}, MLPs {:.2f}, embedding {:.2f}, biases {:.2f}",
                                 x.against ? "Difference of the logits" : "Logit", x.logit, sum_of(x.heads),
                                 sum_of(x.mlps), x.embedding, x.bias);
  if (has_cross(x)) text += fmt::format(", cross-attention {:.2f}", sum_of(x.cross));
  if (x.rounding != 0) text += fmt::format(", rounding {:.2f}", x.rounding);
  return text + ".";
}

// ---- lens() ----

// The last ones of the lens's positions.
struct Columns {
  std::int64_t first = 0, count = 0;
  std::vector<std::int64_t> positions;
};

Columns last_columns(const Lens& lens, std::span<const std::int64_t> positions, std::int64_t most) {
  const std::int64_t P = lens.ids.size(1);
  Columns columns{std::max<std::int64_t>(0, P - most), std::min(P, most), {}};
  for (std::int64_t p = columns.first; p < P; ++p)
    columns.positions.push_back(positions.empty() ? p : positions[static_cast<std::size_t>(p)]);
  return columns;
}

// " (positions 68 to 99 of 100)"; of all nothing.
std::string which(const Columns& columns, std::int64_t all) {
  const std::int64_t first = columns.positions.front(), last = columns.positions.back();
  if (columns.count == all) return "";
  if (columns.count == 1) return fmt::format(" (position {} of {})", first, all);
  if (last - first + 1 != columns.count) return fmt::format(" ({} positions of {})", columns.count, all);
  return fmt::format(" (positions {} to {} of {})", first, last, all);
}

// ---- patch() ----

// A token of both texts; where they differ, "France / Italy".
std::vector<std::string> both_texts(const char* function, const AnalysisOf& of, std::int64_t count) {
  std::vector<std::string> texts = seen_texts(function, of, of.ids, count);
  if (of.corrupt.empty()) return texts;
  const std::vector<std::string> corrupt = token_texts(function, of, of.corrupt, count);
  for (std::size_t n = 0; n < texts.size(); ++n)
    if (const std::string other = seen(corrupt[n]); other != texts[n]) texts[n] += " /" + other;
  return texts;
}

}  // namespace

Picture attribution_picture(const Attribution& x, const AnalysisOf& of) {
  constexpr const char* function = "attribution_picture";
  check_attribution(function, x);
  Picture picture;
  picture.numbers.push_back(sums_by_token(x));
  picture.numbers.push_back(by_layer(x));
  if (has_cross(x)) picture.numbers.push_back(sums_by_token(x, true));
  TokenStrip strip =
      token_strip(picture.numbers[0], seen_texts(function, of, of.ids, x.heads.size(2)), "heads, by token");
  strip.title = titled(of, fmt::format("why {}", answer_of(of, x.token, x.against)));
  HeatMap map = head_map(picture.numbers[1]);
  map.column_labels = numbers_to(x.heads.size(1), has_cross(x) ? "" : "MLP");
  if (has_cross(x)) {
    for (std::int64_t h = 0; h < x.cross.size(1); ++h) map.column_labels.push_back(fmt::format("c{}", h));
    map.column_labels.emplace_back("MLP");
    map.column_axis = "heads (c: of the cross-attention)";
  }
  // The last MLPs write so much more than heads do that these would all be pale.
  map.high = largest_of_heads(picture.numbers[1]), map.low = -map.high;
  map.caption = fmt::format("{}{}{}", text_caption(of), of.ids.empty() ? "" : " ", sums_caption(x));
  const auto beyond = [&](float mlp) { return static_cast<double>(std::abs(mlp)) > map.high; };
  if (std::any_of(x.mlps.data<float>(), x.mlps.data<float>() + x.mlps.count(), beyond) && map.high > 0)
    map.caption += " MLPs beyond the scale are as dark as its end.";
  PictureStack& stack = picture.drawing.emplace<PictureStack>();
  stack.parts.emplace_back(std::move(strip));
  if (has_cross(x))
    stack.parts.emplace_back(token_strip(picture.numbers[2], seen_texts(function, of, of.encoder_ids, x.cross.size(2)),
                                         "cross heads, by token"));
  stack.parts.emplace_back(HeatMaps{{std::move(map)}, ""});
  return picture;
}

Picture lens_picture(const Lens& lens, std::span<const std::int64_t> positions, const AnalysisOf& of,
                     std::int64_t most) {
  constexpr const char* function = "lens_picture";
  if (most < 1) fail(ErrorCode::bad_value, function, "most is {}, expected at least 1", most);
  check_lens(function, lens, positions);
  const std::int64_t L = lens.ids.size(0) - 1, P = lens.ids.size(1), top = lens.ids.size(2);
  const Columns columns = last_columns(lens, positions, most);
  const auto texts = seen_texts(function, of, of.ids, columns.positions.back() + 1);
  Tensor values({L + 1, columns.count});
  HeatMap map;
  for (std::int64_t l = 0; l <= L; ++l) {
    for (std::int64_t p = 0; p < columns.count; ++p) {
      const std::int64_t at = (l * P + columns.first + p) * top;
      values.data<float>()[l * columns.count + p] = std::exp(lens.log_probabilities.data<float>()[at]);
      map.texts.push_back(seen(token_text(of, lens.ids.data<std::int64_t>()[at])));
    }
  }
  for (const std::int64_t position : columns.positions)
    map.column_labels.push_back(texts[static_cast<std::size_t>(position)]);
  map.row_labels = numbers_to(L, "answer");
  map.row_axis = "layer", map.column_axis = "tokens";
  map.high = 1;
  map.reduction = "the likeliest next token before that layer, on the colour of its probability";
  map.caption = text_caption(of);
  const std::int64_t all = of.ids.empty() ? std::max(P, columns.positions.back() + 1) : std::ssize(of.ids);
  return picture_of(std::move(values), std::move(map),
                    titled(of, "what the layers would answer" + which(columns, all)));
}

Picture ablation_picture(const Ablation& x, const AnalysisOf& of, std::string_view name) {
  const AblationChange change = change_of("ablation_picture", x, name);
  HeatMap map = head_map(change.values);
  map.reduction = "log-probability after less before, nats";
  std::string what;
  if (change.name == "cosine_distance") {
    what = "how far the mean state turns without each head";
    map.reduction = "1 - cosine of the state before and after";
  } else {
    const std::string tokens =
        x.token ? answer_of(of, *x.token, change.name == "logit" ? x.against : std::nullopt) : "the tokens that follow";
    if (change.name == "kl") what = "KL divergence of the answer without each head";
    if (change.name == "logit") what = fmt::format("logit of {} without each head", tokens);
    if (change.name == "log_probability") what = fmt::format("log-probability of {} without each head", tokens);
  }
  if (change.name == "kl") map.reduction = "KL(before, after), nats";
  if (change.name == "logit") map.reduction = "logit after less before";
  if (change.name == "kl" || change.name == "cosine_distance") map.scale = PictureScale::linear;
  map.caption = text_caption(of);
  return picture_of(change.values.clone(), std::move(map), titled(of, what));
}

Picture patching_picture(const Patching& x, const AnalysisOf& of) {
  constexpr const char* function = "patching_picture";
  check_numbers(function, "recovered", x.recovered, 2);
  const bool heads = x.what == PatchOptions::What::heads;
  HeatMap map = head_map(x.recovered);
  if (!heads) {
    map.row_axis = "layer", map.column_axis = "tokens";
    map.row_labels = numbers_to(x.recovered.size(0) - 1, "answer");
    map.column_labels = both_texts(function, of, x.recovered.size(1));
  }
  map.reduction = "the share of the clean text's difference of logits that comes back";
  map.caption = text_caption(of);
  if (!of.corrupt.empty()) {
    const auto corrupt = token_texts(function, of, of.corrupt, std::ssize(of.corrupt));
    map.caption = fmt::format("Clean: {} Corrupt: “{}”.", map.caption, caption_text(corrupt));
  }
  const std::string answer = x.token < 0 ? "the clean answer" : answer_of(of, x.token, x.against);
  const std::string what = fmt::format("{} bring back {}", heads ? "heads that" : "what the layers", answer);
  return picture_of(x.recovered.clone(), std::move(map), titled(of, what));
}

}  // namespace attend::inline v0
