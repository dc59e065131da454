#include <algorithm>
#include <map>
#include <utility>

#include "analysis/answer_pairs.h"
#include "analysis/answers.h"
#include "analysis/edge_graph.h"
#include "analysis/gradients.h"
#include "analysis/texts.h"
#include "attend/circuits.h"
#include "core/message.h"
#include "layers/rows.h"

namespace attend::inline v1 {

namespace {

using NodeKind = CircuitNode::Kind;

constexpr const char* edges_function = "edges";

// One pair: what its writers wrote in the clean text less what they wrote in the corrupt one, and beside it the
// gradients of passes back by what the readers read.
class EdgesOfPair {
 public:
  EdgesOfPair(const Model& model, const analysis::EdgeGraph& graph, const AnswerPair& pair, Edges& out,
              const std::function<void()>& passed)
      : model_(model), graph_(graph), pair_(pair), out_(out), passed_(passed) {
    const std::int64_t E = model.info().embedding_size;
    changes_ = Tensor({std::ssize(graph.sources()), std::ssize(pair.clean) * E});
  }

  // Two passes forward, and one back of the text that is asked for.
  void once(EdgeOptions::At at) {
    const bool clean = at == EdgeOptions::At::clean;
    alone(!clean);
    back(clean ? 1 : 0, 1);
  }
  // Over texts between the two, the clean one first: what is written in it is known then.
  void integrated(std::int64_t steps) {
    alone(false);
    for (std::int64_t k = steps; k > 0; --k)
      back(static_cast<double>(k) / static_cast<double>(steps), 1 / static_cast<double>(steps));
  }

 private:
  std::span<const std::int64_t> ids(bool clean) const { return clean ? pair_.clean : pair_.corrupt; }
  GradientOptions number() const {
    return {.token = pair_.token, .against = pair_.against, .position = pair_.position};
  }
  double& difference(bool clean) { return clean ? out_.clean : out_.corrupt; }
  double share() const { return 1 / static_cast<double>(out_.pairs.size()); }

  // A pass forward.
  void alone(bool clean) {
    const Tensor hidden =
        model_.forward(ids(clean), {.observe = [&](ModelPlace place, std::int64_t layer, const View& values) {
                         take(place, layer, values, clean);
                       }});
    difference(clean) += share() * analysis::difference(graph_.parts(), edges_function, hidden, pair_);
    passed_();
  }

  // A pass forward and back, of the embeddings corrupt + between (clean - corrupt).
  void back(double between, double weight) {
    const bool ends = between == 0 || between == 1, clean = between > 0;
    weight_ = weight * share();
    GradientOptions options = number();
    Edit edit{.layer = 0, .at = ModelPlace::embeddings, .set = Edit::Set::values};
    Tensor mixed;
    if (!ends) {
      mixed = embeddings_[1].clone();
      for (std::int64_t n = 0; n < mixed.count(); ++n) {
        const float from = embeddings_[0].data<float>()[n];
        mixed.data<float>()[n] =
            static_cast<float>(static_cast<double>(from) +
                               between * (static_cast<double>(mixed.data<float>()[n]) - static_cast<double>(from)));
      }
      edit.values = mixed.view();
      options.edits = {&edit, 1};
    }
    options.observe = [&](ModelPlace place, std::int64_t layer, const View& d) { came_back(place, layer, d); };
    analysis::Shown shown;
    shown.forward = [&](ModelPlace place, std::int64_t layer, const View& values) {
      if (ends) take(place, layer, values, clean);
      if (place == ModelPlace::residual) attention_reads_[layer] = values.to(DType::f32);
      if (place == ModelPlace::residual_mid) mlp_reads_[layer] = values.to(DType::f32);
    };
    const Gradient of = std::move(analysis::gradients(model_, ids(clean), {}, {&options, 1}, shown).front());
    if (ends) difference(clean) += share() * of.values.front();
    passed_();
  }

  // What a pass wrote: added where it is the clean text's, and taken away where it is the corrupt one's.
  void take(ModelPlace place, std::int64_t layer, const View& values, bool clean) {
    if (place == ModelPlace::embeddings) embeddings_[clean ? 1 : 0] = values.to(DType::f32);
    if (place == ModelPlace::residual && layer == 0) add(0, values.to(DType::f32), clean);
    if (place == ModelPlace::mlp) add(source({.kind = NodeKind::mlp, .layer = layer}), values.to(DType::f32), clean);
    if (place == ModelPlace::z)
      add(source({.kind = NodeKind::head, .layer = layer, .head = 0}), graph_.written(layer, values), clean);
  }
  void add(std::int64_t first, const Tensor& written, bool clean) {
    float* to = changes_.data<float>() + first * changes_.size(1);
    const float* from = written.data<float>();
    for (std::int64_t n = 0; n < written.count(); ++n) to[n] += clean ? from[n] : -from[n];
  }
  std::int64_t source(const CircuitNode& node) const { return graph_.source(node); }

