// What patch() is asked, and what it takes from the clean text: by passes that are given it, or estimated.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/answers.h"
#include "analysis/texts.h"
#include "attend/analysis.h"
#include "core/from_end.h"
#include "models/edits.h"

namespace attend::inline v1::analysis::patching {

inline constexpr const char* patch_function = "patch";

inline ModelPlace place_of(PatchOptions::What what, AttentionKind attention) {
  const auto of = [&](ModelPlace self, ModelPlace cross, ModelPlace encoder) {
    if (attention == AttentionKind::self) return self;
    return attention == AttentionKind::cross ? cross : encoder;
  };
  switch (what) {
    case PatchOptions::What::q:
      return of(ModelPlace::q, ModelPlace::cross_q, ModelPlace::encoder_q);
    case PatchOptions::What::k:
      return of(ModelPlace::k, ModelPlace::cross_k, ModelPlace::encoder_k);
    case PatchOptions::What::v:
      return of(ModelPlace::v, ModelPlace::cross_v, ModelPlace::encoder_v);
    case PatchOptions::What::residual:
      return of(ModelPlace::residual, ModelPlace::residual, ModelPlace::encoder_residual);
    case PatchOptions::What::heads:
      break;
  }
  return analysis::place_of(attention);
}

// What is taken from the clean text, and where.
struct Taken {
  Taken(const PatchOptions& options, const ModelInfo& info) : of_encoder(options.attention == AttentionKind::encoder) {
    analysis::check_attention(patch_function, options.attention, info);
    const bool residual = options.what == PatchOptions::What::residual,
               cross = options.attention == AttentionKind::cross;
    if (residual && cross)
      fail(ErrorCode::bad_value, patch_function,
           "a cross-attention has no stream of its own: expected self or encoder");
    if (!residual && !options.spans.empty())
      fail(ErrorCode::bad_value, patch_function, "spans are for residual only: heads are taken in all rows");
    if (cross && (options.what == PatchOptions::What::k || options.what == PatchOptions::What::v))
      fail(ErrorCode::bad_value, patch_function,
           "keys and values of a cross-attention come from the encoder's text: expected heads or q");
    at = place_of(options.what, options.attention);
    const models::PlaceShape shape = models::shape_of(patch_function, at, info);
    heads = shape.heads;
    if (heads > 0) head_size = shape.columns / heads;
  }
  // What a head has in `rows` of a text, or the stream there. kept: of the clean text, of all heads, row by row.
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

  bool of_encoder;
  ModelPlace at = ModelPlace::z;
  std::int64_t heads = 0, head_size = 0;  // of the place; 0: it is the stream
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
    models::check_exact(info, patch_function);
    if (clean_ids.size() != corrupt_ids.size())
      fail(ErrorCode::bad_value, patch_function,
           "the clean text has {} tokens and the corrupt one {}, expected equal numbers", clean_ids.size(),
           corrupt_ids.size());
    analysis::check_token(patch_function, "token", token, info);
    analysis::check_token(patch_function, "against", against, info);
    if (token == against) fail(ErrorCode::bad_value, patch_function, "token and against are both {}", token);
    for (const analysis::Text* text : {&clean, &corrupt}) analysis::check_text(*text, info);
    const std::int64_t count = std::ssize(clean.answering());
    if (options.first_row)
      first = analysis::first_row_of(patch_function, *options.first_row, count, info);
    else if (options.clean_cache || options.corrupt_cache)
      fail(ErrorCode::bad_value, patch_function, "a cache needs first_row too: rows in the cache stay as they are");
    row = from_end(patch_function, "position is", options.position, count) - first;
    if (row < 0)
      fail(ErrorCode::bad_value, patch_function, "position is {}, before first_row {}: nothing changes there",
           row + first, first);
    out.what = options.what, out.attention = options.attention, out.token = token, out.against = against;
    out.first_row = first, out.estimate = options.estimate;
  }

  // What is taken of a layer, by itself each, as rows of a stream so long.
  std::vector<Range> ranges(std::int64_t length) const {
    std::vector<Range> ranges;
    for (const Range& span : options.spans) {
      if (span.begin < first || span.begin >= span.end || span.end > first + length)
        fail(ErrorCode::bad_value, patch_function, "a span has tokens {} to {}, expected a part of {} to {}",
             span.begin, span.end, first, first + length);
      ranges.push_back({span.begin - first, span.end - first});
    }
    for (std::int64_t at = 0; at < length && options.spans.empty(); ++at) ranges.push_back({at, at + 1});
    return ranges;
  }

  // Where both texts have answered.
  void answered(double clean_difference, double corrupt_difference) {
    out.clean = clean_difference, out.corrupt = corrupt_difference;
    if (out.clean == out.corrupt)
      fail(ErrorCode::bad_value, patch_function,
           "both texts answer with a difference of {}: there is nothing to bring back", out.clean);
  }
  // Of what one taking comes to.
  void took(double after) {
    recovered.push_back(static_cast<float>((after - out.corrupt) / (out.clean - out.corrupt)) + 0.0F);  // no -0
  }
  // Once all are there, layer by layer.
  void finish(std::int64_t layers) {
    const std::int64_t rows = taken.heads > 0 ? layers : layers + 1;
    out.recovered = Tensor::from({rows, std::ssize(recovered) / rows}, recovered);
  }

  const PatchOptions& options;
  Taken taken;
  analysis::Text clean, corrupt;
  std::int64_t first = 0, row = 0;  // row: of the stream, which begins at `first`
  std::vector<float> recovered = {};
  Patching out = {};
};

// What taking each would come to, by one pass forward over the clean text and one forward and back over the corrupt
// one.
void estimate(const Model& model, Asked& asked);

}  // namespace attend::inline v1::analysis::patching
