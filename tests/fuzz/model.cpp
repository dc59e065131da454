// Model::load() of any configuration over a folder's weights, and of any GGUF file; and passes of two tokens there and
// back.
//
// The input is a GGUF file; or a config.json up to its first byte 0, and then choices: how the tensors differ from what
// the configuration asks for. An object is put over the configuration of a small model of its type, so that a few
// characters are a whole one; its tensors have the sizes that it says, where they are small.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "attend/gradient.h"
#include "io/json_member.h"
#include "tests/fuzz/input.h"

using namespace attend;
using nlohmann::json;

namespace {

// ---- Configurations ----

const json& small_models() {
  static const json all = json::parse(R"({
    "bert": {"vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_act": "gelu",
      "intermediate_size": 5, "max_position_embeddings": 6, "type_vocab_size": 2, "pad_token_id": 0},
    "mpnet": {"vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_act": "gelu",
      "intermediate_size": 5, "max_position_embeddings": 6, "relative_attention_num_buckets": 32},
    "albert": {"vocab_size": 7, "embedding_size": 3, "hidden_size": 4, "num_hidden_layers": 3, "num_hidden_groups": 2,
      "inner_group_num": 1, "num_attention_heads": 2, "hidden_act": "gelu", "intermediate_size": 5,
      "max_position_embeddings": 6, "type_vocab_size": 2},
    "modernbert": {"vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "norm_bias": false,
      "hidden_activation": "gelu", "intermediate_size": 5, "max_position_embeddings": 6, "local_attention": 2,
      "attention_bias": false, "mlp_bias": false},
    "distilbert": {"vocab_size": 7, "dim": 4, "n_layers": 1, "n_heads": 2, "activation": "gelu", "hidden_dim": 5,
      "max_position_embeddings": 6},
    "gpt2": {"vocab_size": 7, "n_embd": 4, "n_layer": 1, "n_head": 2, "activation_function": "gelu_new",
      "n_positions": 6, "n_inner": 5, "tie_word_embeddings": true},
    "gpt_neox": {"vocab_size": 7, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
      "hidden_act": "gelu", "intermediate_size": 5, "max_position_embeddings": 6, "rotary_pct": 0.5,
      "tie_word_embeddings": false},
    "opt": {"vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 5,
      "max_position_embeddings": 6, "word_embed_proj_dim": 3, "tie_word_embeddings": true},
    "llama": {"vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_act": "silu",
      "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 5, "max_position_embeddings": 6,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "bart": {"vocab_size": 7, "d_model": 4, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
      "decoder_attention_heads": 1, "encoder_ffn_dim": 5, "decoder_ffn_dim": 6, "max_position_embeddings": 6,
      "is_encoder_decoder": true, "decoder_start_token_id": 0, "activation_function": "gelu", "scale_embedding": false,
      "tie_word_embeddings": true},
    "t5": {"vocab_size": 7, "d_model": 4, "d_kv": 3, "d_ff": 5, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "feed_forward_proj": "relu",
      "is_encoder_decoder": true, "decoder_start_token_id": 0}})");
  return all;
}

// Which of them a type is like; empty: none.
std::string family_of(const json& type) {
  if (type == "bert" || type == "roberta" || type == "xlm-roberta" || type == "camembert") return "bert";
  if (type == "bart" || type == "marian") return "bart";
  for (const char* own : {"distilbert", "mpnet", "albert", "modernbert", "gpt2", "gpt_neox", "opt", "t5"})
    if (type == own) return own;
  for (const char* like : {"llama", "mistral", "qwen2", "qwen3", "smollm3", "phi3", "olmo2", "gemma2", "gemma3_text"})
    if (type == like) return "llama";
  return "";
}

json make_config(const json& given) {
  const json type = given.value("model_type", json("llama"));
  const std::string family = family_of(type);
  json config = small_models()[family.empty() ? "llama" : family];
  config["model_type"] = type;
  if (type != "distilbert" && family == "bert" && type != "bert") config["pad_token_id"] = 1;
  config.merge_patch(given);
  return config;
}

// ---- Tensors ----

