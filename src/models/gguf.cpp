#include "models/gguf.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "core/divide_up.h"
#include "core/element.h"
#include "core/half.h"
#include "core/parallel.h"
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

// An adapter has the architecture, and may have all the keys, of the model that it changes.
void check_is_model(const GgufFile& file) {
  constexpr const char *type = "general.type", *parts = "split.count", *adapter = "adapter.type";
  if (file.has(type) && file.text(type) != "model")
    file.refuse(type, fmt::format("{} is not read; model is", quote(file.text(type))));
  if (file.has(adapter)) file.refuse(adapter, "an adapter is not read; a model is");
  if (file.has(parts) && file.whole(parts, 0) > 1) file.refuse(parts, "a file of several is not read: join them");
}

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

json make_config(const GgufFile& file, const Architecture& of) {
  const Keys keys(file, of);
  keys.check_known();
  json config = {{"architectures", {of.class_name}},
                 {"model_type", of.name},
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

// A tensor of the file, and what becomes of it.
struct Part {
  const GgufTensor* tensor;
  std::string name;        // in the folder
  std::int64_t head_size;  // of the heads whose rows are put in order; 0: they are
};

// Whether it can't stay where it lies.
bool is_made(const GgufFile& file, const Part& part) {
  const Format format = format_of(part.tensor->type);
  return format.widen || part.head_size > 0 || !is_aligned(file.map()->data() + part.tensor->begin, format.dtype);
}

// In the folder the two halves of a head, which rotate together, follow each other; in the file their rows come in
// turn.
std::int64_t row_in_file(std::int64_t row, std::int64_t head_size) {
  if (head_size == 0) return row;
  const std::int64_t head = row / head_size, inside = row % head_size, half = head_size / 2;
  return head * head_size + inside % half * 2 + inside / half;
}

// Asks the system for the pages of memory that is about to be written, all at once: one by one, as they are written,
// they take longer than the writing. Where it can't, nothing is lost.
void take_pages(std::byte* data, std::int64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(data) % page;  // where its page begins
  madvise(data - past, static_cast<std::size_t>(bytes) + past, MADV_POPULATE_WRITE);
#endif
}

std::int64_t rows_of(const Part& part) {
  const Dims& shape = part.tensor->shape;
  return shape.rank() < 2 && part.head_size == 0 ? 1 : shape[0];
}

// Rows of a tensor, made at once by one thread.
struct Piece {
  const Part* part;
  const std::byte* data;  // the tensor's, in the file
  std::byte* to;          // what the whole tensor becomes
  std::int64_t begin, end;
};

void make(const Piece& piece) {
  const GgufTensor& tensor = *piece.part->tensor;
  const Format format = format_of(tensor.type);
  const std::int64_t rows = rows_of(*piece.part), row_size = element_count(tensor.shape) / rows;
  const std::int64_t bytes = static_cast<std::int64_t>(tensor.bytes) / rows,
                     row_bytes = row_size * size_of(format.dtype);
  const std::int64_t blocks = row_size / gguf_block;
  take_pages(piece.to + piece.begin * row_bytes, (piece.end - piece.begin) * row_bytes);
  for (std::int64_t row = piece.begin; row < piece.end; ++row) {
    const std::byte* from = piece.data + row_in_file(row, piece.part->head_size) * bytes;
    std::byte* numbers = piece.to + row * row_bytes;
    if (!format.widen) std::memcpy(numbers, from, static_cast<std::size_t>(bytes));
    for (std::int64_t n = 0; format.widen && n < blocks; ++n)
      format.widen(from + n * (bytes / blocks), reinterpret_cast<float*>(numbers) + n * gguf_block);
  }
}

void add_pieces(const Part& part, const std::byte* data, std::byte* to, std::vector<Piece>& pieces) {
  constexpr std::int64_t at_once = 1 << 17;  // numbers: a core's cache holds them
  const std::int64_t rows = rows_of(part), row_size = element_count(part.tensor->shape) / rows;
  const std::int64_t step = std::max<std::int64_t>(at_once / row_size, 1);
  for (std::int64_t row = 0; row < rows; row += step)
    pieces.push_back({&part, data, to, row, std::min(rows, row + step)});
}

std::int64_t bytes_of_made(const Part& part) {
  constexpr std::int64_t aligned = 64;
  const std::int64_t bytes = element_count(part.tensor->shape) * size_of(format_of(part.tensor->type).dtype);
  return divide_up(bytes, aligned) * aligned;
}

// All that is made lies in one piece of memory.
void add_all(const GgufFile& file, const std::vector<Part>& parts, Weights& to) {
  std::int64_t bytes = 0;
  for (const Part& part : parts) bytes += is_made(file, part) ? bytes_of_made(part) : 0;
  Tensor memory = Tensor::uninitialized({bytes}, DType::u8);
  auto* next = static_cast<std::byte*>(memory.raw());
  const auto owner = std::make_shared<const Tensor>(std::move(memory));
  std::vector<Piece> pieces;
  for (const Part& part : parts) {
    const std::byte* data = file.map()->data() + part.tensor->begin;
    const DType dtype = format_of(part.tensor->type).dtype;
    if (!is_made(file, part)) {
      to.add(part.name, View(data, dtype, part.tensor->shape), file.map());
      continue;
    }
    add_pieces(part, data, next, pieces);
    to.add(part.name, View(next, dtype, part.tensor->shape), owner);
    next += bytes_of_made(part);
  }
  parallel_items(std::ssize(pieces), num_threads(),
                 [&](int, std::int64_t item) { make(pieces[static_cast<std::size_t>(item)]); });
}

// The size of the heads whose rows are in another order in this tensor; 0: they are not.
std::int64_t permuted_heads(const GgufFile& file, const GgufTensor& tensor, const Name& name, const json& config) {
  if (name.part != "attn_q" && name.part != "attn_k") return 0;
  const auto heads = config[name.part == "attn_q" ? "num_attention_heads" : "num_key_value_heads"].get<std::int64_t>();
  const std::int64_t rows = tensor.shape.rank() == 0 ? 0 : tensor.shape[0];
  if (rows == 0 || rows % (2 * heads) != 0) {
    fail_at(file.place().in("tensor " + quote(tensor.name)), "shape {} can't be of {} heads", tensor.shape, heads);
  }
  if (tensor.shape.rank() == 1 && format_of(tensor.type).widen)
    fail_at(file.place().in("tensor " + quote(tensor.name)), "rows of one number are not read in blocks");
  return rows / heads;
}

}  // namespace

Gguf read_gguf(std::string_view function, const std::filesystem::path& path) {
  const GgufFile file(function, path);
  check_is_model(file);
  const Architecture architecture = read_architecture(file);
  Gguf out{make_config(file, architecture), Weights(file.place())};
  std::vector<Part> parts;
  for (const GgufTensor& tensor : file.tensors()) {
    if (architecture.permuted && tensor.name == divisors_name) continue;  // it is in the configuration
    const std::optional<Name> name = cut(tensor.name);
    std::optional<std::string> in_folder = folder_name(name);
    if (!in_folder) fail_at(file.place(), "the tensor {} is not known", quote(tensor.name));
    const std::int64_t head_size = architecture.permuted ? permuted_heads(file, tensor, *name, out.config) : 0;
    parts.push_back({&tensor, std::move(*in_folder), head_size});
  }
  add_all(file, parts, out.weights);
  return out;
}

}  // namespace attend::models
