#include "attend/passages.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "analysis/gradients.h"
#include "analysis/json.h"
#include "attend/attention.h"
#include "attend/threads.h"
#include "core/message.h"
#include "layers/rows.h"
#include "models/model.h"

namespace attend::inline v1 {

namespace {

constexpr const char* passages_function = "passages";

// The rows of an attention that a passage is hidden from.
std::vector<Range> rows_without(const Range& span, std::int64_t rows, bool causal, bool cross) {
  std::vector<Range> found;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    if (begin < end) found.push_back({begin, end});
  };
  if (cross) {
    add(0, rows);
  } else {
    if (!causal) add(0, span.begin);
    add(span.end, rows);
  }
  return found;
}

// A layer's attention z, and dz as z: what the number loses, at first, where a passage's weights fade. With a share m
// of a row's weights in the passage, whose own rows come to `part`, z loses m (part - z) for each part of the weights
// that is gone.
class Fading {
 public:
  Fading(const models::AttentionStep& step, const models::KeptAttention& kept, const Tensor& dz)
      : step_(step),
        q_(models::by_heads(kept.q.view(), step.heads)),
        k_(models::by_heads(kept.k.view(), step.kv_heads)),
        v_(models::by_heads(kept.v.view(), step.kv_heads)),
        lse_(kept.lse),
        dz_(dz),
        part_(Tensor::uninitialized({1, step.heads, rows_at_once, v_.size(3)}, kept.out.dtype())),
        part_lse_(Tensor::uninitialized({1, step.heads, rows_at_once})),
        of_z_(static_cast<std::size_t>(step.heads * dz.size(0))) {
    const Tensor z = converted(kept.out, DType::f32);
    const std::int64_t H = step.heads, D = v_.size(3);
    parallel_for(dz.size(0) * H, 64, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t n = first; n < last; ++n)
        of_z_[static_cast<std::size_t>(n)] = dot(dz_.data<float>() + n * D, z.data<float>() + n * D, D);
    });
  }

  // Of these rows, from these keys.
  double sum(const Range& rows, const Range& keys) {
    double all = 0;
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += rows_at_once)
      all += of_block({begin, std::min(rows.end, begin + rows_at_once)}, keys);
    return all;
  }

 private:
  // What they come to of the keys stays in the processor's caches.
  static constexpr std::int64_t rows_at_once = 512;

  double of_block(const Range& rows, const Range& keys) {
    AttentionOptions options = step_.options();
    if (!step_.cross) options.offset = Offset(rows.begin - keys.begin);
    const std::int64_t count = rows.end - rows.begin;
    attention_into(part_.view().slice(2, 0, count), part_lse_.view().slice(2, 0, count),
                   q_.slice(2, rows.begin, rows.end), k_.slice(2, keys.begin, keys.end),
                   v_.slice(2, keys.begin, keys.end), options);
    const Tensor made = part_.dtype() == DType::f32 ? Tensor() : converted(part_, DType::f32);
    const float* part = (made.count() > 0 ? made : part_).data<float>();
    std::vector<double> of_head(static_cast<std::size_t>(step_.heads));
    parallel_for(step_.heads, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t h = first; h < last; ++h)
        of_head[static_cast<std::size_t>(h)] = of(h, {rows.begin, rows.end}, part);
    });
    return std::accumulate(of_head.begin(), of_head.end(), 0.0);
  }

  double of(std::int64_t head, const Range& rows, const float* part) const {
    const std::int64_t H = step_.heads, N = dz_.size(0), D = v_.size(3);
    double sum = 0;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t own = head * rows_at_once + row - rows.begin, all = row * H + head;
      const double share = std::exp(static_cast<double>(part_lse_.data<float>()[own]) -
                                    static_cast<double>(lse_.data<float>()[head * N + row]));
      if (share == 0) continue;  // a row in whose window the passage is not
      sum += share * (dot(dz_.data<float>() + all * D, part + own * D, D) - of_z_[static_cast<std::size_t>(all)]);
    }
    return sum;
  }

  const models::AttentionStep& step_;
  View q_, k_, v_;
  const Tensor &lse_, &dz_;
  Tensor part_, part_lse_;
  std::vector<double> of_z_;  // [N * H]: dz . z
};

class Estimates {
 public:
  explicit Estimates(const std::vector<Range>& spans) : spans_(spans), sums_(spans.size()) {}

  void add(const models::Batch& batch, const models::AttentionStep& step, const models::KeptAttention& kept,
           const Tensor& dz) {
    // Of an encoder-decoder's decoder the text is read through the cross-attention alone.
    if (batch.stack == models::Stack::decoder && !step.cross) return;
    causal_ = step.causal;
    Fading fading(step, kept, dz);
    for (std::size_t n = 0; n < spans_.size(); ++n)
      for (const Range& rows : rows_without(spans_[n], kept.q.size(0), step.causal, step.cross))
        sums_[n] += fading.sum(rows, spans_[n]);
  }