// So many numbers, the same for every input.
View numbers(std::int64_t count, DType dtype) {
  constexpr std::int64_t most = 1 << 13;
  static const Tensor singles = Generator(1).randn({most});
  static const Tensor bf16 = singles.view().to(DType::bf16), f16 = singles.view().to(DType::f16),
                      f64 = singles.view().to(DType::f64), whole(Dims{most}, DType::i64);
  const Tensor& of = dtype == DType::bf16  ? bf16
                     : dtype == DType::f16 ? f16
                     : dtype == DType::f64 ? f64
                     : dtype == DType::i64 ? whole
                                           : singles;
  return of.view().slice(0, 0, std::min(count, most));
}

struct Named {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype;
  bool operator==(const Named&) const = default;
};

// What a configuration asks for.
class Asked {
 public:
  Asked(const json& config, DType dtype, bool has_prefix)
      : config_(config), type_(config.value("model_type", json())), dtype_(dtype) {
    const std::string family = family_of(type_);
    small_ = small_models()[family.empty() ? "llama" : family];
    if (has_prefix) prefix_ = family == "bert" ? "bert." : family == "gpt2" ? "transformer." : "model.";
    if (family == "gpt_neox" && has_prefix) prefix_ = "gpt_neox.";
    if ((family == "distilbert" || family == "mpnet" || family == "albert") && has_prefix) prefix_ = family + ".";
    if (family == "bert" && has_prefix && type_ != "bert") prefix_ = "roberta.";
    if (family == "t5") prefix_ = "";
    if (family == "bert" || family == "distilbert" || family == "mpnet") {
      add_bert(family == "distilbert");
    } else if (family == "albert") {
      add_albert();
    } else if (family == "modernbert") {
      add_modernbert();
    } else if (family == "bart") {
      add_bart("encoder"), add_bart("decoder");
    } else if (family == "t5") {
      add_t5("encoder"), add_t5("decoder");
    } else if (family == "gpt2") {
      add_gpt2();
    } else if (family == "gpt_neox") {
      add_gpt_neox();
    } else if (family == "opt") {
      add_opt();
    } else {
      add_llama();
    }
  }
  std::vector<Named> take() { return std::move(tensors_); }

