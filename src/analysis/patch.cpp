#include <algorithm>
#include <map>

#include "analysis/json.h"
#include "analysis/patching.h"
#include "analysis/stream.h"

namespace attend::inline v1 {

namespace {

using analysis::patching::Asked;
using analysis::patching::patch_function;
using analysis::patching::Taken;

// Pairs that go through the model together, layer by layer.
class PatchesTogether {
 public:
  // The first of `asked` is pair `first` of `count`.
  PatchesTogether(const Model& model, std::span<Asked> asked, std::size_t first, std::size_t count)
      : output_(models::output_of(ModelAccess::parts(model), patch_function)),
        asked_(asked),
        clean_(model, texts(&Asked::clean), asked[0].taken.of_encoder, before(model, &PatchOptions::clean_cache)),
        corrupt_(model, texts(&Asked::corrupt), asked[0].taken.of_encoder,
                 before(model, &PatchOptions::corrupt_cache)) {
    for (const Asked& each : asked_) rows_.push_back({each.row});
    const auto itself = [](std::size_t row) { return row; };
    const std::vector<double> clean = differences(clean_.rest(rows_), itself),
                              corrupt = differences(corrupt_.rest(rows_), itself);
    for (std::size_t n = 0; n < asked_.size(); ++n) {
      analysis::of_text(first + n, count, [&] { asked_[n].answered(clean[n], corrupt[n]); });
    }
  }

  void run(const std::function<void(double)>& progress) {
    const std::int64_t L = clean_.layers();
    analysis::LayerProgress told(L, progress);
    for (std::int64_t layer = 0; layer <= L; ++layer) {
      std::map<ModelPlace, Tensor> heads;
      analysis::OnPlaces watcher([&](ModelPlace place, std::int64_t, const MutableView& values) {
        const auto is_taken = [&](const Asked& each) { return each.taken.heads > 0 && each.taken.at == place; };
        if (std::ranges::any_of(asked_, is_taken)) heads.insert_or_assign(place, values.clone());
      });
      const Tensor stream = clean_.state().clone();
      if (layer < L) clean_.advance(&watcher);
      take(parts_of(layer, heads, stream), [&](double share) {
        if (layer < L) told.tell(layer, share);
      });
      if (layer < L) corrupt_.advance();
    }
    if (progress) progress(1);
    for (Asked& each : asked_) each.finish(L);
  }

 private:
  std::vector<analysis::Text> texts(analysis::Text Asked::*which) const {
    std::vector<analysis::Text> texts;
    texts.reserve(asked_.size());
    for (const Asked& each : asked_) texts.push_back(each.*which);
    return texts;
  }
  std::vector<ModelCache> before(const Model& model, const ModelCache* PatchOptions::*given) const {
    std::vector<ModelCache> caches;
    if (std::ranges::all_of(asked_, [](const Asked& each) { return each.first == 0; })) return caches;
    for (const Asked& each : asked_) {
      const analysis::Text& text = given == &PatchOptions::clean_cache ? each.clean : each.corrupt;
      caches.push_back(analysis::cache_before(patch_function, model, text, each.options.*given, each.first));
    }
    return caches;
  }
  // Of the two tokens' logits, hidden [copies,E] -> [copies]. text_of(copy): whose tokens.
  std::vector<double> differences(const Tensor& hidden, const std::function<std::size_t(std::size_t)>& text_of) const {
    std::vector<double> out(static_cast<std::size_t>(hidden.size(0)));
    analysis::for_each_answer(output_, hidden, [&](std::int64_t row, std::span<const float> logits) {
      const auto n = static_cast<std::size_t>(row);
      const Patching& of = asked_[text_of(n)].out;
      out[n] = static_cast<double>(logits[static_cast<std::size_t>(of.token)]) -
               static_cast<double>(logits[static_cast<std::size_t>(of.against)]);
    });
    return out;
  }

  // heads and stream: of all clean texts. The stream after the last layer has no heads.
  std::vector<analysis::Part> parts_of(std::int64_t layer, const std::map<ModelPlace, Tensor>& heads,
                                       const Tensor& stream) const {
    std::vector<analysis::Part> parts;
    for (std::size_t n = 0; n < asked_.size(); ++n) {
      const Taken& taken = asked_[n].taken;
      const Range rows = clean_.rows(n);
      const std::int64_t length = clean_.length(n);
      if (taken.heads == 0) {
        for (const Range& range : asked_[n].ranges(length))
          parts.push_back({n, {taken.edit(layer, {}, range, stream.view().slice(0, rows.begin, rows.end))}});
      } else if (layer < clean_.layers()) {
        for (std::int64_t head = 0; head < taken.heads; ++head)
          parts.push_back(
              {n, {taken.edit(layer, head, {0, length}, heads.at(taken.at).view().slice(0, rows.begin, rows.end))}});
      }
    }
    return parts;
  }

