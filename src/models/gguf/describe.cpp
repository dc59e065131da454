#include "models/gguf/describe.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/families/decoder.h"
#include "models/families/llama_types.h"
#include "models/families/modernbert.h"
#include "models/families/rotary.h"
#include "models/loading.h"

namespace attend::inline v1::models {

namespace {

// Adds to the architecture's own keys.
class Own {
 public:
  explicit Own(GgufDescription& to) : to_(to) {}
  void whole(const char* key, std::int64_t number) { to_.values.add_whole(to_.prefix + key, number); }
  void number(const char* key, double number) { to_.values.add_number(to_.prefix + key, number); }
  void truth(const char* key, bool truth) { to_.values.add_truth(to_.prefix + key, truth); }
  void text(const char* key, std::string_view text) { to_.values.add_text(to_.prefix + key, text); }

 private:
  GgufDescription& to_;
};

void add_sizes(const ModelInfo& info, std::int64_t wide, Own& own) {
  own.whole("block_count", info.layers);
  own.whole("context_length", info.longest);
  own.whole("embedding_length", info.embedding_size);
  own.whole("feed_forward_length", wide);
  own.whole("attention.head_count", info.heads);
  own.whole("vocab_size", info.vocabulary);
}

void check_activation(const Member& name, Activation wanted, const char* known) {
  if (read_activation(name) != wanted)
    fail_at(name.place(), "{} can't be said in GGUF; {} can", quote(name.text()), known);
}

// Of Llama's family, without its rotary scaling and windows.
void add_llama(const Member& config, const ModelInfo& info, Own& own) {
  add_sizes(info, config["intermediate_size"].whole(1), own);
  own.whole("attention.head_count_kv", info.kv_heads);
  own.whole("attention.key_length", info.head_size);
  own.whole("attention.value_length", info.head_size);
  own.number("attention.layer_norm_rms_epsilon", config["rms_norm_eps"].number());
}

Rotary rotary_of(const Member& config, const ModelInfo& info) {
  return read_rotary(config, llama_type(info.type).rotary, info.longest, info.head_size);
}

[[noreturn]] void refuse_scaling(const Member& config) {
  fail_at(config.place(), "this scaling of rotary positions can't be said in GGUF");
}

// As Llama 3.1 has them: low frequencies are divided, high ones are not, and those between by a share.
std::vector<float> llama3_divisors(const Rotary& rotary) {
  const RotaryOptions& of = rotary.options;
  const auto length = static_cast<double>(of.original_length);
  std::vector<float> divisors;
  for (std::int64_t n = 0; n < rotary.size / 2; ++n) {
    const double frequency = std::pow(of.theta, -2.0 * static_cast<double>(n) / static_cast<double>(rotary.size));
    const double turns = length * frequency / (2 * std::numbers::pi);
    const double range = of.high_frequency_factor - of.low_frequency_factor;
    const double share = range > 0 ? std::clamp((turns - of.low_frequency_factor) / range, 0.0, 1.0)
                                   : (turns >= of.low_frequency_factor ? 1.0 : 0.0);
    divisors.push_back(static_cast<float>(1 / ((1 - share) / of.factor + share)));
  }
  return divisors;
}

void add_divisors(const char* name, const std::vector<float>& divisors, GgufDescription& to) {
  Tensor& made = to.made.emplace_back(Dims{std::ssize(divisors)});
  std::ranges::copy(divisors, made.data<float>());
  to.tensors.push_back({.name = name, .numbers = made});
}

// A window that no text is longer than is none.
void refuse_windows(const Member& config, const ModelInfo& info) {
  for (const std::int64_t window : read_windows(config, llama_type(info.type).windows, info.layers))
    if (window > 0 && window < info.longest)
      fail_at(config["sliding_window"].place(), "a window can't be said in GGUF");
}

}  // namespace

void describe_llama(const Member& config, const ModelInfo& info, GgufDescription& to) {
  Own own(to);
  add_llama(config, info, own);
  check_activation(config["hidden_act"], Activation::silu, "silu");
  refuse_windows(config, info);
  const Rotary rotary = rotary_of(config, info);
  own.number("rope.freq_base", rotary.options.theta);
  own.whole("rope.dimension_count", rotary.size);
  if (rotary.options.scaling == RotaryScaling::none) return;
  if (rotary.options.scaling != RotaryScaling::llama3 || to.prefix != "llama.") refuse_scaling(config);
  add_divisors("rope_freqs.weight", llama3_divisors(rotary), to);
}

void describe_smollm3(const Member& config, const ModelInfo& info, GgufDescription& to) {
  describe_llama(config, info, to);
  const std::vector<bool> turns = turning_layers(config, info.layers);
  for (std::int64_t n = 0; n < info.layers; ++n)
    if (turns[static_cast<std::size_t>(n)] != ((n + 1) % smollm3_interval != 0))
      fail_at(config.place(), "which layers see positions can't be said in GGUF: all but each {}th can",
              smollm3_interval);
}

namespace {

void add_gemma(const Member& config, const ModelInfo& info, std::int64_t layers_of_the_largest, Own& own) {
  add_llama(config, info, own);
  check_activation(config["hidden_activation"], Activation::gelu_tanh, "gelu_pytorch_tanh");
  own.whole("attention.sliding_window", config["sliding_window"].whole(1));
  const std::int64_t scale = info.layers == layers_of_the_largest ? info.embedding_size / info.heads : info.head_size;
  const Member said = config["query_pre_attn_scalar"];
  if (said.whole(1) != scale)
    fail_at(said.place(), "{} can't be said in GGUF, where such a model has {}", said.whole(1), scale);
  if (config["attention_bias"].truth()) fail_at(config["attention_bias"].place(), "can't be said in GGUF");
  if (!config["tie_word_embeddings"].truth())
    fail_at(config["tie_word_embeddings"].place(), "false can't be said in GGUF");
}

// Whether each layer but every `period`th has a window.
void check_windows(const Member& config, const ModelInfo& info, std::int64_t period) {
  const std::vector<std::int64_t> windows = read_windows(config, llama_type(info.type).windows, info.layers);
  for (std::int64_t n = 0; n < info.layers; ++n)
    if ((windows[static_cast<std::size_t>(n)] > 0) != ((n + 1) % period != 0))
      fail_at(config.place(), "which layers have a window can't be said in GGUF: every layer but each {}th can",
              period);
}

}  // namespace

void describe_gemma2(const Member& config, const ModelInfo& info, GgufDescription& to) {
  Own own(to);
  add_gemma(config, info, 46, own);
  check_windows(config, info, 2);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) own.number(key, config[key].number());
  const Rotary rotary = rotary_of(config, info);
  if (rotary.options.scaling != RotaryScaling::none) refuse_scaling(config);
  own.number("rope.freq_base", rotary.options.theta);
}

