// Where the parameters of MultiHeadAttention come from and go to: a generator, a state_dict.
#include <algorithm>
#include <set>
#include <utility>

#include "attend/layers.h"
#include "core/message.h"
#include "layers/multi_head.h"

namespace attend::inline v1 {

namespace {

// The entries of one layer in a map of many; remembers which ones were asked for.
class State {
 public:
  State(const TensorMap& tensors, std::string_view prefix) : tensors_(tensors), prefix_(prefix) {}

  bool has(std::string_view name) const { return tensors_.find(full(name)) != tensors_.end(); }

  View matrix(std::string_view name) {
    const View entry = take(name);
    if (entry.rank() != 2 || entry.count() == 0) {
      fail(ErrorCode::bad_shape, where, "{} has shape {}, expected [out,in], both at least 1", full(name),
           entry.shape());
    }
    return entry;
  }
  View shaped(std::string_view name, const Dims& expected) {
    const View entry = take(name);
    if (entry.shape() != expected) {
      fail(ErrorCode::bad_shape, where, "{} has shape {}, expected {}", full(name), entry.shape(), expected);
    }
    return entry;
  }
  // The heads share the features out evenly.
  void check_rows(std::string_view name, std::int64_t rows, std::int64_t heads) const {
    if (rows % heads != 0) {
      fail(ErrorCode::bad_shape, where, "{} makes {} features, expected a multiple of {} heads", full(name), rows,
           heads);
    }
  }
  void check_all_taken() const {
    for (auto entry = tensors_.lower_bound(prefix_); entry != tensors_.end(); ++entry) {
      if (!entry->first.starts_with(prefix_)) break;
      if (taken_.contains(entry->first)) continue;
      fail(ErrorCode::bad_value, where, "unknown entry {} (shape {}), expected {}", entry->first, entry->second.shape(),
           fmt::join(taken_, ", "));
    }
  }

  static constexpr const char* where = "MultiHeadAttention::from_state_dict";

 private:
  std::string full(std::string_view name) const { return prefix_ + std::string(name); }

  View take(std::string_view name) {
    const auto entry = tensors_.find(full(name));
    if (entry == tensors_.end()) fail(ErrorCode::bad_value, where, "entry {} is missing", full(name));
    if (!is_floating(entry->second.dtype())) {
      fail(ErrorCode::bad_dtype, where, "{} is {}, expected floating point", full(name), entry->second.dtype());
    }
    taken_.insert(full(name));
    return entry->second;
  }

  const TensorMap& tensors_;
  std::string prefix_;
  std::set<std::string> taken_;
};

struct Projections {
  View query, key, value;  // [heads * d_k,E], [heads * d_k,key_size], [heads * d_v,value_size]
};

Projections read_projections(State& state, std::int64_t heads) {
  const bool separate = state.has("q_proj_weight") || state.has("k_proj_weight") || state.has("v_proj_weight");
  if (state.has("in_proj_weight") || !separate) {
    const View joined = state.matrix("in_proj_weight");
    const std::int64_t size = joined.size(1);
    state.shaped("in_proj_weight", {3 * size, size});
    state.check_rows("in_proj_weight", size, heads);
    return {joined.slice(0, 0, size), joined.slice(0, size, 2 * size), joined.slice(0, 2 * size, 3 * size)};
  }
  const Projections out{state.matrix("q_proj_weight"), state.matrix("k_proj_weight"), state.matrix("v_proj_weight")};
  state.check_rows("q_proj_weight", out.query.size(0), heads);
  state.shaped("k_proj_weight", {out.query.size(0), out.key.size(1)});
  state.check_rows("v_proj_weight", out.value.size(0), heads);
  return out;
}

void check_option(const char* name, std::int64_t wanted, std::int64_t found) {
  if (wanted != 0 && wanted != found) {
    fail(ErrorCode::bad_value, State::where, "options ask for {} {}, the tensors have {}", name, wanted, found);
  }
}

void check_heads(const char* where, std::int64_t heads) {
  if (heads < 1) fail(ErrorCode::bad_value, where, "heads is {}, expected at least 1", heads);
}

// The options with every size filled in.
MultiHeadAttentionOptions complete(std::int64_t embedding_size, std::int64_t heads, MultiHeadAttentionOptions options) {
  check_heads("MultiHeadAttention", heads);
  if (embedding_size < 1) {
    fail(ErrorCode::bad_value, "MultiHeadAttention", "embedding_size is {}, expected at least 1", embedding_size);
  }
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"d_k", options.d_k}, {"d_v", options.d_v}, {"key_size", options.key_size}, {"value_size", options.value_size}};
  for (const auto& [name, size] : sizes) {
    if (size < 0) fail(ErrorCode::bad_value, "MultiHeadAttention", "{} is {}, expected at least 1, or 0", name, size);
  }
  if ((options.d_k == 0 || options.d_v == 0) && embedding_size % heads != 0) {
    fail(ErrorCode::bad_value, "MultiHeadAttention",
         "embedding_size is {}, expected a multiple of {} heads (or give d_k and d_v)", embedding_size, heads);
  }
  if (options.d_k == 0) options.d_k = embedding_size / heads;
  if (options.d_v == 0) options.d_v = embedding_size / heads;
  for (const std::int64_t size : {options.d_k, options.d_v}) element_count({heads, size});  // throws where it overflows
  element_count({3, embedding_size});
  if (options.key_size == 0) options.key_size = embedding_size;
  if (options.value_size == 0) options.value_size = embedding_size;
  return options;
}