  void take(std::vector<analysis::Part> parts, const std::function<void(double)>& told) {
    analysis::for_each_pass(corrupt_, parts, rows_, [&](const Tensor& hidden, std::size_t first, std::size_t last) {
      const auto after = differences(hidden, [&](std::size_t n) { return parts[first + n].text; });
      for (std::size_t n = first; n < last; ++n) asked_[parts[n].text].took(after[n - first]);
      told(static_cast<double>(last) / static_cast<double>(parts.size()));
    });
  }

  const models::Output& output_;
  std::span<Asked> asked_;
  analysis::Stream clean_, corrupt_;
  std::vector<std::vector<std::int64_t>> rows_;  // of each pair, the one that counts
};

std::vector<Patching> patch_pairs(const Model& model, std::span<Asked> asked) {
  std::vector<Patching> found;
  found.reserve(asked.size());
  if (std::ranges::any_of(asked, [](const Asked& each) { return each.options.estimate; })) {
    const auto one = [&](std::size_t n) {
      const auto& told = asked[0].options.progress;
      const auto share = analysis::share_of(told, n, n + 1, asked.size());
      if (asked[n].options.estimate)
        analysis::of_text(n, asked.size(), [&] { analysis::patching::estimate(model, asked[n]); });
      else
        PatchesTogether(model, asked.subspan(n, 1), n, asked.size()).run(share);
      if (share) share(1);
      found.push_back(std::move(asked[n].out));
    };
    for (std::size_t n = 0; n < asked.size(); ++n) one(n);
    return found;
  }
  std::vector<analysis::Text> texts;
  texts.reserve(asked.size());
  for (const Asked& each : asked) texts.push_back(each.clean);
  analysis::for_each_group(model, texts, [&](std::size_t first, std::size_t last) {
    PatchesTogether together(model, asked.subspan(first, last - first), first, asked.size());
    together.run(analysis::share_of(asked[0].options.progress, first, last, asked.size()));
  });
  for (Asked& each : asked) found.push_back(std::move(each.out));
  return found;
}

}  // namespace

Patching patch(const Model& model, std::span<const std::int64_t> clean_ids, std::span<const std::int64_t> corrupt_ids,
               std::int64_t token, std::int64_t against, const PatchOptions& options) {
  Asked asked(model, clean_ids, corrupt_ids, token, against, options);
  return std::move(patch_pairs(model, std::span(&asked, 1))[0]);
}

std::vector<Patching> patch(const Model& model, std::span<const std::vector<std::int64_t>> clean,
                            std::span<const std::vector<std::int64_t>> corrupt, std::span<const std::int64_t> tokens,
                            std::span<const std::int64_t> against, std::span<const PatchOptions> options) {
  const std::size_t count = clean.size();
  for (const auto& [name, size] :
       {std::pair("corrupt", corrupt.size()), {"tokens", tokens.size()}, {"against", against.size()}})
    if (size != count)
      fail(ErrorCode::bad_value, patch_function, "{} has {}, expected one for each of {} texts", name, size, count);
  const std::vector<PatchOptions> each = analysis::for_each_text(patch_function, options, count);
  std::vector<Asked> asked;
  asked.reserve(count);
  for (std::size_t n = 0; n < count; ++n)
    analysis::of_text(n, count,
                      [&] { asked.emplace_back(model, clean[n], corrupt[n], tokens[n], against[n], each[n]); });
  return patch_pairs(model, asked);
}

std::string_view name_of(PatchOptions::What what) {
  constexpr std::string_view names[] = {"heads", "residual", "q", "k", "v"};
  return names[static_cast<std::size_t>(what)];
}

std::string to_json(const Patching& x, const TensorJson& tensor) {
  return text_of({{"token", x.token},
                  {"against", x.against},
                  {"clean_difference", x.clean},
                  {"corrupt_difference", x.corrupt},
                  {"what", name_of(x.what)},
                  {"estimate", x.estimate},
                  {"recovered", Tensors(tensor)("recovered", x.recovered)}});
}

}  // namespace attend::inline v1
