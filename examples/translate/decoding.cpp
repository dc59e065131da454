#include "decoding.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace translate {
namespace {

Ids with_end(Ids ids) {
  ids.push_back(Tokenizer::end);
  return ids;
}

Ids with_begin(const Ids& ids) {
  Ids begun{Tokenizer::begin};
  begun.insert(begun.end(), ids.begin(), ids.end());
  return begun;
}

// A sentence alone, encoded and decoded, and what both kept.
struct Pass {
  EncoderState encoder;
  DecoderState decoder;
};
Pass pass(const Model& model, const Ids& source, const Ids& target, bool keep_weights) {
  Sentences sources, targets;
  sources.append(with_end(source));
  targets.append(with_begin(target));
  Pass done;
  model.encode(sources, {}, done.encoder);
  model.decode(targets, done.encoder.norm.output, sources, {}, done.decoder, keep_weights);
  return done;
}

// The state's [T,heads * d] as the call to attention() had it: [1,heads,T,d].
Tensor by_heads(const Tensor& x, std::int64_t heads) {
  const std::int64_t tokens = x.size(0), size = x.size(1) / heads;
  return x.view().reshape({1, tokens, heads, size}).permute({0, 2, 1, 3}).clone();
}

void add_layer(attend::Recorder& recorder, const attend::RecordCall& call, const attend::MultiHeadAttentionState& state,
               bool causal) {
  const std::int64_t heads = state.lse.size(0), tokens = state.lse.size(1);
  const Tensor q = by_heads(state.queries, heads), k = by_heads(state.keys, heads);
  recorder.add(call, q, k, state.lse.view().reshape({1, heads, tokens}),
               state.lse_low.view().reshape({1, heads, tokens}), {.causal = causal});
}

View view_of(const Ids& ids) {
  return View(ids.data(), attend::DType::i64, {1, static_cast<std::int64_t>(ids.size())});
}

std::vector<std::string> labels(const Tokenizer& tokenizer, const Ids& ids) {
  std::vector<std::string> words;
  for (const std::int64_t id : ids) words.push_back(tokenizer.label(id));
  return words;
}

// The likeliest token after each sentence's last one.
Ids next_tokens(const Model& model, const Sentences& targets, const EncoderState& encoder, const Sentences& sources) {
  DecoderState state;
  model.decode(targets, encoder.norm.output, sources, {}, state);
  const View rows = state.norm.output;
  const std::int64_t count = static_cast<std::int64_t>(targets.starts.size()) - 1;
  Tensor last({count, rows.size(1)});
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = targets.starts[static_cast<std::size_t>(i + 1)] - 1;
    last.view().select(0, i).copy_from(rows.select(0, row));
  }
  const Tensor logits = model.logits(last);
  const std::int64_t size = logits.size(1);
  Ids tokens;
  for (const float* row = logits.data<float>(); row != logits.data<float>() + logits.count(); row += size)
    tokens.push_back(std::max_element(row, row + size) - row);
  return tokens;
}

std::vector<Ids> translate_batch(const Model& model, std::span<const Ids> sources) {
  Sentences source;
  for (const Ids& ids : sources) source.append(with_end(ids));
  EncoderState encoder;
  model.encode(source, {}, encoder);
  std::vector<Ids> targets(sources.size());
  std::vector<bool> ended(sources.size(), false);
  // Sentences that have ended stay in the batch, so that the others' sources stay where they are.
  while (std::find(ended.begin(), ended.end(), false) != ended.end()) {
    Sentences target;
    for (const Ids& ids : targets) target.append(with_begin(ids));
    const Ids tokens = next_tokens(model, target, encoder, source);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (!ended[i] && tokens[i] != Tokenizer::end) targets[i].push_back(tokens[i]);
      ended[i] = ended[i] || tokens[i] == Tokenizer::end || targets[i].size() == 2 * sources[i].size() + 20;
    }
  }
  return targets;
}

}  // namespace

std::vector<Ids> translate(const Model& model, std::span<const Ids> sources) {
  constexpr std::size_t at_once = 64;
  std::vector<Ids> targets;
  for (std::size_t first = 0; first < sources.size(); first += at_once) {
    std::vector<Ids> batch = translate_batch(model, sources.subspan(first, std::min(at_once, sources.size() - first)));
    std::move(batch.begin(), batch.end(), std::back_inserter(targets));
  }
  return targets;
}

CrossAttention cross_attention(const Model& model, const Ids& source, const Ids& target) {
  Pass done = pass(model, source, target, true);
  return {with_end(source), with_end(target), std::move(done.decoder.weights)};
}

attend::Recording record(const Model& model, const Tokenizer& tokenizer, const Ids& source, const Ids& target) {
  const Pass done = pass(model, source, target, false);
  const Ids sources = with_end(source), targets = with_begin(target);
  attend::Recorder recorder({.keep_qk = true});
  for (std::size_t n = 0; n < done.encoder.layers.size(); ++n) {
    const std::string name = "encoder." + std::to_string(n) + ".self";
    add_layer(recorder, {.layer = name, .tokens = view_of(sources)}, done.encoder.layers[n].self.attention, false);
  }
  for (std::size_t n = 0; n < done.decoder.layers.size(); ++n) {
    const std::string name = "decoder." + std::to_string(n);
    const DecoderLayerState& layer = done.decoder.layers[n];
    add_layer(recorder, {.layer = name + ".self", .tokens = view_of(targets)}, layer.self.attention, true);
    add_layer(recorder, {.layer = name + ".cross", .kind = "cross"}, layer.cross.attention, false);
  }
  attend::Recording recording = recorder.finish();
  recording.model = "translate";
  recording.tokens = {labels(tokenizer, sources)};
  recording.decoder_tokens = {labels(tokenizer, targets)};
  recording.set_ids(view_of(sources), view_of(targets));
  return recording;
}

}  // namespace translate
