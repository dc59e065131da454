// The pipeline on one page: each step is one call into one room, each result one field of the trace.
#include "attend/explain.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "attend/attention.h"
#include "attend/io.h"
#include "attend/layers.h"
#include "attend/random.h"
#include "attend/threads.h"
#include "core/message.h"
#include "explain/recipe.h"

namespace attend::inline v1 {

namespace {

// One matrix of a draw, between vectors of those sizes: [heads][out,in] or [heads][in,out].
Tensor draw_matrix(const WeightDraw& draw, std::int64_t heads, std::int64_t in, std::int64_t out,
                   Generator& generator) {
  if (draw.init == WeightInit::linear) {  // one nn.Linear for all heads
    const Tensor stacked = generator.kaiming_uniform({element_count({std::max<std::int64_t>(heads, 1), out}), in});
    return heads > 0 ? stacked.view().reshape({heads, out, in}).clone() : stacked.clone();
  }
  Dims shape;
  if (heads > 0) shape.push_back(heads);
  shape.push_back(draw.orientation == Orientation::out_in ? out : in);
  shape.push_back(draw.orientation == Orientation::out_in ? in : out);
  return generator.rand(shape);
}

void draw_weights(const ExplainOptions& sizes, const WeightDraw& draw, Generator& generator, Trace& trace) {
  const auto matrix = [&](std::int64_t d) { return draw_matrix(draw, draw.heads, sizes.embedding_size, d, generator); };
  if (draw.key_first) trace.w_key = matrix(sizes.d_k);
  trace.w_query = matrix(sizes.d_k);
  if (!draw.key_first) trace.w_key = matrix(sizes.d_k);
  trace.w_value = matrix(sizes.d_v);
  if (draw.output) {
    trace.w_output = draw_matrix(draw, 0, element_count({draw.heads, sizes.d_v}), sizes.embedding_size, generator);
  }
  trace.weights_in_out = draw.orientation == Orientation::in_out;
}

void take_matrices(const Recipe::Matrices& given, Trace& trace) {
  trace.w_query = given.query.clone(), trace.w_key = given.key.clone(), trace.w_value = given.value.clone();
  trace.weights_in_out = true;
}

void embed_second(const Recipe& recipe, Generator& generator, Trace& trace) {
  if (recipe.random_rows_2 > 0) {
    trace.embeddings_2 = generator.rand({recipe.random_rows_2, recipe.options.embedding_size});
  } else if (!recipe.tokens_2.empty()) {
    const Vocabulary vocabulary(recipe.tokens_2);
    trace.tokens_2 = recipe.tokens_2;
    trace.ids_2 = vocabulary.ids(trace.tokens_2);
    trace.embeddings_2 = Embedding(vocabulary.size(), recipe.options.embedding_size, generator).forward(trace.ids_2);
  }
}

// PE(t, 2n) = sin(t / 10000^(2n/E)), PE(t, 2n+1) = cos of the same: [rows,E].
Tensor sinusoids(std::int64_t rows, std::int64_t size) {
  Tensor out({rows, size});
  for (std::int64_t n = 0; n < out.count(); ++n) {
    const std::int64_t t = n / size, e = n % size;
    const double angle =
        static_cast<double>(t) / std::pow(10000.0, static_cast<double>(e - e % 2) / static_cast<double>(size));
    out.data<float>()[n] = static_cast<float>(e % 2 == 0 ? std::sin(angle) : std::cos(angle));
  }
  return out;
}

// Each row and the encoding of its place.
Tensor add_positions(const Tensor& embeddings, const Tensor& positions) {
  Tensor out = embeddings.clone();
  for (std::int64_t n = 0; n < out.count(); ++n) out.data<float>()[n] += positions.data<float>()[n];
  return out;
}

// x [T,E] through w -> [T,d], or [H,T,d] for a w with a head axis. In double and rounded once, as attention_steps() is:
// then every processor and the page in a browser give the same numbers. In f32 their last bits differ, and one that the
// documents print (-4.5398 in 000) lies so near a rounding's edge that a processor without FMA would print another.
Tensor project(const View& x, const Tensor& w, bool in_out) {
  const Tensor weights = (in_out ? w.view() : w.view().transpose(-1, -2)).to(DType::f64);  // [H][E,d]
  const Tensor inputs = x.to(DType::f64);
  const bool one = w.rank() == 2;
  const std::int64_t heads = one ? 1 : w.size(0), size = weights.size(-2), d = weights.size(-1), length = x.size(0);
  Tensor out = Tensor::uninitialized(one ? Dims{length, d} : Dims{heads, length, d});
  parallel_for(heads * length, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(d));  // side by side, so that they are added up in vectors
    for (std::int64_t n = begin; n < end; ++n) {
      std::fill(sums.begin(), sums.end(), 0.0);
      const double* row = inputs.data<double>() + n % length * size;
      const double* weight = weights.data<double>() + n / length * size * d;
      for (std::int64_t e = 0; e < size; ++e)
        for (double& sum : sums) sum += row[e] * *weight++;
      std::transform(sums.begin(), sums.end(), out.data<float>() + n * d,
                     [](double sum) { return static_cast<float>(sum); });
    }
  });
  return out;
}

