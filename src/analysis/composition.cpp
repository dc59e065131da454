#include "attend/composition.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attend/linear.h"
#include "attend/threads.h"
#include "core/message.h"
#include "layers/rows.h"
#include "models/layer_parts.h"
#include "models/model.h"

namespace attend::inline v1 {

namespace {

constexpr const char* composition_function = "composition";

// x [N,K], y [M,K] -> x y^T [N,M].
Tensor product(const View& x, const View& y) {
  return Linear::borrow(y).forward(x);
}

// x [heads,n,E] -> x x^T of each [heads,n,n].
Tensor grams(const Tensor& x) {
  Tensor all = Tensor::uninitialized({x.size(0), x.size(1), x.size(1)});
  for (std::int64_t h = 0; h < x.size(0); ++h)
    all.view().select(0, h).copy_from(product(x.view().select(0, h), x.view().select(0, h)));
  return all;
}

double inner(const View& a, const View& b) {
  return dot(a.data<float>(), b.data<float>(), a.count());
}

// The columns of rows [...,E] times a norm's weight; LayerNorm takes their mean out.
void fold(Tensor& rows, const models::Norm& norm) {
  std::visit(
      [&](const auto* of) {
        constexpr bool centres = std::is_same_v<std::decay_t<decltype(*of)>, LayerNorm>;
        const std::int64_t E = rows.size(-1);
        const float* weight = of->weight().template data<float>();
        for (std::int64_t row = 0; row < rows.count() / E; ++row) {
          float* x = rows.data<float>() + row * E;
          for (std::int64_t e = 0; e < E; ++e) x[e] *= weight[e];
          const float mean = centres ? static_cast<float>(std::accumulate(x, x + E, 0.0) / static_cast<double>(E)) : 0;
          for (std::int64_t e = 0; e < E; ++e) x[e] -= mean;
        }
      },
      norm);
}

// Rows [heads,D,E] times the weight of a norm of each head [D], or of all together [heads * D].
void fold_rows(Tensor& rows, const models::Norm& norm) {
  const View weight = std::visit([](const auto* of) -> View { return of->weight(); }, norm);
  const std::int64_t E = rows.size(2);
  for (std::int64_t n = 0; n < rows.count(); ++n) rows.data<float>()[n] *= weight.data<float>()[n / E % weight.count()];
}

// A layer's heads: [H,D,E], keys and values [Hkv,D,E], and W_O^T [H,D,E]; and x x^T of each.
struct Heads {
  Tensor q, k, v, o;
  Tensor qq = grams(q), kk = grams(k), vv = grams(v), oo = grams(o);
  std::int64_t together = q.size(0) / k.size(0);  // heads that share keys

  std::int64_t group(std::int64_t head) const { return head / together; }
  // What later layers ask of it alone.
  void keep_what_was_written() {
    for (Tensor* each : {&q, &k, &v, &qq, &kk}) *each = Tensor();
  }
  // |W_QK| and |W_OV|.
  double qk_norm(std::int64_t h) const {
    return std::sqrt(inner(qq.view().select(0, h), kk.view().select(0, group(h))));
  }
  double ov_norm(std::int64_t h) const {
    return std::sqrt(inner(oo.view().select(0, h), vv.view().select(0, group(h))));
  }
};

Heads heads_of(const Model& model, std::int64_t layer, bool encoder) {
  std::map<std::string, Tensor> weights = model.weights(layer, encoder);
  const models::LayerParts parts =
      models::parts_of_layer(ModelAccess::parts(model), static_cast<std::size_t>(layer), encoder);
  Tensor q = std::move(weights.at("W_Q")), k = std::move(weights.at("W_K")), v = std::move(weights.at("W_V"));
  Tensor o = weights.at("W_O").view().transpose(1, 2).clone();
  if (parts.self.reads_by)
    for (Tensor* each : {&q, &k, &v}) fold(*each, *parts.self.reads_by);
  for (const auto& [name, norm] : parts.norms) {
    if (name == "query_norm") fold_rows(q, norm);
    if (name == "key_norm") fold_rows(k, norm);
    if (name == "attention_output_norm") fold(o, norm);
  }
  return {std::move(q), std::move(k), std::move(v), std::move(o)};
}

// |A^T (r w) B|, with r [n,E] what reads, w [m,E] what was written, and A A^T = left, B B^T = right of few rows:
// tr(M^T left M right) with M = r w^T.
double norm_of(const View& m, const View& left, const View& right) {
  const Tensor a = product(left, m.transpose(0, 1).clone()), b = product(m, right);
  return std::sqrt(std::max(0.0, inner(a, b)));
}

// Of all heads of a layer and of an earlier one, one way to read: reads [heads,n,E], and what |...| of a reader is and
// what stands behind it.
template <class Left, class Norm>
void compose(const Tensor& reads, const Heads& later, const Heads& earlier, std::int64_t at, std::int64_t from,
             Tensor& out, Left left, Norm norm) {
  const std::int64_t H = later.o.size(0), n = reads.size(1), m = earlier.o.size(1), E = reads.size(2);
  const bool shared = reads.size(0) != H;
  const Tensor all = product(reads.view().reshape({reads.size(0) * n, E}), earlier.o.view().reshape({H * m, E}));
  parallel_for(H, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t h = begin; h < end; ++h) {
      const std::int64_t reader = shared ? later.group(h) : h;
      for (std::int64_t g = 0; g < H; ++g) {
        const Tensor block = all.view().slice(0, reader * n, (reader + 1) * n).slice(1, g * m, (g + 1) * m).clone();
        const double value =
            norm_of(block, left(h), earlier.vv.view().select(0, earlier.group(g))) / (norm(h) * earlier.ov_norm(g));
        out.view().select(0, at).select(0, h).select(0, from).data<float>()[g] =
            std::isfinite(value) ? static_cast<float>(value) : 0;
      }
    }
  });
}

}  // namespace

Composition composition(const Model& model, bool encoder) {
  const ModelInfo& info = model.info();
  models::check_exact(info, composition_function);
  if (encoder && !info.encoder_decoder())
    fail(ErrorCode::bad_value, composition_function, "encoder needs an encoder-decoder, the model is of type {}",
         info.type);
  const std::int64_t L = encoder ? info.encoder_layers : info.layers, H = encoder ? info.encoder_heads : info.heads;
  Composition found{Tensor({L, H, L, H}), Tensor({L, H, L, H}), Tensor({L, H, L, H})};
  std::vector<Heads> all;
  all.reserve(static_cast<std::size_t>(L));
  for (std::int64_t layer = 0; layer < L; ++layer) {
    all.push_back(heads_of(model, layer, encoder));
    Heads& later = all.back();
    const auto of = [](const Tensor& x, std::int64_t h) { return x.view().select(0, h); };
    const auto qk = [&](std::int64_t h) { return later.qk_norm(h); };
    const auto ov = [&](std::int64_t h) { return later.ov_norm(h); };
    for (std::int64_t from = 0; from < layer; ++from) {
      const Heads& earlier = all[static_cast<std::size_t>(from)];
      compose(
          later.q, later, earlier, layer, from, found.q, [&](auto h) { return of(later.kk, later.group(h)); }, qk);
      compose(
          later.k, later, earlier, layer, from, found.k, [&](auto h) { return of(later.qq, h); }, qk);
      compose(
          later.v, later, earlier, layer, from, found.v, [&](auto h) { return of(later.oo, h); }, ov);
    }
    later.keep_what_was_written();
  }
  return found;
}

}  // namespace attend::inline v1
