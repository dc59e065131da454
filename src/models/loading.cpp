#include "models/loading.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "layers/rows.h"

namespace attend::inline v1::models {

namespace {

// More are not looked for: a configuration may speak of more layers than anyone has tensors for.
constexpr std::size_t most_problems = 1000;

// A table that is made may have so many numbers, however small the model is.
constexpr std::int64_t small_table = 1 << 20;

// Rows [first, last).
Matrix rows_of(const Matrix& matrix, std::int64_t first, std::int64_t last) {
  Matrix part{matrix.view.slice(0, first, last), matrix.blocks};
  if (!part.blocks) return part;
  part.blocks->data = static_cast<const std::byte*>(part.blocks->data) + first * part.blocks->row_bytes();
  part.blocks->rows = last - first;
  return part;
}

}  // namespace

std::string older_name(const std::string& name) {
  const auto ending = [&](std::string_view now, std::string_view then) {
    return name.ends_with(now) ? name.substr(0, name.size() - now.size()) + std::string(then) : std::string();
  };
  const std::string weight = ending("LayerNorm.weight", "LayerNorm.gamma");
  return weight.empty() ? ending("LayerNorm.bias", "LayerNorm.beta") : weight;
}

Loading::Loading(Weights weights, std::string prefix, std::optional<DType> dtype, bool widens, Activations activations)
    : weights_(std::move(weights)), activations_(activations), widens_(widens) {
  const auto& all = weights_.all();
  const auto has_prefix = [&](const auto& each) { return each.first.starts_with(prefix); };
  if (std::ranges::any_of(all, has_prefix)) prefix_ = std::move(prefix);
  const auto is_wide = [](const auto& each) {
    return each.second.view.rank() == 2 && each.second.view.dtype() != DType::bf16;
  };
  dtype_ = dtype ? *dtype : std::ranges::any_of(all, is_wide) ? DType::f32 : DType::bf16;
  if (activations_ == Activations::int8) dtype_ = DType::f32, widens_ = false;
  for (const auto& [name, matrix] : all) numbers_ += matrix.view.count();
}

const Matrix* Loading::find(const std::string& name) {
  const auto copy = found_as_.find(name);
  for (const std::string& each : {copy == found_as_.end() ? name : copy->second, older_name(name)}) {
    const Matrix* found = each.empty() ? nullptr : weights_.find(each);
    if (!found) continue;
    taken_.insert(each);
    return found;
  }
  return nullptr;
}

Matrix Loading::take(const std::string& name, const Dims& shape) {
  static const Tensor one(Dims{1, 1});
  const Matrix* found = find(name);
  if (!checking_) return *found;
  if (!found) {
    problems_.push_back(fmt::format("{} is missing", quote(name)));
  } else if (found->view.shape() != shape) {
    problems_.push_back(fmt::format("{} has shape {}, expected {}", quote(name), found->view.shape(), shape));
  } else if (!is_floating(found->view.dtype()) || found->view.dtype() == DType::f64) {
    problems_.push_back(fmt::format("{} is {}, expected f32, bf16 or f16", quote(name), found->view.dtype()));
  } else {
    parameters_ += found->view.count();
    formats_[format_of(*found)] += bytes_of(*found);
  }
  if (problems_.size() == most_problems) fail_for_problems();
  return {shape.rank() == 1 ? one.view().select(0, 0) : one.view()};
}

View Loading::take_row(const std::string& name, std::int64_t size) {
  return take(name, {size}).view;
}

Matrix Loading::matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
  if (!rounds(columns)) return take_matrix(prefix_ + name, rows, columns, widens_);
  // Rows are read in any dtype; a layer that shares them has a copy.
  const Matrix found = take(prefix_ + name, {rows, columns});
  const Matrix* known = checking_ ? find(prefix_ + name) : nullptr;
  if (known) weight_bytes_ += bytes_of(*known);
  return found;
}

View Loading::table(const std::string& name, std::int64_t rows, std::int64_t columns) {
  return take_matrix(prefix_ + name, rows, columns, true).view;
}

Matrix Loading::take_matrix(const std::string& name, std::int64_t rows, std::int64_t columns, bool widen) {
  const Matrix found = take(name, {rows, columns});
  const Matrix* known = checking_ ? find(name) : nullptr;
  if (known) weight_bytes_ += stays(*known, widen) ? bytes_of(*known) : known->view.count() * size_of(dtype_);
  if (checking_ || stays(found, widen)) return found;
  if (!found.blocks) return {made_.emplace_back(converted(found.view, dtype_))};
  Tensor made = numbers(found);
  return {made_.emplace_back(dtype_ == DType::f32 ? std::move(made) : converted(made, dtype_))};
}