void describe_gemma3(const Member& config, const ModelInfo& info, GgufDescription& to) {
  Own own(to);
  add_gemma(config, info, 62, own);
  check_windows(config, info, 6);
  if (config.given("final_logit_softcapping"))
    own.number("final_logit_softcapping", config["final_logit_softcapping"].number());
  const LlamaType& type = llama_type(info.type);
  const Rotary full = rotary_of(config, info),
               sliding = read_rotary(config, *type.window_rotary, info.longest, info.head_size);
  if (sliding.options.scaling != RotaryScaling::none) refuse_scaling(config);
  own.number("rope.freq_base", full.options.theta);
  own.number("rope.freq_base_swa", sliding.options.theta);
  if (full.options.scaling == RotaryScaling::none) return;
  if (full.options.scaling != RotaryScaling::linear) refuse_scaling(config);
  own.text("rope.scaling.type", "linear");
  own.number("rope.scaling.factor", full.options.factor);
}

void describe_phi3(const Member& config, const ModelInfo& info, GgufDescription& to) {
  Own own(to);
  add_llama(config, info, own);
  check_activation(config["hidden_act"], Activation::silu, "silu");
  own.whole("attention.sliding_window", config.given("sliding_window") ? config["sliding_window"].whole(1) : 0);
  const Rotary rotary = rotary_of(config, info);
  const RotaryOptions& options = rotary.options;
  const bool is_long = options.scaling == RotaryScaling::longrope;
  own.number("rope.freq_base", options.theta);
  own.whole("rope.dimension_count", rotary.size);
  own.whole("rope.scaling.original_context_length",
            is_long ? options.original_length : config["original_max_position_embeddings"].whole(1));
  if (!is_long) return;
  const double shrunk = std::log(static_cast<double>(options.original_length));
  const double factor = options.factor > 1 ? std::sqrt(1 + std::log(options.factor) / shrunk) : 1;
  own.number("rope.scaling.attn_factor", options.attention_factor.value_or(factor));
  const auto add = [&](const char* name, const std::vector<double>& factors) {
    add_divisors(name, {factors.begin(), factors.end()}, to);
  };
  add("rope_factors_long.weight", options.long_factors);
  add("rope_factors_short.weight", options.short_factors);
}

void describe_gpt2(const Member& config, const ModelInfo& info, GgufDescription& to) {
  Own own(to);
  add_sizes(info, config.given("n_inner") ? config["n_inner"].whole(1) : 4 * info.embedding_size, own);
  check_activation(config["activation_function"], Activation::gelu_tanh, "gelu_new");
  if (!config["scale_attn_weights"].truth())
    fail_at(config["scale_attn_weights"].place(), "false can't be said in GGUF");
  if (config["scale_attn_by_inverse_layer_idx"].truth())
    fail_at(config["scale_attn_by_inverse_layer_idx"].place(), "can't be said in GGUF");
  own.number("attention.layer_norm_epsilon", config["layer_norm_epsilon"].number());
}

