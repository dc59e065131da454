#include <algorithm>
#include <cmath>

#include "analysis/answers.h"
#include "analysis/json.h"
#include "analysis/stream.h"
#include "attend/analysis.h"
#include "core/from_end.h"

namespace attend::inline v0 {

namespace {

constexpr const char* function = "patch";

// The difference of two tokens' logits at a row.
class Difference {
 public:
  Difference(const models::Output& output, std::int64_t token, std::int64_t against)
      : output_(output), token_(token), against_(against) {}
  // hidden [copies,E] -> [copies]
  std::vector<double> of(const Tensor& hidden) const {
    std::vector<double> out(static_cast<std::size_t>(hidden.size(0)));
    analysis::for_each_answer(output_, hidden, [&](std::int64_t row, std::span<const float> logits) {
      out[static_cast<std::size_t>(row)] = static_cast<double>(logits[static_cast<std::size_t>(token_)]) -
                                           static_cast<double>(logits[static_cast<std::size_t>(against_)]);
    });
    return out;
  }

 private:
  const models::Output& output_;
  std::int64_t token_, against_;
};

void check(std::span<const std::int64_t> clean, std::span<const std::int64_t> corrupt, std::int64_t token,
           std::int64_t against, const ModelInfo& info) {
  if (clean.size() != corrupt.size())
    fail(ErrorCode::bad_value, function, "the clean text has {} tokens and the corrupt one {}, expected as many",
         clean.size(), corrupt.size());
  analysis::check_token(function, "token", token, info);
  analysis::check_token(function, "against", against, info);
  if (token == against) fail(ErrorCode::bad_value, function, "token and against are both {}", token);
}

// What is taken from the clean text, and where.
struct Taken {
  Taken(const PatchOptions& options, const ModelInfo& info)
      : heads(options.what == PatchOptions::What::heads), of_encoder(options.attention == AttentionKind::encoder) {
    analysis::check_attention(function, options.attention, info);
    if (!heads && options.attention == AttentionKind::cross)
      fail(ErrorCode::bad_value, function, "a cross-attention has no stream of its own: expected self or encoder");
    at = heads        ? analysis::place_of(options.attention)
         : of_encoder ? ModelPlace::encoder_residual
                      : ModelPlace::residual;
    head_size = of_encoder ? info.encoder_head_size : info.head_size;
  }
  // A part of a layer, a head or a token, for a copy of the corrupt text. kept: the clean text's, of all parts.
  Edit edit(std::int64_t layer, std::int64_t part, const Tensor& kept, std::vector<std::int64_t> rows) const {
    Edit edit{.layer = layer, .at = at, .set = Edit::Set::values};
    if (heads) {
      edit.head = part, edit.rows = std::move(rows);
      edit.values = kept.view().slice(1, part * head_size, (part + 1) * head_size);
    } else {
      edit.rows = std::vector{rows[static_cast<std::size_t>(part)]};
      edit.values = kept.view().slice(0, part, part + 1);
    }
    return edit;
  }

  bool heads, of_encoder;
  ModelPlace at = ModelPlace::z;
  std::int64_t head_size = 0;
};

}  // namespace

Patching patch(const Model& model, std::span<const std::int64_t> clean_ids, std::span<const std::int64_t> corrupt_ids,
               std::int64_t token, std::int64_t against, const PatchOptions& options) {
  const ModelInfo& info = model.info();
  const Difference difference(models::output_of(ModelAccess::parts(model), function), token, against);
  check(clean_ids, corrupt_ids, token, against, info);
  const Taken taken(options, info);
  const analysis::Text text{clean_ids, options.decoder_ids};
  analysis::Stream clean(model, text, taken.of_encoder);
  analysis::Stream corrupt(model, {corrupt_ids, options.decoder_ids}, taken.of_encoder);
  const std::int64_t T = clean.length(), L = clean.layers(), parts = taken.heads ? clean.heads() : T;
  const std::int64_t row[] = {from_end(function, "position is", options.position, std::ssize(text.answering()))};
  Patching out;
  out.what = options.what, out.attention = options.attention, out.token = token, out.against = against;
  out.clean = difference.of(clean.rest(row))[0], out.corrupt = difference.of(corrupt.rest(row))[0];
  if (out.clean == out.corrupt)
    fail(ErrorCode::bad_value, function, "both texts answer with a difference of {}: there is nothing to bring back",
         out.clean);
  out.recovered = taken.heads ? Tensor({L, parts}) : Tensor({L + 1, T});
  float* to = out.recovered.data<float>();

  analysis::LayerProgress progress(L, options.progress);
  for (std::int64_t layer = 0; layer < (taken.heads ? L : L + 1); ++layer) {
    Tensor kept = clean.state().clone();  // all heads' z, or the stream before the layer
    analysis::OnPlaces watcher([&](ModelPlace place, std::int64_t, const MutableView& values) {
      if (place == taken.at) kept = values.clone();
    });
    if (layer < L) clean.advance(&watcher);
    for (std::int64_t first = 0; first < parts; first += corrupt.together()) {
      const std::int64_t last = std::min(first + corrupt.together(), parts);
      std::vector<Edit> edits;
      edits.reserve(static_cast<std::size_t>(last - first));
      for (std::int64_t part = first; part < last; ++part)
        edits.push_back(taken.edit(layer, part, kept, corrupt.rows_of_copy(part - first)));
      for (const double after : difference.of(corrupt.branch(last - first, edits, row)))
        *to++ = static_cast<float>((after - out.corrupt) / (out.clean - out.corrupt)) + 0.0F;  // no -0
      if (layer < L) progress.tell(layer, static_cast<double>(last) / static_cast<double>(parts));
    }
    if (layer < L) corrupt.advance();
  }
  if (options.progress) options.progress(1);
  return out;
}

std::string to_json(const Patching& x, const TensorJson& tensor) {
  return text_of({{"token", x.token},
                  {"against", x.against},
                  {"clean_difference", x.clean},
                  {"corrupt_difference", x.corrupt},
                  {"recovered", Tensors(tensor)("recovered", x.recovered)}});
}

}  // namespace attend::inline v0