bool Loading::stays(const Matrix& matrix, bool widen) const {
  return matrix.blocks ? !widen : matrix.view.dtype() == dtype_;
}

Matrix Loading::take_weight(const std::string& name, std::int64_t out, std::int64_t in, bool turned) {
  const std::int64_t rows = turned ? in : out, columns = turned ? out : in;
  Matrix found = rounds(in) ? take(name, {rows, columns}) : take_matrix(name, rows, columns, widens_);
  const Matrix* known = checking_ && rounds(in) ? find(name) : nullptr;
  if (known && known->blocks) weight_bytes_ += bytes_of(*known);
  if (turned) found.view = found.view.transpose(0, 1);
  return as_weight(name, found);
}

Matrix Loading::as_weight(const std::string& name, const Matrix& matrix) {
  if (checking_ || matrix.blocks || !rounds(matrix.view.size(1))) return matrix;
  std::optional<Tensor> made = q8_0_rows(matrix.view);
  if (!made) fail_at(weights_.place(), "{} has numbers that Q8_0 can't have: expected exact activations", quote(name));
  weight_bytes_ += made->count();
  const Tensor& kept = made_.emplace_back(std::move(*made));
  return {matrix.view, QuantizedView{kept.raw(), QuantizedType::q8_0, matrix.view.size(0), matrix.view.size(1)}};
}

Linear Loading::layer(const Matrix& weight, const std::optional<View>& bias) const {
  return weight.blocks ? Linear::borrow(*weight.blocks, bias, activations_) : Linear::borrow(weight.view, bias);
}

Linear Loading::linear(const std::string& name, std::int64_t in, std::int64_t out, bool bias) {
  const Matrix weight = take_weight(prefix_ + name + ".weight", out, in);
  if (!bias) return layer(weight);
  return layer(weight, take_row(prefix_ + name + ".bias", out));
}

std::vector<Linear> Loading::linears(const std::string& at, const std::vector<std::string>& names, std::int64_t in,
                                     const std::vector<std::int64_t>& outs, bool bias) {
  std::vector<Linear> layers;
  for (std::size_t n = 0; n < names.size(); ++n) layers.push_back(linear(at + names[n], in, outs[n], bias));
  return layers;
}

std::vector<Linear> Loading::linear_rows(const std::string& name, std::int64_t in,
                                         const std::vector<std::int64_t>& outs, bool bias) {
  const std::int64_t all_rows = std::accumulate(outs.begin(), outs.end(), std::int64_t{0});
  const Matrix weight = take_weight(prefix_ + name + ".weight", all_rows, in);
  std::optional<View> biases;
  if (bias) biases = take_row(prefix_ + name + ".bias", all_rows);
  std::vector<Linear> layers;
  std::int64_t first = 0;
  for (const std::int64_t out : outs) {
    const Matrix part = checking_ ? weight : rows_of(weight, first, first + out);
    layers.push_back(biases ? layer(part, checking_ ? *biases : biases->slice(0, first, first + out)) : layer(part));
    first += out;
  }
  return layers;
}

Linear Loading::linear_in_out(const std::string& name, std::int64_t in, std::int64_t out) {
  const Matrix weight = take_weight(prefix_ + name + ".weight", out, in, true);
  return layer(weight, take_row(prefix_ + name + ".bias", out));
}

LayerNorm Loading::layer_norm(const std::string& name, std::int64_t size, double eps, bool bias) {
  const View weight = take_row(prefix_ + name + ".weight", size);
  if (!bias) return LayerNorm(weight, std::nullopt, eps);
  return LayerNorm(weight, take_row(prefix_ + name + ".bias", size), eps);
}

LayerNorm Loading::plain_layer_norm(std::int64_t size, double eps) const {
  Tensor ones({checking_ ? 1 : size});
  std::fill_n(ones.data<float>(), ones.count(), 1.0F);
  return LayerNorm(ones, std::nullopt, eps);
}

RmsNorm Loading::rms_norm(const std::string& name, std::int64_t size, double eps, float offset) {
  const View found = take_row(prefix_ + name + ".weight", size);
  if (offset == 0) return RmsNorm(found, eps);
  Tensor weight = found.to(DType::f32);
  for (std::int64_t e = 0; e < weight.count(); ++e) weight.data<float>()[e] += offset;
  return RmsNorm(weight, eps);
}

