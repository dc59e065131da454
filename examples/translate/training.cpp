#include "training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "attend/error.h"
#include "mix.h"

namespace translate {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ModelSizes, vocabulary, embedding, heads, layers, hidden)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Settings, vocabulary, sizes, steps, batch, seed, learning_rate, warmup, dropout,
                                   validate_every)

namespace {

TensorMap zeros_like(const TensorMap& tensors) {
  TensorMap out;
  for (const auto& [name, tensor] : tensors) out.emplace(name, Tensor(tensor.shape()));
  return out;
}

// The order of an epoch's examples.
std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::pair<std::uint64_t, std::size_t>> keys(count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = {mix(seed, i), i};
  std::sort(keys.begin(), keys.end());
  std::vector<std::size_t> order(count);
  std::transform(keys.begin(), keys.end(), order.begin(), [](const auto& key) { return key.second; });
  return order;
}

Tensor tensor_of(const std::vector<double>& values) {
  Tensor out({static_cast<std::int64_t>(values.size())}, attend::DType::f64);
  std::copy(values.begin(), values.end(), out.data<double>());
  return out;
}

std::vector<double> values_of(const Tensor& tensor) {
  return {tensor.data<double>(), tensor.data<double>() + tensor.count()};
}

void check_same_shapes(const TensorMap& moments, const TensorMap& parameters) {
  const auto same = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.shape() == b.second.shape() && a.second.dtype() == b.second.dtype();
  };
  if (!std::equal(moments.begin(), moments.end(), parameters.begin(), parameters.end(), same))
    throw std::runtime_error("its moments are not those of its parameters");
}

// The tensors whose names begin with the prefix, without it.
TensorMap take(TensorMap& from, const std::string& prefix) {
  TensorMap out;
  for (auto it = from.lower_bound(prefix); it != from.end() && it->first.starts_with(prefix); it = from.erase(it))
    out.emplace(it->first.substr(prefix.size()), std::move(it->second));
  return out;
}

}  // namespace

std::vector<Example> encode(const Tokenizer& tokenizer, std::span<const Pair> pairs) {
  std::vector<Example> examples;
  for (const Pair& pair : pairs) examples.push_back({tokenizer.encode(pair.english), tokenizer.encode(pair.italian)});
  return examples;
}

void Batch::append(const Example& example) {
  Ids ids = example.source;
  ids.push_back(Tokenizer::end);
  source.append(ids);
  ids = example.target;
  ids.insert(ids.begin(), Tokenizer::begin);
  target.append(ids);
  next.insert(next.end(), example.target.begin(), example.target.end());
  next.push_back(Tokenizer::end);
}

void Adam::update(TensorMap& parameters, const TensorMap& gradients, double learning_rate, std::int64_t step) {
  if (exp_avg.empty()) exp_avg = zeros_like(parameters);
  if (exp_avg_sq.empty()) exp_avg_sq = zeros_like(parameters);
  const auto t = static_cast<double>(step);
  const auto step_size = static_cast<float>(learning_rate / (1 - std::pow(beta1, t)));
  const auto correction = static_cast<float>(std::sqrt(1 - std::pow(beta2, t)));
  const auto keep1 = static_cast<float>(1 - beta1), decay = static_cast<float>(beta2);
  const auto keep2 = static_cast<float>(1 - beta2), eps = static_cast<float>(epsilon);
  for (auto& [name, parameter] : parameters) {
    const float* g = gradients.at(name).data<float>();
    float *p = parameter.data<float>(), *m = exp_avg.at(name).data<float>(), *v = exp_avg_sq.at(name).data<float>();
    const std::int64_t count = parameter.count();
    for (std::int64_t i = 0; i < count; ++i) {
      m[i] += keep1 * (g[i] - m[i]);
      v[i] = v[i] * decay + keep2 * g[i] * g[i];
      p[i] -= step_size * m[i] / (std::sqrt(v[i]) / correction + eps);
    }
  }
}

double train_step(TensorMap& parameters, Adam& adam, const ModelSizes& sizes, const Batch& batch, double learning_rate,
                  std::int64_t step, const Dropping& dropping) {
  const Model model(parameters, sizes);
  EncoderState encoder;
  DecoderState decoder;
  model.encode(batch.source, dropping, encoder);
  model.decode(batch.target, encoder.norm.output, batch.source, dropping, decoder);
  const CrossEntropy loss = cross_entropy(model.logits(decoder.norm.output), batch.next);
  const TensorMap gradients = model.backward(loss.dlogits, batch.source, batch.target, dropping, encoder, decoder);
  adam.update(parameters, gradients, learning_rate, step);
  return loss.sum / static_cast<double>(batch.next.size());
}

