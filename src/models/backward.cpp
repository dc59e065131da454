#include "models/backward.h"

#include "attend/attention.h"
#include "layers/rows.h"

namespace attend::inline v1::models {

namespace {

Tensor in_f32(Tensor x) {
  return x.dtype() == DType::f32 ? std::move(x) : converted(x, DType::f32);
}

}  // namespace

Tensor input_gradient(std::initializer_list<std::pair<const Linear*, const Tensor*>> layers) {
  Tensor sum;
  for (const auto& [layer, d] : layers) {
    Tensor part = layer->input_gradient(*d);
    if (sum.count() == 0)
      sum = std::move(part);
    else
      add_to(sum, part);
  }
  return sum;
}

ActivationGradients Backward::activated(std::size_t layer, Activation f, const Tensor& d) const {
  const KeptActivation& kept = this->kept(layer).mlp;
  const bool gated = kept.gated.count() > 0;
  const OptionalView gate = gated ? OptionalView(kept.gated.view()) : OptionalView();
  if (copies_ == 1) return activation_gradient(f, d, kept.x, gate);
  ActivationGradients all{Tensor::uninitialized(d.shape()), gated ? Tensor::uninitialized(d.shape()) : Tensor()};
  const std::int64_t N = kept.x.size(0);
  for (std::int64_t c = 0; c < copies_; ++c) {
    const auto part = [&](auto x) { return x.slice(0, c * N, (c + 1) * N); };
    const ActivationGradients one = activation_gradient(f, part(d.view()), kept.x, gate);
    part(all.dx.view()).copy_from(one.dx);
    if (gated) part(all.dgated.view()).copy_from(one.dgated);
  }
  return all;
}

Tensor Backward::mlp(std::size_t layer, Activation f, const Linear* gate, const Linear& in, const Linear& out,
                     const Tensor& dy) const {
  const ActivationGradients hidden = activated(layer, f, seen(ModelPlace::mlp_hidden, layer, out.input_gradient(dy)));
  return seen(ModelPlace::mlp_input, layer,
              gate ? input_gradient({{gate, &hidden.dx}, {&in, &hidden.dgated}}) : in.input_gradient(hidden.dx));
}

void Backward::rotated(Tensor& d, std::int64_t heads, const RotaryAngles& back) const {
  const std::int64_t N = back.cos.size(0), D = d.size(1) / heads;
  for (std::int64_t c = 0; c < copies_; ++c)
    RotaryEmbedding::rotate(d.view().slice(0, c * N, (c + 1) * N).reshape({N, heads, D}), back);
}

HeadGradients Backward::attention_gradients(const AttentionStep& step, const KeptAttention& kept, const Tensor& dz,
                                            const std::vector<std::int64_t>& key_starts) const {
  if (attentions_) attentions_(batch_, step, kept, dz);
  const DType dtype = kept.q.dtype();
  const std::int64_t N = kept.q.size(0), M = kept.k.size(0), H = step.heads, Hkv = step.kv_heads;
  const auto room = [&](const Tensor& like) {
    return Tensor::uninitialized({copies_ * like.size(0), like.size(1)}, dtype);
  };
  Tensor dq = room(kept.q), dk = room(kept.k), dv = room(kept.v), rounded;
  if (dtype != DType::f32) rounded = converted(dz, dtype);
  const View dout = dtype == DType::f32 ? dz.view() : rounded.view();
  AttentionOptions options = step.packed_options(batch_, key_starts);
  if (N < M && !step.cross) options.offset = Offset::bottom_right();  // gradients are of the last rows
  for (std::int64_t c = 0; c < copies_; ++c) {
    const std::int64_t q = c * N, k = c * M;
    attention_backward_into({.dq = by_heads(dq.view().slice(0, q, q + N), H),
                             .dk = by_heads(dk.view().slice(0, k, k + M), Hkv),
                             .dv = by_heads(dv.view().slice(0, k, k + M), Hkv)},
                            by_heads(dout.slice(0, q, q + N), H), by_heads(kept.q.view(), H),
                            by_heads(kept.k.view(), Hkv), by_heads(kept.v.view(), Hkv), by_heads(kept.out.view(), H),
                            kept.lse, options, {}, kept.lse_low.view());
  }
  return {in_f32(std::move(dq)), in_f32(std::move(dk)), in_f32(std::move(dv))};
}

// Of each copy, those that gradients are of.
Tensor Backward::last_rows(Tensor d) const {
  const std::int64_t all = d.size(0) / copies_, rows = std::ssize(batch_.ids);
  if (all == rows) return d;
  Tensor last = Tensor::uninitialized({copies_ * rows, d.size(1)}, d.dtype());
  for (std::int64_t c = 0; c < copies_; ++c)
    last.view().slice(0, c * rows, (c + 1) * rows).copy_from(d.view().slice(0, (c + 1) * all - rows, (c + 1) * all));
  return last;
}

HeadGradients Backward::attended(const AttentionStep& step, const Tensor& dz) const {
  const auto layer = static_cast<std::size_t>(step.layer);
  HeadGradients d = attention_gradients(step, kept(layer).self, dz, batch_.starts);
  d.k = last_rows(std::move(d.k)), d.v = last_rows(std::move(d.v));
  if (batch_.stack == Stack::encoder) return d;
  at(ModelPlace::rotated_k, layer, d.k);
  at(ModelPlace::rotated_q, layer, d.q);
  return d;
}

void Backward::projected(std::size_t layer, HeadGradients& d) const {
  at(ModelPlace::v, layer, d.v);
  at(ModelPlace::k, layer, d.k);
  at(ModelPlace::q, layer, d.q);
}

Tensor Backward::attended_memory(const AttentionStep& step, const Tensor& dz, const Linear& key, const Linear& value) {
  const auto layer = static_cast<std::size_t>(step.layer);
  HeadGradients d = attention_gradients(step, kept(layer).cross, dz, batch_.memory->starts);
  at(ModelPlace::cross_v, layer, d.v);
  at(ModelPlace::cross_k, layer, d.k);
  Tensor states = input_gradient({{&key, &d.k}, {&value, &d.v}});
  if (memory_.count() == 0)
    memory_ = std::move(states);
  else
    add_to(memory_, states);
  at(ModelPlace::cross_q, layer, d.q);
  return std::move(d.q);
}

}  // namespace attend::inline v1::models