 private:
  // As the configuration has it; where that is no small number, as the small model has it.
  std::int64_t size(const char* name, std::int64_t otherwise = 1) const {
    for (const json* from : {&config_, &small_}) {
      const auto found = from->find(name);
      if (found == from->end() || !found->is_number_integer()) continue;
      if (*found >= 0 && *found <= 16) return *found;
    }
    return otherwise;
  }
  bool truth(const char* name) const { return config_.contains(name) && config_[name] == true; }

  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    tensors_.push_back({prefix_ + name, shape, shape.size() == 2 ? dtype_ : DType::f32});
  }
  void linear(const std::string& name, std::int64_t in, std::int64_t out, bool bias = true) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  }
  void norm(const std::string& name, std::int64_t E, bool bias = true) {
    add(name + ".weight", {E});
    if (bias) add(name + ".bias", {E});
  }
  void head(std::int64_t E, std::int64_t V, const char* tied) {
    if (!truth(tied)) tensors_.push_back({"lm_head.weight", {V, E}, dtype_});
  }

  void add_bert(bool distil) {
    const std::int64_t E = size(distil ? "dim" : "hidden_size"),
                       wide = size(distil ? "hidden_dim" : "intermediate_size");
    add("embeddings.word_embeddings.weight", {size("vocab_size"), E});
    add("embeddings.position_embeddings.weight", {size("max_position_embeddings"), E});
    if (type_ == "mpnet") {
      add("encoder.relative_attention_bias.weight",
          {config_.value("relative_attention_num_buckets", json()) == 32 ? 32 : 33, size("num_attention_heads")});
    } else if (!distil) {
      add("embeddings.token_type_embeddings.weight", {size("type_vocab_size"), E});
    }
    norm("embeddings.LayerNorm", E);
    for (std::int64_t n = 0; n < size(distil ? "n_layers" : "num_hidden_layers"); ++n) {
      const std::string at = fmt_at(distil ? "transformer.layer." : "encoder.layer.", n);
      if (type_ == "mpnet") {
        for (const char* each : {"q", "k", "v", "o"}) linear(at + "attention.attn." + each, E, E);
        norm(at + "attention.LayerNorm", E);
      } else {
        const std::string self = at + (distil ? "attention." : "attention.self.");
        for (const char* each : {"q", "k", "v"}) linear(self + name_in_bert(each, distil), E, E);
        linear(at + (distil ? "attention.out_lin" : "attention.output.dense"), E, E);
        norm(at + (distil ? "sa_layer_norm" : "attention.output.LayerNorm"), E);
      }
      linear(at + (distil ? "ffn.lin1" : "intermediate.dense"), E, wide);
      linear(at + (distil ? "ffn.lin2" : "output.dense"), wide, E);
      norm(at + (distil ? "output_layer_norm" : "output.LayerNorm"), E);
    }
  }
  void add_albert() {
    const std::int64_t E = size("hidden_size"), own = size("embedding_size"), wide = size("intermediate_size");
    add("embeddings.word_embeddings.weight", {size("vocab_size"), own});
    add("embeddings.position_embeddings.weight", {size("max_position_embeddings"), own});
    add("embeddings.token_type_embeddings.weight", {size("type_vocab_size"), own});
    norm("embeddings.LayerNorm", own), linear("encoder.embedding_hidden_mapping_in", own, E);
    for (std::int64_t n = 0; n < size("num_hidden_groups") * size("inner_group_num"); ++n) {
      const std::int64_t together = size("inner_group_num");
      const std::string at =
          fmt_at("encoder.albert_layer_groups.", n / together) + fmt_at("albert_layers.", n % together);
      for (const char* each : {"query", "key", "value", "dense"}) linear(at + "attention." + each, E, E);
      norm(at + "attention.LayerNorm", E), norm(at + "full_layer_layer_norm", E);
      linear(at + "ffn", E, wide), linear(at + "ffn_output", wide, E);
    }
  }
  void add_modernbert() {
    const std::int64_t E = size("hidden_size"), wide = size("intermediate_size");
    const bool bias = truth("attention_bias"), wide_bias = truth("mlp_bias"), norm_bias = truth("norm_bias");
    add("embeddings.tok_embeddings.weight", {size("vocab_size"), E}), norm("embeddings.norm", E, norm_bias);
    for (std::int64_t n = 0; n < size("num_hidden_layers"); ++n) {
      const std::string at = fmt_at("layers.", n);
      if (n > 0) norm(at + "attn_norm", E, norm_bias);
      linear(at + "attn.Wqkv", E, 3 * E, bias), linear(at + "attn.Wo", E, E, bias);
      norm(at + "mlp_norm", E, norm_bias);
      linear(at + "mlp.Wi", E, 2 * wide, wide_bias), linear(at + "mlp.Wo", wide, E, wide_bias);
    }
    norm("final_norm", E, norm_bias);
  }
  void add_bart(const std::string& stack) {
    const std::int64_t E = size("d_model"), wide = size((stack + "_ffn_dim").c_str()), V = size("vocab_size");
    const bool marian = type_ == "marian", decodes = stack == "decoder";
    if (decodes) add("shared.weight", {V, E}), tensors_.push_back({"final_logits_bias", {1, V}, DType::f32});
    add(stack + ".embed_positions.weight", {size("max_position_embeddings") + (marian ? 0 : 2), E});
    if (!marian) norm(stack + ".layernorm_embedding", E);
    const auto attention = [&](const std::string& at) {
      for (const char* each : {".q_proj", ".k_proj", ".v_proj", ".out_proj"}) linear(at + each, E, E);
      norm(at + "_layer_norm", E);
    };
    for (std::int64_t n = 0; n < size((stack + "_layers").c_str()); ++n) {
      const std::string at = fmt_at((stack + ".layers.").c_str(), n);
      attention(at + "self_attn");
      if (decodes) attention(at + "encoder_attn");
      linear(at + "fc1", E, wide), linear(at + "fc2", wide, E), norm(at + "final_layer_norm", E);
    }
    if (decodes) head(E, V, "tie_word_embeddings");
  }
  void add_t5(const std::string& stack) {
    const std::int64_t E = size("d_model"), wide = size("d_ff"), H = size("num_heads"), inner = H * size("d_kv");
    const bool decodes = stack == "decoder", gated = config_.value("feed_forward_proj", json()) != "relu";
    if (decodes) add("shared.weight", {size("vocab_size"), E});
    const auto attention = [&](const std::string& at, const std::string& name) {
      norm(at + "layer_norm", E, false);
      for (const char* each : {".q", ".k", ".v"}) linear(at + name + each, E, inner, false);
      linear(at + name + ".o", inner, E, false);
    };
    for (std::int64_t n = 0; n < size(decodes ? "num_decoder_layers" : "num_layers"); ++n) {
      const std::string at = fmt_at((stack + ".block.").c_str(), n) + "layer.", last = at + (decodes ? "2." : "1.");
      attention(at + "0.", "SelfAttention");
      if (n == 0)
        add(at + "0.SelfAttention.relative_attention_bias.weight", {size("relative_attention_num_buckets"), H});
      if (decodes) attention(at + "1.", "EncDecAttention");
      norm(last + "layer_norm", E, false);
      for (const char* each : {"wi", "wi_0", "wi_1"})
        if ((std::string(each) != "wi") == gated) linear(last + "DenseReluDense." + each, E, wide, false);
      linear(last + "DenseReluDense.wo", wide, E, false);
    }
    norm(stack + ".final_layer_norm", E, false);
  }
  void add_gpt2() {
    const std::int64_t E = size("n_embd"), wide = size("n_inner", 4 * E), V = size("vocab_size");
    add("wte.weight", {V, E}), add("wpe.weight", {size("n_positions"), E});
    const auto in_out = [&](const std::string& name, std::int64_t in, std::int64_t out) {
      add(name + ".weight", {in, out}), add(name + ".bias", {out});
    };
    for (std::int64_t n = 0; n < size("n_layer"); ++n) {
      const std::string at = fmt_at("h.", n);
      norm(at + "ln_1", E), norm(at + "ln_2", E);
      in_out(at + "attn.c_attn", E, 3 * E), in_out(at + "attn.c_proj", E, E);
      in_out(at + "mlp.c_fc", E, wide), in_out(at + "mlp.c_proj", wide, E);
    }
    norm("ln_f", E);
    head(E, V, "tie_word_embeddings");
  }
  void add_llama() {
    const std::int64_t E = size("hidden_size"), wide = size("intermediate_size"), V = size("vocab_size"),
                       D = size("head_dim"), q = size("num_attention_heads") * D, kv = size("num_key_value_heads") * D;
    const bool qwen2 = type_ == "qwen2", bias = truth("attention_bias"), wide_bias = truth("mlp_bias");
    const bool olmo = type_ == "olmo2", gemma = type_ == "gemma2" || type_ == "gemma3_text";
    add("embed_tokens.weight", {V, E});
    for (std::int64_t n = 0; n < size("num_hidden_layers"); ++n) {
      const std::string at = fmt_at("layers.", n), self = at + "self_attn.", mlp = at + "mlp.";
      norm(at + (olmo ? "post_feedforward_layernorm" : "input_layernorm"), E, false);
      norm(at + "post_attention_layernorm", E, false);
      if (gemma) norm(at + "pre_feedforward_layernorm", E, false), norm(at + "post_feedforward_layernorm", E, false);
      linear(self + "o_proj", q, E, bias), linear(mlp + "down_proj", wide, E, wide_bias);
      if (type_ == "qwen3" || type_ == "gemma3_text") norm(self + "q_norm", D, false), norm(self + "k_norm", D, false);
      if (olmo) norm(self + "q_norm", q, false), norm(self + "k_norm", kv, false);
      if (type_ == "phi3") {
        linear(self + "qkv_proj", E, q + 2 * kv, false), linear(mlp + "gate_up_proj", E, 2 * wide, false);
        continue;
      }
      linear(self + "q_proj", E, q, bias || qwen2), linear(self + "k_proj", E, kv, bias || qwen2);
      linear(self + "v_proj", E, kv, bias || qwen2);
      linear(mlp + "gate_proj", E, wide, wide_bias), linear(mlp + "up_proj", E, wide, wide_bias);
    }
    norm("norm", E, false);
    head(E, V, "tie_word_embeddings");
  }
  void add_gpt_neox() {
    const std::int64_t E = size("hidden_size"), wide = size("intermediate_size"), V = size("vocab_size");
    add("embed_in.weight", {V, E});
    for (std::int64_t n = 0; n < size("num_hidden_layers"); ++n) {
      const std::string at = fmt_at("layers.", n);
      norm(at + "input_layernorm", E), norm(at + "post_attention_layernorm", E);
      linear(at + "attention.query_key_value", E, 3 * E), linear(at + "attention.dense", E, E);
      linear(at + "mlp.dense_h_to_4h", E, wide), linear(at + "mlp.dense_4h_to_h", wide, E);
    }
    norm("final_layer_norm", E);
    if (!truth("tie_word_embeddings")) tensors_.push_back({"embed_out.weight", {V, E}, dtype_});
  }
  void add_opt() {
    const std::int64_t E = size("hidden_size"), wide = size("ffn_dim"), V = size("vocab_size"),
                       word = size("word_embed_proj_dim");
    prefix_ += "decoder.";
    add("embed_tokens.weight", {V, word}), add("embed_positions.weight", {size("max_position_embeddings") + 2, E});
    if (word != E) add("project_in.weight", {E, word}), add("project_out.weight", {word, E});
    for (std::int64_t n = 0; n < size("num_hidden_layers"); ++n) {
      const std::string at = fmt_at("layers.", n), self = at + "self_attn.";
      for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"}) linear(self + name, E, E);
      norm(at + "self_attn_layer_norm", E), norm(at + "final_layer_norm", E);
      linear(at + "fc1", E, wide), linear(at + "fc2", wide, E);
    }
    if (config_.value("do_layer_norm_before", json(true)) == true) norm("final_layer_norm", E);
    head(word, V, "tie_word_embeddings");
  }
  static std::string fmt_at(const char* list, std::int64_t n) { return list + std::to_string(n) + "."; }
  static std::string name_in_bert(const std::string& which, bool distil) {
    return distil ? which + "_lin" : which == "q" ? "query" : which == "k" ? "key" : "value";
  }

  const json& config_;
  json type_, small_;
  DType dtype_;
  std::string prefix_;
  std::vector<Named> tensors_;
};

