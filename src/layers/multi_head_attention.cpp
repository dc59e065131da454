#include <algorithm>
#include <utility>

#include "attend/layers.h"
#include "core/message.h"
#include "layers/gradients.h"
#include "layers/masks.h"
#include "layers/multi_head.h"

namespace attend::inline v1 {

namespace {

void check_sequence(const char* name, const View& x, const View& query, std::int64_t features) {
  if (x.rank() != 2 && x.rank() != 3) {
    fail(ErrorCode::bad_shape, "MultiHeadAttention", "{} has shape {}, expected [T,E] or [B,T,E]", name, x.shape());
  }
  if (x.rank() != query.rank() || (x.rank() == 3 && x.size(0) != query.size(0))) {
    fail(ErrorCode::bad_shape, "MultiHeadAttention", "{} has shape {}, query {}, expected the same batch", name,
         x.shape(), query.shape());
  }
  if (!is_floating(x.dtype()))
    fail(ErrorCode::bad_dtype, "MultiHeadAttention", "{} is {}, expected floating point", name, x.dtype());
  if (x.size(-1) != features) {
    fail(ErrorCode::bad_shape, "MultiHeadAttention", "{} has {} features ({} {}), the layer takes {}", name, x.size(-1),
         name, x.shape(), features);
  }
}

// rows [...,T,N] -> [...,T + appended,N]: then the learned row, then the row of zeros.
Tensor append_rows(Tensor rows, const std::optional<Tensor>& learned, bool zeros) {
  if (!learned && !zeros) return rows;
  const std::int64_t own = rows.size(-2);
  Dims shape = rows.shape();
  shape[shape.rank() - 2] += (learned ? 1 : 0) + (zeros ? 1 : 0);
  Tensor out(shape, rows.dtype());
  out.view().slice(-2, 0, own).copy_from(rows);
  if (learned) {
    const MutableView row = out.view().slice(-2, own, own + 1);
    row.copy_from(learned->view().broadcast_to(row.shape()));
  }
  return out;
}

// For the gradient of x.
Tensor like(const View& x) {
  return Tensor::uninitialized(x.shape(), x.dtype());
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

// Queries, keys and values as attention() takes them.
struct Heads {
  View q, k, v;

  Heads(const MultiHeadAttentionState& state, std::int64_t heads)
      : q(split_heads(state.queries.view(), heads)),
        k(split_heads(state.keys.view(), heads)),
        v(split_heads(state.values.view(), heads)) {}
};

// [B,heads,Tq], without B where query [B,Tq,E] has none.
Dims lse_shape(const View& query, std::int64_t heads) {
  const std::int64_t Tq = query.size(-2);
  return query.rank() == 3 ? Dims{query.size(0), heads, Tq} : Dims{heads, Tq};
}

// Of x [B,T,N] or [T,N], row t, summed over B.
Tensor sum_row(const View& x, std::int64_t t) {
  const std::int64_t N = x.size(-1);
  const Tensor rows = (x.rank() == 3 ? x : x.reshape({1, x.size(0), N})).select(1, t).to(DType::f32);
  Tensor sums({N}, DType::f64);
  for (std::int64_t b = 0; b < rows.size(0); ++b) {
    const float* row = rows.data<float>() + b * N;
    for (std::int64_t n = 0; n < N; ++n) sums.data<double>()[n] += static_cast<double>(row[n]);
  }
  return sums.view().to(DType::f32);
}

void check_wanted(const MultiHeadAttentionCall& call, const MultiHeadAttentionBackward& wanted) {
  const auto check = [](std::string_view name, bool asked, const std::optional<View>& given) {
    if (!asked) return;
    if (!given) fail(ErrorCode::bad_value, "MultiHeadAttention", "d{} is wanted, but {} is not given", name, name);
    if (!is_floating(given->dtype())) {
      fail(ErrorCode::bad_value, "MultiHeadAttention", "d{} is wanted, but {} is {}, expected floating point", name,
           name, given->dtype());
    }
  };
  check("key_padding_mask", wanted.key_padding_mask, call.key_padding_mask);
  check("attn_mask", wanted.attn_mask, call.attn_mask);
  for (const TensorOption& option : tensor_options())
    if (option.wanted) check(option.name, wanted.attention.*option.wanted, call.attention.*option.value);
  if (wanted.attention.dlse || wanted.attention.lse_low)
    fail(ErrorCode::bad_value, "MultiHeadAttention", "dlse or lse_low is given, but lse is not a result of the layer");
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

MultiHeadAttention MultiHeadAttention::to(DType dtype) const {
  MultiHeadAttention layer(heads_, query_.to(dtype), key_.to(dtype), value_.to(dtype));
  if (output_) layer.output_ = output_->to(dtype);
  if (bias_k_) {
    layer.bias_k_ = bias_k_->view().to(dtype);
    layer.bias_v_ = bias_v_->view().to(dtype);
  }
  layer.zero_attention_ = zero_attention_;
  return layer;
}

MultiHeadAttentionResult MultiHeadAttention::forward(const View& query, const View& key, const View& value,
                                                     const MultiHeadAttentionCall& call) const {
  MultiHeadAttentionState state;
  std::optional<Tensor> weights = compute(query, key, value, call, state);
  // Step 3: the output projection.
  return {output_ ? output_->forward(state.concat_heads) : std::move(state.concat_heads), std::move(weights)};
}

MultiHeadAttentionResult MultiHeadAttention::forward(const View& query, const View& key, const View& value,
                                                     const MultiHeadAttentionCall& call,
                                                     MultiHeadAttentionState& state) const {
  std::optional<Tensor> weights = compute(query, key, value, call, state);
  // Step 3: the output projection.
  return {output_ ? output_->forward(state.concat_heads) : state.concat_heads.clone(), std::move(weights)};
}

// Fills the state, and gives the weights that the call asks for.
std::optional<Tensor> MultiHeadAttention::compute(const View& query, const View& key, const View& value,
                                                  const MultiHeadAttentionCall& call,
                                                  MultiHeadAttentionState& state) const {
  check_arguments(query, key, value);
  // Step 1: queries, keys and values of all heads, with the layer's own keys and values after the sequence's.
  state.queries = query_.forward(query);
  state.keys = append_rows(key_.forward(key), bias_k_, zero_attention_);
  state.values = append_rows(value_.forward(value), bias_v_, zero_attention_);
  // Step 2: attention, the heads reading and writing side by side.
  const Heads heads(state, heads_);
  const JoinedOptions joined = join_masks(call, heads.q, heads.k, heads.v, appended());
  state.concat_heads = Tensor::uninitialized(with_last(query.shape(), value_.out_size()), dtype());
  state.lse = Tensor::uninitialized(lse_shape(query, heads_));
  state.lse_low = Tensor::uninitialized(lse_shape(query, heads_));
  attention_into(split_heads(state.concat_heads.view(), heads_), state.lse.view(), heads.q, heads.k, heads.v,
                 joined.options, state.lse_low.view());
  if (call.weights == MultiHeadAttentionCall::Weights::none) return std::nullopt;
  Tensor weights = attention_steps(heads.q, heads.k, heads.v, joined.options).weights;
  return call.weights == MultiHeadAttentionCall::Weights::per_head ? std::move(weights) : average_heads(weights);
}

MultiHeadAttentionGradients MultiHeadAttention::backward(const View& doutput, const View& x,
                                                         const MultiHeadAttentionState& state,
                                                         const MultiHeadAttentionCall& call,
                                                         const MultiHeadAttentionBackward& wanted) const {
  MultiHeadAttentionGradients out = backward(doutput, x, x, x, state, call, wanted);
  out.dquery = sum_of(out.dquery, out.dkey, out.dvalue);
  out.dkey = Tensor(), out.dvalue = Tensor();
  return out;
}

MultiHeadAttentionGradients MultiHeadAttention::backward(const View& doutput, const View& query, const View& key,
                                                         const View& value, const MultiHeadAttentionState& state,
                                                         const MultiHeadAttentionCall& call,
                                                         const MultiHeadAttentionBackward& wanted) const {
  check_arguments(query, key, value);
  check_state(doutput, query, key, state);
  check_wanted(call, wanted);
  MultiHeadAttentionGradients out;
  // Step 3: the output projection.
  LinearGradients output;
  if (output_) output = output_->backward(doutput, state.concat_heads);
  Tensor made;
  const View dconcat_heads = output_ ? output.dx : in_dtype(doutput, dtype(), made);
  // Step 2: attention, the heads reading and writing side by side.
  Tensor dqueries = like(state.queries), dkeys = like(state.keys), dvalues = like(state.values);
  const AttentionGradientViews to{split_heads(dqueries.view(), heads_), split_heads(dkeys.view(), heads_),
                                  split_heads(dvalues.view(), heads_)};
  compute_backward(to, dconcat_heads, state, call, wanted, out);
  // Step 1: queries, keys and values of all heads; what lies after the sequence's keys and values is the layer's own.
  const std::int64_t own = key.size(-2);
  LinearGradients q = query_.backward(dqueries, query);
  LinearGradients k = key_.backward(dkeys.view().slice(-2, 0, own), key);
  LinearGradients v = value_.backward(dvalues.view().slice(-2, 0, own), value);
  Tensor dbias_k, dbias_v;
  if (bias_k_) dbias_k = sum_row(dkeys, own), dbias_v = sum_row(dvalues, own);
  Parts parts;
  parts.query = q.dweight, parts.key = k.dweight, parts.value = v.dweight;
  parts.query_bias = view_of(q.dbias), parts.key_bias = view_of(k.dbias), parts.value_bias = view_of(v.dbias);
  if (output_) parts.output = output.dweight;
  parts.output_bias = view_of(output.dbias);
  if (bias_k_) parts.bias_k = dbias_k, parts.bias_v = dbias_v;
  out.parameters = by_name(parts);
  out.dquery = std::move(q.dx), out.dkey = std::move(k.dx), out.dvalue = std::move(v.dx);
  return out;
}

// Step 2 of backward(): the gradients of queries, keys and values into `to`, those of the call's tensors into `out`.
void MultiHeadAttention::compute_backward(AttentionGradientViews to, const View& dconcat_heads,
                                          const MultiHeadAttentionState& state, const MultiHeadAttentionCall& call,
                                          const MultiHeadAttentionBackward& wanted,
                                          MultiHeadAttentionGradients& out) const {
  const Heads heads(state, heads_);
  const JoinedOptions joined = join_masks(call, heads.q, heads.k, heads.v, appended());
  bool of_bias = wanted.key_padding_mask || wanted.attn_mask;  // of the joined one
  for (const TensorOption& option : tensor_options()) {
    if (!option.wanted || !(wanted.attention.*option.wanted)) continue;
    if (option.shape == TensorOption::Shape::pairs || (option.positional && appended() > 0))
      of_bias = true;
    else
      to.*option.gradient_view = (out.*option.gradient).emplace(like(*(call.attention.*option.value))).view();
  }
  Tensor dbias;
  if (of_bias) {
    dbias = like(*joined.options.bias);
    to.dbias = dbias.view();
  }
  attention_backward_into(to, split_heads(dconcat_heads, heads_), heads.q, heads.k, heads.v,
                          split_heads(state.concat_heads.view(), heads_), state.lse, joined.options, {}, state.lse_low);
  if (to.dbias) split_bias(dbias, call, heads.q, heads.k, heads.v, appended(), wanted, out);
}

void MultiHeadAttention::check_arguments(const View& query, const View& key, const View& value) const {
  check_sequence("query", query, query, query_.in_size());
  check_sequence("key", key, query, key_.in_size());
  check_sequence("value", value, query, value_.in_size());
  if (key.size(-2) != value.size(-2)) {
    fail(ErrorCode::bad_shape, "MultiHeadAttention", "value has {} rows, key has {} (key {}, value {})", value.size(-2),
         key.size(-2), key.shape(), value.shape());
  }
}

void MultiHeadAttention::check_state(const View& doutput, const View& query, const View& key,
                                     const MultiHeadAttentionState& state) const {
  Dims keys = key.shape();
  keys[keys.rank() - 2] += appended();
  const auto check = [](const char* name, const View& given, const Dims& rows, std::int64_t features) {
    check_given("MultiHeadAttention", name, given, with_last(rows, features));
  };
  check("doutput", doutput, query.shape(), output_ ? output_->out_size() : value_.out_size());
  check("state.queries", state.queries, query.shape(), query_.out_size());
  check("state.keys", state.keys, keys, key_.out_size());
  check("state.values", state.values, keys, value_.out_size());
  check("state.concat_heads", state.concat_heads, query.shape(), value_.out_size());
  check_given("MultiHeadAttention", "state.lse", state.lse, lse_shape(query, heads_));
  check_given("MultiHeadAttention", "state.lse_low", state.lse_low, lse_shape(query, heads_));
}

}  // namespace attend::inline v1
