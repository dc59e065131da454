// Texts where ids belong: the model's own tokenizer stands between.
#include <algorithm>

#include "models/growing.h"
#include "models/model.h"

namespace attend::inline v1 {

// A tokenizer may well have more tokens than the model (one for padding that was added later), if no text has them.
Encoding models::embedded(Encoding text, const Tokenizer& tokenizer, const ModelInfo& info) {
  const std::int64_t rows = info.encoder_decoder() ? info.encoder_vocabulary : info.vocabulary;
  for (const std::int64_t id : text.ids) {
    if (id >= rows)
      fail(ErrorCode::bad_file, "Model",
           "its tokenizer has {} as {}, but its weights have embeddings 0 to {}: do the files belong to two models?",
           quote(tokenizer.token(id)), id, rows - 1);
  }
  return text;
}

// A static table has rows for what the tokenizer adds around a text, and takes none of them.
Encoding models::encoded(const Tokenizer& tokenizer, std::string_view text, const ModelInfo& info) {
  return embedded(tokenizer.encode(text, info.family != ModelFamily::static_table), tokenizer, info);
}

const Tokenizer& Model::tokenizer() const {
  return parts_->tokenizer->get();
}

Tensor Model::forward(std::string_view text, const ModelCall& call) const {
  return forward(models::encoded(tokenizer(), text, info()).ids, call);
}

Tensor Model::encoder_states(std::string_view text, const ModelCall& call) const {
  return encoder_states(models::encoded(tokenizer(), text, info()).ids, call);
}

// A text that ends with a stop string has less.
std::string models::continuation(const Model& model, std::span<const std::int64_t> ids, const Written& written) {
  const Tokenizer& tokenizer = model.tokenizer();
  const bool both = model.info().encoder_decoder();
  std::vector<std::int64_t> all;
  if (!both) all.assign(ids.begin(), ids.end());
  all.insert(all.end(), written.ids.begin(), written.ids.end());
  std::string text = tokenizer.decode(all);
  text.resize(text.size() - std::min(written.cut, text.size()));
  return both ? text : text.substr(std::min(tokenizer.decode(ids).size(), text.size()));
}

std::vector<GeneratedSequence> Model::generate_sequences(std::string_view text, const GenerateOptions& options) const {
  const std::vector<std::int64_t> ids = models::encoded(tokenizer(), text, info()).ids;
  std::vector<GeneratedSequence> sequences;
  for (models::Written& each : models::generate_sequences(*this, ids, options)) {
    std::string more = models::continuation(*this, ids, each);
    sequences.push_back({.ids = std::move(each.ids), .text = std::move(more), .score = each.score});
  }
  return sequences;
}

std::string Model::generate(std::string_view text, const GenerateOptions& options) const {
  const std::string_view texts[] = {text};
  return std::move(generate(texts, options)[0]);
}

std::vector<std::string> Model::generate(std::span<const std::string_view> texts,
                                         const GenerateOptions& options) const {
  std::vector<std::vector<std::int64_t>> prompts;
  prompts.reserve(texts.size());
  for (const std::string_view text : texts) prompts.push_back(models::encoded(tokenizer(), text, info()).ids);
  const std::vector<models::Written> written = models::generate_all(*this, prompts, options);
  std::vector<std::string> more;
  more.reserve(written.size());
  for (std::size_t n = 0; n < written.size(); ++n) more.push_back(models::continuation(*this, prompts[n], written[n]));
  return more;
}

std::vector<std::string> Model::generate(std::span<const std::string> texts, const GenerateOptions& options) const {
  return generate(std::vector<std::string_view>(texts.begin(), texts.end()), options);
}

}  // namespace attend::inline v1
