// Texts where ids belong: the model's own tokenizer stands between.
#include <algorithm>

#include "models/model.h"

namespace attend::inline v0 {

// A tokenizer may well have more tokens than the model (one for padding that was added later), if no text has them.
Encoding models::embedded(Encoding text, const Tokenizer& tokenizer, const ModelInfo& info) {
  const std::int64_t rows = info.encoder_decoder() ? info.encoder_vocabulary : info.vocabulary;
  for (const std::int64_t id : text.ids) {
    if (id >= rows)
      fail(ErrorCode::bad_file, "Model",
           "its tokenizer has {} as {}, its weights have embeddings of 0 to {}: files of two models?",
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

namespace {

// What was made after ids, as text.
std::string continuation(const Model& model, std::span<const std::int64_t> ids, std::span<const std::int64_t> made) {
  const Tokenizer& tokenizer = model.tokenizer();
  if (model.info().encoder_decoder()) return tokenizer.decode(made);
  std::vector<std::int64_t> both(ids.begin(), ids.end());
  both.insert(both.end(), made.begin(), made.end());
  const std::string all = tokenizer.decode(both);
  return all.substr(std::min(tokenizer.decode(ids).size(), all.size()));
}

}  // namespace

std::string Model::generate(std::string_view text, const GenerateOptions& options) const {
  const std::vector<std::int64_t> ids = models::encoded(tokenizer(), text, info()).ids;
  return continuation(*this, ids, generate(ids, options));
}

std::vector<std::string> Model::generate(std::span<const std::string_view> texts,
                                         const GenerateOptions& options) const {
  std::vector<std::vector<std::int64_t>> prompts;
  prompts.reserve(texts.size());
  for (const std::string_view text : texts) prompts.push_back(models::encoded(tokenizer(), text, info()).ids);
  const std::vector<std::vector<std::int64_t>> made = generate(prompts, options);
  std::vector<std::string> more;
  more.reserve(made.size());
  for (std::size_t n = 0; n < made.size(); ++n) more.push_back(continuation(*this, prompts[n], made[n]));
  return more;
}

std::vector<std::string> Model::generate(std::span<const std::string> texts, const GenerateOptions& options) const {
  return generate(std::vector<std::string_view>(texts.begin(), texts.end()), options);
}

}  // namespace attend::inline v0
