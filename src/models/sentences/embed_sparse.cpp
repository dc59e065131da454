// Texts to weights of words.
#include <algorithm>
#include <cmath>

#include "attend/sparse_vectors.h"
#include "models/sentences/keys.h"
#include "models/sentences/module_files.h"
#include "models/sentences/sparse_pooling.h"
#include "models/tasks/task_texts.h"

namespace attend::inline v1 {

namespace {

constexpr const char* embed_sparse_function = "embed_sparse";

const models::SparsePooling& checked_pooling(const Model& model) {
  const Model::Parts& parts = ModelAccess::parts(model);
  if (parts.sparse) return *parts.sparse;
  if (parts.info.vectors == VectorKind::sparse) throw Error(*parts.pooling);
  if (parts.head && parts.head->task == ModelTask::fill)
    fail(ErrorCode::bad_value, embed_sparse_function,
         "the folder's modules.json says that a text has vectors of another kind: {}", name_of(parts.info.vectors));
  fail(ErrorCode::bad_value, embed_sparse_function,
       "expected a model with a head for masked words, and this one of type {} has {}", parts.info.type,
       parts.info.head.empty() ? "none" : fmt::format("one for {}", parts.info.head));
}

// A call over many texts: the logits of a few tokens at a time, as a vocabulary is large.
class SparseEmbedder {
 public:
  SparseEmbedder(const Model& model, std::span<const std::string_view> texts, const EmbedOptions& options)
      : pooling_(checked_pooling(model)),
        task_{.truncate = options.truncate, .progress = options.progress},
        run_(embed_sparse_function, "texts", model, ModelTask::fill, task_),
        words_(model.info().vocabulary),
        texts_(texts),
        prompt_(models::prompt_text(embed_sparse_function, run_.rules(), options.prompt)) {
    if (options.normalize)
      fail(ErrorCode::bad_value, embed_sparse_function, "normalize: sparse vectors stay as long as they are");
  }

  SparseEmbeddings run() {
    SparseEmbeddings made;
    made.vectors.resize(texts_.size());
    made.cut = run_.run({.count = texts_.size(),
                         .bytes = [&](std::size_t n) { return texts_[n].size(); },
                         .tokens = [&](std::size_t n) { return tokens_of(n); },
                         .use =
                             [&](const models::TextPass& pass) {
                               for (std::size_t n = 0; n < pass.texts.size(); ++n)
                                 made.vectors[pass.texts[n]] =
                                     vector_of(pass.hidden.view().slice(0, pass.starts[n], pass.starts[n + 1]));
                             },
                         .progress = task_.progress});
    return made;
  }

 private:
  models::TextTokens tokens_of(std::size_t n) const {
    models::TextTokens tokens;
    const std::string text = std::string(prompt_).append(texts_[n]);
    Encoding all = run_.encode(n, {text}, tokens.cut);
    tokens.ids = std::move(all.ids), tokens.types = std::move(all.types);
    return tokens;
  }

  // The logarithm rises: of the largest logit it is the largest.
  double weight(double logit) const {
    const double once = std::log1p(std::max(0.0, logit));
    return pooling_.logs_twice ? std::log1p(once) : once;
  }

  SparseVector vector_of(const View& hidden) const {
    constexpr std::int64_t together = 32;
    std::vector<double> all(static_cast<std::size_t>(words_));
    for (std::int64_t first = 0; first < hidden.size(0); first += together) {
      const Tensor logits = run_.head().logits(hidden.slice(0, first, std::min(first + together, hidden.size(0))));
      const float* row = logits.data<float>();
      for (std::int64_t n = 0; n < logits.size(0); ++n, row += words_)
        std::transform(all.begin(), all.end(), row, all.begin(), [&](double so_far, float logit) {
          return pooling_.sums ? so_far + weight(double(logit)) : std::max(so_far, double(logit));
        });
    }
    SparseVector made;
    for (std::int64_t id = 0; id < words_; ++id) {
      const double found = all[static_cast<std::size_t>(id)];
      const auto kept = static_cast<float>(pooling_.sums ? found : weight(found));
      if (!(kept > 0)) continue;
      made.ids.push_back(id);
      made.weights.push_back(kept);
    }
    return made;
  }

  const models::SparsePooling& pooling_;
  TaskOptions task_;
  models::TaskRun run_;
  std::int64_t words_;
  std::span<const std::string_view> texts_;
  std::string prompt_;
};

}  // namespace

double dot(const SparseVector& x, const SparseVector& y) {
  double sum = 0;
  for (std::size_t a = 0, b = 0; a < x.ids.size() && b < y.ids.size();) {
    if (x.ids[a] == y.ids[b]) {
      sum += double(x.weights[a++]) * double(y.weights[b++]);
    } else if (x.ids[a] < y.ids[b]) {
      ++a;
    } else {
      ++b;
    }
  }
  return sum;
}

SparseEmbeddings embed_sparse(const Model& model, std::span<const std::string_view> texts,
                              const EmbedOptions& options) {
  return SparseEmbedder(model, texts, options).run();
}

SparseEmbeddings embed_sparse(const Model& model, std::span<const std::string> texts, const EmbedOptions& options) {
  return embed_sparse(model, std::vector<std::string_view>(texts.begin(), texts.end()), options);
}

SparseEmbeddings embed_sparse(const Model& model, std::initializer_list<std::string_view> texts,
                              const EmbedOptions& options) {
  return embed_sparse(model, std::span(texts.begin(), texts.size()), options);
}

models::SparsePooling models::read_sparse_pooling(const std::filesystem::path& folder) {
  const JsonFile list = read_json(embed_sparse_function, folder / "modules.json");
  const std::vector<ModuleEntry> modules = followed_entries(list.root());
  SparsePooling made;
  bool has_pooling = false;
  for (std::size_t n = 0; n < modules.size(); ++n) {
    const std::string name = modules[n].name();
    const bool right = n == 0 ? name == "Transformer" || name == "MLMTransformer" : name == "SpladePooling" && n == 1;
    if (!right) modules[n].refuse("a Transformer or MLMTransformer, and then a SpladePooling are");
    has_pooling |= n == 1;
    if (n == 1)
      read_if_there(embed_sparse_function, folder / modules[n].path() / "config.json", [&](const Member& config) {
        config.only({"pooling_strategy", "activation_function", "embedding_dimension", "word_embedding_dimension",
                     "chunk_size"});
        made.sums = text_or(config, "pooling_strategy", "max") == "sum";
        if (!made.sums) only_value(config, "pooling_strategy", "max");
        made.logs_twice = text_or(config, "activation_function", "relu") == "log1p_relu";
        if (!made.logs_twice) only_value(config, "activation_function", "relu");
      });
  }
  if (!has_pooling) fail_at(list.root().place(), "no module is a SpladePooling");
  return made;
}

}  // namespace attend::inline v1
