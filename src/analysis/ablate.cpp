#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/answers.h"
#include "analysis/json.h"
#include "analysis/stream.h"
#include "attend/analysis.h"
#include "core/from_end.h"
#include "core/message.h"
#include "core/parallel.h"

namespace attend::inline v0 {

namespace {

constexpr const char* function = "ablate";

std::vector<std::int64_t> checked_rows(const AblateOptions& options, std::int64_t count, const ModelInfo& info) {
  if (!info.decoder()) {
    if (options.token || options.against || !options.rows.empty())
      fail(ErrorCode::bad_value, function, "token, against and rows are of decoders, the model is of type {}",
           info.type);
    std::vector<std::int64_t> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<std::int64_t> rows = analysis::checked_positions(function, "rows", options.rows, count);
  if (options.token) analysis::check_token(function, "token", *options.token, info);
  if (options.against) analysis::check_token(function, "against", *options.against, info);
  if (rows.empty()) return {count - 1};
  if (!options.token && rows.back() == count - 1)
    fail(ErrorCode::bad_value, function, "rows has {}, after which no token follows: give token", options.rows.back());
  return rows;
}

// Counted from 0.
std::vector<Head> checked_heads(const AblateOptions& options, const analysis::Stream& stream) {
  std::vector<Head> heads;
  for (const auto& [layer, head] : options.heads) {
    const std::int64_t L = stream.layers(), H = stream.heads();
    if (layer < -L || layer >= L || head < -H || head >= H)
      fail(ErrorCode::bad_value, function,
           "head {}.{}, expected layers 0 to {} and heads 0 to {}, or from the end from -1 on", layer, head, L - 1,
           H - 1);
    heads.emplace_back(layer < 0 ? layer + L : layer, head < 0 ? head + H : head);
  }
  return heads;
}

struct Effect {
  double logit = 0, log_probability = 0, kl = 0, cosine_distance = 0;
};

// What a text's passes come to, each beside the one that nothing was done to.
class Comparison {
 public:
  Comparison(const Model& model, std::span<const std::int64_t> ids, const AblateOptions& options)
      : ids_(ids), options_(options), rows_(checked_rows(options, std::ssize(ids), model.info())) {
    if (model.info().decoder()) output_ = &models::output_of(ModelAccess::parts(model), function);
  }

  const std::vector<std::int64_t>& rows() const { return rows_; }
  bool of_decoder() const { return output_ != nullptr; }
  std::optional<std::int64_t> against() const { return options_.against; }
  // The one token that all rows are asked for, if there is one.
  std::optional<std::int64_t> token() const {
    if (!output_ || options_.token || !options_.rows.empty()) return options_.token;
    const Tensor logits = output_->logits(before_);
    return analysis::likeliest({logits.data<float>(), static_cast<std::size_t>(logits.count())});
  }
  void set_before(Tensor hidden) { before_ = std::move(hidden); }  // [P,E]
  // after [copies * P,E]
  std::vector<Effect> effects(const Tensor& after) const {
    std::vector<Effect> out(static_cast<std::size_t>(after.size(0) / std::ssize(rows_)));
    if (!output_) {
      for (std::size_t copy = 0; copy < out.size(); ++copy) out[copy].cosine_distance = distance(after, copy);
      return out;
    }
    for (std::size_t p = 0; p < rows_.size(); ++p) add_row(p, after, out);
    const auto count = static_cast<double>(rows_.size());
    for (Effect& each : out) each.logit /= count, each.log_probability /= count, each.kl /= count;
    return out;
  }

 private:
  // Row p of all copies, and before them what it was: one product with the output layer.
  void add_row(std::size_t p, const Tensor& after, std::vector<Effect>& out) const {
    const std::int64_t P = std::ssize(rows_), copies = std::ssize(out), E = after.size(1),
                       V = output_->layer.out_size();
    Tensor hidden = Tensor::uninitialized({copies + 1, E}, DType::f32);
    const auto place = static_cast<std::int64_t>(p);
    hidden.view().slice(0, 0, 1).copy_from(before_.view().slice(0, place, place + 1));
    hidden.view().slice(0, 1, copies + 1).copy_from(after.view().slice(0, place, after.size(0), P));
    const Tensor logits = output_->logits(hidden);
    const auto row = [&](std::int64_t n) {
      return std::span<const float>{logits.data<float>() + n * V, static_cast<std::size_t>(V)};
    };
    const std::span<const float> was = row(0);
    const double sum = analysis::log_sum(was);
    std::vector<float> share(was.size());
    std::ranges::transform(was, share.begin(), [&](float z) { return std::exp(z - static_cast<float>(sum)); });
    const std::int64_t token = token_of(p, was);
    parallel_for(copies, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const std::span<const float> is = row(n + 1);
        const double moved = analysis::log_sum(is) - sum;
        double lost = 0;
        for (std::size_t v = 0; v < is.size(); ++v)
          lost += static_cast<double>(share[v]) * (static_cast<double>(was[v]) - static_cast<double>(is[v]));
        const auto change = [&](std::int64_t of) {
          return static_cast<double>(is[static_cast<std::size_t>(of)]) -
                 static_cast<double>(was[static_cast<std::size_t>(of)]);
        };
        Effect& effect = out[static_cast<std::size_t>(n)];
        effect.logit += change(token) - (options_.against ? change(*options_.against) : 0);
        effect.log_probability += change(token) - moved;
        effect.kl += std::max(0.0, lost + moved);
      }
    });
  }

