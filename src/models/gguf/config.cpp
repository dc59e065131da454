#include "models/gguf/config.h"

#include <algorithm>
#include <cmath>

#include "core/element.h"
#include "models/gguf/architecture.h"
#include "models/gguf/own_keys.h"
#include "models/model_types.h"

namespace attend::inline v1::models {

using nlohmann::json;

namespace {

constexpr std::int64_t most = std::int64_t{1} << 31;  // of a size in the configuration

}  // namespace

std::string GgufKeys::key(std::string_view name) const {
  return *read_.insert(prefix_ + std::string(name)).first;
}

std::int64_t GgufKeys::whole(std::string_view name, std::int64_t low) const {
  return file_.whole(key(name), low, most);
}

double GgufKeys::number_above_0(std::string_view name) const {
  const double number = file_.number(key(name));
  if (!(number > 0)) refuse(name, fmt::format("is {}, expected a number above 0", number));
  return number;
}

double GgufKeys::number_from_0(std::string_view name) const {
  const double number = file_.number(key(name));
  if (!(number >= 0)) refuse(name, fmt::format("is {}, expected a number from 0", number));
  return number;
}

std::vector<std::int64_t> GgufKeys::ids(std::string_view name) const {
  std::vector<std::int64_t> all = file_.wholes(key(name));
  for (const std::int64_t id : all)
    if (id < 0 || id > most) refuse(name, fmt::format("{} is not a token's id", id));
  return all;
}

std::vector<float> GgufKeys::numbers(std::string_view name) const {
  const std::vector<double> all = file_.numbers(key(name));
  return {all.begin(), all.end()};
}

void GgufKeys::check_all_read() const {
  for (const std::string_view each : file_.keys())
    if (each.starts_with(prefix_) && !read_.contains(each)) file_.refuse(each, "is not known");
}

namespace {

// The type of all its matrices, where there is one that is computed in.
std::string common_dtype(const GgufFile& file) {
  const auto matrices_are = [&](GgufType type) {
    return std::ranges::all_of(file.tensors(), [&](auto& each) { return each.shape.rank() < 2 || each.type == type; });
  };
  if (matrices_are(GgufType::bf16)) return "bfloat16";
  return matrices_are(GgufType::f16) ? "float16" : "float32";
}

void set_tokens(const GgufKeys& keys, json& config) {
  const GgufFile& file = keys.file();
  const auto id = [&](const char* key) { return file.whole(key, 0, most); };
  config["vocab_size"] = keys.has("vocab_size") ? keys.size("vocab_size")
                                                : static_cast<std::int64_t>(file.texts("tokenizer.ggml.tokens").size());
  if (file.has("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = id("tokenizer.ggml.bos_token_id");
  if (!file.has("tokenizer.ggml.eos_token_id")) return;
  // Of a chat: the end of a turn and of a message, and so of what the model has to say.
  json ends = {id("tokenizer.ggml.eos_token_id")};
  for (const char* other : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (file.has(other) && std::ranges::find(ends, json(id(other))) == ends.end()) ends.push_back(id(other));
  config["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
}

// What divides the frequencies of rotary positions stands in tensors.
constexpr std::string_view divisors_name = "rope_freqs.weight", long_name = "rope_factors_long.weight",
                           short_name = "rope_factors_short.weight";

std::vector<float> read_divisors(const GgufFile& file, const GgufTensor& tensor, std::int64_t count) {
  const Place place = file.place().in("tensor " + quote(tensor.name));
  if (tensor.type != GgufType::f32 || tensor.shape != Dims{count}) {
    fail_at(place, "{} of shape {}, expected F32 of shape [{}]", name_of(tensor.type), tensor.shape, count);
  }
  std::vector<float> numbers;
  for (std::int64_t n = 0; n < count; ++n) {
    numbers.push_back(load<float>(file.map()->data() + tensor.begin + 4 * n));
    if (!(numbers.back() > 0) || !std::isfinite(numbers.back()))
      fail_at(place, "has {}, expected numbers above 0", numbers.back());
  }
  return numbers;
}

void refuse_tensors(const GgufKeys& keys, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (keys.file().find(name)) fail_at(keys.file().place(), "the tensor {} is not known", quote(name));
}

void refuse_scaling(const GgufKeys& keys) {
  constexpr const char* type = "rope.scaling.type";
  if (keys.has(type) && keys.text(type) != "none")
    keys.refuse(type, fmt::format("{} is not known", quote(keys.text(type))));
}

// What all have but GPT-2 and BERT.
void set_llama(const GgufKeys& keys, json& config) {
  const auto heads = config["num_attention_heads"].get<std::int64_t>(),
             size = config["hidden_size"].get<std::int64_t>();
  const std::int64_t head_size = keys.size_or("attention.key_length", size / heads);
  if (head_size < 1) keys.refuse("attention.head_count", fmt::format("{} heads can't share {} numbers", heads, size));
  if (keys.size_or("attention.value_length", head_size) != head_size) {
    keys.refuse("attention.value_length", fmt::format("is not {}, the size of a head's keys", head_size));
  }
  config["num_key_value_heads"] = keys.size_or("attention.head_count_kv", heads);
  config["head_dim"] = head_size;
  config["rms_norm_eps"] = keys.number_from_0("attention.layer_norm_rms_epsilon");
  config["rope_theta"] = keys.has("rope.freq_base") ? keys.number_above_0("rope.freq_base") : 10000.0;
}

void check_all_turns(const GgufKeys& keys, const json& config) {
  const auto head_size = config["head_dim"].get<std::int64_t>();
  if (keys.size_or("rope.dimension_count", head_size) != head_size)
    keys.refuse("rope.dimension_count", fmt::format("is not {}, the size of a head", head_size));
}

void set_silu(const GgufKeys& keys, json& config) {
  set_llama(keys, config);
  check_all_turns(keys, config);
  refuse_scaling(keys);
  config["hidden_act"] = "silu";
  config["attention_bias"] = keys.file().find("blk.0.attn_q.bias") != nullptr;
  config["mlp_bias"] = keys.file().find("blk.0.ffn_gate.bias") != nullptr;
}

// By what the scores are scaled no key says: as llama.cpp has it, it is the size of a head, but in the largest.
void set_gemma(const GgufKeys& keys, std::int64_t layers_of_the_largest, json& config) {
  set_llama(keys, config);
  check_all_turns(keys, config);
  refuse_tensors(keys, {divisors_name, long_name, short_name});
  const auto heads = config["num_attention_heads"].get<std::int64_t>();
  const bool is_largest = config["num_hidden_layers"] == layers_of_the_largest;
  config["query_pre_attn_scalar"] =
      is_largest ? config["hidden_size"].get<std::int64_t>() / heads : config["head_dim"].get<std::int64_t>();
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["sliding_window"] = keys.size("attention.sliding_window");
}

}  // namespace

bool is_in_config(std::string_view tensor) {
  return tensor == divisors_name || tensor == long_name || tensor == short_name;
}

void configure_qwen(const GgufKeys& keys, json& config) {
  set_silu(keys, config);
  refuse_tensors(keys, {divisors_name, long_name, short_name});
}

// Llama 3.1 and later have divisors. In a folder that is longrope, with the same numbers for texts of every length.
void configure_llama(const GgufKeys& keys, json& config) {
  set_silu(keys, config);
  refuse_tensors(keys, {long_name, short_name});
  const GgufTensor* divisors = keys.file().find(divisors_name);
  if (divisors == nullptr) return;
  const std::vector<float> numbers = read_divisors(keys.file(), *divisors, config["head_dim"].get<std::int64_t>() / 2);
  config["rope_parameters"] = {{"rope_type", "longrope"},
                               {"rope_theta", config["rope_theta"]},
                               {"short_factor", numbers},
                               {"long_factor", numbers},
                               {"original_max_position_embeddings", config["max_position_embeddings"]},
                               {"attention_factor", 1.0}};
}

// No key says which layers see positions: as llama.cpp has it, all but every fourth.
void configure_smollm3(const GgufKeys& keys, json& config) {
  configure_qwen(keys, config);
  config["no_rope_layers"] = nullptr;
  config["no_rope_layer_interval"] = smollm3_interval;
}

void configure_gemma2(const GgufKeys& keys, json& config) {
  set_gemma(keys, 46, config);
  refuse_scaling(keys);
  config["attn_logit_softcapping"] = keys.number_above_0("attn_logit_softcapping");
  config["final_logit_softcapping"] = keys.number_above_0("final_logit_softcapping");
}

// Layers with a window have rotary positions of their own, which are not scaled.
void configure_gemma3(const GgufKeys& keys, json& config) {
  set_gemma(keys, 62, config);
  constexpr const char *pattern = "attention.sliding_window_pattern", *softcap = "final_logit_softcapping";
  if (keys.has(pattern)) config["sliding_window_pattern"] = keys.size(pattern);
  if (keys.has(softcap)) config["final_logit_softcapping"] = keys.number_above_0(softcap);
  json full = {{"rope_type", "default"}, {"rope_theta", keys.number_above_0("rope.freq_base")}}, sliding = full;
  sliding["rope_theta"] = keys.has("rope.freq_base_swa") ? keys.number_above_0("rope.freq_base_swa") : 10000.0;
  if (keys.has("rope.scaling.type") && keys.text("rope.scaling.type") == "linear") {
    full["rope_type"] = "linear";
    full["factor"] = keys.number_above_0("rope.scaling.factor");
  } else {
    refuse_scaling(keys);
  }
  config.erase("rope_theta");
  config["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", sliding}};
}

namespace {

// The share of a head that turns, of which Transformers makes the same whole number again.
double share_of(std::int64_t part, std::int64_t whole) {
  const double share = static_cast<double>(part) / static_cast<double>(whole);
  return static_cast<std::int64_t>(share * static_cast<double>(whole)) == part ? share : std::nextafter(share, 2);
}

}  // namespace

void configure_phi3(const GgufKeys& keys, json& config) {
  set_llama(keys, config);
  refuse_tensors(keys, {divisors_name});
  config["hidden_act"] = "silu";
  const std::int64_t window = keys.whole("attention.sliding_window", 0);
  config["sliding_window"] = window > 0 ? json(window) : json(nullptr);
  const auto head_size = config["head_dim"].get<std::int64_t>();
  const std::int64_t turned = keys.size_or("rope.dimension_count", head_size);
  if (turned > head_size)
    keys.refuse("rope.dimension_count", fmt::format("is more than {}, the size of a head", head_size));
  const std::int64_t original = keys.size("rope.scaling.original_context_length");
  config["original_max_position_embeddings"] = original;
  json rotary = {{"rope_type", "default"},
                 {"rope_theta", config["rope_theta"]},
                 {"partial_rotary_factor", share_of(turned, head_size)}};
  const GgufTensor *longer = keys.file().find(long_name), *shorter = keys.file().find(short_name);
  if ((longer == nullptr) != (shorter == nullptr))
    fail_at(keys.file().place(), "one of the tensors {} and {} is missing", quote(long_name), quote(short_name));
  if (longer) {
    rotary["rope_type"] = "longrope";
    rotary["original_max_position_embeddings"] = original;
    rotary["long_factor"] = read_divisors(keys.file(), *longer, turned / 2);
    rotary["short_factor"] = read_divisors(keys.file(), *shorter, turned / 2);
    rotary["attention_factor"] = keys.number_above_0("rope.scaling.attn_factor");
  }
  config["rope_parameters"] = rotary;
}

void configure_gpt2(const GgufKeys& keys, json& config) {
  config["n_inner"] = config["intermediate_size"];
  config["activation_function"] = "gelu_new";
  config["layer_norm_epsilon"] = keys.number_from_0("attention.layer_norm_epsilon");
}

// Its heads have no parts that do not turn, and its layers no biases.
void configure_modernbert(const GgufKeys& keys, json& config) {
  constexpr const char *pattern = "attention.sliding_window_pattern", *local_base = "rope.freq_base_swa";
  if (keys.has("attention.causal") && keys.truth("attention.causal"))
    keys.refuse("attention.causal", "is not false: a decoder of this architecture is not known");
  refuse_scaling(keys);
  config["hidden_activation"] = "gelu";
  config["norm_eps"] = keys.number_from_0("attention.layer_norm_epsilon");
  config["local_attention"] = keys.size("attention.sliding_window");
  config["global_attn_every_n_layers"] = keys.size_or(pattern, 3);
  const auto rotary = [](double base) { return json{{"rope_type", "default"}, {"rope_theta", base}}; };
  config["rope_parameters"] = {
      {"full_attention", rotary(keys.number_above_0("rope.freq_base"))},
      {"sliding_attention", rotary(keys.has(local_base) ? keys.number_above_0(local_base) : 10000.0)}};
}

// A folder's model has a table of types: a file without one has it of zeros (gguf.cpp).
void configure_bert(const GgufKeys& keys, json& config) {
  if (!keys.has("attention.causal") || keys.truth("attention.causal"))
    keys.refuse("attention.causal", "is not false: a decoder of this architecture is not known");
  config["hidden_act"] = "gelu";
  config["layer_norm_eps"] = keys.number_from_0("attention.layer_norm_epsilon");
  const GgufTensor* types = keys.file().find("token_types.weight");
  config["type_vocab_size"] = types && types->shape.rank() == 2 ? types->shape[0] : 1;
}

namespace {

// An adapter has the architecture, and may have all the keys, of the model that it changes.
void check_is_model(const GgufFile& file) {
  constexpr const char *type = "general.type", *parts = "split.count", *adapter = "adapter.type";
  if (file.has(type) && file.text(type) != "model")
    file.refuse(type, fmt::format("{} is not read; model is", quote(file.text(type))));
  if (file.has(adapter)) file.refuse(adapter, "an adapter is not read; a model is");
  if (file.has(parts) && file.whole(parts, 0) > 1) file.refuse(parts, "a file of several is not read: join them");
}

}  // namespace

json gguf_config(const GgufFile& file, const GgufArchitecture& of) {
  check_is_model(file);
  check_own_keys(file);
  const GgufKeys keys(file, of.name());
  json config = {{"architectures", {model_type(of.type).class_name}},
                 {"model_type", of.type},
                 {"hidden_size", keys.size("embedding_length")},
                 {"num_attention_heads", keys.size("attention.head_count")},
                 {"intermediate_size", keys.size("feed_forward_length")},
                 {"num_hidden_layers", keys.size("block_count")},
                 {"max_position_embeddings", keys.size("context_length")},
                 {"tie_word_embeddings", file.find("output.weight") == nullptr},
                 {"torch_dtype", common_dtype(file)}};
  set_tokens(keys, config);
  of.configure(keys, config);
  if (keys.has("pooling_type")) config["pooling_type"] = keys.whole("pooling_type", 0);
  keys.check_all_read();
  read_own_classes(file, config);
  return config;
}

namespace {

constexpr std::pair<std::int64_t, PoolingMode> pooling_types[] = {
    {1, PoolingMode::mean}, {2, PoolingMode::cls}, {3, PoolingMode::last_token}};

}  // namespace

std::optional<std::int64_t> gguf_pooling_type(const std::vector<PoolingMode>& modes) {
  const auto found = std::ranges::find(pooling_types, modes.front(), [](const auto& each) { return each.second; });
  if (modes.size() != 1 || found == std::end(pooling_types)) return std::nullopt;
  return found->first;
}

SentenceModules gguf_sentences(const Member& config, std::int64_t E, std::int64_t longest) {
  SentenceModules made = plain_sentences(config, E, longest);
  if (!config.has("pooling_type")) return made;
  const Member type = config["pooling_type"];
  const auto found = std::ranges::find(pooling_types, type.whole(0), [](const auto& each) { return each.first; });
  if (found == std::end(pooling_types))
    fail_at(type.place(), "{} is not known here; 1 (mean), 2 (cls) and 3 (last) are", type.whole(0));
  made.pooling.modes = {found->second};
  return made;
}

}  // namespace attend::inline v1::models
