#include "models/batch.h"

#include <algorithm>

#include "attend/attention.h"
#include "core/message.h"

namespace attend::models {

namespace {

// [N,heads * D], or [N,heads,D] -> [1,heads,N,D]
View by_heads(const View& x, std::int64_t heads) {
  if (x.rank() == 3) {
    const auto strides = x.strides();
    return View(x.raw(), x.dtype(), {1, heads, x.size(0), x.size(2)}, {0, strides[1], strides[0], 1});
  }
  const std::int64_t N = x.size(0), D = x.size(1) / heads;
  return View(x.raw(), x.dtype(), {1, heads, N, D}, {0, D, x.strides()[0], 1});
}

AttentionOptions options_of(const AttentionStep& step) {
  AttentionOptions options;
  options.scale = step.scale;
  options.causal = step.causal;
  options.softcap = step.softcap;
  options.distance_bias = step.distance_bias;
  if (step.window > 0) options.window.left = step.window - 1;
  if (step.window > 0 && !step.causal) options.window.right = step.window - 1;
  options.offset = Offset::bottom_right();
  return options;
}

// All sequences at once, over their own keys.
void attend_packed(const Batch& batch, const AttentionOptions& plain, const View& q, const View& k, const View& v,
                   const MutableView& out) {
  AttentionOptions options = plain;
  const View starts(batch.starts.data(), DType::i64, {std::ssize(batch.starts)});
  if (batch.sequences() > 1) options.query_starts = options.key_starts = starts;
  attention_into(out, {}, q, k, v, options);
}

// One sequence, which a recorder is shown.
void attend_recorded(const Batch& batch, const AttentionStep& step, const AttentionOptions& options, const View& q,
                     const View& k, const View& v, const MutableView& out) {
  const std::string name = fmt::format("{}.self", step.layer);
  RecordCall call{name};
  call.tokens = View(batch.recorded_ids.data(), DType::i64, {std::ssize(batch.recorded_ids)});
  batch.recorder->check(call, q.shape(), k.shape(), q.dtype(), options);
  const AttentionResult result = attention(q, k, v, options, {.lse_low = true});
  Tensor sizes;
  if (batch.recorder->options().key_sizes) {
    const std::int64_t first = batch.recorder->has(name) ? v.size(2) - q.size(2) : 0;
    sizes = key_sizes(v.slice(2, first, v.size(2)), step.output->weight());
    call.key_sizes = sizes;
  }
  batch.recorder->add(call, q, k, result.lse, *result.lse_low, options);
  out.copy_from(result.out);
}

// One new token each, over caches: what they share is read once.
void attend_step(const AttentionOptions& options, const View& q, std::span<KvCache* const> caches,
                 const MutableView& out) {
  const std::vector<const KvCache*> all(caches.begin(), caches.end());
  const View rows = q.permute({2, 1, 0, 3});  // [sequences,H,1,D]
  out.permute({2, 1, 0, 3}).copy_from(attention(rows, all, options).out);
}

// The caches take what is new of their sequences. Whether nothing came before it: what is at hand is all then.
bool append(const Batch& batch, std::span<KvCache* const> caches, const View& k, const View& v) {
  bool fresh = true;
  for (std::size_t s = 0; s < caches.size(); ++s) {
    const std::int64_t begin = batch.starts[s], end = batch.starts[s + 1];
    fresh &= caches[s]->length() == 0 && caches[s]->dtype() == k.dtype();
    caches[s]->append(k.slice(2, begin, end), v.slice(2, begin, end));
  }
  return fresh;
}

}  // namespace

Tensor attend(const Batch& batch, const AttentionStep& step, const View& q_rows, const View& k_rows,
              const View& v_rows) {
  const View q = by_heads(q_rows, step.heads), k = by_heads(k_rows, step.kv_heads), v = by_heads(v_rows, step.kv_heads);
  const std::int64_t wide = step.heads * q.size(3);
  Tensor context = Tensor::uninitialized({q_rows.size(0), wide}, q_rows.dtype());
  const MutableView out(context.raw(), context.dtype(), q.shape(), {0, q.size(3), wide, 1});
  const AttentionOptions options = options_of(step);
  std::span<KvCache* const> caches;
  if (!batch.layers.empty()) caches = batch.layers[static_cast<std::size_t>(step.layer)];
  const bool fresh = append(batch, caches, k, v);
  if (batch.watcher) batch.watcher->attends(step, q, k, v);
  if (batch.recorder && fresh) {
    attend_recorded(batch, step, options, q, k, v, out);
  } else if (batch.recorder) {
    attend_recorded(batch, step, options, q, caches[0]->keys(), caches[0]->values(), out);
  } else if (fresh) {
    attend_packed(batch, options, q, k, v, out);
  } else if (q.size(2) == batch.sequences()) {
    attend_step(options, q, caches, out);
  } else {
    for (std::size_t s = 0; s < caches.size(); ++s) {
      const std::int64_t begin = batch.starts[s], end = batch.starts[s + 1];
      out.slice(2, begin, end).copy_from(attention(q.slice(2, begin, end), *caches[s], options).out);
    }
  }
  return context;
}

}  // namespace attend::models
