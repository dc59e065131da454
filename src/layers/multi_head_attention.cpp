#include <algorithm>
#include <utility>

#include "attend/layers.h"
#include "core/message.h"
#include "layers/masks.h"

namespace attend {

namespace {

void check_sequence(const char* name, const View& x, const View& query, std::int64_t features) {
  if (x.rank() != 2 && x.rank() != 3) {
    fail(ErrorCode::bad_shape, "MultiHeadAttention: {} has shape {}, expected [T,E] or [B,T,E]", name, x.shape());
  }
  if (x.rank() != query.rank() || (x.rank() == 3 && x.size(0) != query.size(0))) {
    fail(ErrorCode::bad_shape, "MultiHeadAttention: {} has shape {}, query {}, expected the same batch", name,
         x.shape(), query.shape());
  }
  if (!is_floating(x.dtype()))
    fail(ErrorCode::bad_dtype, "MultiHeadAttention: {} is {}, expected floating point", name, x.dtype());
  if (x.size(-1) != features) {
    fail(ErrorCode::bad_shape, "MultiHeadAttention: {} has {} features ({} {}), the layer takes {}", name, x.size(-1),
         name, x.shape(), features);
  }
}

// rows [...,T,N] -> [...,T + appended,N]: then the learned row, then the row of zeros.
Tensor append_rows(Tensor rows, const std::optional<Tensor>& learned, bool zeros) {
  if (!learned && !zeros) return rows;
  const std::int64_t own = rows.size(-2);
  Dims shape = rows.shape();
  shape[shape.rank() - 2] += (learned ? 1 : 0) + (zeros ? 1 : 0);
  Tensor out(shape);
  out.view().slice(-2, 0, own).copy_from(rows);
  if (learned) {
    const MutableView row = out.view().slice(-2, own, own + 1);
    row.copy_from(learned->view().broadcast_to(row.shape()));
  }
  return out;
}

// [...,T,heads * d] -> [...,heads,T,d]
template <class AnyView>
AnyView split_heads(const AnyView& x, std::int64_t heads) {
  Dims shape = x.shape();
  const std::int64_t width = x.size(-1);
  shape[shape.rank() - 1] = heads;
  shape.push_back(width / heads);
  return x.reshape(shape).transpose(-3, -2);
}

// [...,heads,Tq,Tk] -> [...,Tq,Tk]
Tensor average_heads(const View& weights) {
  const std::int64_t heads = weights.size(-3);
  Dims shape = weights.shape();
  shape[shape.rank() - 3] = 1;
  Tensor sum(shape, DType::f64);
  double* out = sum.data<double>();
  const float* in = weights.data<float>();
  const std::int64_t pairs = weights.size(-2) * weights.size(-1);
  for (std::int64_t head = 0; head < (pairs == 0 ? 0 : weights.count() / pairs); ++head) {
    double* mean = out + head / heads * pairs;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      mean[pair] += static_cast<double>(in[head * pairs + pair]) / static_cast<double>(heads);
    }
  }
  return sum.view().select(-3, 0).to(DType::f32);
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(std::int64_t heads, Linear query, Linear key, Linear value)
    : heads_(heads), query_(std::move(query)), key_(std::move(key)), value_(std::move(value)) {}

MultiHeadAttentionResult MultiHeadAttention::forward(const View& query, const View& key, const View& value,
                                                     const MultiHeadAttentionCall& call) const {
  check_sequence("query", query, query, query_.in_size());
  check_sequence("key", key, query, key_.in_size());
  check_sequence("value", value, query, value_.in_size());
  if (key.size(-2) != value.size(-2)) {
    fail(ErrorCode::bad_shape, "MultiHeadAttention: value has {} rows, key has {} (key {}, value {})", value.size(-2),
         key.size(-2), key.shape(), value.shape());
  }
  const Tensor queries = query_.forward(query);
  const Tensor keys = append_rows(key_.forward(key), bias_k_, zero_attention_);
  const Tensor values = append_rows(value_.forward(value), bias_v_, zero_attention_);
  const View q = split_heads(queries.view(), heads_);
  const View k = split_heads(keys.view(), heads_);
  const View v = split_heads(values.view(), heads_);
  const JoinedOptions joined = join_masks(call, q, k, v, keys.size(-2) - key.size(-2));

  MultiHeadAttentionResult result;
  Dims rows = query.shape();
  rows[rows.rank() - 1] = value_.out_size();
  Tensor concat = Tensor::uninitialized(rows);  // the heads write side by side
  attention_into(split_heads(concat.view(), heads_), std::nullopt, q, k, v, joined.options);
  if (call.weights != MultiHeadAttentionCall::Weights::none) {
    Tensor weights = attention_steps(q, k, v, joined.options).weights;
    const bool per_head = call.weights == MultiHeadAttentionCall::Weights::per_head;
    result.weights = per_head ? std::move(weights) : average_heads(weights);
  }
  result.output = output_ ? output_->forward(concat) : std::move(concat);
  return result;
}

}  // namespace attend
