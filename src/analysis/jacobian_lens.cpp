#include "attend/jacobian_lens.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>

#include "analysis/jacobians.h"
#include "analysis/texts.h"
#include "attend/linear.h"
#include "attend/tensor_files.h"
#include "core/message.h"
#include "core/sha256.h"
#include "io/file.h"
#include "models/pass_back.h"

namespace attend::inline v1 {

namespace {

constexpr const char* jacobian_lens_function = "jacobian_lens";

// The Jacobians of one text, a block of rows after another.
class JacobiansOfText {
 public:
  JacobiansOfText(const Model& model, std::span<const std::int64_t> ids, const JacobianOptions& options)
      : model_(model), ids_(ids), options_(options) {
    const ModelInfo& info = model.info();
    for (std::int64_t layer = 0; layer + 1 < info.layers; ++layer)
      jacobians_.emplace_back(Dims{info.embedding_size, info.embedding_size});
  }

  std::vector<Tensor> take() {
    const std::int64_t E = model_.info().embedding_size;
    for (std::int64_t first = 0; first < E && !jacobians_.empty(); first += options_.block) {
      go_back(first, std::min(options_.block, E - first));
      if (options_.progress)
        options_.progress(static_cast<double>(std::min(E, first + options_.block)) / static_cast<double>(E));
    }
    return std::move(jacobians_);
  }

 private:
  // Ones at all rows, of one number of the last stream each.
  void go_back(std::int64_t first, std::int64_t count) {
    const std::int64_t rows = std::ssize(ids_) - options_.skip, last = model_.info().layers;
    models::PassBack back;
    back.copies = count, back.first_row = options_.skip, back.first_layer = 1;
    back.from = [&](const Tensor& hidden) { return Tensor({count * rows, hidden.size(1)}); };
    back.places = [&](ModelPlace place, std::int64_t layer, Tensor& d) {
      if (place != ModelPlace::residual) return;
      if (layer < last) return take_mean(layer - 1, first, d, rows);
      for (std::int64_t row = 0; row < count * rows; ++row) d.data<float>()[row * d.size(1) + first + row / rows] = 1;
    };
    models::pass_back(model_, ids_, {}, back);
  }

  // d [count * rows,E]: means over the rows.
  void take_mean(std::int64_t layer, std::int64_t first, const Tensor& d, std::int64_t rows) {
    const std::int64_t E = d.size(1), count = d.size(0) / rows;
    float* to = jacobians_[static_cast<std::size_t>(layer)].data<float>() + first * E;
    const float* from = d.data<float>();
    std::vector<double> sums(static_cast<std::size_t>(E));
    for (std::int64_t number = 0; number < count; ++number, to += E) {
      sums.assign(sums.size(), 0);
      for (std::int64_t row = 0; row < rows; ++row, from += E)
        for (std::int64_t e = 0; e < E; ++e) sums[static_cast<std::size_t>(e)] += static_cast<double>(from[e]);
      for (std::int64_t e = 0; e < E; ++e)
        to[e] = static_cast<float>(sums[static_cast<std::size_t>(e)] / static_cast<double>(rows));
    }
  }

