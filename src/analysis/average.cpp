#include <algorithm>
#include <cmath>

#include "attend/analysis.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

constexpr const char* average_function = "average";

// Numbers of several texts, each beside its sum of squares around the mean (Welford 1962).
class Numbers {
 public:
  explicit Numbers(std::size_t count) : means_(count), squares_(count) {}

  void add(std::size_t at, double value) {
    if (at == 0) ++texts_;
    const double before = value - means_[at];
    means_[at] += before / texts_;
    squares_[at] += before * (value - means_[at]);
  }
  double mean(std::size_t at) const { return means_[at]; }
  double error(std::size_t at) const { return texts_ < 2 ? 0 : std::sqrt(squares_[at] / (texts_ - 1) / texts_); }

 private:
  std::vector<double> means_, squares_;
  double texts_ = 0;
};

template <class Found>
void require_some(std::span<const Found> found) {
  if (found.empty()) fail(ErrorCode::bad_value, average_function, "there is nothing to average");
}

// Averages tensors of one shape, of(text), or throws bad_shape.
template <class Found, class Of>
std::pair<Tensor, Tensor> averaged(std::span<const Found> found, const char* name, Of of) {
  const Tensor first = of(0);
  Numbers numbers(static_cast<std::size_t>(first.count()));
  for (std::size_t n = 0; n < found.size(); ++n) {
    const Tensor values = of(n);
    if (values.shape() != first.shape())
      fail(ErrorCode::bad_shape, average_function, "{} of text {} has shape {}, that of text 0 has {}", name, n,
           values.shape(), first.shape());
    for (std::int64_t at = 0; at < values.count(); ++at)
      numbers.add(static_cast<std::size_t>(at), static_cast<double>(values.data<float>()[at]));
  }
  std::pair<Tensor, Tensor> out;
  if (first.count() == 0) return out;
  out = {Tensor(first.shape()), Tensor(first.shape())};
  for (std::int64_t at = 0; at < first.count(); ++at) {
    out.first.data<float>()[at] = static_cast<float>(numbers.mean(static_cast<std::size_t>(at)));
    out.second.data<float>()[at] = static_cast<float>(numbers.error(static_cast<std::size_t>(at)));
  }
  return out;
}

template <class Found>
void average_tensor(std::span<const Found> found, const char* name, Tensor Found::*member, Averaged<Found>& out) {
  std::tie(out.mean.*member, out.standard_error.*member) =
      averaged(found, name, [&](std::size_t n) { return (found[n].*member).clone(); });
}

template <class Found>
void average_number(std::span<const Found> found, double Found::*member, Averaged<Found>& out) {
  Numbers numbers(1);
  for (const Found& each : found) numbers.add(0, each.*member);
  out.mean.*member = numbers.mean(0), out.standard_error.*member = numbers.error(0);
}

constexpr std::optional<std::int64_t> different = -1;

// What all have, or `none`.
template <class Found, class Value>
Value common(std::span<const Found> found, Value Found::*member, Value none) {
  const bool same =
      std::ranges::all_of(found, [&](const Found& each) { return each.*member == found.front().*member; });
  return same ? found.front().*member : none;
}

// [L,H,T], or nothing -> [L,H,S]: sums over spans of T; without spans one, over all.
Tensor by_span(const Tensor& parts, const std::vector<Range>* spans) {
  if (parts.count() == 0) return {};
  const std::int64_t T = parts.size(2);
  const std::vector<Range> all{{0, T}};
  if (!spans) spans = &all;
  for (const Range& span : *spans)
    if (span.begin < 0 || span.begin >= span.end || span.end > T)
      fail(ErrorCode::bad_value, average_function, "a span has tokens {} to {}, expected a part of 0 to {}", span.begin,
           span.end, T);
  Tensor out({parts.size(0), parts.size(1), std::ssize(*spans)});
  float* to = out.data<float>();
  for (const float* row = parts.data<float>(); row < parts.data<float>() + parts.count(); row += T)
    for (const Range& span : *spans) {
      double sum = 0;
      for (std::int64_t t = span.begin; t < span.end; ++t) sum += static_cast<double>(row[t]);
      *to++ = static_cast<float>(sum);
    }
  return out;
}

}  // namespace

