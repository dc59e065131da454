#include "models/gguf/read.h"

#include <cstring>
#include <memory>
#include <optional>

#include "attend/layers.h"
#include "core/element.h"
#include "kernels/linear_operands.h"
#include "models/gguf/architecture.h"
#include "models/gguf/config.h"

namespace attend::inline v1::models {

namespace {

using nlohmann::json;

// ---- Numbers ----

// In the folder the two halves of a head, which rotate together, follow each other; in the file their rows come in
// turn. Also what is not aligned is copied.
Tensor in_order(const std::byte* data, DType dtype, const GgufTensor& tensor, std::int64_t head_size) {
  Tensor out = Tensor::uninitialized(tensor.shape, dtype);
  const std::int64_t rows = head_size == 0 ? 1 : tensor.shape[0],
                     bytes = static_cast<std::int64_t>(tensor.bytes) / rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(static_cast<std::byte*>(out.raw()) + row * bytes,
                data + kernels::interleaved_row(row, head_size) * bytes, static_cast<std::size_t>(bytes));
  }
  return out;
}

DType dtype_of(GgufType type) {
  return type == GgufType::f16 ? DType::f16 : type == GgufType::bf16 ? DType::bf16 : DType::f32;
}

// As `name` of the folder. head_size: of the heads whose rows are put in order; 0: they are.
void add(const GgufFile& file, const GgufTensor& tensor, const std::string& name, std::int64_t head_size, Weights& to) {
  const std::byte* data = file.map()->data() + tensor.begin;
  if (const auto type = quantized(tensor.type)) {
    const int rank = tensor.shape.rank();
    const std::int64_t columns = tensor.shape[rank - 1];
    const QuantizedView blocks{data, *type, element_count(tensor.shape) / columns, columns, head_size};
    if (rank == 2) return to.add(name, blocks, file.map());
    return to.add(name, dequantize(blocks).view().reshape(tensor.shape).clone());
  }
  const DType dtype = dtype_of(tensor.type);
  if (head_size > 0 || !is_aligned(data, dtype)) return to.add(name, in_order(data, dtype, tensor, head_size));
  to.add(name, View(data, dtype, tensor.shape), file.map());
}

// The size of the heads whose rows are in another order in this tensor; 0: they are not.
std::int64_t permuted_heads(const GgufFile& file, const GgufTensor& tensor, const GgufName& name, const json& config) {
  if (name.part != "attn_q" && name.part != "attn_k") return 0;
  const auto heads = config[name.part == "attn_q" ? "num_attention_heads" : "num_key_value_heads"].get<std::int64_t>();
  const std::int64_t rows = tensor.shape.rank() == 0 ? 0 : tensor.shape[0];
  if (rows == 0 || rows % (2 * heads) != 0) {
    fail_at(file.place().in("tensor " + quote(tensor.name)), "shape {} can't be of {} heads", tensor.shape, heads);
  }
  if (tensor.shape.rank() == 1 && quantized(tensor.type))
    fail_at(file.place().in("tensor " + quote(tensor.name)), "rows of one number are not read in blocks");
  return rows / heads;
}

// Of a norm. What the folder's model adds again is what was in the file: at 1 and beside it no bit is lost.
Tensor less_1(const GgufFile& file, const GgufTensor& tensor) {
  if (tensor.type != GgufType::f32) {
    fail_at(file.place().in("tensor " + quote(tensor.name)), "{} is not read for a norm; F32 is", name_of(tensor.type));
  }
  Tensor out(tensor.shape);
  for (std::int64_t n = 0; n < out.count(); ++n)
    out.data<float>()[n] = load<float>(file.map()->data() + tensor.begin + 4 * n) - 1;
  return out;
}

void transpose_layers(const GgufArchitecture& architecture, Weights& weights) {
  std::vector<std::string> names;
  for (const auto& [name, matrix] : weights.all())
    if (matrix.view.rank() == 2 && name.starts_with(architecture.layers)) names.push_back(name);
  for (const std::string& name : names) weights.transpose(name);
}

// DistilBERT has none. The size is that of a tensor that is there.
void add_types(Weights& to) {
  constexpr const char* name = "bert.embeddings.token_type_embeddings.weight";
  const Matrix* norm = to.find("bert.embeddings.LayerNorm.weight");
  if (!to.find(name) && norm && norm->view.rank() == 1) to.add(name, Tensor({1, norm->view.size(0)}));
}

}  // namespace

Gguf read_gguf(std::string_view function, const std::filesystem::path& path) {
  GgufFile opened(function, path);
  const GgufArchitecture& architecture = gguf_architecture(opened);
  json config = gguf_config(opened, architecture);
  Weights weights(opened.place());
  Gguf out{std::move(opened), std::move(config), std::move(weights)};
  const GgufFile& file = out.file;
  for (const GgufTensor& tensor : file.tensors()) {
    if (is_in_config(tensor.name)) continue;
    const std::optional<GgufName> name = cut_gguf_name(tensor.name);
    std::optional<std::string> in_folder = name ? folder_name(architecture, *name) : std::nullopt;
    if (!in_folder) fail_at(file.place(), "the tensor {} is not known", quote(tensor.name));
    if (architecture.norms_of_1 && name->part.ends_with("norm")) {
      out.weights.add(std::move(*in_folder), less_1(file, tensor));
      continue;
    }
    const std::int64_t head_size = architecture.permuted ? permuted_heads(file, tensor, *name, out.config) : 0;
    add(file, tensor, *in_folder, head_size, out.weights);
  }
  if (architecture.transposed) transpose_layers(architecture, out.weights);
  if (architecture.type == "bert") add_types(out.weights);
  return out;
}

}  // namespace attend::inline v1::models
