#include "models/gguf.h"

#include <algorithm>
#include <optional>

#include "attend/threads.h"
#include "core/element.h"
#include "core/half.h"
#include "models/gguf_file.h"

namespace attend::models {

namespace {

using nlohmann::json;

constexpr std::int64_t most = std::int64_t{1} << 31;  // of a size in the configuration

// ---- The configuration ----

struct Architecture {
  std::string name;
  const char* class_name;
  bool permuted;  // whether the rows of q and k have been put in another order (llama.cpp's for rotary positions)
};

Architecture read_architecture(const GgufFile& file) {
  constexpr const char* key = "general.architecture";
  const std::string name = file.text(key);
  if (name == "llama") return {name, "LlamaForCausalLM", true};
  if (name == "qwen2") return {name, "Qwen2ForCausalLM", false};
  if (name == "qwen3") return {name, "Qwen3ForCausalLM", false};
  file.refuse(key, fmt::format("{} is not known; llama, qwen2 and qwen3 are", quote(name)));
}

// The keys of one architecture: "llama.block_count".
class Keys {
 public:
  Keys(const GgufFile& file, const Architecture& of) : file_(file), prefix_(of.name + ".") {}

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return file_.has(key(name)); }
  std::int64_t size(std::string_view name) const { return file_.whole(key(name), 1, most); }
  std::int64_t size_or(std::string_view name, std::int64_t other) const { return has(name) ? size(name) : other; }
  double number(std::string_view name) const { return file_.number(key(name)); }
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

json make_config(const GgufFile& file, const Architecture& of) {
  const Keys keys(file, of);
  keys.check_known();
  json config = {{"architectures", {of.class_name}},
                 {"model_type", of.name},
                 {"hidden_act", "silu"},
                 {"intermediate_size", keys.size("feed_forward_length")},
                 {"num_hidden_layers", keys.size("block_count")},
                 {"max_position_embeddings", keys.size("context_length")},
                 {"rms_norm_eps", keys.number("attention.layer_norm_rms_epsilon")},
                 {"rope_theta", keys.has("rope.freq_base") ? keys.number("rope.freq_base") : 10000.0},
                 {"attention_bias", file.find("blk.0.attn_q.bias") != nullptr},
                 {"mlp_bias", file.find("blk.0.ffn_gate.bias") != nullptr},
                 {"tie_word_embeddings", file.find("output.weight") == nullptr},
                 {"torch_dtype", common_dtype(file)}};
  set_heads(keys, config);
  set_tokens(file, keys, config);
  return config;
}

// ---- Names ----

struct Renamed {
  std::string_view from, to;
};
constexpr Renamed outer_names[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr Renamed layer_names[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

// A tensor's name, cut: "blk.12." "attn_q" ".weight".
struct Name {
  std::string_view layer;  // "12"; empty: outside the layers
  std::string_view part, kind;
};

std::optional<Name> cut(std::string_view name) {
  Name out;
  const std::size_t end = name.rfind('.');
  if (end == std::string_view::npos) return std::nullopt;
  out.kind = name.substr(end), out.part = name.substr(0, end);
  if (out.kind != ".weight" && out.kind != ".bias") return std::nullopt;
  if (!out.part.starts_with("blk.")) return out;
  out.part.remove_prefix(4);
  out.layer = out.part.substr(0, out.part.find('.'));
  const bool is_number =
      !out.layer.empty() && std::ranges::all_of(out.layer, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number || (out.layer.size() > 1 && out.layer.front() == '0')) return std::nullopt;
  out.part.remove_prefix(std::min(out.part.size(), out.layer.size() + 1));
  return out;
}

// None for a tensor that is not known.
std::optional<std::string> folder_name(const std::optional<Name>& name) {
  const auto find = [&](const auto& list) -> std::optional<std::string> {
    const auto found = std::ranges::find(list, name->part, &Renamed::from);
    if (found == std::end(list)) return std::nullopt;
    return fmt::format("{}{}", found->to, name->kind);
  };
  if (!name) return std::nullopt;
  if (name->layer.empty()) return find(outer_names);
  const auto inner = find(layer_names);
  if (!inner) return std::nullopt;
  return fmt::format("model.layers.{}.{}", name->layer, *inner);
}

// ---- Numbers ----

float load_half(const std::byte* from) {
  return float_of_half(load<std::uint16_t>(from));
}

// A scale, then 32 numbers of 4 bits, less 8: the low halves of 16 bytes, and then the high ones.
void widen_q4_0(const std::byte* from, float* to) {
  const float scale = load_half(from);
  for (int n = 0; n < 16; ++n) {
    const int byte = std::to_integer<int>(from[2 + n]);
    to[n] = scale * static_cast<float>((byte & 15) - 8);
    to[n + 16] = scale * static_cast<float>((byte >> 4) - 8);
  }
}

// The same with a second half for what the least of them is, instead of 8.
void widen_q4_1(const std::byte* from, float* to) {
  const float scale = load_half(from), least = load_half(from + 2);
  for (int n = 0; n < 16; ++n) {
    const int byte = std::to_integer<int>(from[4 + n]);
    to[n] = scale * static_cast<float>(byte & 15) + least;
    to[n + 16] = scale * static_cast<float>(byte >> 4) + least;
  }
}

void widen_q8_0(const std::byte* from, float* to) {
  const float scale = load_half(from);
  for (int n = 0; n < gguf_block; ++n) to[n] = scale * static_cast<float>(load<std::int8_t>(from + 2 + n));
}

struct Format {
  DType dtype;                                   // that it becomes
  void (*widen)(const std::byte*, float*) = {};  // a block; null: the numbers stay as they are
};

Format format_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return {DType::f32};
    case GgufType::f16:
      return {DType::f16};
    case GgufType::bf16:
      return {DType::bf16};
    case GgufType::q4_0:
      return {DType::f32, widen_q4_0};
    case GgufType::q4_1:
      return {DType::f32, widen_q4_1};
    case GgufType::q8_0:
      return {DType::f32, widen_q8_0};
  }
  return {DType::f32};
}

Tensor widen(const std::byte* data, const GgufTensor& tensor, const Format& format) {
  Tensor out = Tensor::uninitialized(tensor.shape, format.dtype);
  auto* to = out.data<float>();
  constexpr std::int64_t least_work = 512;  // blocks, for a thread
  const std::int64_t blocks = out.count() / gguf_block;
  const auto bytes = static_cast<std::int64_t>(tensor.bytes) / blocks;
  parallel_for(blocks, least_work, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) format.widen(data + n * bytes, to + n * gguf_block);
  });
  return out;
}

