// What a sparse autoencoder computes.
#include "analysis/sparse_autoencoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "attend/threads.h"
#include "core/from_end.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

using State = SparseAutoencoder::State;

constexpr const char* sparse_autoencoder_function = "SparseAutoencoder";

// Rows of features that a thread takes at once.
constexpr std::int64_t grain = 4;

// x as f32 of its own. Throws bad_shape, bad_dtype, bad_value.
Tensor checked_rows(std::string_view name, const View& x, std::int64_t columns) {
  if (!is_floating(x.dtype()))
    fail(ErrorCode::bad_dtype, sparse_autoencoder_function, "{} is {}, expected floating point", name, x.dtype());
  if (x.rank() != 2 || x.size(1) != columns)
    fail(ErrorCode::bad_shape, sparse_autoencoder_function, "{} has shape {}, expected [N,{}]", name, x.shape(),
         columns);
  Tensor rows = x.to(DType::f32);
  if (const std::optional<float> bad = analysis::not_finite(rows))
    fail(ErrorCode::bad_value, sparse_autoencoder_function, "{} has {}, expected finite numbers", name, *bad);
  return rows;
}

// By its mean and its standard deviation over in - 1, as torch.std() has it.
std::pair<double, double> mean_and_deviation(const float* x, std::int64_t count) {
  const auto N = static_cast<double>(count);
  const double mean = std::accumulate(x, x + count, 0.0) / N;
  double squares = 0;
  for (std::int64_t c = 0; c < count; ++c) {
    const double apart = static_cast<double>(x[c]) - mean;
    squares += apart * apart;
  }
  return {mean, std::sqrt(squares / (N - 1))};
}

double length_of(const float* x, std::int64_t count) {
  double squares = 0;
  for (std::int64_t c = 0; c < count; ++c) squares += static_cast<double>(x[c]) * static_cast<double>(x[c]);
  return std::sqrt(squares);
}

// SAELens' layer_norm: what it adds to the deviation, it does not take back.
constexpr double deviation_eps = 1e-5;

// All but the k largest become 0, of equal ones the first; and so do those below 0.
void keep_largest(float* values, std::int64_t count, std::int64_t k) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const auto rest = order.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(order.begin(), rest - 1, order.end(), [&](std::int64_t a, std::int64_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  for (auto each = rest; each != order.end(); ++each) values[*each] = 0;
  for (std::int64_t f = 0; f < count; ++f) values[f] = std::max(values[f], 0.0F);
}

// A row of W_enc x, with its bias unless it is gated, becomes values.
void activate(const State& of, float* row) {
  const std::int64_t count = of.size("W_dec", 0);
  if (of.norms)
    for (std::int64_t f = 0; f < count; ++f) row[f] *= of.norms->data<float>()[f];
  switch (of.kind) {
    case State::Kind::relu:
      for (std::int64_t f = 0; f < count; ++f) row[f] = std::max(row[f], 0.0F);
      return;
    case State::Kind::jumprelu: {
      const float* threshold = of.numbers("threshold");
      for (std::int64_t f = 0; f < count; ++f) row[f] = row[f] > threshold[f] ? std::max(row[f], 0.0F) : 0;
      return;
    }
    case State::Kind::topk:
      return keep_largest(row, count, of.k);
    case State::Kind::gated: {
      const float *gate = of.numbers("b_gate"), *scale = of.numbers("r_mag"), *bias = of.numbers("b_mag");
      for (std::int64_t f = 0; f < count; ++f)
        row[f] = row[f] + gate[f] > 0 ? std::max(row[f] * std::exp(scale[f]) + bias[f], 0.0F) : 0;
      return;
    }
  }
}

// What 1 of a feature is multiplied by before its row of the decoder is.
double unit_of(const State& of, std::int64_t feature) {
  return of.norms ? 1 / static_cast<double>(of.norms->data<float>()[feature]) : 1;
}

// out += times * row, in double.
void add_row(std::vector<double>& out, const float* row, double times) {
  for (std::size_t c = 0; c < out.size(); ++c) out[c] += times * static_cast<double>(row[c]);
}

std::int64_t checked_feature(const State& of, std::int64_t feature) {
  return from_end(sparse_autoencoder_function, "feature is", feature, of.size("W_dec", 0));
}

}  // namespace

