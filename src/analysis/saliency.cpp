#include "attend/saliency.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "analysis/gradients.h"
#include "analysis/json.h"
#include "core/message.h"
#include "models/families/embeddings.h"
#include "models/model.h"

namespace attend::inline v1 {

namespace {

constexpr const char* saliency_function = "saliency";

// A stack's text, by its embeddings.
struct TokenPath {
  ModelPlace at;
  std::vector<std::int64_t> ids;
  Tensor text, base;  // [N,E]

  std::int64_t tokens() const { return std::ssize(ids); }
};

Tensor rows_of_table(const models::Matrix& words, std::span<const std::int64_t> ids, std::int64_t size) {
  Tensor rows({std::ssize(ids), size});
  models::add_embeddings(rows, words, ids);
  return rows;
}

Tensor mean_of_table(const models::Matrix& words, std::int64_t vocabulary, std::int64_t size) {
  constexpr std::int64_t together = 1024;
  std::vector<double> sums(static_cast<std::size_t>(size));
  for (std::int64_t first = 0; first < vocabulary; first += together) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(together, vocabulary - first)));
    std::iota(ids.begin(), ids.end(), first);
    const Tensor rows = rows_of_table(words, ids, size);
    for (std::int64_t n = 0; n < rows.count(); ++n)
      sums[static_cast<std::size_t>(n % size)] += static_cast<double>(rows.data<float>()[n]);
  }
  Tensor mean({size});
  for (std::int64_t e = 0; e < size; ++e)
    mean.data<float>()[e] = static_cast<float>(sums[static_cast<std::size_t>(e)] / static_cast<double>(vocabulary));
  return mean;
}

TokenPath path_of(const models::Matrix& words, std::int64_t vocabulary, std::int64_t size, ModelPlace at,
                  std::span<const std::int64_t> ids, const SaliencyOptions& options) {
  const OptionalView& baseline = options.baseline;
  models::check_ids("ids", ids, vocabulary);
  TokenPath path{at, {ids.begin(), ids.end()}, rows_of_table(words, ids, size), {}};
  if (baseline && baseline->shape() != Dims{size})
    fail(ErrorCode::bad_shape, saliency_function, "baseline has shape {}, expected [{}]", baseline->shape(), size);
  if (baseline && !is_floating(baseline->dtype()))
    fail(ErrorCode::bad_dtype, saliency_function, "baseline is {}, expected floating point", baseline->dtype());
  if (options.baseline_token) models::check_ids("baseline_token", {{*options.baseline_token}}, vocabulary);
  const Tensor base = baseline                 ? baseline->to(DType::f32)
                      : options.baseline_token ? rows_of_table(words, {{*options.baseline_token}}, size)
                                               : mean_of_table(words, vocabulary, size);
  path.base = base.view().reshape({1, size}).broadcast_to({path.tokens(), size}).clone();
  return path;
}

std::vector<TokenPath> paths_of(const Model& model, std::span<const std::int64_t> ids, const SaliencyOptions& options) {
  const Model::Parts& parts = ModelAccess::parts(model);
  const ModelInfo& info = parts.info;
  std::vector<TokenPath> paths;
  std::visit(
      [&](const auto& family) {
        if constexpr (requires { family.encoder(); }) {
          paths.push_back(path_of(family.decoder().words(), info.vocabulary, info.input_size, ModelPlace::embeddings,
                                  options.number.decoder_ids, options));
          paths.push_back(path_of(family.encoder().words(), info.encoder_vocabulary, info.input_size,
                                  ModelPlace::encoder_embeddings, ids, options));
        } else if constexpr (!requires { family.words(); }) {
          fail(ErrorCode::bad_value, saliency_function, "the model, of type {}, has no layers: each token adds its row",
               info.type);
        } else {
          paths.push_back(
              path_of(family.words(), info.vocabulary, info.input_size, ModelPlace::embeddings, ids, options));
        }
      },
      parts.family);
  return paths;
}