  // As the attentions were that read the text.
  bool causal() const { return causal_; }
  Tensor found() const {
    Tensor all({std::ssize(sums_)});
    std::ranges::transform(sums_, all.data<float>(), [](double sum) { return static_cast<float>(sum); });
    return all;
  }

 private:
  const std::vector<Range>& spans_;
  std::vector<double> sums_;
  bool causal_ = false;
};

std::vector<Knockout> knockouts_of(const Range& span, std::int64_t rows, bool causal, bool both) {
  std::vector<std::int64_t> keys(static_cast<std::size_t>(span.end - span.begin));
  std::iota(keys.begin(), keys.end(), span.begin);
  std::vector<std::int64_t> others;
  for (const Range& part : rows_without(span, rows, causal, false))
    for (std::int64_t row = part.begin; row < part.end; ++row) others.push_back(row);
  std::vector<Knockout> all{
      {.rows = std::move(others), .keys = keys, .attention = both ? AttentionKind::encoder : AttentionKind::self}};
  if (both) all.push_back({.keys = std::move(keys), .attention = AttentionKind::cross});
  return all;
}

void check(const PassagesOptions& options, std::int64_t tokens, const ModelInfo& info) {
  if (options.number.of == GradientOf::sum)
    fail(ErrorCode::bad_value, passages_function, "expected a logit, log-probabilities or a cosine");
  if (options.number.observe) fail(ErrorCode::bad_value, passages_function, "observe can't be given here");
  if (options.hide < 0) fail(ErrorCode::bad_value, passages_function, "hide is {}, expected 0 or more", options.hide);
  if (options.spans.empty()) fail(ErrorCode::bad_value, passages_function, "there are no spans, expected at least one");
  for (const Range& span : options.spans)
    if (span.begin < 0 || span.begin >= span.end || span.end > tokens)
      fail(ErrorCode::bad_value, passages_function, "a span has tokens {} to {}, expected a part of 0 to {}",
           span.begin, span.end, tokens);
  if (info.encoder_decoder() && options.number.decoder_ids.empty())
    fail(ErrorCode::bad_value, passages_function, "an encoder-decoder needs decoder_ids, after which it answers");
}

// The spans with the largest estimates, of either sign.
std::vector<std::int64_t> strongest(const Tensor& estimated, std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(estimated.count()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::int64_t n) { return std::abs(estimated.data<float>()[n]); });
  order.resize(static_cast<std::size_t>(std::min(count, estimated.count())));
  return order;
}

}  // namespace

Passages passages(const Model& model, std::span<const std::int64_t> ids, const PassagesOptions& options) {
  const ModelInfo& info = model.info();
  models::check_exact(info, passages_function);
  check(options, std::ssize(ids), info);
  // A pass forward and back takes the time of some four passes forward.
  constexpr double of_gradient = 4;
  const auto passes =
      of_gradient + static_cast<double>(std::min<std::int64_t>(options.hide, std::ssize(options.spans)));
  const auto tell = [&](double done) {
    if (options.progress) options.progress(done / passes);
  };
  Estimates estimates(options.spans);
  const analysis::Shown shown{.attentions = [&](const auto& batch, const auto& step, const auto& kept,
                                                const Tensor& dz) { estimates.add(batch, step, kept, dz); }};
  const Gradient of = std::move(analysis::gradients(model, ids, {}, {&options.number, 1}, shown).front());
  tell(of_gradient);
  Passages result{.value = of.values.front(),
                  .spans = options.spans,
                  .estimated = estimates.found(),
                  .measured = Tensor(),
                  .token = of.token,
                  .against = options.number.against,
                  .position = of.position};
  result.hidden = strongest(result.estimated, options.hide);
  result.measured = Tensor({std::ssize(result.hidden)});
  GradientOptions number = options.number;
  number.token = of.token;  // the likeliest is the whole text's
  for (std::size_t n = 0; n < result.hidden.size(); ++n) {
    const Range& span = options.spans[static_cast<std::size_t>(result.hidden[n])];
    const std::vector<Knockout> knockouts =
        knockouts_of(span, std::ssize(ids), estimates.causal(), info.encoder_decoder());
    const Gradient without = analysis::number(model, ids, number, knockouts);
    result.measured.data<float>()[n] = static_cast<float>(result.value - without.values.front());
    tell(of_gradient + static_cast<double>(n) + 1);
  }
  return result;
}

std::string to_json(const Passages& x, const TensorJson& tensor) {
  const Tensors tensors(tensor);
  Json spans = Json::array();
  for (const Range& span : x.spans) spans.push_back({span.begin, span.end});
  return text_of({{"token", or_null(x.token)},
                  {"against", or_null(x.against)},
                  {"position", x.position},
                  {"value", x.value},
                  {"spans", std::move(spans)},
                  {"estimated", tensors("estimated", x.estimated)},
                  {"hidden", x.hidden},
                  {"measured", tensors("measured", x.measured)}});
}

}  // namespace attend::inline v1