Linear without_drawn_bias(const View& weight, bool bias) {
  const Tensor zeros({weight.size(0)});
  return Linear(weight, bias ? std::optional<View>(zeros) : std::nullopt);
}

// Along the first axis.
Tensor concatenate(std::initializer_list<View> parts) {
  Dims shape = parts.begin()->shape();
  shape[0] = 0;
  for (const View& part : parts) shape[0] += part.size(0);
  Tensor out = Tensor::uninitialized(shape);
  std::int64_t row = 0;
  for (const View& part : parts) {
    out.view().slice(0, row, row + part.size(0)).copy_from(part);
    row += part.size(0);
  }
  return out;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(std::int64_t embedding_size, std::int64_t heads, Generator& generator,
                                       MultiHeadAttentionOptions options)
    : MultiHeadAttention(draw(embedding_size, heads, generator, options)) {}

// The order is torch's: the output projection, which draws itself as every nn.Linear does; then the other weights; the
// biases are zero, the one that was drawn too; bias_k and bias_v last.
MultiHeadAttention MultiHeadAttention::draw(std::int64_t embedding_size, std::int64_t heads, Generator& generator,
                                            MultiHeadAttentionOptions given) {
  const MultiHeadAttentionOptions options = complete(embedding_size, heads, given);
  const std::int64_t E = embedding_size;
  const std::int64_t query_rows = heads * options.d_k;
  const std::int64_t value_rows = heads * options.d_v;
  std::optional<Linear> output;
  if (options.output_projection) {
    const Linear drawn(value_rows, E, generator, {.bias = options.bias});
    output = without_drawn_bias(drawn.weight(), options.bias);
  }
  Tensor query, key, value;
  if (query_rows == E && value_rows == E && options.key_size == E && options.value_size == E) {
    const Tensor joined = generator.xavier_uniform({3 * E, E});
    query = joined.view().slice(0, 0, E).clone();
    key = joined.view().slice(0, E, 2 * E).clone();
    value = joined.view().slice(0, 2 * E, 3 * E).clone();
  } else {
    query = generator.xavier_uniform({query_rows, E});
    key = generator.xavier_uniform({query_rows, options.key_size});
    value = generator.xavier_uniform({value_rows, options.value_size});
  }
  MultiHeadAttention layer(heads, without_drawn_bias(query, options.bias), without_drawn_bias(key, options.bias),
                           without_drawn_bias(value, options.bias));
  layer.output_ = std::move(output);
  if (options.bias_kv) {
    layer.bias_k_ = generator.xavier_normal({1, 1, query_rows}).view().reshape({query_rows}).clone();
    layer.bias_v_ = generator.xavier_normal({1, 1, value_rows}).view().reshape({value_rows}).clone();
  }
  layer.zero_attention_ = options.zero_attention;
  return layer;
}

MultiHeadAttention MultiHeadAttention::from_state_dict(const TensorMap& tensors, std::int64_t heads,
                                                       MultiHeadAttentionOptions options, std::string_view prefix) {
  check_heads(State::where, heads);
  State state(tensors, prefix);
  const Projections weights = read_projections(state, heads);
  const std::int64_t E = weights.query.size(1);
  const std::int64_t query_rows = weights.query.size(0);
  const std::int64_t value_rows = weights.value.size(0);
  check_option("d_k", options.d_k, query_rows / heads);
  check_option("d_v", options.d_v, value_rows / heads);
  check_option("key_size", options.key_size, weights.key.size(1));
  check_option("value_size", options.value_size, weights.value.size(1));

  const bool bias = state.has("in_proj_bias") || state.has("out_proj.bias");
  std::optional<View> query_bias, key_bias, value_bias, output_bias;
  if (bias) {
    const View joined = state.shaped("in_proj_bias", {2 * query_rows + value_rows});
    query_bias = joined.slice(0, 0, query_rows);
    key_bias = joined.slice(0, query_rows, 2 * query_rows);
    value_bias = joined.slice(0, 2 * query_rows, 2 * query_rows + value_rows);
  }
  MultiHeadAttention layer(heads, Linear(weights.query, query_bias), Linear(weights.key, key_bias),
                           Linear(weights.value, value_bias));
  if (options.output_projection) {
    const View weight = state.shaped("out_proj.weight", {E, value_rows});
    if (bias) output_bias = state.shaped("out_proj.bias", {E});
    layer.output_ = Linear(weight, output_bias);
  }
  if (state.has("bias_k") || state.has("bias_v")) {
    layer.bias_k_ = state.shaped("bias_k", {1, 1, query_rows}).reshape({query_rows}).to(DType::f32);
    layer.bias_v_ = state.shaped("bias_v", {1, 1, value_rows}).reshape({value_rows}).to(DType::f32);
  }
  layer.zero_attention_ = options.zero_attention;
  state.check_all_taken();
  return layer;
}

TensorMap MultiHeadAttention::state_dict() const {
  Parts parts;
  parts.query = query_.weight(), parts.key = key_.weight(), parts.value = value_.weight();
  parts.query_bias = view_of(query_.bias()), parts.key_bias = view_of(key_.bias());
  parts.value_bias = view_of(value_.bias());
  parts.bias_k = view_of(bias_k_), parts.bias_v = view_of(bias_v_);
  if (output_) {
    parts.output = output_->weight();
    parts.output_bias = view_of(output_->bias());
  }
  return by_name(parts);
}

TensorMap MultiHeadAttention::by_name(const Parts& parts) const {
  const std::int64_t E = query_.in_size();
  const std::int64_t sizes[] = {query_.out_size(), key_.in_size(), value_.in_size(), value_.out_size()};
  const bool joined = output_ && std::all_of(std::begin(sizes), std::end(sizes), [&](auto size) { return size == E; });
  TensorMap out;
  if (joined) {
    out["in_proj_weight"] = concatenate({parts.query, parts.key, parts.value});
  } else {
    out["q_proj_weight"] = parts.query.to(DType::f32);
    out["k_proj_weight"] = parts.key.to(DType::f32);
    out["v_proj_weight"] = parts.value.to(DType::f32);
  }
  if (parts.query_bias) out["in_proj_bias"] = concatenate({*parts.query_bias, *parts.key_bias, *parts.value_bias});
  if (parts.output) out["out_proj.weight"] = parts.output->to(DType::f32);
  if (parts.output_bias) out["out_proj.bias"] = parts.output_bias->clone();
  if (parts.bias_k) {
    out["bias_k"] = parts.bias_k->reshape({1, 1, -1}).to(DType::f32);
    out["bias_v"] = parts.bias_v->reshape({1, 1, -1}).to(DType::f32);
  }
  return out;
}

}  // namespace attend::inline v1