  const Model& model_;
  std::span<const std::int64_t> ids_;
  const JacobianOptions& options_;
  std::vector<Tensor> jacobians_;
};

void check(const ModelInfo& info, std::span<const std::int64_t> ids, const JacobianOptions& options) {
  if (!info.decoder() || info.encoder_decoder())
    fail(ErrorCode::bad_value, jacobian_lens_function, "expected a decoder, the model is of type {}", info.type);
  if (options.skip < 0 || options.block < 1)
    fail(ErrorCode::bad_value, jacobian_lens_function, "skip is {} and block is {}, expected at least 0 and 1",
         options.skip, options.block);
  if (std::ssize(ids) < options.skip + 2)
    fail(ErrorCode::bad_value, jacobian_lens_function,
         "{} ids, expected at least {}: the first {} and the last are left out of the mean", ids.size(),
         options.skip + 2, options.skip);
}

std::string digest(std::span<const std::int64_t> ids, const JacobianOptions& options) {
  return sha256(fmt::format("{} {}", options.skip, fmt::join(ids, " ")));
}

// One after another; of what is unknown nothing is known.
std::string digest_of_both(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? std::string() : sha256(first + second);
}

void check_so_far(const JacobianLens& so_far, const ModelInfo& info, std::span<const std::vector<std::int64_t>> prompts,
                  const JacobianOptions& options) {
  analysis::check_jacobians(jacobian_lens_function, so_far, info);
  if (so_far.prompts > std::ssize(prompts))
    fail(ErrorCode::bad_value, jacobian_lens_function, "the Jacobian lens has {} prompts already, expected at most {}",
         so_far.prompts, prompts.size());
  std::string texts = digest(prompts[0], options);
  for (std::size_t n = 1; n < static_cast<std::size_t>(so_far.prompts); ++n)
    texts = digest_of_both(texts, digest(prompts[n], options));
  if (!so_far.texts.empty() && so_far.texts != texts)
    fail(ErrorCode::bad_value, jacobian_lens_function,
         "the Jacobian lens so far was made from other prompts, or with another skip");
}

}  // namespace

Tensor analysis::meant_at_last(const JacobianLens& lens, std::int64_t layer, Tensor rows) {
  const bool known = layer > 0 && layer <= std::ssize(lens.jacobians);
  return known ? Linear::borrow(lens.jacobians[static_cast<std::size_t>(layer - 1)]).forward(rows) : std::move(rows);
}

void analysis::check_jacobians(std::string_view name, const JacobianLens& lens, const ModelInfo& info) {
  const Dims expected{info.embedding_size, info.embedding_size};
  if (std::ssize(lens.jacobians) != info.layers - 1)
    fail(ErrorCode::bad_value, name, "the Jacobian lens has {} layers, expected {}, all of the model's but the last",
         lens.jacobians.size(), info.layers - 1);
  for (const Tensor& each : lens.jacobians)
    if (each.shape() != expected || each.dtype() != DType::f32)
      fail(ErrorCode::bad_value, name, "a Jacobian is {} with shape {}, expected f32 with {}", name_of(each.dtype()),
           each.shape(), expected);
}

JacobianLens jacobian_lens(const Model& model, std::span<const std::vector<std::int64_t>> prompts,
                           const JacobianOptions& options, JacobianLens so_far) {
  models::check_exact(model.info(), jacobian_lens_function);
  for (std::size_t n = 0; n < prompts.size(); ++n)
    analysis::of_text(n, prompts.size(), [&] { check(model.info(), prompts[n], options); });
  if (so_far.prompts > 0) check_so_far(so_far, model.info(), prompts, options);
  const auto count = static_cast<double>(prompts.size());
  for (auto n = static_cast<std::size_t>(so_far.prompts); n < prompts.size(); ++n) {
    JacobianOptions own = options;
    if (options.progress)
      own.progress = [&](double share) { options.progress((static_cast<double>(n) + share) / count); };
    // The last row is of no mean, and no other row's stream depends on it.
    const std::span<const std::int64_t> ids = std::span(prompts[n]).first(prompts[n].size() - 1);
    JacobianLens one{.jacobians = {}, .prompts = 1, .texts = digest(prompts[n], options)};
    analysis::of_text(n, prompts.size(), [&] { one.jacobians = JacobiansOfText(model, ids, own).take(); });
    so_far.merge(one);
    if (options.keep) options.keep(so_far);
  }
  return so_far;
}

void JacobianLens::merge(const JacobianLens& other) {
  if (prompts > 0 && other.prompts > 0) {
    bool same = jacobians.size() == other.jacobians.size();
    for (std::size_t n = 0; same && n < jacobians.size(); ++n)
      same = jacobians[n].shape() == other.jacobians[n].shape() && jacobians[n].dtype() == other.jacobians[n].dtype();
    if (!same)
      fail(ErrorCode::bad_value, "JacobianLens",
           "the two lenses belong to different models: {} and {} layers, or other sizes", jacobians.size(),
           other.jacobians.size());
  }
  std::vector<Tensor> means;
  const double share =
      static_cast<double>(other.prompts) / static_cast<double>(std::max<std::int64_t>(1, prompts + other.prompts));
  for (std::size_t layer = 0; layer < other.jacobians.size() && other.prompts > 0; ++layer) {
    Tensor& mean = means.emplace_back(other.jacobians[layer].clone());
    const float* own = prompts > 0 ? jacobians[layer].data<float>() : nullptr;
    float* to = mean.data<float>();
    for (std::int64_t n = 0; own && n < mean.count(); ++n)
      to[n] = static_cast<float>(static_cast<double>(own[n]) +
                                 share * (static_cast<double>(to[n]) - static_cast<double>(own[n])));
  }
  if (other.prompts == 0) return;
  texts = prompts == 0 ? other.texts : digest_of_both(texts, other.texts);
  jacobians = std::move(means), prompts += other.prompts;
}

void JacobianLens::save(const std::filesystem::path& path) const {
  NamedViews tensors;
  std::vector<std::size_t> layers;
  for (std::size_t layer = 0; layer < jacobians.size(); ++layer) {
    tensors.emplace_back(fmt::format("J.{}", layer), jacobians[layer].view());
    layers.push_back(layer);
  }
  write_safetensors(path, tensors,
                    {{"n_prompts", fmt::format("{}", prompts)},
                     {"d_model", fmt::format("{}", jacobians.empty() ? 0 : jacobians[0].size(0))},
                     {"source_layers", fmt::format("[{}]", fmt::join(layers, ","))},
                     {"texts", texts}});
}

JacobianLens JacobianLens::load(const std::filesystem::path& path) {
  Safetensors file = read_safetensors(path);
  JacobianLens lens{.jacobians = {}, .prompts = 0, .texts = file.metadata["texts"]};
  const std::string& count = file.metadata["n_prompts"];
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), lens.prompts);
  if (error != std::errc() || end != count.data() + count.size() || lens.prompts < 1)
    fail(ErrorCode::bad_file, "JacobianLens",
         "{}: n_prompts is '{}' in its metadata, expected at least 1: it is not a Jacobian lens", quote(path.string()),
         count);
  for (std::size_t layer = 0; layer < file.tensors.size(); ++layer) {
    const auto found = file.tensors.find(fmt::format("J.{}", layer));
    if (found == file.tensors.end())
      fail(ErrorCode::bad_file, "JacobianLens", "{} has {} tensors and no J.{}", quote(path.string()),
           file.tensors.size(), layer);
    const Tensor& given = found->second;
    if (given.rank() != 2 || given.size(0) != given.size(1) || !is_floating(given.dtype()))
      fail(ErrorCode::bad_file, "JacobianLens", "{}: J.{} is {} with shape {}, expected floating point [E,E]",
           quote(path.string()), layer, name_of(given.dtype()), given.shape());
    lens.jacobians.push_back(given.view().to(DType::f32));
  }
  return lens;
}

}  // namespace attend::inline v1
