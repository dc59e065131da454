#include "models/gguf/tensor_types.h"

#include <algorithm>
#include <charconv>

#include "models/gguf/architecture.h"

namespace attend::inline v1::models {

namespace {

constexpr GgufMixture mixtures[] = {
    {.name = "q8_0", .quantized = QuantizedType::q8_0, .type = GgufType::q8_0, .number = 7},
    {.name = "q6_k", .quantized = QuantizedType::q6_k, .type = GgufType::q6_k, .number = 18},
    {.name = "q5_k_m", .quantized = QuantizedType::q5_k, .type = GgufType::q5_k, .number = 17, .favours = true},
    {.name = "q4_k_m", .quantized = QuantizedType::q4_k, .type = GgufType::q4_k, .number = 15, .favours = true},
    {.name = "q4_0", .quantized = QuantizedType::q4_0, .type = GgufType::q4_0, .number = 2},
};

bool are_whole_blocks(std::int64_t columns, GgufType type) {
  return columns % block_size(*quantized(type)) == 0;
}

// What a matrix becomes whose rows are not of whole blocks.
GgufType or_smaller_blocks(GgufType type, std::int64_t columns) {
  if (are_whole_blocks(columns, type)) return type;
  const GgufType smaller = type == GgufType::q4_k   ? GgufType::q5_0
                           : type == GgufType::q5_k ? GgufType::q5_1
                                                    : GgufType::q8_0;
  return are_whole_blocks(columns, smaller) ? smaller : GgufType::f16;
}

// The first and the last eighth of the layers, and every third one between them.
bool has_more_bits(std::int64_t layer, std::int64_t layers) {
  const std::int64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

// Llama 2 and 3 and Qwen2 in that size, whose values' projections are small, and have more bits.
bool is_70b(const GgufModel& model) {
  return model.layers == 80 &&
         ((model.architecture == "llama" && model.heads != model.kv_heads) || model.architecture == "qwen2");
}

class Choice {
 public:
  Choice(const GgufMixture& of, const GgufModel& model, bool has_output)
      : of_(of), model_(model), has_output_(has_output) {}

  GgufType type(const GgufSource& tensor) const {
    const GgufName name = cut_gguf_name(tensor.name).value_or(GgufName{});
    const int rank = tensor.numbers.rank();
    if (rank < 2 || name.part == "position_embd" || name.part == "token_types") return GgufType::f32;
    const std::int64_t columns = tensor.numbers.size(rank - 1);
    if (name.part == (has_output_ ? "output" : "token_embd")) return or_smaller_blocks(output(columns), columns);
    return or_smaller_blocks(name.layer.empty() ? of_.type : in_layer(name), columns);
  }

 private:
  // Of the table that the logits come from.
  GgufType output(std::int64_t columns) const {
    const bool six_bits = of_.type != GgufType::q8_0 && are_whole_blocks(columns, of_.type);
    return six_bits ? GgufType::q6_k : GgufType::q8_0;
  }

  GgufType in_layer(const GgufName& name) const {
    const bool values = name.part == "attn_v" || name.part == "attn_qkv";
    std::int64_t layer = 0;
    std::from_chars(name.layer.data(), name.layer.data() + name.layer.size(), layer);
    if ((values || name.part == "ffn_down") && of_.favours && has_more_bits(layer, model_.layers))
      return GgufType::q6_k;
    return values && is_70b(model_) && of_.type == GgufType::q4_k ? GgufType::q5_k : of_.type;
  }

  const GgufMixture& of_;
  const GgufModel& model_;
  bool has_output_;
};

}  // namespace

const GgufMixture* mixture_of(QuantizedType type) {
  const auto* found = std::ranges::find(mixtures, type, &GgufMixture::quantized);
  return found == std::end(mixtures) ? nullptr : found;
}

const GgufMixture* mixture_named(std::string_view name) {
  const auto* found = std::ranges::find(mixtures, name, &GgufMixture::name);
  return found == std::end(mixtures) ? nullptr : found;
}

void choose_types(const GgufMixture& of, const GgufModel& model, std::vector<GgufSource>& tensors) {
  const Choice choice(of, model, std::ranges::find(tensors, "output.weight", &GgufSource::name) != tensors.end());
  for (GgufSource& each : tensors) each.type = choice.type(each);
}

}  // namespace attend::inline v1::models
