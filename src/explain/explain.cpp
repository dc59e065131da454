// The pipeline on one page: each step is one call into one room, each result one field of the trace.
#include "attend/explain.h"

#include "attend/attention.h"
#include "attend/io.h"
#include "attend/layers.h"
#include "attend/random.h"
#include "explain/recipe.h"

namespace attend {

namespace {

// One projection matrix of a draw: [H][d,E] or [H][E,d].
Tensor draw_matrix(const WeightDraw& draw, std::int64_t embedding_size, std::int64_t d, Generator& generator) {
  if (draw.init == WeightInit::linear) {  // one nn.Linear for all heads
    const std::int64_t rows = element_count({std::max<std::int64_t>(draw.heads, 1), d});
    const Tensor stacked = generator.kaiming_uniform({rows, embedding_size});
    return draw.heads > 0 ? stacked.view().reshape({draw.heads, d, embedding_size}).clone() : stacked.clone();
  }
  Dims shape;
  if (draw.heads > 0) shape.push_back(draw.heads);
  shape.push_back(draw.orientation == Orientation::out_in ? d : embedding_size);
  shape.push_back(draw.orientation == Orientation::out_in ? embedding_size : d);
  return generator.rand(shape);
}

void draw_weights(const Recipe& recipe, const WeightDraw& draw, Generator& generator, Trace& trace) {
  const auto matrix = [&](std::int64_t d) { return draw_matrix(draw, recipe.embedding_size, d, generator); };
  if (draw.key_first) trace.w_key = matrix(recipe.d_k);
  trace.w_query = matrix(recipe.d_k);
  if (!draw.key_first) trace.w_key = matrix(recipe.d_k);
  trace.w_value = matrix(recipe.d_v);
  if (draw.output) trace.w_output = generator.rand({draw.heads * recipe.d_v, recipe.embedding_size});
  trace.weights_in_out = draw.orientation == Orientation::in_out;
}

void embed_second(const Recipe& recipe, Generator& generator, Trace& trace) {
  if (recipe.random_rows_2 > 0) {
    trace.embeddings_2 = generator.rand({recipe.random_rows_2, recipe.embedding_size});
  } else if (!recipe.tokens_2.empty()) {
    const Vocabulary vocabulary(recipe.tokens_2);
    trace.tokens_2 = recipe.tokens_2;
    trace.ids_2 = vocabulary.ids(trace.tokens_2);
    trace.embeddings_2 = Embedding(vocabulary.size(), recipe.embedding_size, generator).forward(trace.ids_2);
  }
}

// x [T,E] through w -> [T,d], or [H,T,d] for a w with a head axis: all heads are one Linear, cut apart.
Tensor project(const View& x, const Tensor& w, bool in_out) {
  const View out_in = in_out ? w.view().transpose(-1, -2) : w.view();
  if (w.rank() == 2) return Linear(out_in).forward(x);
  const std::int64_t heads = out_in.size(0), d = out_in.size(1), embedding_size = out_in.size(2);
  const Tensor stacked = Linear(out_in.clone().view().reshape({heads * d, embedding_size})).forward(x);
  return stacked.view().reshape({x.size(0), heads, d}).permute({1, 0, 2}).clone();
}

void join_heads(Trace& trace) {
  const std::int64_t heads = trace.context.size(0), length = trace.context.size(1), d_v = trace.context.size(2);
  trace.concat_heads = trace.context.view().permute({1, 0, 2}).clone().view().reshape({length, heads * d_v}).clone();
  trace.output = Linear(trace.w_output->view().transpose(0, 1)).forward(*trace.concat_heads);
}

Trace run(const Recipe& recipe) {
  Trace trace;
  trace.preset = recipe.preset;
  trace.title = recipe.title;
  trace.tokens = recipe.tokens;
  trace.ids = recipe.ids;
  trace.focus = recipe.focus;
  trace.causal = recipe.causal;
  Generator generator(recipe.seed);

  trace.embeddings = recipe.embeddings
                         ? recipe.embeddings->clone()
                         : Embedding(recipe.vocabulary_size, recipe.embedding_size, generator).forward(trace.ids);
  if (recipe.reseed) generator.seed(recipe.seed);
  for (const WeightDraw& draw : recipe.draws) draw_weights(recipe, draw, generator, trace);
  embed_second(recipe, generator, trace);
  const View second = trace.embeddings_2 ? trace.embeddings_2->view() : trace.embeddings.view();

  trace.queries = project(trace.embeddings, trace.w_query, trace.weights_in_out);
  trace.keys = project(second, trace.w_key, trace.weights_in_out);
  trace.values = project(second, trace.w_value, trace.weights_in_out);

  const AttentionOptions options{.causal = trace.causal};
  AttentionSteps steps = attention_steps(trace.queries, trace.keys, trace.values, options);
  trace.scores = std::move(steps.scores);
  trace.scaled_scores = std::move(steps.scaled_scores);
  trace.weights = std::move(steps.weights);
  trace.context = attention(trace.queries, trace.keys, trace.values, options).out;
  if (trace.w_output) join_heads(trace);
  return trace;
}

}  // namespace

Trace explain(const ExplainOptions& options) {
  return run(recipe_of(options));
}

Trace explain_preset(std::string_view name) {
  return run(recipe_of_preset(name));
}

NamedViews Trace::tensors() const {
  NamedViews out{{"embeddings", embeddings}};
  const auto add = [&](const char* name, const std::optional<Tensor>& tensor) {
    if (tensor) out.emplace_back(name, *tensor);
  };
  add("embeddings_2", embeddings_2);
  out.insert(out.end(), {{"w_query", w_query}, {"w_key", w_key}, {"w_value", w_value}});
  add("w_output", w_output);
  out.insert(out.end(), {{"queries", queries},
                         {"keys", keys},
                         {"values", values},
                         {"scores", scores},
                         {"scaled_scores", scaled_scores},
                         {"weights", weights},
                         {"context", context}});
  add("concat_heads", concat_heads);
  add("output", output);
  return out;
}

}  // namespace attend