// What stands at a point of the path, and what its gradient says of each token: where it is df/d(alpha), token by
// token.
struct Point {
  double at = 0, value = 0;
  std::vector<double> slopes = {};  // of all paths' tokens, one after another
  Gradient of = {};
};

class Integral {
 public:
  Integral(const Model& model, const SaliencyOptions& options, std::vector<TokenPath> paths)
      : model_(model), options_(options), paths_(std::move(paths)) {}

  // Points of the path in passes of several at a time: a short text's weights are read once for them.
  std::vector<Point> compute(const std::vector<double>& places) {
    // An encoder-decoder's two texts go alone.
    const std::int64_t rows = paths_.front().tokens();
    const std::int64_t together = paths_.size() > 1 ? 1 : std::clamp<std::int64_t>(256 / rows, 1, 16);
    std::vector<Point> points;
    for (std::int64_t first = 0; first < std::ssize(places); first += together) {
      const std::int64_t count = std::min(together, std::ssize(places) - first);
      for (Point& point :
           pass(std::span(places).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))))
        points.push_back(std::move(point));
      done_ += count;
      if (options_.progress)
        options_.progress(std::min(1.0, static_cast<double>(done_) / static_cast<double>(options_.steps)));
    }
    return points;
  }
  // Of `input`: the text's own embeddings in place of the way from the baseline.
  std::vector<double> input_times_gradient(Gradient& of) {
    for (TokenPath& path : paths_) path.base = Tensor(path.text.shape());
    Point point = std::move(compute({1.0}).front());
    of = std::move(point.of);
    return std::move(point.slopes);
  }

 private:
  // base + at (text - base), of each point one after another.
  static Tensor embeddings_at(const TokenPath& path, std::span<const double> places) {
    const std::int64_t count = path.text.count();
    Tensor all = Tensor::uninitialized({std::ssize(places) * path.tokens(), path.text.size(1)});
    float* to = all.data<float>();
    for (const double at : places)
      for (std::int64_t n = 0; n < count; ++n) {
        const auto text = static_cast<double>(path.text.data<float>()[n]);
        const auto base = static_cast<double>(path.base.data<float>()[n]);
        *to++ = static_cast<float>(at == 1 ? text : base + at * (text - base));
      }
    return all;
  }

  std::vector<Point> pass(std::span<const double> places) {
    std::vector<Tensor> given;
    std::vector<Edit> edits;
    for (const TokenPath& path : paths_) {
      given.push_back(embeddings_at(path, places));
      edits.push_back({.at = path.at, .set = Edit::Set::values, .values = {}});
    }
    for (std::size_t n = 0; n < edits.size(); ++n) edits[n].values = given[n].view();
    std::vector<Point> points(places.size());
    const TokenPath& own = paths_.back();  // whose ids the call has
    std::vector<std::int64_t> ids, starts{0}, types;
    for (std::size_t p = 0; p < places.size(); ++p) {
      ids.insert(ids.end(), own.ids.begin(), own.ids.end());
      types.insert(types.end(), options_.number.types.begin(), options_.number.types.end());
      starts.push_back(std::ssize(ids));
      points[p].at = places[p];
    }
    std::vector<std::vector<double>> slopes(paths_.size());
    GradientOptions number = options_.number;
    number.types = types;
    number.edits = edits;
    number.observe = [&](ModelPlace place, std::int64_t, const View& d) {
      for (std::size_t n = 0; n < paths_.size(); ++n)
        if (place == paths_[n].at) slopes[n] = slopes_of(paths_[n], d);
    };
    const bool one = places.size() == 1;
    std::vector<Gradient> found =
        analysis::gradients(model_, ids, one ? std::span<const std::int64_t>() : std::span(starts), {&number, 1});
    for (std::size_t p = 0; p < places.size(); ++p) {
      points[p].value = found[p].values.front();
      points[p].of = std::move(found[p]);
      for (std::size_t n = 0; n < paths_.size(); ++n) {
        const auto tokens = static_cast<std::size_t>(paths_[n].tokens());
        const std::span of_point = std::span(slopes[n]).subspan(p * tokens, tokens);
        points[p].slopes.insert(points[p].slopes.end(), of_point.begin(), of_point.end());
      }
    }
    return points;
  }

  // (text - base) . d of each row, rows of several points one after another.
  static std::vector<double> slopes_of(const TokenPath& path, const View& d) {
    const std::int64_t E = path.text.size(1);
    std::vector<double> slopes(static_cast<std::size_t>(d.size(0)));
    for (std::int64_t row = 0; row < d.size(0); ++row) {
      const std::int64_t at = row % path.tokens() * E;
      const float *text = path.text.data<float>() + at, *base = path.base.data<float>() + at,
                  *of = d.data<float>() + row * E;
      for (std::int64_t e = 0; e < E; ++e)
        slopes[static_cast<std::size_t>(row)] +=
            (static_cast<double>(text[e]) - static_cast<double>(base[e])) * static_cast<double>(of[e]);
    }
    return slopes;
  }

  const Model& model_;
  const SaliencyOptions& options_;
  std::vector<TokenPath> paths_;
  std::int64_t done_ = 0;
};

