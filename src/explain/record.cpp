// A trace as a recording: what `attend show` and Recording::load() take.
#include "attend/attention.h"
#include "core/axes.h"
#include "core/message.h"
#include "explain/recipe.h"
#include "explain/walk.h"

namespace attend::inline v1 {

namespace {

Tensor of_one_item(const std::vector<std::int64_t>& ids) {
  const std::int64_t count = std::ssize(ids);
  return View(ids.data(), DType::i64, {1, count}).clone();
}

}  // namespace

Recording to_recording(const Trace& trace) {
  check_text(trace);
  const bool cross = trace.embeddings_2.has_value();
  const View q = with_four_axes(trace.queries), k = with_four_axes(trace.keys), v = with_four_axes(trace.values);
  const AttentionOptions options = attention_options(trace);
  // Of the values lse needs none.
  const AttentionResult rows = attention(q, k, v.slice(3, 0, 1), options, {.lse_low = true});

  Recorder recorder({.keep_qk = true});
  // The second sentence is what an encoder would have read, so its words are `tokens`, and the first's the decoder's.
  RecordCall call{cross ? "decoder.0.cross" : "0.self", cross ? "cross" : "self"};
  const Tensor ids = of_one_item(trace.ids);
  if (!cross) call.tokens = ids;
  recorder.add(call, q, k, rows.lse, *rows.lse_low, options);

  Recording recording = recorder.finish();
  recording.model = fmt::format("attend explain{} (random weights, seed {})",
                                trace.preset.empty() ? "" : " --preset " + trace.preset, trace.options.seed);
  if (!cross) {
    recording.tokens = {trace.tokens};
    recording.set_ids(ids);
    return recording;
  }
  recording.decoder_tokens = {trace.tokens};
  recording.set_ids({}, ids);
  if (trace.tokens_2.empty()) return recording;  // numbers without words
  recording.tokens = {trace.tokens_2};
  recording.set_ids(of_one_item(trace.ids_2));
  return recording;
}

}  // namespace attend::inline v1
