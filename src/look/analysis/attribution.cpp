// What attribute() found, as a picture and as CSV.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/message.h"
#include "look/analysis/shared.h"
#include "look/csv.h"

namespace attend::inline v1 {

namespace {

void check_attribution(const char* function, const Attribution& x) {
  check_numbers(function, "heads", x.heads, 3);
  check_numbers(function, "mlps", x.mlps, 1);
  if (x.mlps.size(0) != x.heads.size(0))
    fail(ErrorCode::bad_shape, function, "mlps has shape {}, expected the layers of heads {}", x.mlps.shape(),
         x.heads.shape());
}

double sum_of(const Tensor& x) {
  return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0);
}

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

}  // namespace

Picture attribution_picture(const Attribution& x, const AnalysisOf& of) {
  constexpr const char* function = "attribution_picture";
  check_attribution(function, x);
  Picture picture;
  picture.numbers.push_back(sums_by_token(x));
  picture.numbers.push_back(by_layer(x));
  if (has_cross(x)) picture.numbers.push_back(sums_by_token(x, true));
  TokenStrip strip =
      token_strip(picture.numbers[0], all_seen(column_texts(function, of, x.heads.size(2))), "heads, by token");
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
    stack.parts.emplace_back(token_strip(picture.numbers[2],
                                         all_seen(token_texts(function, of, of.encoder_ids, x.cross.size(2))),
                                         "cross heads, by token"));
  stack.parts.emplace_back(HeatMaps{{std::move(map)}, ""});
  return picture;
}

std::string name_of(const AttributionPart& part, const AnalysisOf& of) {
  using Kind = AttributionPart::Kind;
  switch (part.kind) {
    case Kind::head:
      return name_of(of, part.layer, part.head, AttentionKind::self);
    case Kind::cross:
      return name_of(of, part.layer, part.head, AttentionKind::cross);
    case Kind::mlp:
      return fmt::format("mlp {}", part.layer);
    case Kind::embedding:
      return "embedding";
    case Kind::bias:
      return "bias";
    case Kind::rounding:
      return "rounding";
    case Kind::neuron:
      return fmt::format("mlp {}, unit {}", part.layer, part.unit);
    case Kind::feature:
      return fmt::format("feature {}", part.unit);
  }
  return "";
}

std::string attribution_csv(const Attribution& x, const AnalysisOf& of) {
  check_attribution("attribution_csv", x);
  std::string text = "kind,layer,head,name,key,token,value\n";
  const auto add = [&](std::string_view kind, AttentionKind attention, const Tensor& parts,
                       auto texts_of) {  // [L,H,T]
    if (parts.count() == 0) return;
    const std::int64_t H = parts.size(1), T = parts.size(2);
    const std::vector<std::string> tokens = texts_of(T);
    for (std::int64_t n = 0; n < parts.count(); ++n)
      text += fmt::format("{},{},{},{},{},{},{}\n", kind, n / (H * T), n / T % H,
                          name_of(of, n / (H * T), n / T % H, attention), n % T,
                          csv_cell(tokens[static_cast<std::size_t>(n % T)]), parts.data<float>()[n]);
  };
  add("head", AttentionKind::self, x.heads, [&](std::int64_t T) { return column_texts("attribution_csv", of, T); });
  add("cross", AttentionKind::cross, x.cross,
      [&](std::int64_t T) { return token_texts("attribution_csv", of, of.encoder_ids, T); });
  const bool neurons = x.neurons.count() > 0;
  for (std::int64_t l = 0; l < x.mlps.count() && !neurons; ++l)
    text += fmt::format("mlp,{},,mlp {},,,{}\n", l, l, x.mlps.data<float>()[l]);
  for (std::int64_t n = 0; n < x.neurons.count(); ++n) {
    const std::int64_t l = n / x.neurons.size(1), unit = n % x.neurons.size(1);
    text += fmt::format("neuron,{},,\"mlp {}, unit {}\",,,{}\n", l, l, unit, x.neurons.data<float>()[n]);
  }
  for (std::int64_t n = 0; n < x.features.count(); ++n)
    if (x.features.data<float>()[n] != 0)
      text += fmt::format("feature,,,feature {},,,{}\n", n, x.features.data<float>()[n]);
  return text + fmt::format("embedding,,,embedding,,,{}\nbias,,,bias,,,{}\nrounding,,,rounding,,,{}\n", x.embedding,
                            x.bias + (neurons ? sum_of(x.mlp_biases) : 0), x.rounding);
}

}  // namespace attend::inline v1
