#include "decoding.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace translate {
namespace {

Ids with_end(Ids ids) {
  ids.push_back(Tokenizer::end);
  return ids;
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
    for (const Ids& ids : targets) {
      Ids begun{Tokenizer::begin};
      begun.insert(begun.end(), ids.begin(), ids.end());
      target.append(begun);
    }
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
  Sentences sources, targets;
  sources.append(with_end(source));
  Ids begun{Tokenizer::begin};
  begun.insert(begun.end(), target.begin(), target.end());
  targets.append(begun);
  EncoderState encoder;
  DecoderState decoder;
  model.encode(sources, {}, encoder);
  model.decode(targets, encoder.norm.output, sources, {}, decoder, true);
  return {with_end(source), with_end(target), std::move(decoder.weights)};
}

}  // namespace translate