void describe_bert(const Member& config, const ModelInfo& info, GgufDescription& to) {
  const bool distil = info.type == "distilbert";
  Own own(to);
  add_sizes(info, config[distil ? "hidden_dim" : "intermediate_size"].whole(1), own);
  check_activation(config[distil ? "activation" : "hidden_act"], Activation::gelu, "gelu");
  own.number("attention.layer_norm_epsilon", distil ? 1e-12 : config["layer_norm_eps"].number());
  own.truth("attention.causal", false);
  to.values.add_whole("tokenizer.ggml.token_type_count", distil ? 1 : config["type_vocab_size"].whole(1));
}

namespace {

// After how many layers one sees all the text again.
std::int64_t layers_to_the_next(const Member& config, const ModelInfo& info) {
  const std::vector<bool> local = read_local_layers(config, info.layers);
  std::int64_t period = 1;
  while (period < info.layers && local[static_cast<std::size_t>(period)]) ++period;
  for (std::int64_t n = 0; n < info.layers; ++n)
    if (local[static_cast<std::size_t>(n)] != (n % period != 0))
      fail_at(config.place(), "which layers have a window can't be said in GGUF: all but the first of every few can");
  return period;
}

}  // namespace

void describe_modernbert(const Member& config, const ModelInfo& info, GgufDescription& to) {
  Own own(to);
  add_sizes(info, config["intermediate_size"].whole(1), own);
  check_activation(config["hidden_activation"], Activation::gelu, "gelu");
  for (const char* bias : {"norm_bias", "attention_bias", "mlp_bias"})
    if (config[bias].truth()) fail_at(config[bias].place(), "can't be said in GGUF");
  own.number("attention.layer_norm_epsilon", config["norm_eps"].number());
  own.truth("attention.causal", false);
  own.whole("attention.sliding_window", config["local_attention"].whole(1));
  own.whole("attention.sliding_window_pattern", layers_to_the_next(config, info));
  own.text("rope.scaling.type", "none");
  for (const bool local : {false, true}) {
    const Rotary rotary = read_modernbert_rotary(config, local, info);
    if (rotary.options.scaling != RotaryScaling::none) refuse_scaling(config);
    own.number(local ? "rope.freq_base_swa" : "rope.freq_base", rotary.options.theta);
  }
}

// ---- Weights ----

namespace {

// Finds by the folder's name, whose prefix may be missing, as Loading does.
class Finder {
 public:
  Finder(const GgufArchitecture& of, const Weights& weights)
      : weights_(weights), prefix_(of.layers.substr(0, of.layers.find('.') + 1)) {}

  const Matrix* find(const std::string& name) const {
    if (const Matrix* found = find_older(name)) return found;
    return name.starts_with(prefix_) ? find_older(name.substr(prefix_.size())) : nullptr;
  }

 private:
  const Matrix* find_older(const std::string& name) const {
    const Matrix* found = weights_.find(name);
    return found ? found : weights_.find(older_name(name));
  }

  const Weights& weights_;
  std::string_view prefix_;
};

GgufSource source_of(const GgufArchitecture& of, const ModelInfo& info, std::string name, std::string_view part,
                     const View& numbers, bool inner) {
  View turned = of.transposed && inner && numbers.rank() == 2 ? numbers.transpose(0, 1) : numbers;
  // RoBERTa's places begin after padding's, and the file's at 0.
  if (part == "position_embd") turned = turned.slice(0, turned.size(0) - info.longest, turned.size(0));
  const bool permuted = of.permuted && (part == "attn_q" || part == "attn_k");
  return {.name = std::move(name),
          .numbers = turned,
          .head_size = permuted ? info.head_size : 0,
          .plus = of.norms_of_1 && part.ends_with("norm") ? 1.0F : 0.0F};
}

}  // namespace

void describe_weights(const GgufArchitecture& of, const Weights& weights, const ModelInfo& info, bool tied,
                      GgufDescription& to) {
  const Finder finder(of, weights);
  const auto add = [&](const GgufRenamed& each, const std::string& before, const std::string& at) {
    for (const char* kind : {".weight", ".bias"})
      if (const Matrix* found = finder.find(fmt::format("{}{}{}", at, each.to, kind)))
        to.tensors.push_back(
            source_of(of, info, fmt::format("{}{}{}", before, each.from, kind), each.from, found->view, !at.empty()));
  };
  const std::string words = fmt::format("{}.weight", of.outer.front().to);
  const Matrix* own = weights.find("lm_head.weight");
  if (info.decoder() && !tied && !own)
    fail_at(weights.place(), "'lm_head.weight' is missing: a GGUF file has an output layer");
  const bool is_copy = own && tied && is_same(*own, *finder.find(words));
  for (const GgufRenamed& each : of.outer)
    if (each.from != "output" || !is_copy) add(each, "", "");
  for (std::int64_t n = 0; n < info.layers; ++n)
    for (const GgufRenamed& each : of.inner) add(each, fmt::format("blk.{}.", n), fmt::format("{}{}.", of.layers, n));
}

}  // namespace attend::inline v1::models
