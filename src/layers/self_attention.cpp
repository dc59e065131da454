#include <utility>

#include "attend/layers.h"
#include "core/message.h"

namespace attend {

namespace {

// w [in,out], used as x @ w, is the transpose of what Linear holds.
Linear parameter(const char* name, const View& w) {
  if (w.rank() != 2) {
    fail(ErrorCode::bad_shape, "SelfAttention: {} has shape {}, expected [E,D]", name, w.shape());
  }
  return Linear(w.transpose(0, 1));
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
    fail(ErrorCode::bad_shape, "SelfAttention: query, key and value take {}, {} and {} features, expected the same",
         query_.in_size(), key_.in_size(), value_.in_size());
  }
  if (key_.out_size() != query_.out_size()) {
    fail(ErrorCode::bad_shape, "SelfAttention: key makes {} features, query {}", key_.out_size(), query_.out_size());
  }
}

SelfAttention SelfAttention::from_parameters(const View& w_query, const View& w_key, const View& w_value) {
  return SelfAttention(parameter("w_query", w_query), parameter("w_key", w_key), parameter("w_value", w_value));
}

Tensor SelfAttention::forward(const View& x, const AttentionOptions& options) const {
  if (x.rank() != 2 && x.rank() != 3) {
    fail(ErrorCode::bad_shape, "SelfAttention: x has shape {}, expected [T,E] or [B,T,E]", x.shape());
  }
  if (x.size(-1) != query_.in_size()) {
    fail(ErrorCode::bad_shape, "SelfAttention: x has {} features (x {}), the layer takes {}", x.size(-1), x.shape(),
         query_.in_size());
  }
  const Tensor queries = query_.forward(x);
  const Tensor keys = key_.forward(x);
  const Tensor values = value_.forward(x);
  if (x.rank() == 2) return attention(queries, keys, values, options).out;
  const auto one_head = [](const View& t) { return t.reshape({t.size(0), 1, t.size(1), t.size(2)}); };
  const AttentionResult result = attention(one_head(queries), one_head(keys), one_head(values), options);
  return result.out.view().select(1, 0).clone();
}

}  // namespace attend