// In the folder the two halves of a head, which rotate together, follow each other; in the file their rows come in
// turn.
std::int64_t row_in_file(std::int64_t row, std::int64_t head_size) {
  const std::int64_t head = row / head_size, inside = row % head_size, half = head_size / 2;
  return head * head_size + inside % half * 2 + inside / half;
}

Tensor in_order(const std::byte* data, DType dtype, const Dims& shape, std::int64_t head_size) {
  Tensor out = Tensor::uninitialized(shape, dtype);
  const std::int64_t rows = shape[0], row_size = out.count() / rows * size_of(dtype);
  auto* to = static_cast<std::byte*>(out.raw());
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(to + row * row_size, data + row_in_file(row, head_size) * row_size, static_cast<std::size_t>(row_size));
  }
  return out;
}

// The size of the heads whose rows are in another order in this tensor; 0: they are not.
std::int64_t permuted_heads(const GgufFile& file, const GgufTensor& tensor, const Name& name, const json& config) {
  if (name.part != "attn_q" && name.part != "attn_k") return 0;
  const auto heads = config[name.part == "attn_q" ? "num_attention_heads" : "num_key_value_heads"].get<std::int64_t>();
  const std::int64_t rows = tensor.shape.rank() == 0 ? 0 : tensor.shape[0];
  if (rows == 0 || rows % (2 * heads) != 0) {
    fail_at(file.place().in("tensor " + quote(tensor.name)), "shape {} can't be of {} heads", tensor.shape, heads);
  }
  return rows / heads;
}

// head_size: 0 where the rows are in order.
void add_tensor(const GgufFile& file, const GgufTensor& tensor, std::string name, std::int64_t head_size, Weights& to) {
  const std::byte* data = file.map()->data() + tensor.begin;
  const Format format = format_of(tensor.type);
  Tensor widened;
  if (format.widen) {
    widened = widen(data, tensor, format);
    data = static_cast<const std::byte*>(widened.raw());
  }
  if (head_size > 0) {
    to.add(std::move(name), in_order(data, format.dtype, tensor.shape, head_size));
  } else if (format.widen) {
    to.add(std::move(name), std::move(widened));
  } else if (is_aligned(data, format.dtype)) {
    to.add(std::move(name), View(data, format.dtype, tensor.shape), file.map());
  } else {
    Tensor copy = Tensor::uninitialized(tensor.shape, format.dtype);
    std::memcpy(copy.raw(), data, tensor.bytes);
    to.add(std::move(name), std::move(copy));
  }
}

}  // namespace

Gguf read_gguf(std::string_view function, const std::filesystem::path& path) {
  const GgufFile file(function, path);
  constexpr const char* parts = "split.count";
  if (file.has(parts) && file.whole(parts, 0) > 1) file.refuse(parts, "a file of several is not read: join them");
  const Architecture architecture = read_architecture(file);
  Gguf out{make_config(file, architecture), Weights(file.place())};
  for (const GgufTensor& tensor : file.tensors()) {
    const std::optional<Name> name = cut(tensor.name);
    std::optional<std::string> in_folder = folder_name(name);
    if (!in_folder) fail_at(file.place(), "the tensor {} is not known", quote(tensor.name));
    const std::int64_t head_size = architecture.permuted ? permuted_heads(file, tensor, *name, out.config) : 0;
    add_tensor(file, tensor, std::move(*in_folder), head_size, out.weights);
  }
  return out;
}

}  // namespace attend::models
