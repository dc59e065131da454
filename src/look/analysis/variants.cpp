// What vary() found, as pictures and as CSV.
#include <algorithm>

#include "attend/variants.h"
#include "core/from_end.h"
#include "core/message.h"
#include "look/analysis/shared.h"
#include "look/csv.h"

namespace attend::inline v1 {

namespace {

// L and H of all texts. Throws bad_shape.
std::pair<std::int64_t, std::int64_t> heads_of(const char* function, const Variants& x) {
  if (x.rows.empty()) fail(ErrorCode::bad_value, function, "there are no texts");
  const Tensor& first = x.rows.front().weights;
  for (const VariantRow& row : x.rows) {
    check_numbers(function, "weights", row.weights, 3);
    if (row.query < 0 || row.query >= std::ssize(row.ids))
      fail(ErrorCode::bad_value, function, "query is {} of {} tokens", row.query, row.ids.size());
    if (row.weights.size(0) != first.size(0) || row.weights.size(1) != first.size(1) ||
        row.weights.size(2) != std::ssize(row.ids))
      fail(ErrorCode::bad_shape, function, "weights have shape {}, expected [{},{},{}]", row.weights.shape(),
           first.size(0), first.size(1), row.ids.size());
  }
  return {first.size(0), first.size(1)};
}

std::string query_of(const VariantRow& row, const AnalysisOf& of) {
  return fmt::format("“{}”", seen(token_text(of, row.ids[static_cast<std::size_t>(row.query)])));
}

}  // namespace

std::string claim_of(const Variants& x) {
  const bool all = std::ranges::all_of(x.rows, [](const VariantRow& row) { return row.target.has_value(); });
  const bool both = std::ranges::all_of(x.rows, [](const VariantRow& row) { return row.other.has_value(); });
  return both  ? "the right word gets more than the other"
         : all ? "the right word gets most"
               : "the same word gets most";
}

Picture variants_picture(const Variants& x, const Head& head, const AnalysisOf& of) {
  constexpr const char* function = "variants_picture";
  const auto [L, H] = heads_of(function, x);
  const std::int64_t layer = from_end(function, "layer is", head.first, L),
                     number = from_end(function, "head is", head.second, H);
  Picture picture;
  float high = 0;
  for (const VariantRow& row : x.rows) {
    picture.numbers.push_back(row.weights.view().select(0, layer).select(0, number).clone());
    const Tensor& weights = picture.numbers.back();
    high = std::max(high, *std::max_element(weights.data<float>(), weights.data<float>() + weights.count()));
  }
  PictureStack& stack = picture.drawing.emplace<PictureStack>();
  for (std::size_t n = 0; n < x.rows.size(); ++n) {
    TokenStrip strip;
    strip.tokens = all_seen(token_texts("variants_picture", of, x.rows[n].ids, std::ssize(x.rows[n].ids)));
    strip.values = picture.numbers[n];
    strip.high = static_cast<double>(high);
    strip.has_indices = false, strip.has_scale = n == 0;
    if (n == 0) strip.name = fmt::format("what {} gives", query_of(x.rows[0], of));
    if (n == 0)
      strip.title = titled(of, fmt::format("head {}.{}, where {} looks", layer, number, query_of(x.rows[0], of)));
    stack.parts.emplace_back(std::move(strip));
  }
  const std::int64_t held = times_held(x).data<std::int64_t>()[layer * H + number];
  std::get<TokenStrip>(stack.parts.back()).caption =
      fmt::format("In {} of {} texts {}.", held, x.rows.size(), claim_of(x));
  return picture;
}

Picture held_picture(const Variants& x, const AnalysisOf& of) {
  (void)heads_of("held_picture", x);
  const Tensor held = times_held(x), values = held.view().to(DType::f32);
  HeatMap map = head_map(values);
  map.scale = PictureScale::linear;
  map.low = 0, map.high = static_cast<double>(x.rows.size());
  map.wide = true;
  for (std::int64_t n = 0; n < held.count(); ++n) map.texts.push_back(fmt::format("{}", held.data<std::int64_t>()[n]));
  const VariantBaselines by = baselines(x);
  if (by.chance > 0)
    map.caption = fmt::format(
        "The word that stands first would be right in {}, the nearer in {}, the best of all heads by guessing in {}.",
        by.first, by.nearest, by.chance);
  return picture_of(
      values.clone(), std::move(map),
      titled(of, fmt::format("{}, texts of {} in which {}", query_of(x.rows[0], of), x.rows.size(), claim_of(x))));
}

std::string variants_csv(const Variants& x, const AnalysisOf& of) {
  const auto [L, H] = heads_of("variants_csv", x);
  std::string text = "text,layer,head,name,key,token,weight\n";
  for (std::size_t n = 0; n < x.rows.size(); ++n) {
    const VariantRow& row = x.rows[n];
    const std::int64_t N = row.weights.size(2);
    const std::vector<std::string> tokens = token_texts("variants_csv", of, row.ids, N);
    for (std::int64_t at = 0; at < row.weights.count(); ++at) {
      const std::int64_t layer = at / (H * N), head = at / N % H, key = at % N;
      text += fmt::format("{},{},{},{},{},{},{}\n", n, layer, head, name_of(of, layer, head, AttentionKind::self), key,
                          csv_cell(tokens[static_cast<std::size_t>(key)]), row.weights.data<float>()[at]);
    }
  }
  return text;
}

}  // namespace attend::inline v1
