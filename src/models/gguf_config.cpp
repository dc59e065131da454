#include <algorithm>
#include <cmath>

#include "core/element.h"
#include "models/gguf_architecture.h"

namespace attend::models {

namespace {

using nlohmann::json;

constexpr std::int64_t most = std::int64_t{1} << 31;  // of a size in the configuration

// The keys of one architecture: "llama.block_count".
class Keys {
 public:
  Keys(const GgufFile& file, const GgufArchitecture& of) : file_(file), prefix_(std::string(of.name) + ".") {}

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return file_.has(key(name)); }
  std::int64_t size(std::string_view name) const { return file_.whole(key(name), 1, most); }
  std::int64_t size_or(std::string_view name, std::int64_t other) const { return has(name) ? size(name) : other; }
  double number_above_0(std::string_view name) const {
    const double number = file_.number(key(name));
    if (!(number > 0)) refuse(name, fmt::format("is {}, expected a number above 0", number));
    return number;
  }
  double number_from_0(std::string_view name) const {
    const double number = file_.number(key(name));
    if (!(number >= 0)) refuse(name, fmt::format("is {}, expected a number from 0", number));
    return number;
  }
  [[noreturn]] void refuse(std::string_view name, std::string_view what) const { file_.refuse(key(name), what); }

  // What else an architecture may say would change what is computed.
  void check_known() const {
    constexpr std::string_view known[] = {"attention.head_count",
                                          "attention.head_count_kv",
                                          "attention.key_length",
                                          "attention.layer_norm_rms_epsilon",
                                          "attention.value_length",
                                          "block_count",
                                          "context_length",
                                          "embedding_length",
                                          "feed_forward_length",
                                          "rope.dimension_count",
                                          "rope.freq_base",
                                          "rope.scaling.type",
                                          "vocab_size"};
    for (const std::string_view each : file_.keys()) {
      if (each.starts_with(prefix_) && std::ranges::find(known, each.substr(prefix_.size())) == std::end(known)) {
        file_.refuse(each, "is not known");
      }
    }
    if (has("rope.scaling.type") && file_.text(key("rope.scaling.type")) != "none") {
      refuse("rope.scaling.type", fmt::format("{} is not known", quote(file_.text(key("rope.scaling.type")))));
    }
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// The type of all its matrices, where there is one that is computed in.
std::string common_dtype(const GgufFile& file) {
  const auto matrices_are = [&](GgufType type) {
    return std::ranges::all_of(file.tensors(), [&](auto& each) { return each.shape.rank() < 2 || each.type == type; });
  };
  if (matrices_are(GgufType::bf16)) return "bfloat16";
  return matrices_are(GgufType::f16) ? "float16" : "float32";
}

void set_heads(const Keys& keys, json& config) {
  const std::int64_t heads = keys.size("attention.head_count"), size = keys.size("embedding_length");
  const std::int64_t head_size = keys.size_or("attention.key_length", size / heads);
  if (head_size < 1) keys.refuse("attention.head_count", fmt::format("{} heads can't share {} numbers", heads, size));
  if (keys.size_or("attention.value_length", head_size) != head_size) {
    keys.refuse("attention.value_length", fmt::format("is not {}, the size of a head's keys", head_size));
  }
  if (keys.size_or("rope.dimension_count", head_size) != head_size) {
    keys.refuse("rope.dimension_count", fmt::format("is not {}, the size of a head", head_size));
  }
  config["hidden_size"] = size;
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = keys.size_or("attention.head_count_kv", heads);
  config["head_dim"] = head_size;
}

void set_tokens(const GgufFile& file, const Keys& keys, json& config) {
  const auto id = [&](const char* key) { return file.whole(key, 0, most); };
  config["vocab_size"] = keys.has("vocab_size") ? keys.size("vocab_size")
                                                : static_cast<std::int64_t>(file.texts("tokenizer.ggml.tokens").size());
  if (file.has("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = id("tokenizer.ggml.bos_token_id");
  if (!file.has("tokenizer.ggml.eos_token_id")) return;
  config["eos_token_id"] = id("tokenizer.ggml.eos_token_id");
  // Of a chat: it ends a turn, and so what the model has to say.
  constexpr const char* turn = "tokenizer.ggml.eot_token_id";
  if (file.has(turn) && id(turn) != config["eos_token_id"]) {
    config["eos_token_id"] = {id("tokenizer.ggml.eos_token_id"), id(turn)};
  }
}

// Of Llama 3.1 and later: what each frequency is divided by. In a folder that is longrope, with the same numbers for
// texts of every length.
constexpr std::string_view divisors_name = "rope_freqs.weight";

void set_rotary(const GgufFile& file, json& config) {
  const GgufTensor* divisors = file.find(divisors_name);
  if (divisors == nullptr) return;
  const std::int64_t count = config["head_dim"].get<std::int64_t>() / 2;
  if (divisors->type != GgufType::f32 || divisors->shape != Dims{count}) {
    fail_at(file.place().in("tensor " + quote(divisors_name)), "{} of shape {}, expected F32 of shape [{}]",
            name_of(divisors->type), divisors->shape, count);
  }
  std::vector<float> numbers;
  for (std::int64_t n = 0; n < count; ++n) {
    numbers.push_back(load<float>(file.map()->data() + divisors->begin + 4 * n));
    if (!(numbers.back() > 0) || !std::isfinite(numbers.back()))
      fail_at(file.place().in("tensor " + quote(divisors_name)), "has {}, expected numbers above 0", numbers.back());
  }
  config["rope_parameters"] = {{"rope_type", "longrope"},
                               {"rope_theta", config["rope_theta"]},
                               {"short_factor", numbers},
                               {"long_factor", numbers},
                               {"original_max_position_embeddings", config["max_position_embeddings"]},
                               {"attention_factor", 1.0}};
}

}  // namespace

bool is_in_config(const GgufArchitecture& of, std::string_view tensor) {
  return of.permuted && tensor == divisors_name;
}

json gguf_config(const GgufFile& file, const GgufArchitecture& of) {
  const Keys keys(file, of);
  keys.check_known();
  json config = {{"architectures", {of.class_name}},
                 {"model_type", of.type},
                 {"hidden_act", "silu"},
                 {"intermediate_size", keys.size("feed_forward_length")},
                 {"num_hidden_layers", keys.size("block_count")},
                 {"max_position_embeddings", keys.size("context_length")},
                 {"rms_norm_eps", keys.number_from_0("attention.layer_norm_rms_epsilon")},
                 {"rope_theta", keys.has("rope.freq_base") ? keys.number_above_0("rope.freq_base") : 10000.0},
                 {"attention_bias", file.find("blk.0.attn_q.bias") != nullptr},
                 {"mlp_bias", file.find("blk.0.ffn_gate.bias") != nullptr},
                 {"tie_word_embeddings", file.find("output.weight") == nullptr},
                 {"torch_dtype", common_dtype(file)}};
  set_heads(keys, config);
  set_tokens(file, keys, config);
  if (of.permuted) set_rotary(file, config);
  return config;
}

}  // namespace attend::models