namespace analysis {

std::optional<float> not_finite(const Tensor& x) {
  const std::span all(x.data<float>(), static_cast<std::size_t>(x.count()));
  const auto bad = std::ranges::find_if_not(all, [](float each) { return std::isfinite(each); });
  return bad == all.end() ? std::nullopt : std::optional(*bad);
}

RowSizes normalise(const State& of, Tensor& x) {
  const std::int64_t N = x.size(0), in = x.size(1);
  RowSizes sizes{Tensor({N}), Tensor({N})};
  std::fill_n(sizes.scales.data<float>(), N, 1.0F);
  if (of.normalised == State::Normalised::none) return sizes;
  for (std::int64_t n = 0; n < N; ++n) {
    float* row = x.data<float>() + n * in;
    double mean = 0, scale = 0, divisor = 0;
    if (of.normalised == State::Normalised::layer_norm) {
      std::tie(mean, scale) = mean_and_deviation(row, in);
      divisor = scale + deviation_eps;
    } else {
      divisor = scale = length_of(row, in) / std::sqrt(static_cast<double>(in));
    }
    if (!(divisor > 0))
      fail(ErrorCode::bad_value, sparse_autoencoder_function, "row {} of x is all zeros: it has no length to divide by",
           n);
    for (std::int64_t c = 0; c < in; ++c) row[c] = static_cast<float>((static_cast<double>(row[c]) - mean) / divisor);
    if (!of.restores()) continue;
    sizes.scales.data<float>()[n] = static_cast<float>(scale);
    sizes.shifts.data<float>()[n] = static_cast<float>(mean);
  }
  return sizes;
}

Tensor without_features(const State& of, const View& x) {
  const std::int64_t N = x.size(0), out = of.size("W_dec", 1);
  Tensor rows = checked_rows("x", x, of.size("W_enc", 0));
  Tensor skipped = of.skip ? of.skip->forward(rows) : Tensor({N, out});
  const RowSizes sizes = normalise(of, rows);
  for (std::int64_t n = 0; n < N; ++n) {
    float* row = skipped.data<float>() + n * out;
    for (std::int64_t c = 0; c < out; ++c)
      row[c] += of.numbers("b_dec")[c] * sizes.scales.data<float>()[n] + sizes.shifts.data<float>()[n];
  }
  return skipped;
}

}  // namespace analysis

SparseAutoencoder::SparseAutoencoder(std::shared_ptr<const State> state) : state_(std::move(state)) {}

const std::string& SparseAutoencoder::architecture() const {
  return state_->architecture;
}
std::int64_t SparseAutoencoder::in_size() const {
  return state_->size("W_enc", 0);
}
std::int64_t SparseAutoencoder::size() const {
  return state_->size("W_dec", 0);
}
std::int64_t SparseAutoencoder::out_size() const {
  return state_->size("W_dec", 1);
}
const std::optional<LayerPlace>& SparseAutoencoder::reads() const {
  return state_->reads;
}
const std::optional<LayerPlace>& SparseAutoencoder::writes() const {
  return state_->writes;
}
bool SparseAutoencoder::reads_before_weight() const {
  return state_->before_weight;
}
bool SparseAutoencoder::transcoder() const {
  return state_->transcoder;
}
bool SparseAutoencoder::centred() const {
  return state_->centred_stream;
}
const std::string& SparseAutoencoder::config() const {
  return state_->config;
}
const TensorMap& SparseAutoencoder::weights() const {
  return state_->weights;
}

Tensor SparseAutoencoder::encode(const View& x) const {
  Tensor rows = checked_rows("x", x, in_size());
  analysis::normalise(*state_, rows);
  const std::int64_t in = in_size(), F = size();
  if (state_->subtracts_bias) {
    const float* bias = state_->numbers("b_dec");
    for (std::int64_t n = 0; n < rows.count(); ++n) rows.data<float>()[n] -= bias[n % in];
  }
  Tensor values = state_->encoder->forward(rows);
  parallel_for(values.size(0), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      float* row = values.data<float>() + n * F;
      if (!std::all_of(row, row + F, [](float each) { return std::isfinite(each); }))
        fail(ErrorCode::bad_value, sparse_autoencoder_function,
             "row {} of x is too large: a feature's value is not a finite number", n);
      activate(*state_, row);
    }
  });
  return values;
}

