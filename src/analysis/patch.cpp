#include <algorithm>
#include <cmath>

#include "analysis/answers.h"
#include "analysis/stream.h"
#include "attend/analysis.h"
#include "core/message.h"

namespace attend {

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

}  // namespace

Patching patch(const Model& model, std::span<const std::int64_t> clean_ids, std::span<const std::int64_t> corrupt_ids,
               std::int64_t token, std::int64_t against, const PatchOptions& options) {
  const ModelInfo& info = model.info();
  const Difference difference(models::output_of(ModelAccess::parts(model), "patch()"), token, against);
  check(clean_ids, corrupt_ids, token, against, info);
  analysis::Stream clean(model, clean_ids), corrupt(model, corrupt_ids);
  const std::int64_t T = std::ssize(clean_ids), L = info.layers;
  const std::int64_t row[] = {analysis::checked_position(function, options.position, T)};
  const bool heads = options.what == PatchOptions::What::heads;
  Patching out;
  out.what = options.what, out.token = token, out.against = against;
  out.clean = difference.of(clean.rest(row))[0], out.corrupt = difference.of(corrupt.rest(row))[0];
  if (out.clean == out.corrupt)
    fail(ErrorCode::bad_value, function, "both texts answer with a difference of {}: there is nothing to bring back",
         out.clean);
  out.recovered = heads ? Tensor({L, info.heads}) : Tensor({L + 1, T});
  float* to = out.recovered.data<float>();

  analysis::LayerProgress progress(L, options.progress);
  const auto run = [&](std::int64_t count, const std::function<Edit(std::int64_t part, std::int64_t copy)>& edit_of) {
    for (std::int64_t first = 0; first < count; first += corrupt.together()) {
      const std::int64_t last = std::min(first + corrupt.together(), count);
      std::vector<Edit> edits;
      edits.reserve(static_cast<std::size_t>(last - first));
      for (std::int64_t part = first; part < last; ++part) edits.push_back(edit_of(part, part - first));
      for (const double after : difference.of(corrupt.branch(last - first, edits, row)))
        *to++ = static_cast<float>((after - out.corrupt) / (out.clean - out.corrupt));
      progress.tell(corrupt.layer(), static_cast<double>(last) / static_cast<double>(count));
    }
  };
  for (std::int64_t layer = 0; layer < L; ++layer) {
    Tensor kept;  // of the clean text: all heads' z, or the stream before the layer
    analysis::OnPlaces watcher([&](ModelPlace place, std::int64_t, const MutableView& values) {
      if (place == (heads ? ModelPlace::z : ModelPlace::residual)) kept = values.clone();
    });
    clean.advance(&watcher);
    run(heads ? info.heads : T, [&](std::int64_t part, std::int64_t copy) {
      Edit edit{.layer = layer, .set = Edit::Set::values};
      if (heads) {
        edit.head = part, edit.rows = corrupt.rows_of_copy(copy);
        edit.values = kept.view().slice(1, part * info.head_size, (part + 1) * info.head_size);
      } else {
        edit.at = ModelPlace::residual, edit.rows = std::vector{copy * T + part};
        edit.values = kept.view().slice(0, part, part + 1);
      }
      return edit;
    });
    corrupt.advance();
  }
  // After the last layer a token's stream is read by its own row alone.
  if (!heads) std::fill_n(to, T, 0.0F), to[row[0]] = 1;
  if (options.progress) options.progress(1);
  return out;
}

}  // namespace attend
