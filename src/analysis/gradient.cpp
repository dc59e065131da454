#include "attend/gradient.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/answers.h"
#include "analysis/gradients.h"
#include "analysis/texts.h"
#include "core/from_end.h"
#include "core/message.h"
#include "layers/rows.h"
#include "models/edits.h"
#include "models/pass_back.h"

namespace attend::inline v1 {

namespace {

constexpr const char* gradient_function = "gradient";

// Numbers of K [K,rows,columns], or of one [rows,columns], as [K * rows,columns] f32.
Tensor stacked(std::string_view name, const View& given, std::int64_t rows, std::int64_t columns, std::int64_t copies) {
  if (!is_floating(given.dtype()))
    fail(ErrorCode::bad_dtype, gradient_function, "{} is {}, expected floating point", name, given.dtype());
  const bool one = given.rank() == 2 && copies == 1;
  if (given.shape() != (one ? Dims{rows, columns} : Dims{copies, rows, columns}))
    fail(ErrorCode::bad_shape, gradient_function, "{} has shape {}, expected {}", name, given.shape(),
         copies == 1 ? Dims{rows, columns} : Dims{copies, rows, columns});
  Tensor all = Tensor::uninitialized({copies * rows, columns});
  all.view().reshape(given.shape()).copy_from(given);
  return all;
}

// The numbers, and their gradients by the hidden states.
class AskedGradient {
 public:
  AskedGradient(const Model& model, const GradientOptions& options)
      : parts_(ModelAccess::parts(model)), options_(options) {
    check();
  }

  std::int64_t copies() const { return copies_; }

  // Of one sequence.
  Tensor from(const Tensor& hidden, std::span<const std::int64_t> ids, Gradient& result) const {
    switch (options_.of) {
      case GradientOf::logit:
        return of_logit(hidden, result);
      case GradientOf::log_probability:
        return of_log_probability(hidden, result);
      case GradientOf::label:
        return of_label(hidden, ids, result);
      case GradientOf::cosine:
        return of_cosine(hidden, result);
      case GradientOf::sum:
        return of_sum(hidden, result);
    }
    fail(ErrorCode::bad_value, gradient_function, "there is no GradientOf {}", static_cast<int>(options_.of));
  }

 private:
  void check() {
    const ModelInfo& info = parts_.info;
    models::check_exact(info, gradient_function);
    const bool answers = options_.of == GradientOf::logit || options_.of == GradientOf::log_probability;
    if (answers) models::output_of(parts_, gradient_function);
    const bool of_tokens = options_.of != GradientOf::label;
    if (options_.token && of_tokens) analysis::check_token(gradient_function, "token", *options_.token, info);
    if (options_.against && of_tokens) analysis::check_token(gradient_function, "against", *options_.against, info);
    for (const std::int64_t token : options_.tokens) analysis::check_token(gradient_function, "tokens", token, info);
    if (options_.of == GradientOf::log_probability && options_.tokens.empty())
      fail(ErrorCode::bad_value, gradient_function, "log_probability needs at least one token");
    if (options_.of == GradientOf::cosine) check_vector();
    if (options_.of == GradientOf::label)
      analysis::head_of(gradient_function, parts_, options_.token, options_.against);
    if (options_.of != GradientOf::sum) return;
    if (!options_.cotangent && options_.at_places.empty())
      fail(ErrorCode::bad_value, gradient_function, "a sum needs a cotangent for the hidden states, or for places");
    const View& first = options_.cotangent ? *options_.cotangent : options_.at_places.front().values;
    copies_ = first.rank() == 3 ? first.size(0) : 1;
    if (copies_ < 1)
      fail(ErrorCode::bad_shape, gradient_function, "a cotangent has shape {}, expected at least one", first.shape());
  }

  void check_vector() const {
    const std::int64_t size = models::sentence_modules(parts_).vector_size;
    if (!options_.vector) fail(ErrorCode::bad_value, gradient_function, "a cosine needs a vector");
    const View& given = *options_.vector;
    if (given.shape() != Dims{size})
      fail(ErrorCode::bad_shape, gradient_function, "vector has shape {}, expected [{}]", given.shape(), size);
    if (!is_floating(given.dtype()))
      fail(ErrorCode::bad_dtype, gradient_function, "vector is {}, expected floating point", given.dtype());
  }

