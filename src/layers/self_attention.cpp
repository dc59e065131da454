#include <span>
#include <utility>

#include "attend/layers.h"
#include "core/message.h"
#include "layers/gradients.h"

namespace attend::inline v1 {

namespace {

// w [in,out], used as x @ w, is the transpose of what Linear holds.
Linear parameter(const char* name, const View& w) {
  if (w.rank() != 2) {
    fail(ErrorCode::bad_shape, "SelfAttention", "{} has shape {}, expected [E,D]", name, w.shape());
  }
  return Linear(w.transpose(0, 1));
}

Dims without_last(const Dims& shape) {
  return Dims(std::span(shape.begin(), shape.end() - 1));
}

// [B,T,...] -> [B,1,T,...], as attention() takes it; what has no batch needs no head.
template <class AnyView>
AnyView one_head(const AnyView& t, const View& x) {
  if (x.rank() == 2) return t;
  Dims shape{t.size(0), 1};
  for (int axis = 1; axis < t.rank(); ++axis) shape.push_back(t.size(axis));
  return t.reshape(shape);
}

}  // namespace

SelfAttention::SelfAttention(std::int64_t embedding_size, std::int64_t d_k, std::int64_t d_v, Generator& generator,
                             SelfAttentionOptions options)
    : query_(embedding_size, d_k, generator, {.bias = options.qkv_bias}),
      key_(embedding_size, d_k, generator, {.bias = options.qkv_bias}),
      value_(embedding_size, d_v, generator, {.bias = options.qkv_bias}) {}

SelfAttention::SelfAttention(Linear query, Linear key, Linear value)
    : query_(std::move(query)), key_(std::move(key)), value_(std::move(value)) {
  if (key_.in_size() != query_.in_size() || value_.in_size() != query_.in_size()) {
    fail(ErrorCode::bad_shape, "SelfAttention", "query, key and value take {}, {} and {} features, expected the same",
         query_.in_size(), key_.in_size(), value_.in_size());
  }
  if (key_.dtype() != query_.dtype() || value_.dtype() != query_.dtype()) {
    fail(ErrorCode::bad_dtype, "SelfAttention", "query, key and value are {}, {} and {}, expected one dtype",
         query_.dtype(), key_.dtype(), value_.dtype());
  }
  if (key_.out_size() != query_.out_size()) {
    fail(ErrorCode::bad_shape, "SelfAttention", "key makes {} features, query {}", key_.out_size(), query_.out_size());
  }
}

SelfAttention SelfAttention::from_parameters(const View& w_query, const View& w_key, const View& w_value) {
  return SelfAttention(parameter("w_query", w_query), parameter("w_key", w_key), parameter("w_value", w_value));
}

SelfAttention SelfAttention::to(DType dtype) const {
  return SelfAttention(query_.to(dtype), key_.to(dtype), value_.to(dtype));
}

void SelfAttention::check_input(const View& x) const {
  if (x.rank() != 2 && x.rank() != 3) {
    fail(ErrorCode::bad_shape, "SelfAttention", "x has shape {}, expected [T,E] or [B,T,E]", x.shape());
  }
  if (x.size(-1) != query_.in_size()) {
    fail(ErrorCode::bad_shape, "SelfAttention", "x has {} features (x {}), the layer takes {}", x.size(-1), x.shape(),
         query_.in_size());
  }
}

Tensor SelfAttention::forward(const View& x, const AttentionOptions& options) const {
  SelfAttentionState state;
  compute(x, options, state);
  return std::move(state.context);
}

Tensor SelfAttention::forward(const View& x, const AttentionOptions& options, SelfAttentionState& state) const {
  compute(x, options, state);
  return state.context.clone();
}

void SelfAttention::compute(const View& x, const AttentionOptions& options, SelfAttentionState& state) const {
  check_input(x);
  // Step 1: queries, keys and values, each a Linear layer of x.
  std::vector<Tensor> qkv = Linear::forward_each({&query_, &key_, &value_}, x);
  state.queries = std::move(qkv[0]);
  state.keys = std::move(qkv[1]);
  state.values = std::move(qkv[2]);
  // Step 2: attention, of one head.
  state.context = Tensor::uninitialized(state.values.shape(), state.values.dtype());
  state.lse = Tensor::uninitialized(without_last(x.shape()));
  state.lse_low = Tensor::uninitialized(without_last(x.shape()));
  attention_into(one_head(state.context.view(), x), one_head(state.lse.view(), x), one_head(state.queries.view(), x),
                 one_head(state.keys.view(), x), one_head(state.values.view(), x), options,
                 one_head(state.lse_low.view(), x));
}

SelfAttentionGradients SelfAttention::backward(const View& dcontext, const View& x, const SelfAttentionState& state,
                                               const AttentionOptions& options, const BackwardOptions& backward) const {
  check_input(x);
  check_state(dcontext, x, state);
  // Step 2: attention, of one head.
  Tensor made;
  BackwardOptions wanted = backward;
  if (wanted.dlse) wanted.dlse = one_head(*wanted.dlse, x);
  wanted.lse_low = one_head(state.lse_low.view(), x);
  AttentionGradients gradients = attention_backward(one_head(in_dtype(dcontext, state.context.dtype(), made), x),
                                                    one_head(state.queries.view(), x), one_head(state.keys.view(), x),
                                                    one_head(state.values.view(), x), one_head(state.context.view(), x),
                                                    one_head(state.lse.view(), x), options, wanted);
  // Step 1: queries, keys and values, each a Linear layer of x.
  const auto rows = [](const Tensor& gradient, const Tensor& of) { return gradient.view().reshape(of.shape()); };
  SelfAttentionGradients out{{},
                             {},
                             query_.backward(rows(gradients.dq, state.queries), x),
                             key_.backward(rows(gradients.dk, state.keys), x),
                             value_.backward(rows(gradients.dv, state.values), x)};
  static_cast<OptionGradients&>(out) = std::move(gradients);
  out.dx = sum_of(out.query.dx, out.key.dx, out.value.dx);
  return out;
}

void SelfAttention::check_state(const View& dcontext, const View& x, const SelfAttentionState& state) const {
  const auto check = [&](const char* name, const View& given, const Linear& layer) {
    check_given("SelfAttention", name, given, with_last(x.shape(), layer.out_size()));
  };
  check("dcontext", dcontext, value_);
  check("state.queries", state.queries, query_);
  check("state.keys", state.keys, key_);
  check("state.values", state.values, value_);
  check("state.context", state.context, value_);
  check_given("SelfAttention", "state.lse", state.lse, without_last(x.shape()));
  check_given("SelfAttention", "state.lse_low", state.lse_low, without_last(x.shape()));
}

}  // namespace attend::inline v1