// Drops one, or gives it another name, shape or type.
void change(fuzz::Input& input, std::vector<Named>& tensors) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64};
  constexpr const char* endings[] = {"", "x", ".rotary_emb.inv_freq", ".attn.bias"};
  if (tensors.empty()) return;
  const std::size_t at = input.byte() % tensors.size();
  Named& tensor = tensors[at];
  const int kind = input.byte() % 5;
  if (kind == 0) tensor.dtype = input.one_of(dtypes);
  if (kind == 1) tensor.name += input.one_of(endings);
  if (kind == 2) tensor.shape[input.byte() % tensor.shape.size()] = input.between(0, 17);
  if (kind == 3) tensor.shape.assign(static_cast<std::size_t>(input.between(1, 4)), input.between(0, 5));
  if (kind == 4) tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(at));
}

std::vector<Named> make_weights(fuzz::Input& input, const json& config) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  const DType dtype = input.one_of(dtypes);
  std::vector<Named> tensors = Asked(config, dtype, !input.flag()).take();
  for (int changes = input.byte() % 4; changes > 0; --changes) change(input, tensors);
  return tensors;
}

void write(const std::filesystem::path& path, const std::vector<Named>& tensors) {
  NamedViews weights;
  for (const Named& each : tensors) {
    const Dims shape{std::span(each.shape)};
    weights.emplace_back(each.name, numbers(element_count(shape), each.dtype).reshape(shape));
  }
  write_safetensors(path, weights);
}