  Tensor logits_of(const Tensor& hidden, std::int64_t row) const {
    return models::output_of(parts_, gradient_function).logits(hidden.view().select(0, row));
  }

  std::int64_t row_of(const Tensor& hidden) const {
    return from_end(gradient_function, "position is", options_.position, hidden.size(0));
  }

  Tensor of_logit(const Tensor& hidden, Gradient& result) const {
    const std::int64_t row = result.position = row_of(hidden);
    const Tensor logits = logits_of(hidden, row);
    const float* all = logits.data<float>();
    const std::int64_t token =
        options_.token.value_or(analysis::likeliest({all, static_cast<std::size_t>(logits.count())}));
    std::vector<std::pair<std::int64_t, double>> d{{token, 1}};
    if (options_.against) d.emplace_back(*options_.against, -1);
    result.token = token;
    result.values = {static_cast<double>(all[token]) -
                     (options_.against ? static_cast<double>(all[*options_.against]) : 0)};
    Tensor out(hidden.shape());
    out.view().select(0, row).copy_from(models::output_of(parts_, gradient_function).input_gradient(d, logits));
    return out;
  }

  Tensor of_label(const Tensor& hidden, std::span<const std::int64_t> ids, Gradient& result) const {
    const models::TaskHead& head = *parts_.head;
    const std::int64_t starts[] = {0, hidden.size(0)};
    const bool each = head.reads == models::TaskHead::Reads::each;
    const std::int64_t row = each ? row_of(hidden) : 0;
    const Tensor rows = head.rows(hidden, ids, starts), logits = head.logits(rows.view().slice(0, row, row + 1));
    const float* all = logits.data<float>();
    const std::int64_t label =
        options_.token.value_or(analysis::likeliest({all, static_cast<std::size_t>(logits.count())}));
    Tensor d({logits.count()});
    d.data<float>()[label] += 1;
    if (options_.against) d.data<float>()[*options_.against] -= 1;
    result.token = label, result.position = row;
    result.values = {static_cast<double>(all[label]) -
                     (options_.against ? static_cast<double>(all[*options_.against]) : 0)};
    return head.input_gradient(hidden, ids, row, d);
  }

  Tensor of_log_probability(const Tensor& hidden, Gradient& result) const {
    const std::int64_t first = result.position = row_of(hidden), count = std::ssize(options_.tokens);
    if (count > hidden.size(0) - first)
      fail(ErrorCode::bad_value, gradient_function, "{} tokens from row {} on reach beyond the {} rows", count, first,
           hidden.size(0));
    result.values = {0};
    Tensor out(hidden.shape());
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t token = options_.tokens[static_cast<std::size_t>(n)];
      const Tensor logits = logits_of(hidden, first + n);
      const float* all = logits.data<float>();
      const double sum = analysis::log_sum({all, static_cast<std::size_t>(logits.count())});
      result.values[0] += static_cast<double>(all[token]) - sum;
      Tensor d({logits.count()});
      for (std::int64_t v = 0; v < d.count(); ++v)
        d.data<float>()[v] = static_cast<float>((v == token ? 1 : 0) - std::exp(static_cast<double>(all[v]) - sum));
      out.view().select(0, first + n).copy_from(models::output_of(parts_, gradient_function).input_gradient(d, logits));
    }
    return out;
  }

  // Of u v / (|u| |v|) by u: (v / |v| - cosine u / |u|) / |u|.
  Tensor of_cosine(const Tensor& hidden, Gradient& result) const {
    const models::SentenceModules& modules = models::sentence_modules(parts_);
    const std::int64_t starts[] = {0, hidden.size(0)};
    const Tensor own = modules.vectors(hidden, starts, 0, {}), given = options_.vector->to(DType::f32);
    const float *u = own.data<float>(), *v = given.data<float>();
    const std::int64_t size = own.count();
    const double length = std::sqrt(dot(u, u, size)), other = std::sqrt(dot(v, v, size));
    if (length == 0 || other == 0) fail(ErrorCode::bad_value, gradient_function, "a vector of length 0 has no cosine");
    const double cosine = dot(u, v, size) / (length * other);
    Tensor d({size});
    for (std::int64_t n = 0; n < size; ++n)
      d.data<float>()[n] = static_cast<float>(
          (static_cast<double>(v[n]) / other - cosine * static_cast<double>(u[n]) / length) / length);
    result.values = {cosine};
    return modules.input_gradient(hidden, d);
  }