double mean_loss(const TensorMap& parameters, const ModelSizes& sizes, std::span<const Example> examples) {
  constexpr std::size_t at_once = 128;
  const Model model(parameters, sizes);
  double sum = 0;
  std::size_t tokens = 0;
  for (std::size_t first = 0; first < examples.size(); first += at_once) {
    Batch batch;
    for (const Example& example : examples.subspan(first, std::min(at_once, examples.size() - first)))
      batch.append(example);
    EncoderState encoder;
    DecoderState decoder;
    model.encode(batch.source, {}, encoder);
    model.decode(batch.target, encoder.norm.output, batch.source, {}, decoder);
    sum += cross_entropy(model.logits(decoder.norm.output), batch.next).sum;
    tokens += batch.next.size();
  }
  return sum / static_cast<double>(tokens);
}

Training Training::start(const Settings& settings, const Corpus& corpus) {
  std::vector<std::string> texts;
  for (const Pair& pair : corpus.train) texts.insert(texts.end(), {pair.english, pair.italian});
  Tokenizer tokenizer = Tokenizer::learn(texts, settings.vocabulary);
  Settings fitted = settings;
  fitted.sizes.vocabulary = tokenizer.size();
  attend::Generator generator(settings.seed);
  TensorMap parameters = draw_parameters(fitted.sizes, generator);
  return {.settings = fitted,
          .data_hash = corpus.hash,
          .tokenizer = std::move(tokenizer),
          .parameters = std::move(parameters)};
}

double Training::learning_rate(std::int64_t at) const {
  const auto t = static_cast<double>(at), warm = static_cast<double>(settings.warmup);
  const double falling = static_cast<double>(settings.steps + 1) - t;
  const double rising = warm > 0 ? t / warm : 1;
  return settings.learning_rate * std::min(rising, falling / std::max(1.0, static_cast<double>(settings.steps) - warm));
}

Batches::Batches(const Settings& settings, std::span<const Example> examples)
    : size_(settings.batch), seed_(settings.seed), examples_(examples) {
  if (static_cast<std::int64_t>(examples.size()) < size_) {
    throw attend::Error(attend::ErrorCode::bad_value, "",
                        fmt::format("there are {} messages to train on, and a batch has {}; give a smaller --batch",
                                    examples.size(), size_));
  }
}

Batch Batches::at(std::int64_t step) {
  const std::int64_t batches = static_cast<std::int64_t>(examples_.size()) / size_;
  const std::int64_t epoch = (step - 1) / batches, first = (step - 1) % batches * size_;
  if (epoch != epoch_) order_ = shuffled(examples_.size(), mix(seed_, static_cast<std::uint64_t>(epoch)));
  epoch_ = epoch;
  Batch batch;
  for (std::int64_t i = first; i < first + size_; ++i) batch.append(examples_[order_[static_cast<std::size_t>(i)]]);
  return batch;
}

void write_checkpoint(const std::filesystem::path& path, const Training& training) {
  const Tensor train = tensor_of(training.train_losses), valid = tensor_of(training.valid_losses);
  const Tensor merges = training.tokenizer.merges();
  attend::NamedViews tensors = attend::views_of(training.parameters);
  for (const auto& [name, tensor] : training.adam.exp_avg) tensors.emplace_back("adam.exp_avg." + name, tensor);
  for (const auto& [name, tensor] : training.adam.exp_avg_sq) tensors.emplace_back("adam.exp_avg_sq." + name, tensor);
  tensors.emplace_back("losses.train", train);
  tensors.emplace_back("losses.valid", valid);
  tensors.emplace_back("tokenizer.merges", merges);
  attend::write_safetensors(path, tensors,
                            {{"settings", nlohmann::json(training.settings).dump()},
                             {"step", std::to_string(training.step)},
                             {"data", fmt::format("{:016x}", training.data_hash)}});
}

Training read_checkpoint(const std::filesystem::path& path) {
  attend::Safetensors file = attend::read_safetensors(path);
  try {
    Training training{.settings = nlohmann::json::parse(file.metadata.at("settings")).get<Settings>(),
                      .data_hash = std::stoull(file.metadata.at("data"), nullptr, 16),
                      .tokenizer = Tokenizer(file.tensors.at("tokenizer.merges"))};
    training.step = std::stoll(file.metadata.at("step"));
    training.train_losses = values_of(file.tensors.at("losses.train"));
    training.valid_losses = values_of(file.tensors.at("losses.valid"));
    training.adam.exp_avg = take(file.tensors, "adam.exp_avg.");
    training.adam.exp_avg_sq = take(file.tensors, "adam.exp_avg_sq.");
    for (const char* other : {"losses.train", "losses.valid", "tokenizer.merges"}) file.tensors.erase(other);
    training.parameters = std::move(file.tensors);
    (void)Model(training.parameters, training.settings.sizes);  // throws unless all are there, in their shapes
    check_same_shapes(training.adam.exp_avg, training.parameters);
    check_same_shapes(training.adam.exp_avg_sq, training.parameters);
    if (training.train_losses.size() != static_cast<std::size_t>(training.step))
      throw std::runtime_error(fmt::format("{} losses of {} steps", training.train_losses.size(), training.step));
    return training;
  } catch (const std::exception& error) {
    throw attend::Error(attend::ErrorCode::bad_file, "",
                        fmt::format("{}: is not a checkpoint of this program: {}", path.string(), error.what()));
  }
}

}  // namespace translate