  // The gradient of what stands behind the readers' projections, or of what the MLP or the output reads.
  void came_back(ModelPlace place, std::int64_t layer, const View& d) {
    if (place == ModelPlace::residual && layer == graph_.layers())
      return multiply({.kind = NodeKind::output}, d.clone());
    if (place == ModelPlace::mlp_input)
      return multiply({.kind = NodeKind::mlp, .layer = layer},
                      through(graph_.layer(layer).mlp_reads_by, d.clone(),
                              out_.parallel ? attention_reads_.at(layer) : mlp_reads_.at(layer)));
    const NodeKind kind = place == ModelPlace::q   ? NodeKind::query
                          : place == ModelPlace::k ? NodeKind::key
                                                   : NodeKind::value;
    if (place != ModelPlace::q && place != ModelPlace::k && place != ModelPlace::v) return;
    const std::int64_t D = model_.info().head_size, N = d.size(0), heads = d.size(1) / D;
    Tensor all = Tensor::uninitialized({heads, N, model_.info().embedding_size});
    for (std::int64_t h = 0; h < heads; ++h) {
      const Tensor weight = graph_.weight({.kind = kind, .layer = layer, .head = h});
      all.view().select(0, h).copy_from(through(graph_.layer(layer).self.reads_by,
                                                Linear::borrow(weight).input_gradient(d.slice(1, h * D, (h + 1) * D)),
                                                attention_reads_.at(layer)));
    }
    multiply({.kind = kind, .layer = layer, .head = 0}, all);
  }

  static Tensor through(const std::optional<models::Norm>& norm, Tensor d, const Tensor& x) {
    if (!norm) return d;
    return std::visit([&](const auto* of) { return of->input_gradient(d, x); }, *norm);
  }

  // The gradients [heads * N,E] by what receivers from `first` on read, with what each writer before them changed.
  void multiply(const CircuitNode& first, const Tensor& gradients) {
    const std::int64_t begin = graph_.receiver(first), heads = gradients.count() / changes_.size(1);
    const std::int64_t before = out_.before(begin), R = out_.scores.size(1);
    const View written = changes_.view().slice(0, 0, before);
    const Tensor sums = Linear::borrow(written).forward(gradients.view().reshape({heads, changes_.size(1)}));
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t s = 0; s < before; ++s)
        out_.scores.data<float>()[s * R + begin + h] +=
            static_cast<float>(weight_ * static_cast<double>(sums.data<float>()[h * before + s]));
  }

  const Model& model_;
  const analysis::EdgeGraph& graph_;
  const AnswerPair& pair_;
  Edges& out_;
  const std::function<void()>& passed_;  // called after each pass
  double weight_ = 1;
  Tensor changes_;                                              // [S,N * E]
  Tensor embeddings_[2];                                        // corrupt, clean
  std::map<std::int64_t, Tensor> attention_reads_, mlp_reads_;  // by layer: the stream before their norms
};

}  // namespace

std::int64_t Edges::before(std::int64_t receiver) const {
  return analysis::sources_before(sources, receivers[static_cast<std::size_t>(receiver)], parallel);
}

std::int64_t Edges::count() const {
  std::int64_t sum = 0;
  for (std::int64_t r = 0; r < std::ssize(receivers); ++r) sum += before(r);
  return sum;
}

Edges edges(const Model& model, std::span<const AnswerPair> pairs, const EdgeOptions& options) {
  const analysis::EdgeGraph graph(edges_function, model);
  analysis::check_pairs(edges_function, pairs, model.info());
  if (options.steps < 1) fail(ErrorCode::bad_value, edges_function, "steps is {}, expected at least 1", options.steps);
  Edges out{.sources = graph.sources(),
            .receivers = graph.receivers(),
            .scores = Tensor({std::ssize(graph.sources()), std::ssize(graph.receivers())}),
            .pairs = {pairs.begin(), pairs.end()},
            .parallel = model.info().parallel,
            .group = model.info().heads / model.info().kv_heads};
  const bool once = options.method == EdgeOptions::Method::eap;
  const double passes = static_cast<double>(pairs.size()) * static_cast<double>(once ? 2 : options.steps + 1);
  double done = 0;
  const std::function<void()> passed = [&] {
    if (options.progress) options.progress(++done / passes);
  };
  for (std::size_t n = 0; n < pairs.size(); ++n)
    analysis::of_text(n, pairs.size(), [&] {
      EdgesOfPair of(model, graph, pairs[n], out, passed);
      once ? of.once(options.at) : of.integrated(options.steps);
    });
  return out;
}

}  // namespace attend::inline v1