void join_heads(Trace& trace) {
  const std::int64_t heads = trace.context.size(0), length = trace.context.size(1), d_v = trace.context.size(2);
  trace.concat_heads = trace.context.view().permute({1, 0, 2}).clone().view().reshape({length, heads * d_v}).clone();
  trace.output = project(*trace.concat_heads, *trace.w_output, trace.weights_in_out);
}

// How many heads' matrices are kept.
std::int64_t kept_heads(std::int64_t heads, const ExplainKeep& keep) {
  const std::int64_t there = std::max<std::int64_t>(heads, 1);
  if (keep.head) check_head(*keep.head, there);
  return keep.head ? 1 : there;
}

// The matrices of all pairs, some millions of pairs at a time: what is not kept is never there as a whole. The context
// is attention()'s, so of the values one column is enough here.
void fill_matrices(const ExplainKeep& keep, Trace& trace) {
  const std::int64_t heads = kept_heads(trace.options.heads, keep);
  const std::int64_t length = trace.embeddings.size(0), keys = trace.keys.size(-2);
  const std::int64_t rows = std::max<std::int64_t>(1, (std::int64_t{1} << 21) / keys);
  const auto matrix = [&] {
    return Tensor::uninitialized(trace.multi_head() ? Dims{heads, length, keys} : Dims{length, keys});
  };
  trace.weights = matrix();
  if (keep.scores) trace.scores = matrix(), trace.scaled_scores = matrix();
  if (keep.scores && trace.masked()) trace.logits = matrix();
  trace.kept_head = keep.head;
  AttentionOptions options = attention_options(trace);
  for (std::int64_t h = 0; h < heads; ++h) {
    const auto of_head = [&](const Tensor& x) {
      return trace.multi_head() ? x.view().select(0, keep.head.value_or(h)) : x.view();
    };
    for (std::int64_t i = 0; i < length; i += rows) {
      const std::int64_t end = std::min(i + rows, length);
      options.offset = Offset(i);
      const AttentionSteps steps = attention_steps(of_head(trace.queries).slice(0, i, end), of_head(trace.keys),
                                                   of_head(trace.values).slice(1, 0, 1), options);
      const auto store = [&](Tensor& to, const Tensor& block) {
        to.view().reshape({heads, length, keys}).select(0, h).slice(0, i, end).copy_from(block);
      };
      store(trace.weights, steps.weights);
      if (keep.scores) store(trace.scores, steps.scores), store(trace.scaled_scores, steps.scaled_scores);
      if (trace.logits) store(*trace.logits, steps.logits);
      if (keep.progress) keep.progress(static_cast<double>(h * length + end) / static_cast<double>(heads * length));
    }
  }
}

}  // namespace

Trace trace_of(const Recipe& recipe, const ExplainKeep& keep) {
  Trace trace;
  trace.preset = recipe.preset;
  trace.title = recipe.title;
  trace.options = recipe.options;
  trace.tokens = recipe.tokens;
  trace.ids = recipe.ids;
  trace.vocabulary_size = recipe.vocabulary_size;
  trace.focus = recipe.focus;
  trace.causal = recipe.options.causal;
  const std::int64_t size = recipe.options.embedding_size;
  Generator generator(recipe.options.seed);

  trace.embeddings = recipe.embeddings ? recipe.embeddings->clone()
                                       : Embedding(recipe.vocabulary_size, size, generator).forward(trace.ids);
  if (recipe.reseed) generator.seed(recipe.options.seed);
  for (const WeightDraw& draw : recipe.draws) draw_weights(recipe.options, draw, generator, trace);
  if (recipe.matrices) take_matrices(*recipe.matrices, trace);
  embed_second(recipe, generator, trace);
  if (recipe.options.positions) {
    trace.positions = sinusoids(std::max<std::int64_t>(std::ssize(trace.tokens), recipe.keys()), size);
    trace.inputs = add_positions(trace.embeddings, *trace.positions);
    if (trace.embeddings_2) trace.inputs_2 = add_positions(*trace.embeddings_2, *trace.positions);
  }
  const View first = trace.input(), second = trace.input_2();

  trace.queries = project(first, trace.w_query, trace.weights_in_out);
  trace.keys = project(second, trace.w_key, trace.weights_in_out);
  trace.values = project(second, trace.w_value, trace.weights_in_out);

  fill_matrices(keep, trace);
  const auto exactly = [](const Tensor& x) { return x.view().to(DType::f64); };
  const Tensor context =
      attention(exactly(trace.queries), exactly(trace.keys), exactly(trace.values), attention_options(trace)).out;
  trace.context = context.view().to(DType::f32);
  if (trace.w_output) join_heads(trace);
  return trace;
}

