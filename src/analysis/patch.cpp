#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/answers.h"
#include "analysis/json.h"
#include "analysis/stream.h"
#include "analysis/texts.h"
#include "attend/analysis.h"
#include "core/from_end.h"

namespace attend::inline v0 {

namespace {

constexpr const char* function = "patch";

// What is taken from the clean text, and where.
struct Taken {
  Taken(const PatchOptions& options, const ModelInfo& info)
      : heads(options.what == PatchOptions::What::heads), of_encoder(options.attention == AttentionKind::encoder) {
    analysis::check_attention(function, options.attention, info);
    if (!heads && options.attention == AttentionKind::cross)
      fail(ErrorCode::bad_value, function, "a cross-attention has no stream of its own: expected self or encoder");
    if (heads && !options.spans.empty())
      fail(ErrorCode::bad_value, function, "spans are of residual, and heads are taken in all rows");
    at = heads        ? analysis::place_of(options.attention)
         : of_encoder ? ModelPlace::encoder_residual
                      : ModelPlace::residual;
    head_size = of_encoder ? info.encoder_head_size : info.head_size;
  }
  // A head's z in `rows` of a text, or the stream there. kept: of the clean text, of all heads, row by row.
  Edit edit(std::int64_t layer, std::optional<std::int64_t> head, const Range& rows, const View& kept) const {
    Edit edit{.layer = layer, .at = at, .head = head, .set = Edit::Set::values};
    std::vector<std::int64_t> edited(static_cast<std::size_t>(rows.end - rows.begin));
    std::iota(edited.begin(), edited.end(), rows.begin);
    edit.rows = std::move(edited);
    View values = kept.slice(0, rows.begin, rows.end);
    if (head) values = values.slice(1, *head * head_size, (*head + 1) * head_size);
    edit.values = values;
    return edit;
  }

  bool heads, of_encoder;
  ModelPlace at = ModelPlace::z;
  std::int64_t head_size = 0;
};

// Two texts, and what is asked of them.
struct Asked {
  Asked(const Model& model, std::span<const std::int64_t> clean_ids, std::span<const std::int64_t> corrupt_ids,
        std::int64_t token, std::int64_t against, const PatchOptions& with)
      : options(with),
        taken(with, model.info()),
        clean{clean_ids, with.decoder_ids},
        corrupt{corrupt_ids, with.decoder_ids} {
    const ModelInfo& info = model.info();
    if (clean_ids.size() != corrupt_ids.size())
      fail(ErrorCode::bad_value, function, "the clean text has {} tokens and the corrupt one {}, expected as many",
           clean_ids.size(), corrupt_ids.size());
    analysis::check_token(function, "token", token, info);
    analysis::check_token(function, "against", against, info);
    if (token == against) fail(ErrorCode::bad_value, function, "token and against are both {}", token);
    for (const analysis::Text* text : {&clean, &corrupt}) analysis::check_text(*text, info);
    const std::int64_t count = std::ssize(clean.answering());
    if (options.first_row)
      first = analysis::first_row_of(function, *options.first_row, count, info);
    else if (options.clean_cache || options.corrupt_cache)
      fail(ErrorCode::bad_value, function, "a cache holds rows that keep what they are: expected first_row");
    row = from_end(function, "position is", options.position, count) - first;
    if (row < 0)
      fail(ErrorCode::bad_value, function, "position is {}, before first_row {}: nothing changes there", row + first,
           first);
    out.what = options.what, out.attention = options.attention, out.token = token, out.against = against;
    out.first_row = first;
  }

  // What is taken of a layer, by itself each, as rows of a stream so long.
  std::vector<Range> ranges(std::int64_t length) const {
    std::vector<Range> ranges;
    for (const Range& span : options.spans) {
      if (span.begin < first || span.begin >= span.end || span.end > first + length)
        fail(ErrorCode::bad_value, function, "a span is of tokens {} to {}, expected some of {} to {}", span.begin,
             span.end, first, first + length);
      ranges.push_back({span.begin - first, span.end - first});
    }
    for (std::int64_t at = 0; at < length && options.spans.empty(); ++at) ranges.push_back({at, at + 1});
    return ranges;
  }
  const PatchOptions& options;
  Taken taken;
  analysis::Text clean, corrupt;
  std::int64_t first = 0, row = 0;  // row: of the stream, which begins at `first`
  std::vector<float> recovered = {};
  Patching out = {};
};

// Pairs that go through the model together, layer by layer.
class Together {
 public:
  // The first of `asked` is pair `first` of `count`.
  Together(const Model& model, std::span<Asked> asked, std::size_t first, std::size_t count)
      : output_(models::output_of(ModelAccess::parts(model), function)),
        asked_(asked),
        clean_(model, texts(&Asked::clean), asked[0].taken.of_encoder, before(model, &PatchOptions::clean_cache)),
        corrupt_(model, texts(&Asked::corrupt), asked[0].taken.of_encoder,
                 before(model, &PatchOptions::corrupt_cache)) {
    for (const Asked& each : asked_) rows_.push_back({each.row});
    const auto itself = [](std::size_t row) { return row; };
    const std::vector<double> clean = differences(clean_.rest(rows_), itself),
                              corrupt = differences(corrupt_.rest(rows_), itself);
    for (std::size_t n = 0; n < asked_.size(); ++n) {
      Patching& out = asked_[n].out;
      out.clean = clean[n], out.corrupt = corrupt[n];
      analysis::of_text(first + n, count, [&] {
        if (out.clean == out.corrupt)
          fail(ErrorCode::bad_value, function,
               "both texts answer with a difference of {}: there is nothing to bring back", out.clean);
      });
    }
  }

