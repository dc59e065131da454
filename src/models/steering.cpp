#include "attend/steering.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/from_end.h"
#include "core/message.h"
#include "io/mapped_file.h"
#include "models/gguf/file.h"
#include "models/gguf/write.h"
#include "models/model.h"

namespace attend::inline v1 {

namespace {

constexpr const char* steering_function = "Steering";
constexpr const char* architecture = "controlvector";
constexpr std::string_view tensor_name = "direction.";

// Tokens of a pass, unless one text alone has more.
constexpr std::int64_t steering_tokens = 1024;

// Of each layer, a text's last row: [E] each.
using Streams = std::vector<std::vector<float>>;

struct Layers {
  std::int64_t first, last;
};

Layers layers_of(const SteeringOptions& options, const ModelInfo& info) {
  if (info.layers < 2)
    fail(ErrorCode::bad_value, steering_function, "the model has {} layers, expected two or more", info.layers);
  const auto place = [&](std::string_view name, std::int64_t layer) {
    const std::int64_t found = from_end(steering_function, fmt::format("{} layer", name), layer, info.layers);
    if (found < 1) fail(ErrorCode::bad_value, steering_function, "{} layer 0, expected 1 or more", name);
    return found;
  };
  const Layers layers{place("first", options.first), place("last", options.last)};
  if (layers.first > layers.last)
    fail(ErrorCode::bad_value, steering_function, "layers from {} to {}", layers.first, layers.last);
  return layers;
}

// The streams after each layer at the last tokens of several texts.
std::vector<Streams> last_streams(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                  const Layers& layers) {
  std::vector<std::int64_t> ids, starts{0};
  for (const auto& text : texts) {
    ids.insert(ids.end(), text.begin(), text.end());
    starts.push_back(std::ssize(ids));
  }
  std::vector<Streams> streams(texts.size(), Streams(static_cast<std::size_t>(layers.last - layers.first + 1)));
  const auto observe = [&](ModelPlace place, std::int64_t layer, const View& values) {
    const std::int64_t n = layer - 1 - layers.first;
    if (place != ModelPlace::residual || n < 0 || layer - 1 > layers.last) return;
    for (std::size_t t = 0; t < texts.size(); ++t) {
      const float* row = values.row<float>({starts[t + 1] - 1}).data();
      streams[t][static_cast<std::size_t>(n)].assign(row, row + values.size(1));
    }
  };
  model.forward(ids, {.starts = starts, .observe = observe});
  return streams;
}

// differences [pairs][E] of a layer.
using Differences = std::vector<std::vector<double>>;

std::vector<double> mean_of(const Differences& differences) {
  std::vector<double> mean(differences.front().size());
  for (const auto& each : differences)
    for (std::size_t e = 0; e < mean.size(); ++e) mean[e] += each[e] / static_cast<double>(differences.size());
  return mean;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// By power iteration over the pairs' products, which are few: x is the sum of c[n] differences[n].
std::vector<double> principal_of(const Differences& differences) {
  const std::size_t count = differences.size();
  std::vector<std::vector<double>> products(count, std::vector<double>(count));
  for (std::size_t a = 0; a < count; ++a)
    for (std::size_t b = 0; b < count; ++b) products[a][b] = dot(differences[a], differences[b]);
  std::vector<double> c(count);
  for (std::size_t n = 0; n < count; ++n) c[n] = 1 + 1 / static_cast<double>(n + 1);  // along no axis of symmetry
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> next(count);
    for (std::size_t n = 0; n < count; ++n) next[n] = dot(products[n], c);
    const double length = std::sqrt(dot(next, next));
    if (length == 0) break;
    double moved = 0;
    for (std::size_t n = 0; n < count; ++n) next[n] /= length, moved = std::max(moved, std::abs(next[n] - c[n]));
    c = std::move(next);
    if (moved < 1e-13) break;
  }
  std::vector<double> x(differences.front().size());
  for (std::size_t n = 0; n < count; ++n)
    for (std::size_t e = 0; e < x.size(); ++e) x[e] += c[n] * differences[n][e];
  const double squares = dot(x, x), along = squares > 0 ? dot(mean_of(differences), x) / squares : 0;
  for (double& each : x) each *= along;
  return x;
}

Tensor as_tensor(const std::vector<double>& x) {
  Tensor out({std::ssize(x)});
  std::ranges::transform(x, out.data<float>(), [](double each) { return static_cast<float>(each); });
  return out;
}

// The number behind "direction."; none: it is another tensor's name.
std::optional<std::int64_t> layer_of(std::string_view name) {
  if (!name.starts_with(tensor_name)) return {};
  const std::string_view digits = name.substr(tensor_name.size());
  if (digits.empty() || digits.size() > 6 || digits.find_first_not_of("0123456789") != digits.npos) return {};
  return std::stoll(std::string(digits));
}

}  // namespace

Steering Steering::scaled(double scale) const {
  if (!std::isfinite(scale))
    fail(ErrorCode::bad_value, steering_function, "scale is {}, expected a finite number", scale);
  Steering out{.directions = {}, .model = model};
  for (const auto& [layer, direction] : directions) {
    Tensor to(direction.shape());
    std::transform(direction.data<float>(), direction.data<float>() + direction.count(), to.data<float>(),
                   [&](float each) { return static_cast<float>(scale * static_cast<double>(each)); });
    out.directions.emplace(layer, std::move(to));
  }
  return out;
}

std::vector<Edit> Steering::edits() const {
  std::vector<Edit> all;
  all.reserve(directions.size());
  for (const auto& [layer, direction] : directions)
    all.push_back({.layer = layer + 1, .at = ModelPlace::residual, .set = Edit::Set::add, .values = direction});
  return all;
}

void Steering::save(const std::filesystem::path& path) const {
  if (directions.empty())
    fail(ErrorCode::bad_value, steering_function, "there are no directions, expected at least one");
  models::GgufValues values;
  values.add_text("general.architecture", architecture);
  values.add_text("controlvector.model_hint", model);
  values.add_whole("controlvector.layer_count", std::ssize(directions));
  std::vector<models::GgufSource> tensors;
  tensors.reserve(directions.size());
  for (const auto& [layer, direction] : directions)
    tensors.push_back({fmt::format("{}{}", tensor_name, layer), direction.view(), models::GgufType::f32});
  models::write_gguf(steering_function, path, values, tensors);
}

Steering Steering::load(const std::filesystem::path& path) {
  const models::GgufFile file(steering_function, path);
  const std::string found = file.has("general.architecture") ? file.text("general.architecture") : "none";
  if (found != architecture)
    file.refuse("general.architecture", fmt::format("is '{}', expected '{}'", found, architecture));
  Steering out;
  if (file.has("controlvector.model_hint")) out.model = file.text("controlvector.model_hint");
  for (const models::GgufTensor& tensor : file.tensors()) {
    const std::optional<std::int64_t> layer = layer_of(tensor.name);
    if (!layer || *layer < 1 || tensor.type != models::GgufType::f32 || tensor.shape.rank() != 1)
      file.refuse(tensor.name, "is not a direction: expected direction.1, direction.2, ... in F32, with one axis");
    Tensor direction = Tensor::uninitialized(tensor.shape);
    std::memcpy(direction.raw(), file.map()->data() + tensor.begin, tensor.bytes);
    out.directions.emplace(*layer, std::move(direction));
  }
  if (out.directions.empty()) file.refuse("controlvector", "has no directions");
  for (const auto& [layer, direction] : out.directions)
    if (direction.count() != out.directions.begin()->second.count())
      file.refuse(fmt::format("{}{}", tensor_name, layer), "differs in length from the others");
  return out;
}

Steering make_steering(const Model& model, std::span<const TextPair> pairs, const SteeringOptions& options) {
  const ModelInfo& info = model.info();
  models::check_exact(info, steering_function);
  models::check_decoder(info, steering_function);
  if (info.encoder_decoder())
    fail(ErrorCode::bad_value, steering_function, "expected a decoder-only model, the model is of type {}", info.type);
  if (pairs.empty()) fail(ErrorCode::bad_value, steering_function, "there are no pairs of texts");
  const Layers layers = layers_of(options, info);
  std::vector<Differences> differences(static_cast<std::size_t>(layers.last - layers.first + 1));
  for (std::size_t n = 0; n < pairs.size();) {
    std::vector<std::vector<std::int64_t>> texts;
    std::int64_t tokens = 0;
    for (; n < pairs.size() && (tokens == 0 || tokens < steering_tokens); ++n)
      for (const std::string& text : {pairs[n].first, pairs[n].second}) {
        texts.push_back(models::encoded(model.tokenizer(), text, info).ids);
        if (texts.back().empty())
          fail(ErrorCode::bad_value, steering_function, "pair {} has a text without tokens", n + 1);
        tokens += std::ssize(texts.back());
      }
    const std::vector<Streams> streams = last_streams(model, texts, layers);
    for (std::size_t t = 0; t < streams.size(); t += 2)
      for (std::size_t l = 0; l < differences.size(); ++l) {
        std::vector<double>& to = differences[l].emplace_back();
        std::ranges::transform(streams[t][l], streams[t + 1][l], std::back_inserter(to),
                               [](float a, float b) { return static_cast<double>(a) - static_cast<double>(b); });
      }
    if (options.progress) options.progress(static_cast<double>(n) / static_cast<double>(pairs.size()));
  }
  Steering out{.directions = {}, .model = info.type};
  for (std::size_t l = 0; l < differences.size(); ++l)
    out.directions.emplace(layers.first + static_cast<std::int64_t>(l),
                           as_tensor(options.method == SteeringOptions::Method::mean ? mean_of(differences[l])
                                                                                     : principal_of(differences[l])));
  return out;
}

}  // namespace attend::inline v1
