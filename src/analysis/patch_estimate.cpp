// Attribution patching: patch() estimated.
#include <algorithm>
#include <map>

#include "analysis/gradients.h"
#include "analysis/patching.h"
#include "attend/attention.h"
#include "layers/rows.h"
#include "models/model.h"

namespace attend::inline v1::analysis::patching {

namespace {

// The sum of a b over rows [begin, end) and columns of [N,columns].
double product(const View& a, const View& b, const Range& rows, const Range& columns) {
  double sum = 0;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t at = row * a.size(1) + columns.begin;
    sum += dot(a.data<float>() + at, b.data<float>() + at, columns.end - columns.begin);
  }
  return sum;
}

// Where what is taken stands as attention gets it.
ModelPlace attended_place(const Asked& asked) {
  if (asked.taken.at == ModelPlace::q) return ModelPlace::rotated_q;
  return asked.taken.at == ModelPlace::k ? ModelPlace::rotated_k : asked.taken.at;
}

bool is_of(const Asked& asked, const models::Batch& batch, const models::AttentionStep& step) {
  return (asked.options.attention == AttentionKind::encoder) == (batch.stack == models::Stack::encoder) &&
         (asked.options.attention == AttentionKind::cross) == step.cross;
}

class Estimate {
 public:
  Estimate(const Model& model, Asked& asked)
      : model_(model), asked_(asked), at_(attended_place(asked)), rows_from_(asked.first) {}

  void run() {
    const double clean = clean_pass();
    GradientOptions number{
        .token = asked_.out.token, .against = asked_.out.against, .position = asked_.row + asked_.first};
    number.decoder_ids = asked_.corrupt.decoder_ids;
    Shown shown;
    if (asked_.taken.heads > 0) {
      shown.attentions = [&](const models::Batch& batch, const models::AttentionStep& step,
                             const models::KeptAttention& kept, const Tensor& dz) {
        if (is_of(asked_, batch, step)) add_heads(batch, step, kept, dz);
      };
    } else {
      shown.forward = [&](ModelPlace place, std::int64_t layer, const View& values) {
        if (place == at_) subtract(values.to(DType::f32), clean_.at(layer));
      };
      number.observe = [&](ModelPlace place, std::int64_t layer, const View& d) {
        if (place == at_) add_stream(layer, d);
      };
    }
    const Gradient of = std::move(gradients(model_, asked_.corrupt.ids, {}, {&number, 1}, shown).front());
    asked_.answered(clean, of.values.front());
    for (const auto& [layer, changes] : changes_)
      for (const double change : changes) asked_.took(asked_.out.corrupt + change);
    asked_.finish(std::ssize(changes_) - (asked_.taken.heads > 0 ? 0 : 1));
  }

 private:
  // Keeps what stands at the place, and gives the difference of the two logits.
  double clean_pass() {
    const Tensor hidden =
        model_.forward(asked_.clean.ids, {.decoder_ids = asked_.clean.decoder_ids,
                                          .observe = [&](ModelPlace place, std::int64_t layer, const View& values) {
                                            if (place == at_) clean_.insert_or_assign(layer, values.clone());
                                          }});
    const Tensor logits = models::output_of(ModelAccess::parts(model_), patch_function)
                              .logits(hidden.view().select(0, asked_.row + asked_.first));
    const float* all = logits.data<float>();
    return static_cast<double>(all[asked_.out.token]) - static_cast<double>(all[asked_.out.against]);
  }

  // clean - corrupt, in the clean one's place.
  static void subtract(const Tensor& corrupt, Tensor& clean) {
    for (std::int64_t n = 0; n < clean.count(); ++n) clean.data<float>()[n] -= corrupt.data<float>()[n];
  }

  void add_stream(std::int64_t layer, const View& d) {
    const Tensor& change = clean_.at(layer);
    for (const Range& range : asked_.ranges(d.size(0) - rows_from_))
      changes_[layer].push_back(product(d, change, {range.begin + rows_from_, range.end + rows_from_}, {0, d.size(1)}));
  }

  // The corrupt text's q, k or v with the clean one's rows.
  Tensor taken(std::int64_t layer, const Tensor& corrupt) const {
    Tensor all = clean_.at(layer).clone();
    all.view().slice(0, 0, rows_from_).copy_from(corrupt.view().slice(0, 0, rows_from_));
    return all;
  }

  // What z becomes where the clean text's q, k, v or z is taken in all heads at once: none of them sees another's.
  Tensor z_with(const models::AttentionStep& step, const models::Batch& batch,
                const models::KeptAttention& kept) const {
    using What = PatchOptions::What;
    if (asked_.options.what == What::heads) return taken(step.layer, kept.out);
    Tensor clean;
    const auto heads = [&](What what, const Tensor& own, std::int64_t count) {
      if (asked_.options.what == what) clean = taken(step.layer, own);
      return models::by_heads((asked_.options.what == what ? clean : own).view(), count);
    };
    const View q = heads(What::q, kept.q, step.heads), k = heads(What::k, kept.k, step.kv_heads),
               v = heads(What::v, kept.v, step.kv_heads);
    const AttentionResult with = attention(q, k, v, step.packed_options(batch, batch.starts));
    Tensor z = Tensor::uninitialized(kept.out.shape(), kept.out.dtype());
    models::by_heads(z.view(), step.heads).copy_from(with.out);
    return z;
  }

  void add_heads(const models::Batch& batch, const models::AttentionStep& step, const models::KeptAttention& kept,
                 const Tensor& dz) {
    Tensor change = converted(z_with(step, batch, kept), DType::f32);
    subtract(converted(kept.out, DType::f32), change);
    // A head of the keys is read by several of the queries.
    const std::int64_t columns = dz.size(1) / asked_.taken.heads;
    for (std::int64_t h = 0; h < asked_.taken.heads; ++h)
      changes_[step.layer].push_back(product(dz, change, {0, dz.size(0)}, {h * columns, (h + 1) * columns}));
  }

  const Model& model_;
  Asked& asked_;
  ModelPlace at_;
  std::int64_t rows_from_;
  std::map<std::int64_t, Tensor> clean_;                 // by layer: of the clean text
  std::map<std::int64_t, std::vector<double>> changes_;  // by layer: of the difference
};

}  // namespace

void estimate(const Model& model, Asked& asked) {
  Estimate(model, asked).run();
}

}  // namespace attend::inline v1::analysis::patching
