#include "models/gguf.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "core/divide_up.h"
#include "core/element.h"
#include "core/half.h"
#include "core/parallel.h"
#include "models/gguf_architecture.h"
#include "models/gguf_config.h"

namespace attend::models {

namespace {

using nlohmann::json;

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
std::int64_t permuted_heads(const GgufFile& file, const GgufTensor& tensor, const GgufName& name, const json& config) {
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

// Of a norm. What the folder's model adds again is what was in the file: at 1 and beside it no bit is lost.
Tensor less_1(const GgufFile& file, const GgufTensor& tensor) {
  if (tensor.type != GgufType::f32) {
    fail_at(file.place().in("tensor " + quote(tensor.name)), "{} is not read of a norm; F32 is", name_of(tensor.type));
  }
  Tensor out(tensor.shape);
  for (std::int64_t n = 0; n < out.count(); ++n)
    out.data<float>()[n] = load<float>(file.map()->data() + tensor.begin + 4 * n) - 1;
  return out;
}

void transpose_layers(const GgufArchitecture& architecture, Weights& weights) {
  std::vector<std::string> names;
  for (const auto& [name, view] : weights.all())
    if (view.rank() == 2 && name.starts_with(architecture.layers)) names.push_back(name);
  for (const std::string& name : names) weights.transpose(name);
}

// DistilBERT has none. The size is that of a tensor that is there.
void add_types(Weights& to) {
  constexpr const char* name = "bert.embeddings.token_type_embeddings.weight";
  const View* norm = to.find("bert.embeddings.LayerNorm.weight");
  if (!to.find(name) && norm && norm->rank() == 1) to.add(name, Tensor({1, norm->size(0)}));
}

}  // namespace

Gguf read_gguf(std::string_view function, const std::filesystem::path& path) {
  const GgufFile file(function, path);
  const GgufArchitecture& architecture = gguf_architecture(file);
  Gguf out{gguf_config(file, architecture), Weights(file.place())};
  std::vector<Part> parts;
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
    parts.push_back({&tensor, std::move(*in_folder), head_size});
  }
  add_all(file, parts, out.weights);
  if (architecture.transposed) transpose_layers(architecture, out.weights);
  if (architecture.type == "bert") add_types(out.weights);
  return out;
}

}  // namespace attend::models