// ---- What is done ----

template <class Call>
bool works(ErrorCode otherwise, Call call) {
  const auto code = fuzz::error_of(call);
  fuzz::require(!code || code == otherwise, "a file is refused as bad_file, and a call as bad_value");
  return !code;
}

// There and back: a number of the hidden states has gradients at every place, or they have NaN or infinity.
void go_back(const Model& model, std::span<const std::int64_t> ids, std::span<const std::int64_t> said,
             const Tensor& hidden) {
  Tensor ones(hidden.shape());
  std::fill_n(ones.data<float>(), ones.count(), 1.0F);
  std::int64_t shown = 0;
  const auto count = [&](ModelPlace, std::int64_t, const View& d) { shown += d.count(); };
  if (works(ErrorCode::bad_value, [&] {
        gradient(model, ids, {.of = GradientOf::sum, .cotangent = ones.view(), .observe = count, .decoder_ids = said});
      }))
    fuzz::require(shown > 0, "gradients are shown");
}

void use_both(const Model& model) {
  const ModelInfo& info = model.info();
  const std::vector<std::int64_t> ids{0, info.encoder_vocabulary - 1}, said{0, info.vocabulary - 1};
  Tensor hidden, logits;
  if (!works(ErrorCode::bad_value, [&] { hidden = model.forward(ids, {.decoder_ids = said}); })) return;
  fuzz::require(hidden.shape() == Dims{2, info.embedding_size}, "hidden states");
  go_back(model, ids, said, hidden);
  if (works(ErrorCode::bad_value, [&] { logits = model.logits(hidden); }))
    fuzz::require(logits.shape() == Dims{2, info.vocabulary}, "logits");
  works(ErrorCode::bad_value, [&] { model.generate(ids, {.max_new_tokens = 2}); });
}