// A stretch of the path between two points, with the one in its middle.
struct Stretch {
  std::size_t begin, middle, end;  // which points

  // Simpson's rule.
  template <class Value>
  double integral(const std::vector<Point>& points, Value value) const {
    const double length = points[end].at - points[begin].at;
    return length / 6 * (value(points[begin]) + 4 * value(points[middle]) + value(points[end]));
  }
  // What the rule misses of the change that is known: f(end) - f(begin).
  double missing(const std::vector<Point>& points) const {
    return points[end].value - points[begin].value - integral(points, [](const Point& point) {
             return std::accumulate(point.slopes.begin(), point.slopes.end(), 0.0);
           });
  }
};

// Those that miss most, at most `room` of them: a stretch that misses little beside its share of what is enough waits.
std::int64_t worst_first(std::vector<Stretch>& stretches, const std::vector<Point>& points, double enough,
                         std::int64_t room) {
  const auto missed = [&](const Stretch& of) { return std::abs(of.missing(points)); };
  double all = 0;
  for (const Stretch& each : stretches) all += missed(each);
  if (all <= enough) return 0;
  std::ranges::sort(stretches, std::greater<>(), missed);
  const double share = enough / static_cast<double>(stretches.size());
  const auto little = std::ranges::find_if(stretches, [&](const Stretch& each) { return missed(each) <= share; });
  return std::min({room, std::max<std::int64_t>(1, std::ssize(stretches) / 2),
                   static_cast<std::int64_t>(little - stretches.begin())});
}

// The path in stretches, of which those that miss most are halved, until they all together miss little (each by itself:
// what two miss may cancel), or no steps are left.
std::vector<Stretch> along(Integral& integral, std::int64_t steps, std::vector<Point>& points) {
  constexpr double little = 0.005;  // of the whole change
  const std::int64_t first = std::clamp<std::int64_t>((steps - 1) / 2, 1, 4);
  std::vector<double> places;
  for (std::int64_t n = 0; n <= 2 * first; ++n)
    places.push_back(static_cast<double>(n) / static_cast<double>(2 * first));
  points = integral.compute(places);
  const double enough = little * std::abs(points.back().value - points.front().value);
  std::vector<Stretch> stretches;
  for (std::size_t n = 0; n < static_cast<std::size_t>(first); ++n) stretches.push_back({2 * n, 2 * n + 1, 2 * n + 2});
  while (const std::int64_t count = worst_first(stretches, points, enough, (steps - std::ssize(points)) / 2)) {
    places.clear();
    for (std::int64_t n = 0; n < count; ++n) {
      const Stretch& of = stretches[static_cast<std::size_t>(n)];
      places.push_back((points[of.begin].at + points[of.middle].at) / 2);
      places.push_back((points[of.middle].at + points[of.end].at) / 2);
    }
    std::size_t next = points.size();
    for (Point& point : integral.compute(places)) points.push_back(std::move(point));
    for (std::int64_t n = 0; n < count; ++n, next += 2) {
      const Stretch halved = stretches[static_cast<std::size_t>(n)];
      stretches[static_cast<std::size_t>(n)] = {halved.begin, next, halved.middle};
      stretches.push_back({halved.middle, next + 1, halved.end});
    }
  }
  return stretches;
}