  Tensor of_sum(const Tensor& hidden, Gradient& result) const {
    const std::int64_t N = hidden.size(0), E = hidden.size(1);
    result.values.resize(static_cast<std::size_t>(copies_));
    if (!options_.cotangent) return Tensor({copies_ * N, E});
    Tensor d = stacked("cotangent", *options_.cotangent, N, E, copies_);
    for (std::int64_t c = 0; c < copies_; ++c)
      result.values[static_cast<std::size_t>(c)] += dot(d.data<float>() + c * N * E, hidden.data<float>(), N * E);
    return d;
  }

  const Model::Parts& parts_;
  const GradientOptions& options_;
  std::int64_t copies_ = 1;
};

// The cotangents of places: what they add to the number as the pass goes forward, and to the gradient as it comes back.
class AtPlaces {
 public:
  AtPlaces(const ModelInfo& info, const GradientOptions& options, std::int64_t copies, Gradient& result)
      : copies_(copies), result_(result) {
    if (options.of != GradientOf::sum && !options.at_places.empty())
      fail(ErrorCode::bad_value, gradient_function, "only a sum takes cotangents at places");
    for (const Cotangent& each : options.at_places) {
      const models::PlaceShape shape = models::shape_of(gradient_function, each.at, info);
      all_.push_back(each);
      all_.back().layer = from_end(gradient_function, fmt::format("a cotangent at {} of layer", name_of(each.at)),
                                   each.layer, shape.layers);
    }
  }

  bool empty() const { return all_.empty(); }

  void forward(ModelPlace place, std::int64_t layer, const View& values) {
    for_each_at(place, layer, values, [&](const Tensor& d) {
      const Tensor here = values.to(DType::f32);
      for (std::int64_t c = 0; c < copies_; ++c)
        sums_[static_cast<std::size_t>(c)] += dot(d.data<float>() + c * here.count(), here.data<float>(), here.count());
    });
  }
  void back(ModelPlace place, std::int64_t layer, Tensor& d) {
    const View one = d.view().slice(0, 0, d.size(0) / copies_);
    for_each_at(place, layer, one, [&](const Tensor& of) { add_to(d, of); });
  }
  // What forward() has summed up, once the numbers are there.
  void finish() {
    for (std::size_t c = 0; c < result_.values.size() && !all_.empty(); ++c) result_.values[c] += sums_[c];
  }

 private:
  template <class Body>
  void for_each_at(ModelPlace place, std::int64_t layer, const View& rows, Body body) {
    sums_.resize(static_cast<std::size_t>(copies_));
    for (const Cotangent& each : all_) {
      if (each.at != place || each.layer != layer) continue;
      body(stacked(fmt::format("the cotangent at {} of layer {}", name_of(place), layer), each.values, rows.size(0),
                   rows.size(1), copies_));
    }
  }

  std::int64_t copies_;
  Gradient& result_;
  std::vector<Cotangent> all_;
  std::vector<double> sums_;
};

}  // namespace