void use(const Model& model) {
  const ModelInfo& info = model.info();
  if (info.encoder_decoder()) return use_both(model);
  const std::vector<std::int64_t> ids{0, info.vocabulary - 1};
  Tensor hidden;
  if (!works(ErrorCode::bad_value, [&] { hidden = model.forward(ids); })) return;
  const std::int64_t size = info.family == ModelFamily::opt ? hidden.size(1) : info.embedding_size;
  fuzz::require(hidden.shape() == Dims{2, size} && hidden.dtype() == DType::f32, "hidden states");
  go_back(model, ids, {}, hidden);
  if (!info.decoder()) return fuzz::require(model.embed(ids).shape() == Dims{1, info.embedding_size}, "an embedding");
  Tensor logits;
  if (works(ErrorCode::bad_value, [&] { logits = model.logits(hidden); }))
    fuzz::require(logits.shape() == Dims{2, info.vocabulary}, "logits");
  const std::vector<std::vector<std::int64_t>> prompts{{0}, ids};
  works(ErrorCode::bad_value, [&] { model.generate(prompts, {.max_new_tokens = 2}); });
  ModelCache cache = model.cache();
  ModelCache* caches[] = {&cache};
  for (const std::int64_t& id : ids) {
    const Tensor row = model.forward({&id, 1}, {.caches = caches});
    fuzz::require(row.shape() == Dims{1, size}, "a row");
  }
}

void load(const std::filesystem::path& path, const ModelOptions& options) {
  std::optional<Model> model;
  if (works(ErrorCode::bad_file, [&] { model = Model::load(path, options); })) use(*model);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  if (all.starts_with("GGUF")) {
    load(folder.put("x.gguf", all), {});
    return 0;
  }
  const std::string_view text = all.substr(0, all.find('\0'));
  fuzz::Input input(data + std::min(size, text.size() + 1), size - std::min(size, text.size() + 1));
  const json given = is_nested_deeper(text, 100) ? json() : json::parse(text, nullptr, false);
  const json config = given.is_object() ? make_config(given) : small_models()["llama"];
  constexpr std::optional<DType> dtypes[] = {std::nullopt, DType::f32, DType::bf16};
  ModelOptions options{input.one_of(dtypes)};
  // A fifth of the time would go by in writing those that are there: most inputs change the configuration.
  static std::vector<Named> written;
  std::vector<Named> tensors = make_weights(input, config);
  if (tensors != written) {
    written.clear();
    if (fuzz::error_of([&] { write(folder.path() / "model.safetensors", tensors); })) return 0;
    written = std::move(tensors);
  }
  constexpr Activations settings[] = {Activations::exact, Activations::int8, Activations::fast};
  options.activations = input.one_of(settings);
  folder.put("config.json", given.is_object() ? config.dump() : std::string(text));
  load(folder.path(), options);
  return 0;
}