void check(const SaliencyOptions& options) {
  if (options.number.of == GradientOf::sum)
    fail(ErrorCode::bad_value, saliency_function, "expected a logit, log-probabilities or a cosine");
  if (options.baseline && options.baseline_token)
    fail(ErrorCode::bad_value, saliency_function,
         "baseline and baseline_token are both given, expected one of the two");
  if (options.steps < 3)
    fail(ErrorCode::bad_value, saliency_function, "steps is {}, expected at least 3", options.steps);
  if (!options.number.edits.empty())
    fail(ErrorCode::bad_value, saliency_function, "edits can't be given here: the path sets the embeddings");
}

// The numbers of the paths' tokens, one after another, as the result has them.
void put(const std::vector<double>& all, const std::vector<std::int64_t>& counts, Saliency& result) {
  Tensor* const to[] = {&result.tokens, &result.encoder};
  auto from = all.begin();
  for (std::size_t n = 0; n < counts.size(); ++n) {
    *to[n] = Tensor({counts[n]});
    for (std::int64_t t = 0; t < counts[n]; ++t) to[n]->data<float>()[t] = static_cast<float>(*from++);
  }
}

}  // namespace

Saliency saliency(const Model& model, std::span<const std::int64_t> ids, const SaliencyOptions& options) {
  models::check_exact(model.info(), saliency_function);
  check(options);
  std::vector<TokenPath> paths = paths_of(model, ids, options);
  std::vector<std::int64_t> counts;
  counts.reserve(paths.size());
  for (const TokenPath& path : paths) counts.push_back(path.tokens());
  SaliencyOptions own = options;
  Saliency result;
  // The likeliest token is the text's, not that of each point.
  const bool of_label = own.number.of == GradientOf::label;
  const bool likeliest = (own.number.of == GradientOf::logit || of_label) && !own.number.token;
  Integral integral(model, own, std::move(paths));
  if (likeliest) own.number.token = integral.compute({1.0}).front().of.token;
  if (!of_label) result.against = options.number.against;
  if (options.method == SaliencyMethod::input) {
    Gradient of;
    put(integral.input_times_gradient(of), counts, result);
    result.value = of.values.front(), result.position = of.position, result.steps = 1;
    if (!of_label) result.token = of.token;
    return result;
  }
  std::vector<Point> points;
  const std::vector<Stretch> stretches = along(integral, options.steps, points);
  if (options.progress) options.progress(1);
  std::vector<double> sums(points.front().slopes.size());
  for (const Stretch& stretch : stretches)
    for (std::size_t t = 0; t < sums.size(); ++t)
      sums[t] += stretch.integral(points, [t](const Point& point) { return point.slopes[t]; });
  put(sums, counts, result);
  const auto at = [&](double place) { return std::ranges::find(points, place, &Point::at); };
  result.value = at(1)->value, result.baseline_value = at(0)->value;
  result.missing = result.value - result.baseline_value - std::accumulate(sums.begin(), sums.end(), 0.0);
  result.steps = std::ssize(points);
  result.position = at(1)->of.position;
  if (!of_label) result.token = at(1)->of.token;
  return result;
}

std::string to_json(const Saliency& x, const TensorJson& tensor) {
  const Tensors tensors(tensor);
  Json json{{"token", or_null(x.token)}, {"against", or_null(x.against)},        {"position", x.position},
            {"value", x.value},          {"baseline_value", x.baseline_value},   {"missing", x.missing},
            {"steps", x.steps},          {"tokens", tensors("tokens", x.tokens)}};
  if (x.encoder.count() > 0) json["encoder"] = tensors("encoder", x.encoder);
  return text_of(json);
}

}  // namespace attend::inline v1