std::optional<Output> Loading::head(const std::string& embeddings, const Matrix& words, std::int64_t in,
                                    std::int64_t out, bool tied, const char* older, const char* bias) {
  if (has_task_) return std::nullopt;
  const std::string name = older && weights_.find(older) ? older : "lm_head.weight";
  const auto copy = found_as_.find(prefix_ + embeddings);
  const Matrix* own = weights_.find(name);
  const Matrix* shared = weights_.find(copy == found_as_.end() ? prefix_ + embeddings : copy->second);
  if (!own && !tied && prefix_.empty()) return std::nullopt;
  std::optional<View> added;
  if (bias && weights_.find(bias)) added = take(bias, {1, out}).view.select(0, 0);
  if (!tied || (own && shared && !is_same(*own, *shared))) return Output{layer(take_weight(name, out, in), added)};
  taken_.insert(name);
  return Output{layer(as_weight(prefix_ + embeddings, words), added)};
}

Linear Loading::words_output(const std::string& name, const Matrix& words, std::int64_t in, std::int64_t out, bool bias,
                             const char* other_bias, bool tied) {
  const bool own = !tied || weights_.find(prefix_ + name + ".weight");
  const std::string own_weight = prefix_ + name + ".weight";
  const Matrix weight = own ? take_weight(own_weight, out, in) : as_weight(own_weight, words);
  if (!bias) return layer(weight);
  // Tied, the output's own bias is the other one, as Transformers has it, and files may have either or both.
  const std::string own_bias = prefix_ + name + ".bias", other = other_bias ? prefix_ + other_bias : own_bias;
  const bool is_other = weights_.find(other) && (tied || !weights_.find(own_bias));
  return layer(weight, take_row(is_other ? other : own_bias, out));
}

void Loading::has_copies(std::initializer_list<const char*> copies, const std::string& of) {
  const std::string name = prefix_ + of;
  const Matrix* own = weights_.find(name);
  for (const char* each : copies) {
    const std::string copy = prefix_ + each;
    const Matrix* other = weights_.find(copy);
    if (!other) continue;
    taken_.insert(copy);
    if (!own) {
      own = other;
      found_as_[name] = copy;
    } else if (checking_ && !is_same(*own, *other)) {
      problems_.push_back(fmt::format("{} is another than {}", quote(copy), quote(name)));
    }
  }
}

void Loading::check_made(const Member& said, std::int64_t rows, std::int64_t columns) const {
  const std::int64_t most = std::max(small_table, numbers_);
  if (rows > most / columns)
    fail_at(said.place(), "makes a table of {} x {} numbers; a model of {} numbers has one of {} at most", rows,
            columns, numbers_, most);
}

View Loading::sines(const std::string& name, const Member& said, std::int64_t columns) {
  const std::int64_t rows = said.whole(1);
  if (weights_.find(prefix_ + name)) return table(name, rows, columns);
  check_made(said, rows, columns);
  static const Tensor one(Dims{1, 1});
  if (checking_) return one.view();
  Tensor table({rows, columns});
  const std::int64_t half = columns / 2 + columns % 2;
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t pair = c / 2;
      const double share = 2.0 * static_cast<double>(pair) / static_cast<double>(columns);
      const double angle = static_cast<double>(n) / std::pow(10000, share);
      const std::int64_t place = c % 2 == 0 ? pair : half + pair;
      table.data<float>()[n * columns + place] = static_cast<float>(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return made_.emplace_back(converted(table, dtype_));
}

bool Loading::is_ignored(const std::string& name) {
  const auto head = std::ranges::find_if(heads_, [&](const IgnoredHead& each) { return name.starts_with(each.begin); });
  if (head != heads_.end()) {
    if (!ignored_head_ || (head->of_task && !ignored_head_->of_task)) ignored_head_ = *head;
    return true;
  }
  const auto begins = [&](const std::string& begin) { return name.starts_with(begin); };
  const auto ends = [&](const std::string& end) { return name.ends_with(end); };
  return std::ranges::any_of(beginnings_, begins) || std::ranges::any_of(endings_, ends);
}

void Loading::check() {
  for (const auto& [name, view] : weights_.all()) {
    if (!taken_.contains(name) && !is_ignored(name)) problems_.push_back(fmt::format("{} is not known", quote(name)));
  }
  checking_ = false;
  if (!problems_.empty()) fail_for_problems();
}

void Loading::fail_for_problems() {
  constexpr std::size_t shown = 20;
  const std::size_t count = problems_.size();
  problems_.resize(std::min(count, shown));
  fail_at(weights_.place(), "{}{}", fmt::join(problems_, "; "),
          count > shown ? fmt::format("; and {} more", count - shown) : "");
}

}  // namespace attend::inline v1::models
