#include "models/batch.h"

#include <algorithm>

#include "attend/attention.h"
#include "core/message.h"
#include "models/knockouts.h"

namespace attend::inline v1::models {

namespace {

// [N,heads * D], or [N,heads,D] -> [1,heads,N,D]
View head_by_head(const View& x, std::int64_t heads) {
  if (x.rank() == 3) {
    const auto strides = x.strides();
    return View(x.raw(), x.dtype(), {1, heads, x.size(0), x.size(2)}, {0, strides[1], strides[0], 1});
  }
  const std::int64_t N = x.size(0), D = x.size(1) / heads;
  return View(x.raw(), x.dtype(), {1, heads, N, D}, {0, D, x.strides()[0], 1});
}

// [1,heads,N,D] -> [N,heads * D]
Tensor side_by_side(const View& x) {
  Tensor rows = Tensor::uninitialized({x.size(2), x.size(1) * x.size(3)}, x.dtype());
  rows.view().reshape({x.size(2), x.size(1), x.size(3)}).copy_from(x.select(0, 0).transpose(0, 1));
  return rows;
}

// All sequences at once, over the keys that begin at key_starts: their own, or one text that all of them read.
void attend_packed(const Batch& batch, const AttentionStep& step, const std::vector<std::int64_t>& key_starts,
                   const View& q, const View& k, const View& v, const MutableView& out) {
  const AttentionOptions options = step.packed_options(batch, key_starts);
  KeptLayer* keeps = batch.keeps(static_cast<std::size_t>(step.layer));
  if (!keeps) return attention_into(out, {}, q, k, v, options);
  KeptAttention& kept = step.cross ? keeps->cross : keeps->self;
  kept.q = side_by_side(q), kept.k = side_by_side(k), kept.v = side_by_side(v);
  kept.lse = Tensor::uninitialized({1, q.size(1), q.size(2)}), kept.lse_low = kept.lse.clone();
  attention_into(out, kept.lse.view(), q, k, v, options, kept.lse_low.view());
  kept.out = side_by_side(out);
}

// The name of a layer's attention in a recording.
std::string name_of(const Batch& batch, const AttentionStep& step) {
  constexpr const char* stacks[] = {"", "encoder.", "decoder."};
  return fmt::format("{}{}.{}", stacks[static_cast<int>(batch.stack)], step.layer, step.cross ? "cross" : "self");
}

// One sequence, which a recorder is shown.
void attend_recorded(const Batch& batch, const AttentionStep& step, const AttentionOptions& options, const View& q,
                     const View& k, const View& v, const MutableView& out) {
  const std::string name = name_of(batch, step);
  RecordCall call{.layer = name, .kind = step.cross ? "cross" : "self", .activations = batch.activations};
  if (!step.cross) call.tokens = View(batch.recorded_ids.data(), DType::i64, {std::ssize(batch.recorded_ids)});
  batch.recorder->check(call, q.shape(), k.shape(), q.dtype(), options);
  const AttentionResult result = attention(q, k, v, options, {.lse_low = true});
  Tensor sizes;
  if (batch.recorder->options().key_sizes) {
    const bool follows = batch.recorder->has(name) && !step.cross;
    const std::int64_t first = follows ? v.size(2) - q.size(2) : 0;
    const Linear& output = *step.output;
    const View values = v.slice(2, first, v.size(2));
    sizes = output.quantized() ? key_sizes(values, output.weight_rows(0, output.out_size()))
                               : key_sizes(values, output.weight());
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

// The caches take k and v, whose sequences begin at starts. Whether they had nothing before: what is at hand is all
// then.
bool append(std::span<const std::int64_t> starts, std::span<KvCache* const> caches, const View& k, const View& v) {
  bool fresh = true;
  for (std::size_t s = 0; s < caches.size(); ++s) {
    fresh &= caches[s]->length() == 0 && caches[s]->dtype() == k.dtype();
    caches[s]->append(k.slice(2, starts[s], starts[s + 1]), v.slice(2, starts[s], starts[s + 1]));
  }
  return fresh;
}

// A call's rows, and where their context comes.
struct Rows {
  Rows(const View& rows, std::int64_t heads)
      : q(head_by_head(rows, heads)),
        context(Tensor::uninitialized({rows.size(0), heads * q.size(3)}, rows.dtype())),
        out(context.raw(), context.dtype(), q.shape(), {0, q.size(3), heads * q.size(3), 1}) {}

  View q;
  Tensor context;
  MutableView out;
};

// Over caches that have all keys.
void attend_cached(const Batch& batch, const AttentionStep& step, const AttentionOptions& options, Rows& rows,
                   std::span<KvCache* const> caches) {
  if (batch.recorder) {
    attend_recorded(batch, step, options, rows.q, caches[0]->keys(), caches[0]->values(), rows.out);
  } else if (rows.q.size(2) == batch.sequences()) {
    attend_step(options, rows.q, caches, rows.out);
  } else {
    for (std::size_t s = 0; s < caches.size(); ++s) {
      const std::int64_t begin = batch.starts[s], end = batch.starts[s + 1];
      rows.out.slice(2, begin, end).copy_from(attention(rows.q.slice(2, begin, end), *caches[s], options).out);
    }
  }
}

// Over keys that are all at hand.
void attend_fresh(const Batch& batch, const AttentionStep& step, const AttentionOptions& options, Rows& rows,
                  const View& k, const View& v, const std::vector<std::int64_t>& key_starts) {
  if (batch.recorder)
    attend_recorded(batch, step, options, rows.q, k, v, rows.out);
  else
    attend_packed(batch, step, key_starts, rows.q, k, v, rows.out);
}

std::span<KvCache* const> caches_of(const std::vector<std::vector<KvCache*>>& layers, std::int64_t layer) {
  if (layers.empty()) return {};
  return layers[static_cast<std::size_t>(layer)];
}

// Those rows of one sequence that knockouts leave.
void attend_before_knockouts(const Knockouts& knockouts, const AttentionStep& step, AttentionOptions options,
                             Rows& rows, const View& k, const View& v) {
  const std::int64_t first = knockouts.rows_before(step, rows.q.size(2));
  options.offset = Offset(0);
  attention_into(rows.out.slice(2, 0, first), {}, rows.q.slice(2, 0, first), k, v, options);
}

// What knockouts change of the rows, which are there: over caches, or over keys that are all at hand.
void knock_out(const Batch& batch, const AttentionStep& step, Rows& rows, std::span<KvCache* const> caches,
               const View& k, const View& v, const std::vector<std::int64_t>& key_starts) {
  for (std::size_t s = 0; batch.knockouts && s + 1 < batch.starts.size(); ++s) {
    const std::int64_t begin = batch.starts[s], end = batch.starts[s + 1],
                       position = batch.positions[static_cast<std::size_t>(begin)];
    const std::size_t of = key_starts.size() > 2 ? s : 0;
    const Range own = caches.empty() ? Range{key_starts[of], key_starts[of + 1]} : Range{0, caches[s]->length()};
    const auto attend = [&](const View& q, const AttentionOptions& options) {
      return caches.empty() ? attention(q, k.slice(2, own.begin, own.end), v.slice(2, own.begin, own.end), options)
                            : attention(q, *caches[s], options);
    };
    batch.knockouts->apply(step, rows.q.slice(2, begin, end), position, own.end - own.begin,
                           rows.out.slice(2, begin, end), attend);
  }
}

}  // namespace

AttentionOptions AttentionStep::options() const {
  AttentionOptions all;
  all.scale = scale;
  all.causal = causal;
  all.softcap = softcap;
  all.distance_bias = distance_bias;
  if (window > 0) all.window.left = window - 1;
  if (window > 0 && !causal) all.window.right = window - 1;
  if (!cross) all.offset = Offset::bottom_right();
  return all;
}

AttentionOptions AttentionStep::packed_options(const Batch& batch, const std::vector<std::int64_t>& key_starts) const {
  AttentionOptions all = options();
  if (key_starts.size() <= 2) return all;
  all.query_starts = View(batch.starts.data(), DType::i64, {std::ssize(batch.starts)});
  all.key_starts = View(key_starts.data(), DType::i64, {std::ssize(key_starts)});
  return all;
}

ModelPlace place_in(Stack stack, ModelPlace place) {
  if (stack != Stack::encoder) return place;
  switch (place) {
    case ModelPlace::embeddings:
      return ModelPlace::encoder_embeddings;
    case ModelPlace::residual:
      return ModelPlace::encoder_residual;
    case ModelPlace::q:
      return ModelPlace::encoder_q;
    case ModelPlace::k:
      return ModelPlace::encoder_k;
    case ModelPlace::v:
      return ModelPlace::encoder_v;
    case ModelPlace::z:
      return ModelPlace::encoder_z;
    case ModelPlace::attention:
      return ModelPlace::encoder_attention;
    case ModelPlace::residual_mid:
      return ModelPlace::encoder_residual_mid;
    case ModelPlace::mlp_input:
      return ModelPlace::encoder_mlp_input;
    case ModelPlace::mlp_hidden:
      return ModelPlace::encoder_mlp_hidden;
    case ModelPlace::mlp:
      return ModelPlace::encoder_mlp;
    default:
      return place;
  }
}

namespace {

// Heads that lie apart are shown side by side.
void show(const Batch& batch, ModelPlace place, std::int64_t layer, const MutableView& x) {
  if (x.rank() == 2) return batch.watcher->at(place_in(batch.stack, place), layer, x);
  Tensor rows = x.clone();
  batch.watcher->at(place_in(batch.stack, place), layer, rows.view().reshape({x.size(0), x.size(1) * x.size(2)}));
  x.copy_from(rows);
}

}  // namespace

void Batch::projected(std::size_t layer, const MutableView& q, const MutableView& k, const MutableView& v) const {
  if (!watcher) return;
  const auto n = static_cast<std::int64_t>(layer);
  show(*this, ModelPlace::q, n, q), show(*this, ModelPlace::k, n, k), show(*this, ModelPlace::v, n, v);
}

void Batch::activate(std::size_t layer, Activation f, Tensor& x, const Tensor* gated) const {
  if (KeptLayer* to = keeps(layer)) to->mlp = {x.clone(), gated ? gated->clone() : Tensor()};
  gated ? attend::activate(f, x.view(), *gated) : attend::activate(f, x.view());
}

Tensor attend(const Batch& batch, const AttentionStep& step, const MutableView& q, const MutableView& k_rows,
              const MutableView& v_rows) {
  if (batch.watcher && batch.stack != Stack::encoder) {
    show(batch, ModelPlace::rotated_q, step.layer, q);
    show(batch, ModelPlace::rotated_k, step.layer, k_rows);
  }
  Rows rows(q, step.heads);
  const View k = head_by_head(k_rows, step.kv_heads), v = head_by_head(v_rows, step.kv_heads);
  const AttentionOptions options = step.options();
  const std::span<KvCache* const> caches = caches_of(batch.layers, step.layer);
  const bool fresh = append(batch.starts, caches, k, v);
  if (batch.watcher && batch.stack != Stack::encoder) batch.watcher->attends(step, rows.q, v);
  if (batch.knockouts && batch.sequences() == 1 && caches.empty() && !batch.recorder)
    attend_before_knockouts(*batch.knockouts, step, options, rows, k, v);
  else if (fresh)
    attend_fresh(batch, step, options, rows, k, v, batch.starts);
  else
    attend_cached(batch, step, options, rows, caches);
  knock_out(batch, step, rows, fresh ? std::span<KvCache* const>() : caches, k, v, batch.starts);
  return std::move(rows.context);
}

FirstRows::FirstRows(const Batch& batch) {
  for (std::size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    const std::int64_t begin = batch.starts[s], end = std::min(batch.starts[s + 1], begin + fewest_rows);
    for (std::int64_t row = begin; row < end; ++row) rows.push_back(row);
    starts.push_back(std::ssize(rows));
  }
}

Tensor attend_first(const Batch& batch, const AttentionStep& step, const FirstRows& of, const View& q, const View& k,
                    const View& v) {
  Rows rows(q, step.heads);
  AttentionOptions options = step.options();
  options.query_starts = View(of.starts.data(), DType::i64, {std::ssize(of.starts)});
  options.key_starts = View(batch.starts.data(), DType::i64, {std::ssize(batch.starts)});
  attention_into(rows.out, {}, rows.q, head_by_head(k, step.kv_heads), head_by_head(v, step.kv_heads), options);
  return std::move(rows.context);
}

Tensor attend_memory(const Batch& batch, const AttentionStep& step, const MutableView& q, const Linear& key,
                     const Linear& value) {
  if (batch.watcher) show(batch, ModelPlace::cross_q, step.layer, q);
  Rows rows(q, step.heads);
  const AttentionOptions options = step.options();
  const std::span<KvCache* const> caches = caches_of(batch.cross, step.layer);
  bool fresh = false;
  std::vector<Tensor> made(2);
  if (batch.memory) {
    made = Linear::forward_each({&key, &value}, batch.memory->states);
    if (batch.watcher) {
      show(batch, ModelPlace::cross_k, step.layer, made[0].view());
      show(batch, ModelPlace::cross_v, step.layer, made[1].view());
    }
    fresh = append(batch.memory->starts, caches, head_by_head(made[0], step.kv_heads),
                   head_by_head(made[1], step.kv_heads));
  }
  if (batch.watcher) batch.watcher->attends(step, rows.q, batch.memory ? head_by_head(made[1], step.kv_heads) : View());
  if (fresh)
    attend_fresh(batch, step, options, rows, head_by_head(made[0], step.kv_heads), head_by_head(made[1], step.kv_heads),
                 batch.memory->starts);
  else
    attend_cached(batch, step, options, rows, caches);
  if (fresh)
    knock_out(batch, step, rows, {}, head_by_head(made[0], step.kv_heads), head_by_head(made[1], step.kv_heads),
              batch.memory->starts);
  else
    knock_out(batch, step, rows, caches, {}, {}, {});
  return std::move(rows.context);
}

}  // namespace attend::inline v1::models