std::vector<Gradient> analysis::gradients(const Model& model, std::span<const std::int64_t> ids,
                                          std::span<const std::int64_t> starts,
                                          std::span<const GradientOptions> options, const Shown& shown) {
  const std::int64_t whole[] = {0, std::ssize(ids)};
  const std::span<const std::int64_t> begins = starts.empty() ? whole : starts;
  const GradientOptions& first = options.front();
  std::vector<Gradient> results(begins.size() - 1);
  std::vector<AskedGradient> asked;
  asked.reserve(options.size());
  for (const GradientOptions& each : options) asked.emplace_back(model, each);
  const std::int64_t copies = asked.front().copies();
  AtPlaces at_places(model.info(), first, copies, results[0]);
  ModelCall call{
      .starts = starts, .types = first.types, .decoder_ids = first.decoder_ids, .edits = first.edits, .observe = {}};
  if (!at_places.empty() || shown.forward)
    call.observe = [&](ModelPlace place, std::int64_t layer, const View& x) {
      at_places.forward(place, layer, x);
      if (shown.forward) shown.forward(place, layer, x);
    };
  models::PassBack back;
  back.copies = copies;
  back.attentions = shown.attentions;
  if (first.memory) back.memory = *first.memory;
  // Those that the hidden states are of.
  const auto ids_of = [&](std::size_t s) {
    const std::span<const std::int64_t> of = first.decoder_ids.empty() ? ids : first.decoder_ids;
    return results.size() == 1
               ? of
               : of.subspan(static_cast<std::size_t>(begins[s]), static_cast<std::size_t>(begins[s + 1] - begins[s]));
  };
  back.from = [&](const Tensor& hidden) {
    if (results.size() == 1) return asked[0].from(hidden, ids_of(0), results[0]);
    Tensor all = Tensor::uninitialized(hidden.shape());
    for (std::size_t s = 0; s < results.size(); ++s) {
      const Tensor own = hidden.view().slice(0, begins[s], begins[s + 1]).clone();
      all.view()
          .slice(0, begins[s], begins[s + 1])
          .copy_from(asked[asked.size() > 1 ? s : 0].from(own, ids_of(s), results[s]));
    }
    return all;
  };
  back.places = [&](ModelPlace place, std::int64_t layer, Tensor& d) {
    at_places.back(place, layer, d);
    const View all = d;
    if (options.size() == 1 && first.observe)
      first.observe(place, layer, copies == 1 ? all : all.reshape({copies, d.size(0) / copies, d.size(1)}));
    for (std::size_t s = 0; options.size() > 1 && s < options.size(); ++s)
      if (options[s].observe) options[s].observe(place, layer, all.slice(0, begins[s], begins[s + 1]));
  };
  models::pass_back(model, ids, call, back);
  at_places.finish();
  return results;
}

Gradient analysis::number(const Model& model, std::span<const std::int64_t> ids, const GradientOptions& options,
                          std::span<const Knockout> knockouts) {
  Gradient result;
  const AskedGradient asked(model, options);
  const Tensor hidden = model.forward(
      ids,
      {.types = options.types, .decoder_ids = options.decoder_ids, .edits = options.edits, .knockouts = knockouts});
  asked.from(hidden, options.decoder_ids.empty() ? ids : options.decoder_ids, result);
  return result;
}

Gradient gradient(const Model& model, std::span<const std::int64_t> ids, const GradientOptions& options) {
  return std::move(analysis::gradients(model, ids, {}, {&options, 1}).front());
}

namespace {

// Whether it goes through the model with others.
bool goes_along(const GradientOptions& options) {
  return options.of != GradientOf::sum && options.edits.empty() && options.types.empty() && options.decoder_ids.empty();
}

// In one pass; empty where one of them is refused: which, and why, its own pass says.
std::vector<Gradient> together(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                               std::span<const GradientOptions> options) {
  std::vector<std::int64_t> ids, starts{0};
  for (const std::vector<std::int64_t>& text : texts) {
    ids.insert(ids.end(), text.begin(), text.end());
    starts.push_back(std::ssize(ids));
  }
  try {
    return analysis::gradients(model, ids, starts, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_value && error.code() != ErrorCode::bad_shape) throw;
  }
  return {};
}

}  // namespace

std::vector<Gradient> gradient(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                               std::span<const GradientOptions> options) {
  const std::vector<GradientOptions> each = analysis::for_each_text(gradient_function, options, texts.size());
  std::vector<Gradient> found;
  found.reserve(texts.size());
  analysis::for_each_group(model, analysis::texts_of(texts, std::span(each)), [&](std::size_t first, std::size_t last) {
    const std::span own = std::span(each).subspan(first, last - first);
    std::vector<Gradient> of_group;
    if (own.size() > 1 && std::ranges::all_of(own, goes_along))
      of_group = together(model, texts.subspan(first, own.size()), own);
    const bool alone = of_group.empty();
    for (std::size_t n = first; alone && n < last; ++n)
      analysis::of_text(n, texts.size(), [&] { found.push_back(gradient(model, texts[n], each[n])); });
    for (Gradient& one : of_group) found.push_back(std::move(one));
  });
  return found;
}

GradientBytes gradient_bytes(const Model& model, std::int64_t tokens, std::int64_t decoder_tokens) {
  const models::KeptBytes kept = models::kept_bytes(model, tokens, decoder_tokens);
  return {kept.all, kept.streams};
}

}  // namespace attend::inline v1