  std::int64_t token_of(std::size_t p, std::span<const float> was) const {
    if (options_.token) return *options_.token;
    return options_.rows.empty() ? analysis::likeliest(was) : ids_[static_cast<std::size_t>(rows_[p]) + 1];
  }

  // 1 - cosine of the mean hidden states.
  double distance(const Tensor& after, std::size_t copy) const {
    const std::int64_t P = std::ssize(rows_), first = static_cast<std::int64_t>(copy) * P;
    const std::vector<double> was = models::mean_direction(before_, 0, P);
    const std::vector<double> is = models::mean_direction(after, first, first + P);
    return std::max(0.0, 1 - std::inner_product(was.begin(), was.end(), is.begin(), 0.0));
  }

  std::span<const std::int64_t> ids_;
  const AblateOptions& options_;
  const models::Output* output_ = nullptr;
  std::vector<std::int64_t> rows_;
  Tensor before_;
};

Ablation make_result(const Dims& shape, std::span<const Effect> effects, const Comparison& comparison) {
  const auto tensor = [&](double Effect::*member) {
    Tensor out(shape);
    std::ranges::transform(effects, out.data<float>(),
                           [&](const Effect& of) { return static_cast<float>(of.*member); });
    return out;
  };
  Ablation out;
  if (!comparison.of_decoder()) {
    out.cosine_distance = tensor(&Effect::cosine_distance);
    return out;
  }
  out.logit = tensor(&Effect::logit), out.log_probability = tensor(&Effect::log_probability);
  out.kl = tensor(&Effect::kl);
  out.token = comparison.token(), out.against = comparison.against();
  return out;
}

// values [L,H*Dv], or [L,T,H*Dv], of whose rows those from `first` on.
void check_values(const AblateOptions& options, const analysis::Stream& stream, std::int64_t first,
                  const ModelInfo& info) {
  if (options.set != Edit::Set::values) return;
  const std::int64_t size = options.attention == AttentionKind::encoder ? info.encoder_head_size : info.head_size;
  const Dims each{stream.layers(), stream.heads() * size},
      rows{stream.layers(), first + stream.length(), stream.heads() * size};
  if (options.values.shape() != each && options.values.shape() != rows)
    fail(ErrorCode::bad_shape, function, "values have shape {}, expected {} or {}", options.values.shape(), each, rows);
}

Edit edit_of(const Head& head, const AblateOptions& options, const analysis::Stream& stream, std::int64_t copy,
             std::int64_t first) {
  Edit edit{.layer = head.first,
            .at = analysis::place_of(options.attention),
            .head = head.second,
            .rows = stream.rows_of_copy(copy),
            .set = options.set};
  if (edit.set != Edit::Set::values) return edit;
  View values = options.values.select(0, head.first);
  if (values.rank() == 2) values = values.slice(0, first, values.size(0));
  const std::int64_t size = values.size(-1) / stream.heads();
  edit.values = values.slice(-1, head.second * size, (head.second + 1) * size);
  return edit;
}

// Where heads are taken out from, and what stands before that row. Throws bad_value.
std::int64_t first_of(const AblateOptions& options, std::int64_t count, const ModelInfo& info) {
  if (!options.first_row) {
    if (options.cache)
      fail(ErrorCode::bad_value, function, "a cache holds rows that keep their heads: expected first_row");
    return 0;
  }
  if (!info.decoder() || info.encoder_decoder())
    fail(ErrorCode::bad_value, function, "first_row is of decoders alone, the model is of type {}", info.type);
  return from_end(function, "first_row is", *options.first_row, count);
}

// As the stream counts them.
std::vector<std::int64_t> rows_from(std::int64_t first, std::vector<std::int64_t> rows) {
  for (std::int64_t& row : rows) {
    if (row < first)
      fail(ErrorCode::bad_value, function, "rows has {}, before first_row {}: nothing changes there", row, first);
    row -= first;
  }
  return rows;
}

std::optional<ModelCache> before(const Model& model, const analysis::Text& text, const AblateOptions& options,
                                 std::int64_t first) {
  if (first == 0) return {};
  ModelCache cache = options.cache ? analysis::known_before(function, *options.cache, text, first) : model.cache();
  ModelCache* const caches[] = {&cache};
  if (const std::int64_t held = cache.length(); held < first)
    model.forward(text.ids.subspan(static_cast<std::size_t>(held), static_cast<std::size_t>(first - held)),
                  {.caches = caches});
  return cache;
}

}  // namespace

