#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "analysis/answers.h"
#include "analysis/json.h"
#include "analysis/stream.h"
#include "analysis/texts.h"
#include "attend/analysis.h"
#include "core/from_end.h"
#include "core/message.h"
#include "core/parallel.h"
#include "models/tasks/head.h"

namespace attend::inline v1 {

namespace {

constexpr const char* ablate_function = "ablate";

using Reads = models::TaskHead::Reads;

std::vector<std::int64_t> all_rows(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// That a task's head reads.
std::vector<std::int64_t> rows_of_label(const AblateOptions& options, std::span<const std::int64_t> ids,
                                        const models::TaskHead& head) {
  if (head.reads != Reads::each && !options.rows.empty())
    fail(ErrorCode::bad_value, ablate_function, "rows need a head that labels tokens, and the model's head is for {}",
         name_of(head.task));
  if (head.reads == Reads::mean) return all_rows(std::ssize(ids));
  if (head.reads != Reads::each) return {head.row_read(ids)};
  const std::vector<std::int64_t> rows =
      analysis::checked_positions(ablate_function, "rows", options.rows, std::ssize(ids));
  return rows.empty() ? std::vector<std::int64_t>{std::ssize(ids) - 1} : rows;
}

std::vector<std::int64_t> checked_rows(const AblateOptions& options, std::int64_t count, const ModelInfo& info) {
  if (!info.decoder()) {
    if (options.token || options.against || !options.rows.empty())
      fail(ErrorCode::bad_value, ablate_function, "token, against and rows need a decoder, the model is of type {}",
           info.type);
    return all_rows(count);
  }
  std::vector<std::int64_t> rows = analysis::checked_positions(ablate_function, "rows", options.rows, count);
  if (options.token) analysis::check_token(ablate_function, "token", *options.token, info);
  if (options.against) analysis::check_token(ablate_function, "against", *options.against, info);
  if (rows.empty()) return {count - 1};
  if (!options.token && rows.back() == count - 1)
    fail(ErrorCode::bad_value, ablate_function, "rows has {}, the last row, after which no token follows: give token",
         options.rows.back());
  return rows;
}

// Counted from 0.
std::vector<Head> checked_heads(const AblateOptions& options, const analysis::Stream& stream) {
  std::vector<Head> heads;
  for (const auto& [layer, head] : options.heads) {
    const std::int64_t L = stream.layers(), H = stream.heads();
    if (layer < -L || layer >= L || head < -H || head >= H)
      fail(ErrorCode::bad_value, ablate_function,
           "head {}.{}, expected layers 0 to {} and heads 0 to {}, or from the end from -1 on", layer, head, L - 1,
           H - 1);
    heads.emplace_back(layer < 0 ? layer + L : layer, head < 0 ? head + H : head);
  }
  return heads;
}

struct Effect {
  double logit = 0, log_probability = 0, kl = 0, cosine_distance = 0;
};

// What answers of hidden states: the output layer, or of labels a task's head; an encoder has none.
class Answers {
 public:
  Answers(const Model& model, const AblateOptions& options) {
    const Model::Parts& parts = ModelAccess::parts(model);
    analysis::check_of(ablate_function, options.of);
    if (options.of == GradientOf::label)
      head_ = &analysis::head_of(ablate_function, parts, options.token, options.against);
    else if (model.info().decoder())
      output_ = &models::output_of(parts, ablate_function);
  }

  bool any() const { return head_ || output_; }
  const models::TaskHead* head() const { return head_; }
  // Whether softmax makes probabilities of the logits.
  bool probabilities() const { return !head_ || head_->chooses(); }
  std::int64_t at_once() const {
    return analysis::answers_at_once((head_ ? head_->output : output_->layer).out_size());
  }
  // Of all rows of a text that count [P,E], those that are answered [A,E]: their mean, or each.
  std::int64_t count(std::int64_t rows) const { return of_mean() ? 1 : rows; }
  Tensor rows(const View& all) const {
    Tensor own = all.clone();
    const std::int64_t starts[] = {0, own.size(0)};
    return of_mean() ? head_->rows(own, {}, starts) : std::move(own);
  }
  void copy_row(const View& all, std::int64_t p, const MutableView& to) const {
    to.copy_from(of_mean() ? rows(all) : all.slice(0, p, p + 1));
  }
  Tensor logits(const View& rows) const { return head_ ? head_->logits(rows) : output_->logits(rows); }

 private:
  bool of_mean() const { return head_ && head_->reads == Reads::mean; }

  const models::Output* output_ = nullptr;
  const models::TaskHead* head_ = nullptr;
};

// What a text's passes come to, each beside the one that nothing was done to.
class Comparison {
 public:
  Comparison(const Model& model, std::span<const std::int64_t> ids, const AblateOptions& options)
      : ids_(ids),
        options_(options),
        answers_(model, options),
        rows_(answers_.head() ? rows_of_label(options, ids, *answers_.head())
                              : checked_rows(options, std::ssize(ids), model.info())) {}

  const std::vector<std::int64_t>& rows() const { return rows_; }
  const Answers& answers() const { return answers_; }
  std::size_t answered() const { return static_cast<std::size_t>(answers_.count(std::ssize(rows_))); }
  std::optional<std::int64_t> against() const { return options_.against; }
  Effect divided(Effect sum) const {
    const auto rows = static_cast<double>(answered());
    sum.logit /= rows, sum.log_probability /= rows, sum.kl /= rows;
    return sum;
  }
  // The one token that all rows are asked for, if there is one.
  std::optional<std::int64_t> token() const {
    if (!answers_.any() || options_.token || !options_.rows.empty()) return options_.token;
    const Tensor logits = answers_.logits(before_);
    return analysis::likeliest({logits.data<float>(), static_cast<std::size_t>(logits.count())});
  }
  void set_before(const View& hidden) { before_ = answers_.any() ? answers_.rows(hidden) : hidden.clone(); }  // [P,E]
  View before(std::size_t p) const { return before_.view().slice(0, of(p), of(p) + 1); }

  // Adds what row p of copies comes to: logits [copies + 1,V], first those of before. A sum, until it is divided().
  void add_row(std::size_t p, const View& logits, std::span<Effect> out) const {
    const auto row = [&](std::int64_t n) {
      return std::span<const float>{logits.select(0, n).data<float>(), static_cast<std::size_t>(logits.size(1))};
    };
    const std::span<const float> was = row(0);
    const double sum = analysis::log_sum(was);
    std::vector<float> share(was.size());
    std::ranges::transform(was, share.begin(), [&](float z) { return std::exp(z - static_cast<float>(sum)); });
    const std::int64_t token = token_of(p, was);
    parallel_for(std::ssize(out), 1, [&](std::int64_t begin, std::int64_t end) {
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

  // Of an encoder, the rows of a copy from `first` on: 1 - cosine of the mean hidden states.
  double distance(const Tensor& after, std::int64_t first) const {
    const std::int64_t P = std::ssize(rows_);
    const std::vector<double> was = models::mean_direction(before_, 0, P);
    const std::vector<double> is = models::mean_direction(after, first, first + P);
    return std::max(0.0, 1 - std::inner_product(was.begin(), was.end(), is.begin(), 0.0));
  }

 private:
  static std::int64_t of(std::size_t p) { return static_cast<std::int64_t>(p); }
  std::int64_t token_of(std::size_t p, std::span<const float> was) const {
    if (options_.token) return *options_.token;
    const bool follows = !options_.rows.empty() && !answers_.head();
    return follows ? ids_[static_cast<std::size_t>(rows_[p]) + 1] : analysis::likeliest(was);
  }

  std::span<const std::int64_t> ids_;
  const AblateOptions& options_;
  Answers answers_;
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
  if (!comparison.answers().any()) {
    out.cosine_distance = tensor(&Effect::cosine_distance);
    return out;
  }
  out.logit = tensor(&Effect::logit);
  if (comparison.answers().probabilities())
    out.log_probability = tensor(&Effect::log_probability), out.kl = tensor(&Effect::kl);
  out.token = comparison.token(), out.against = comparison.against();
  return out;
}

// values [L,H*Dv], or [L,T,H*Dv].
void check_values(const AblateOptions& options, const analysis::Stream& stream, std::size_t text,
                  const ModelInfo& info) {
  if (options.set != Edit::Set::values) return;
  const std::int64_t size = options.attention == AttentionKind::encoder ? info.encoder_head_size : info.head_size;
  const Dims each{stream.layers(), stream.heads() * size},
      rows{stream.layers(), stream.first(text) + stream.length(text), stream.heads() * size};
  if (options.values.shape() != each && options.values.shape() != rows)
    fail(ErrorCode::bad_shape, ablate_function, "values have shape {}, expected {} or {}", options.values.shape(), each,
         rows);
}

Edit edit_of(const Head& head, const AblateOptions& options, const analysis::Stream& stream, std::size_t text) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(stream.length(text)));
  std::iota(rows.begin(), rows.end(), 0);
  Edit edit{.layer = head.first,
            .at = analysis::place_of(options.attention),
            .head = head.second,
            .rows = std::move(rows),
            .set = options.set};
  if (edit.set != Edit::Set::values) return edit;
  View values = options.values.select(0, head.first);
  if (values.rank() == 2) values = values.slice(0, stream.first(text), values.size(0));
  const std::int64_t size = values.size(-1) / stream.heads();
  edit.values = values.slice(-1, head.second * size, (head.second + 1) * size);
  return edit;
}

// Where heads are taken out from, and what stands before that row. Throws bad_value.
std::int64_t first_of(const AblateOptions& options, std::int64_t count, const ModelInfo& info) {
  if (!options.first_row) {
    if (options.cache)
      fail(ErrorCode::bad_value, ablate_function, "a cache needs first_row too: rows in the cache keep their heads");
    return 0;
  }
  return analysis::first_row_of(ablate_function, *options.first_row, count, info);
}

// As the stream counts them.
std::vector<std::int64_t> rows_from(std::int64_t first, std::vector<std::int64_t> rows) {
  for (std::int64_t& row : rows) {
    if (row < first)
      fail(ErrorCode::bad_value, ablate_function, "rows has {}, before first_row {}: nothing changes there", row,
           first);
    row -= first;
  }
  return rows;
}

// A text that is asked about, and what it has come to.
struct AskedAblation {
  AskedAblation(const Model& model, const analysis::Text& of, const AblateOptions& with)
      : text(checked(model, of, with)), options(with), comparison(model, of.answering(), with) {
    first = first_of(options, std::ssize(text.ids), model.info());
    rows = rows_from(first, comparison.rows());
  }

  static const analysis::Text& checked(const Model& model, const analysis::Text& text, const AblateOptions& options) {
    models::check_exact(model.info(), ablate_function);
    if (options.set > Edit::Set::values)
      fail(ErrorCode::bad_value, ablate_function, "set is to add or to scale, expected zero, mean or values");
    analysis::check_attention(ablate_function, options.attention, model.info());
    analysis::check_text(text, model.info());
    return text;
  }

  analysis::Text text;
  const AblateOptions& options;
  Comparison comparison;
  std::int64_t first = 0;          // the row that heads are taken out from
  std::vector<std::int64_t> rows;  // that count, as the stream has them
  std::vector<Head> chosen = {};
  std::vector<Effect> effects = {};
};

// Texts that go through the model together, layer by layer.
class AblationsTogether {
 public:
  AblationsTogether(const Model& model, std::span<AskedAblation> asked)
      : model_(model), asked_(asked), stream_(model, texts(), of_encoder(), before()) {
    for (std::size_t n = 0; n < asked_.size(); ++n) {
      check_values(asked_[n].options, stream_, n, model.info());
      asked_[n].chosen = checked_heads(asked_[n].options, stream_);
      rows_.push_back(asked_[n].rows);
    }
    const Tensor hidden = stream_.rest(rows_);
    std::int64_t begin = 0;
    for (AskedAblation& each : asked_) {
      const std::int64_t end = begin + std::ssize(each.rows);
      each.comparison.set_before(hidden.view().slice(0, begin, end));
      begin = end;
    }
  }

  void run(const std::function<void(double)>& progress) {
    take_out(chosen_parts(), {});
    if (std::ranges::all_of(asked_, [](const AskedAblation& each) { return !each.chosen.empty(); })) return;
    analysis::LayerProgress told(stream_.layers(), progress);
    for (std::int64_t layer = 0; layer < stream_.layers(); ++layer) {
      take_out(parts_of(layer), [&](double share) { told.tell(layer, share); });
      stream_.advance();
    }
  }

  std::vector<Ablation> results() const {
    std::vector<Ablation> out;
    out.reserve(asked_.size());
    for (const AskedAblation& each : asked_) {
      const Dims shape = each.chosen.empty() ? Dims{stream_.layers(), stream_.heads()} : Dims{1};
      out.push_back(make_result(shape, each.effects, each.comparison));
      out.back().of = each.options.of, out.back().heads = each.chosen, out.back().attention = each.options.attention;
    }
    return out;
  }

 private:
  bool of_encoder() const { return asked_[0].options.attention == AttentionKind::encoder; }
  std::vector<analysis::Text> texts() const {
    std::vector<analysis::Text> texts;
    for (const AskedAblation& each : asked_) texts.push_back(each.text);
    return texts;
  }
  std::vector<ModelCache> before() const {
    std::vector<ModelCache> caches;
    if (std::ranges::all_of(asked_, [](const AskedAblation& each) { return each.first == 0; })) return caches;
    for (const AskedAblation& each : asked_)
      caches.push_back(analysis::cache_before(ablate_function, model_, each.text, each.options.cache, each.first));
    return caches;
  }

  // Of the texts whose heads are taken out together.
  std::vector<analysis::Part> chosen_parts() const {
    std::vector<analysis::Part> parts;
    for (std::size_t n = 0; n < asked_.size(); ++n) {
      if (asked_[n].chosen.empty()) continue;
      parts.push_back({n, {}});
      for (const Head& head : asked_[n].chosen)
        parts.back().edits.push_back(edit_of(head, asked_[n].options, stream_, n));
    }
    return parts;
  }
  // Of the others, a part for each head of the layer.
  std::vector<analysis::Part> parts_of(std::int64_t layer) const {
    std::vector<analysis::Part> parts;
    for (std::size_t n = 0; n < asked_.size(); ++n)
      for (std::int64_t head = 0; head < stream_.heads() && asked_[n].chosen.empty(); ++head)
        parts.push_back({n, {edit_of({layer, head}, asked_[n].options, stream_, n)}});
    return parts;
  }

  void take_out(std::vector<analysis::Part> parts, const std::function<void(double)>& progress) {
    analysis::for_each_pass(stream_, parts, rows_, [&](const Tensor& hidden, std::size_t first, std::size_t last) {
      const std::vector<Effect> found = effects_of(hidden, std::span(parts).subspan(first, last - first));
      for (std::size_t n = first; n < last; ++n) {
        AskedAblation& of = asked_[parts[n].text];
        of.effects.push_back(of.comparison.divided(found[n - first]));
      }
      if (progress) progress(static_cast<double>(last) / static_cast<double>(parts.size()));
    });
  }

  // Parts of one text at one of its rows, and before them what the row was: they meet the output layer together.
  struct Group {
    std::size_t text, p, first, last;
    std::int64_t size() const { return static_cast<std::int64_t>(last - first) + 1; }
  };

  // hidden: the rows of each part. Sums, of what answers.
  std::vector<Effect> effects_of(const Tensor& hidden, std::span<const analysis::Part> parts) const {
    std::vector<Effect> out(parts.size());
    std::vector<std::int64_t> begins{0};
    for (const analysis::Part& part : parts) begins.push_back(begins.back() + std::ssize(rows_[part.text]));
    const Answers& answers = asked_[0].comparison.answers();
    if (!answers.any()) {
      for (std::size_t n = 0; n < parts.size(); ++n)
        out[n].cosine_distance = asked_[parts[n].text].comparison.distance(hidden, begins[n]);
      return out;
    }
    const std::vector<Group> groups = groups_of(parts);
    std::vector<std::int64_t> sizes;
    sizes.reserve(groups.size());
    for (const Group& group : groups) sizes.push_back(group.size());
    analysis::for_each_run(sizes, answers.at_once(), [&](std::size_t first, std::size_t last) {
      add_answers(std::span(groups).subspan(first, last - first), hidden, begins, answers, out);
    });
    return out;
  }

  std::vector<Group> groups_of(std::span<const analysis::Part> parts) const {
    std::vector<Group> groups;
    for (std::size_t first = 0, last = 0; first < parts.size(); first = last) {
      const std::size_t text = parts[first].text;
      while (last < parts.size() && parts[last].text == text) ++last;
      for (std::size_t p = 0; p < asked_[text].comparison.answered(); ++p) groups.push_back({text, p, first, last});
    }
    return groups;
  }

  void add_answers(std::span<const Group> groups, const Tensor& hidden, std::span<const std::int64_t> begins,
                   const Answers& answers, std::vector<Effect>& out) const {
    std::int64_t count = 0;
    for (const Group& group : groups) count += group.size();
    Tensor rows = Tensor::uninitialized({count, hidden.size(1)}, DType::f32);
    std::int64_t at = 0;
    const auto next = [&] { return ++at, rows.view().slice(0, at - 1, at); };
    for (const Group& group : groups) {
      next().copy_from(asked_[group.text].comparison.before(group.p));
      for (std::size_t n = group.first; n < group.last; ++n)
        answers.copy_row(hidden.view().slice(0, begins[n], begins[n + 1]), static_cast<std::int64_t>(group.p), next());
    }
    const Tensor logits = answers.logits(rows);
    at = 0;
    for (const Group& group : groups) {
      asked_[group.text].comparison.add_row(group.p, logits.view().slice(0, at, at + group.size()),
                                            std::span(out).subspan(group.first, group.last - group.first));
      at += group.size();
    }
  }

  const Model& model_;
  std::span<AskedAblation> asked_;
  analysis::Stream stream_;
  std::vector<std::vector<std::int64_t>> rows_;  // of each text, those that count
};

std::vector<Ablation> ablate_texts(const Model& model, std::span<const analysis::Text> texts,
                                   std::span<const AblateOptions> options) {
  std::vector<AskedAblation> asked;
  asked.reserve(texts.size());
  for (std::size_t n = 0; n < texts.size(); ++n)
    if (options[n].of != options[0].of)
      fail(ErrorCode::bad_value, ablate_function, "of differs between the texts, expected the same for all");
  for (std::size_t n = 0; n < texts.size(); ++n)
    analysis::of_text(n, texts.size(), [&] { asked.emplace_back(model, texts[n], options[n]); });
  std::vector<Ablation> found;
  analysis::for_each_group(model, texts, [&](std::size_t first, std::size_t last) {
    AblationsTogether together(model, std::span(asked).subspan(first, last - first));
    together.run(analysis::share_of(options[0].progress, first, last, texts.size()));
    std::vector<Ablation> some = together.results();
    found.insert(found.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  });
  return found;
}

}  // namespace

Ablation ablate(const Model& model, std::span<const std::int64_t> ids, const AblateOptions& options) {
  const analysis::Text text{ids, options.decoder_ids, options.types};
  return std::move(ablate_texts(model, std::span(&text, 1), std::span(&options, 1))[0]);
}

std::vector<Ablation> ablate(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                             std::span<const AblateOptions> options) {
  const std::vector<AblateOptions> each = analysis::for_each_text(ablate_function, options, texts.size());
  return ablate_texts(model, analysis::texts_of<AblateOptions>(texts, each), each);
}

std::string to_json(const Ablation& x, const TensorJson& tensor) {
  const Tensors json(tensor);
  if (x.cosine_distance.count() > 0) return text_of({{"cosine_distance", json("cosine_distance", x.cosine_distance)}});
  Json ablation = {{"token", or_null(x.token)}, {"against", or_null(x.against)}, {"logit", json("logit", x.logit)}};
  if (x.of == GradientOf::label) ablation["of"] = "label";
  if (x.log_probability.count() > 0)
    ablation.update({{"log_probability", json("log_probability", x.log_probability)}, {"kl", json("kl", x.kl)}});
  return text_of(ablation);
}

}  // namespace attend::inline v1
