// A pass back through a model's layers: the gradients of numbers that the pass forward made, by what it stood on at
// each place. A family's page goes back through its boxes with what is here; gradients are f32.
//
// A pass may go back from several numbers at once: their gradients lie one after another, [copies * N,...].
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "models/batch.h"

namespace attend::inline v1::models {

// What is done with the gradient of what stands at a place, before it goes further back: d [copies * N,columns].
using PlaceGradients = std::function<void(ModelPlace place, std::int64_t layer, Tensor& d)>;

// Shown an attention as the pass comes back to it: what it was given and what it gave, and dz [copies * N,H*Dv], the
// gradient of that.
using AttentionGradients =
    std::function<void(const Batch& batch, const AttentionStep& step, const KeptAttention& kept, const Tensor& dz)>;

// Rows side by side [N,heads * D] as attention() takes them, [1,heads,N,D].
template <class Of>
Of by_heads(const Of& rows, std::int64_t heads) {
  return rows.reshape({1, rows.size(0), heads, rows.size(1) / heads}).transpose(1, 2);
}

// Of what attention() was given, rows side by side.
struct HeadGradients {
  Tensor q, k, v;  // [copies * N,H*D], [copies * M,Hkv*D], [copies * M,Hkv*Dv]
};

// dx of a linear layer's input, which several may read: the sum of what comes back through each.
Tensor input_gradient(std::initializer_list<std::pair<const Linear*, const Tensor*>> layers);

class Backward {
 public:
  // attentions: called where there is one.
  Backward(const Batch& batch, const Kept& kept, std::int64_t copies, const PlaceGradients& places,
           const AttentionGradients& attentions)
      : batch_(batch), kept_(kept), copies_(copies), places_(places), attentions_(attentions) {}

  const Batch& batch() const { return batch_; }
  const Kept& kept() const { return kept_; }
  const KeptLayer& kept(std::size_t layer) const { return kept_.layers[layer]; }

  void at(ModelPlace place, std::size_t layer, Tensor& d) const {
    places_(place_in(batch_.stack, place), static_cast<std::int64_t>(layer), d);
  }
  Tensor seen(ModelPlace place, std::size_t layer, Tensor d) const {
    at(place, layer, d);
    return d;
  }
  // Of what is added to the stream, whose gradient behind the sum is dx.
  Tensor added(ModelPlace place, std::size_t layer, const Tensor& dx) const { return seen(place, layer, dx.clone()); }

  // Back through norm(x).
  template <class Of>
  Tensor normed(const Of& norm, const Tensor& d, const View& x) const {
    return of_each_copy(d, x.shape(), [&](const View& one) { return norm.input_gradient(one, x); });
  }
  // The same where each of a row's heads goes through it by itself.
  template <class Of>
  Tensor normed_heads(const Of& norm, const Tensor& d, const Tensor& x, std::int64_t heads) const {
    const Dims apart{x.size(0), heads, x.size(1) / heads};
    return of_each_copy(d, x.shape(), [&](const View& one) {
      const Tensor dx = norm.input_gradient(one.reshape(apart), x.view().reshape(apart));
      return dx.view().reshape(x.shape()).clone();
    });
  }
  // Back through an MLP, out f(in x), or with a gate out (f(gate x) * (in x)): dy, of what out wrote -> of what it
  // read.
  Tensor mlp(std::size_t layer, Activation f, const Linear* gate, const Linear& in, const Linear& out,
             const Tensor& dy) const;
  // Back through RotaryEmbedding::rotate() of [N,heads * D], by what RotaryAngles::back() gives.
  void rotated(Tensor& d, std::int64_t heads, const RotaryAngles& back) const;
  // Back through attend(), of whose rows dz is the gradient, and of its places rotated_q and rotated_k.
  HeadGradients attended(const AttentionStep& step, const Tensor& dz) const;
  // Back through Batch::projected(), likewise.
  void projected(std::size_t layer, HeadGradients& d) const;
  // Back through attend_memory(): what the gradient of its queries is; that of the states which its keys and values
  // read is added to memory().
  Tensor attended_memory(const AttentionStep& step, const Tensor& dz, const Linear& key, const Linear& value);
  Tensor& memory() { return memory_; }  // [copies * M,E], once a layer has read it

 private:
  ActivationGradients activated(std::size_t layer, Activation f, const Tensor& d) const;
  // [copies * N,...] of the gradients that make(one copy) gives.
  template <class Make>
  Tensor of_each_copy(const Tensor& d, const Dims& shape, Make make) const {
    if (copies_ == 1) return make(d.view());
    const std::int64_t N = shape[0];
    Dims all = shape;
    all[0] = copies_ * N;
    Tensor out = Tensor::uninitialized(all);
    for (std::int64_t c = 0; c < copies_; ++c)
      out.view().slice(0, c * N, (c + 1) * N).copy_from(make(d.view().slice(0, c * N, (c + 1) * N)));
    return out;
  }
  HeadGradients attention_gradients(const AttentionStep& step, const KeptAttention& kept, const Tensor& dz,
                                    const std::vector<std::int64_t>& key_starts) const;

  Tensor last_rows(Tensor d) const;

  const Batch& batch_;
  const Kept& kept_;
  std::int64_t copies_;
  const PlaceGradients& places_;
  const AttentionGradients& attentions_;
  Tensor memory_;
};

}  // namespace attend::inline v1::models