Ablation ablate(const Model& model, std::span<const std::int64_t> ids, const AblateOptions& options) {
  if (options.set > Edit::Set::values)
    fail(ErrorCode::bad_value, function, "set is to add or to scale, expected zero, mean or values");
  analysis::check_attention(function, options.attention, model.info());
  const analysis::Text text{ids, options.decoder_ids};
  analysis::check_text(text, model.info());
  const std::int64_t from = first_of(options, std::ssize(ids), model.info());
  analysis::Stream stream(model, text, options.attention == AttentionKind::encoder, before(model, text, options, from));
  check_values(options, stream, from, model.info());
  const std::vector<Head> chosen = checked_heads(options, stream);
  Comparison comparison(model, text.answering(), options);
  const std::vector<std::int64_t> rows = rows_from(from, comparison.rows());
  comparison.set_before(stream.rest(rows));
  std::vector<Effect> effects;

  if (!chosen.empty()) {
    std::vector<Edit> edits;
    edits.reserve(chosen.size());
    for (const Head& head : chosen) edits.push_back(edit_of(head, options, stream, 0, from));
    Ablation out = make_result({1}, comparison.effects(stream.branch(1, edits, rows)), comparison);
    out.heads = chosen, out.attention = options.attention;
    return out;
  }
  const std::int64_t layers = stream.layers(), heads = stream.heads();
  analysis::LayerProgress progress(layers, options.progress);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (std::int64_t first = 0; first < heads; first += stream.together()) {
      const std::int64_t last = std::min(first + stream.together(), heads);
      std::vector<Edit> edits;
      edits.reserve(static_cast<std::size_t>(last - first));
      for (std::int64_t head = first; head < last; ++head)
        edits.push_back(edit_of({layer, head}, options, stream, head - first, from));
      const auto found = comparison.effects(stream.branch(last - first, edits, rows));
      effects.insert(effects.end(), found.begin(), found.end());
      progress.tell(layer, static_cast<double>(last) / static_cast<double>(heads));
    }
    stream.advance();
  }
  Ablation out = make_result({layers, heads}, effects, comparison);
  out.attention = options.attention;
  return out;
}

std::string to_json(const Ablation& x, const TensorJson& tensor) {
  const Tensors json(tensor);
  if (x.cosine_distance.count() > 0) return text_of({{"cosine_distance", json("cosine_distance", x.cosine_distance)}});
  return text_of({{"token", or_null(x.token)},
                  {"against", or_null(x.against)},
                  {"logit", json("logit", x.logit)},
                  {"log_probability", json("log_probability", x.log_probability)},
                  {"kl", json("kl", x.kl)}});
}

}  // namespace attend::inline v0