  void run(const std::function<void(double)>& progress) {
    const std::int64_t L = clean_.layers();
    analysis::LayerProgress told(L, progress);
    for (std::int64_t layer = 0; layer <= L; ++layer) {
      Tensor z;
      analysis::OnPlaces watcher([&](ModelPlace place, std::int64_t, const MutableView& values) {
        if (place == asked_[0].taken.at) z = values.clone();
      });
      const Tensor stream = clean_.state().clone();
      if (layer < L) clean_.advance(&watcher);
      take(parts_of(layer, z, stream), [&](double share) {
        if (layer < L) told.tell(layer, share);
      });
      if (layer < L) corrupt_.advance();
    }
    if (progress) progress(1);
    for (Asked& each : asked_) {
      const std::int64_t rows = each.taken.heads ? L : L + 1;
      each.out.recovered = Tensor::from({rows, std::ssize(each.recovered) / rows}, each.recovered);
    }
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
      caches.push_back(analysis::cache_before(function, model, text, each.options.*given, each.first));
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

  // z and stream: of all clean texts. The stream after the last layer has no heads.
  std::vector<analysis::Part> parts_of(std::int64_t layer, const Tensor& z, const Tensor& stream) const {
    std::vector<analysis::Part> parts;
    for (std::size_t n = 0; n < asked_.size(); ++n) {
      const Taken& taken = asked_[n].taken;
      const Range rows = clean_.rows(n);
      const std::int64_t length = clean_.length(n);
      if (!taken.heads) {
        for (const Range& range : asked_[n].ranges(length))
          parts.push_back({n, {taken.edit(layer, {}, range, stream.view().slice(0, rows.begin, rows.end))}});
      } else if (layer < clean_.layers()) {
        for (std::int64_t head = 0; head < clean_.heads(); ++head)
          parts.push_back({n, {taken.edit(layer, head, {0, length}, z.view().slice(0, rows.begin, rows.end))}});
      }
    }
    return parts;
  }

  void take(std::vector<analysis::Part> parts, const std::function<void(double)>& told) {
    analysis::for_each_pass(corrupt_, parts, rows_, [&](const Tensor& hidden, std::size_t first, std::size_t last) {
      const auto after = differences(hidden, [&](std::size_t n) { return parts[first + n].text; });
      for (std::size_t n = first; n < last; ++n) {
        Asked& of = asked_[parts[n].text];
        const double share = (after[n - first] - of.out.corrupt) / (of.out.clean - of.out.corrupt);
        of.recovered.push_back(static_cast<float>(share) + 0.0F);  // no -0
      }
      told(static_cast<double>(last) / static_cast<double>(parts.size()));
    });
  }

  const models::Output& output_;
  std::span<Asked> asked_;
  analysis::Stream clean_, corrupt_;
  std::vector<std::vector<std::int64_t>> rows_;  // of each pair, the one that counts
};

std::vector<Patching> patch_pairs(const Model& model, std::span<Asked> asked) {
  std::vector<analysis::Text> texts;
  texts.reserve(asked.size());
  for (const Asked& each : asked) texts.push_back(each.clean);
  analysis::for_each_group(model, texts, [&](std::size_t first, std::size_t last) {
    Together together(model, asked.subspan(first, last - first), first, asked.size());
    together.run(analysis::share_of(asked[0].options.progress, first, last, asked.size()));
  });
  std::vector<Patching> found;
  found.reserve(asked.size());
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
      fail(ErrorCode::bad_value, function, "{} has {}, expected one for each of {} texts", name, size, count);
  const std::vector<PatchOptions> each = analysis::for_each_text(function, options, count);
  std::vector<Asked> asked;
  asked.reserve(count);
  for (std::size_t n = 0; n < count; ++n)
    analysis::of_text(n, count,
                      [&] { asked.emplace_back(model, clean[n], corrupt[n], tokens[n], against[n], each[n]); });
  return patch_pairs(model, asked);
}

std::string to_json(const Patching& x, const TensorJson& tensor) {
  return text_of({{"token", x.token},
                  {"against", x.against},
                  {"clean_difference", x.clean},
                  {"corrupt_difference", x.corrupt},
                  {"recovered", Tensors(tensor)("recovered", x.recovered)}});
}

}  // namespace attend::inline v0