Tensor SparseAutoencoder::decode(const View& values, const std::optional<View>& x) const {
  const State& of = *state_;
  const Tensor given = checked_rows("values", values, size());
  const std::int64_t N = given.size(0), F = size(), out = out_size();
  if (!x && (of.skip || of.restores()))
    fail(ErrorCode::bad_value, sparse_autoencoder_function,
         "decode() of {} needs x too, the rows that the values came from",
         of.skip ? of.architecture : "rows that normalize_activations scales");
  Tensor skipped, scales({N}), shifts({N});
  std::fill_n(scales.data<float>(), N, 1.0F);
  if (x) {
    Tensor rows = checked_rows("x", *x, in_size());
    if (rows.size(0) != N)
      fail(ErrorCode::bad_shape, sparse_autoencoder_function, "x has {} rows, the values {}", rows.size(0), N);
    if (of.skip) skipped = of.skip->forward(rows);
    analysis::RowSizes sizes = analysis::normalise(of, rows);
    scales = std::move(sizes.scales), shifts = std::move(sizes.shifts);
  }
  Tensor made({N, out});
  parallel_for(N, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(out));
    for (std::int64_t n = begin; n < end; ++n) {
      std::fill(sums.begin(), sums.end(), 0.0);
      add_row(sums, of.numbers("b_dec"), 1);
      for (std::int64_t f = 0; f < F; ++f)
        if (const float value = given.data<float>()[n * F + f]; value != 0)
          add_row(sums, of.numbers("W_dec") + f * out, static_cast<double>(value) * unit_of(of, f));
      const double scale = scales.data<float>()[n], shift = shifts.data<float>()[n];
      for (std::int64_t c = 0; c < out; ++c) {
        double sum = sums[static_cast<std::size_t>(c)] * scale + shift;
        if (of.skip) sum += static_cast<double>(skipped.data<float>()[n * out + c]);
        made.data<float>()[n * out + c] = static_cast<float>(sum);
      }
    }
  });
  return made;
}

Tensor SparseAutoencoder::direction(std::int64_t feature) const {
  const std::int64_t f = checked_feature(*state_, feature);
  Tensor row = state_->weights.find("W_dec")->second.view().select(0, f).clone();
  for (std::int64_t c = 0; c < row.count(); ++c)
    row.data<float>()[c] = static_cast<float>(static_cast<double>(row.data<float>()[c]) * unit_of(*state_, f));
  return row;
}

// ---- Edits ----

namespace {

LayerPlace written(const State& of) {
  if (!of.writes)
    fail(ErrorCode::bad_value, sparse_autoencoder_function,
         "no hook_name says where it writes: give the place to load()");
  return *of.writes;
}

// change(value): what is added to a row's value.
template <class Change>
FeatureEdit changed(const SparseAutoencoder& of, const Features& found, std::int64_t feature, Change change) {
  const State& state = SparseAutoencoderAccess::state(of);
  const std::int64_t f = checked_feature(state, feature), N = found.activations.size(0), out = of.out_size();
  if (found.activations.rank() != 2 || found.activations.size(1) != of.size() || found.scales.count() != N)
    fail(ErrorCode::bad_shape, sparse_autoencoder_function,
         "the features have shape {}, expected [N,{}] with a scale for each row", found.activations.shape(), of.size());
  FeatureEdit made{.place = written(state), .rows = std::vector<std::int64_t>(), .values = {}};
  made.values = Tensor({N, out});
  const Tensor row = of.direction(f);
  for (std::int64_t n = 0; n < N; ++n) {
    made.rows->push_back(n);
    const double by = change(static_cast<double>(found.activations.data<float>()[n * of.size() + f])) *
                      static_cast<double>(found.scales.data<float>()[n]);
    for (std::int64_t c = 0; c < out; ++c)
      made.values.data<float>()[n * out + c] = static_cast<float>(by * static_cast<double>(row.data<float>()[c]));
  }
  return made;
}

}  // namespace

Edit FeatureEdit::edit() const {
  return {.layer = place.layer, .at = place.at, .rows = rows, .set = Edit::Set::add, .values = values};
}

FeatureEdit SparseAutoencoder::scaled(const Features& found, std::int64_t feature, double factor) const {
  if (!std::isfinite(factor))
    fail(ErrorCode::bad_value, sparse_autoencoder_function, "factor is {}, expected a finite number", factor);
  return changed(*this, found, feature, [&](double value) { return (factor - 1) * value; });
}

FeatureEdit SparseAutoencoder::set_to(const Features& found, std::int64_t feature, double value) const {
  if (!std::isfinite(value))
    fail(ErrorCode::bad_value, sparse_autoencoder_function, "value is {}, expected a finite number", value);
  return changed(*this, found, feature, [&](double now) { return value - now; });
}

FeatureEdit SparseAutoencoder::added(std::int64_t feature, double value) const {
  if (!std::isfinite(value))
    fail(ErrorCode::bad_value, sparse_autoencoder_function, "value is {}, expected a finite number", value);
  FeatureEdit made{.place = written(*state_), .rows = {}, .values = direction(feature)};
  for (std::int64_t c = 0; c < made.values.count(); ++c)
    made.values.data<float>()[c] = static_cast<float>(value * static_cast<double>(made.values.data<float>()[c]));
  return made;
}

}  // namespace attend::inline v1