AttentionOptions attention_options(const Trace& trace) {
  AttentionOptions options{.causal = trace.causal};
  if (!trace.options.scale) options.scale = 1;
  if (trace.options.window) {
    const std::int64_t side = std::min(*trace.options.window, trace.keys.size(-2));  // more is all of them
    options.window = {side, side};
  }
  return options;
}

void check_head(std::int64_t head, std::int64_t heads) {
  if (head < 0 || head >= heads)
    fail(ErrorCode::bad_value, "explain", "head is {}, expected {}", head,
         heads == 1 ? "0 alone" : fmt::format("0 to {}", heads - 1));
}

Trace explain(const ExplainOptions& options, const ExplainKeep& keep) {
  const Recipe recipe = recipe_of(options);
  kept_heads(options.heads, keep);
  return trace_of(recipe, keep);
}

Trace explain_preset(std::string_view name) {
  return trace_of(recipe_of_preset(name));
}

std::int64_t explain_bytes(const ExplainOptions& options, const ExplainKeep& keep) {
  const Recipe recipe = recipe_of(options);
  // As real numbers: sizes that no memory holds may have products that no integer does.
  const auto real = [](std::int64_t size) { return static_cast<double>(size); };
  const double queries = real(std::ssize(recipe.tokens)), keys = real(recipe.keys());
  const double pairs = !keep.scores ? 1 : options.causal || options.window ? 4 : 3;
  const double kept = real(kept_heads(options.heads, keep)), heads = std::max(1.0, real(options.heads));
  const double E = real(options.embedding_size), d_k = real(options.d_k), d_v = real(options.d_v);
  const double of_head = (2 * d_k + d_v) * E + queries * (d_k + d_v) + keys * (d_k + d_v);
  const double joined = options.heads > 0 ? d_v * E + queries * d_v : 0, output = options.heads > 0 ? queries * E : 0;
  const bool two = !recipe.tokens_2.empty() || recipe.random_rows_2 > 0;
  const double embeddings = (queries + (two ? keys : 0)) * E;
  const double positions = !options.positions ? 0 : std::max(queries, keys) * E + embeddings;
  const double bytes =
      4 * (pairs * kept * queries * keys + heads * (of_head + joined) + output + embeddings + positions);
  return bytes < 0x1p62 ? static_cast<std::int64_t>(bytes) : INT64_MAX;
}

View Trace::input() const {
  return inputs ? *inputs : embeddings;
}
View Trace::input_2() const {
  if (inputs_2) return *inputs_2;
  return embeddings_2 ? embeddings_2->view() : input();
}

NamedViews Trace::tensors() const {
  const auto if_there = [](const std::optional<Tensor>& tensor) { return tensor ? &*tensor : nullptr; };
  const std::pair<const char*, const Tensor*> all[] = {{"embeddings", &embeddings},
                                                       {"embeddings_2", if_there(embeddings_2)},
                                                       {"positions", if_there(positions)},
                                                       {"inputs", if_there(inputs)},
                                                       {"inputs_2", if_there(inputs_2)},
                                                       {"w_query", &w_query},
                                                       {"w_key", &w_key},
                                                       {"w_value", &w_value},
                                                       {"w_output", if_there(w_output)},
                                                       {"queries", &queries},
                                                       {"keys", &keys},
                                                       {"values", &values},
                                                       {"scores", &scores},
                                                       {"scaled_scores", &scaled_scores},
                                                       {"logits", if_there(logits)},
                                                       {"weights", &weights},
                                                       {"context", &context},
                                                       {"concat_heads", if_there(concat_heads)},
                                                       {"output", if_there(output)}};
  NamedViews out;
  for (const auto& [name, tensor] : all) {
    if (tensor != nullptr && tensor->count() > 0) out.emplace_back(name, *tensor);
  }
  return out;
}

}  // namespace attend::inline v1