Averaged<Ablation> average(std::span<const Ablation> found) {
  require_some(found);
  Averaged<Ablation> out{.mean = {}, .standard_error = {}, .texts = std::ssize(found)};
  average_tensor(found, "logit", &Ablation::logit, out);
  average_tensor(found, "log_probability", &Ablation::log_probability, out);
  average_tensor(found, "kl", &Ablation::kl, out);
  average_tensor(found, "cosine_distance", &Ablation::cosine_distance, out);
  for (Ablation* each : {&out.mean, &out.standard_error}) {
    each->of = found.front().of;
    each->token = common(found, &Ablation::token, different);
    each->against = common(found, &Ablation::against, different);
    each->heads = common(found, &Ablation::heads, {});
    each->attention = found.front().attention;
  }
  return out;
}

Averaged<Patching> average(std::span<const Patching> found) {
  require_some(found);
  Averaged<Patching> out{.mean = {}, .standard_error = {}, .texts = std::ssize(found)};
  average_number(found, &Patching::clean, out);
  average_number(found, &Patching::corrupt, out);
  const auto whole = [&](std::size_t n) { return found[n].clean - found[n].corrupt; };
  const double mean = out.mean.clean - out.mean.corrupt;
  if (mean == 0)
    fail(ErrorCode::bad_value, average_function, "the texts' differences, clean less corrupt, are 0 on average");
  const auto scaled = [&](std::size_t n, const Tensor* ratio) {
    Tensor numbers = found[n].recovered.clone();
    for (std::int64_t at = 0; at < numbers.count(); ++at) {
      const double less =
          ratio && ratio->count() == numbers.count() ? static_cast<double>(ratio->data<float>()[at]) : 0;
      numbers.data<float>()[at] =
          static_cast<float>((static_cast<double>(numbers.data<float>()[at]) - less) * whole(n) / mean);
    }
    return numbers;
  };
  out.mean.recovered = averaged(found, "recovered", [&](std::size_t n) { return scaled(n, nullptr); }).first;
  // What a text's numerator is from the ratio of means times its denominator.
  out.standard_error.recovered =
      averaged(found, "recovered", [&](std::size_t n) { return scaled(n, &out.mean.recovered); }).second;
  for (Patching* each : {&out.mean, &out.standard_error}) {
    each->what = found.front().what, each->attention = found.front().attention;
    each->token = common(found, &Patching::token, std::int64_t{-1});
    each->against = common(found, &Patching::against, std::int64_t{-1});
    each->first_row = common(found, &Patching::first_row, std::int64_t{0});
  }
  return out;
}

Averaged<Attribution> average(std::span<const Attribution> found, std::span<const std::vector<Range>> spans) {
  require_some(found);
  if (!spans.empty() && spans.size() != found.size())
    fail(ErrorCode::bad_value, average_function, "spans are given for {} texts, expected {}", spans.size(),
         found.size());
  Averaged<Attribution> out{.mean = {}, .standard_error = {}, .texts = std::ssize(found)};
  std::tie(out.mean.heads, out.standard_error.heads) = averaged(
      found, "spans", [&](std::size_t n) { return by_span(found[n].heads, spans.empty() ? nullptr : &spans[n]); });
  std::tie(out.mean.cross, out.standard_error.cross) =
      averaged(found, "cross", [&](std::size_t n) { return by_span(found[n].cross, nullptr); });
  average_tensor(found, "mlps", &Attribution::mlps, out);
  average_tensor(found, "neurons", &Attribution::neurons, out);
  average_tensor(found, "mlp_biases", &Attribution::mlp_biases, out);
  average_tensor(found, "features", &Attribution::features, out);
  for (double Attribution::*number :
       {&Attribution::logit, &Attribution::capped_logit, &Attribution::embedding, &Attribution::bias,
        &Attribution::rounding, &Attribution::feature_bias, &Attribution::feature_error})
    average_number(found, number, out);
  for (Attribution* each : {&out.mean, &out.standard_error}) {
    each->of = found.front().of;
    each->token = common(found, &Attribution::token, std::int64_t{-1});
    each->against = common(found, &Attribution::against, different);
    each->position = common(found, &Attribution::position, std::int64_t{-1});
  }
  return out;
}

}  // namespace attend::inline v1
