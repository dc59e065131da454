// Sparse vectors of texts: a weight for each word of the vocabulary that the text is about, made by a head for masked
// words (SPLADE, Formal et al. 2021, arXiv:2107.05720 and arXiv:2109.10086).
//
//   const attend::Model model = attend::Model::load("splade-v3");
//   const attend::SparseVector vector = attend::embed_sparse(model, {"who wrote Faust?"}).vectors[0];
//   for (std::size_t n = 0; n < vector.ids.size(); ++n)
//     fmt::print("{:.2f} {}\n", vector.weights[n], model.tokenizer().token(vector.ids[n]));
//
// Truth: SparseEncoder of sentence-transformers 6.2. Functions throw bad_value for a model without such a head and for
// texts without tokens, bad_file where the folder's files say what is not known here, and what Model::forward() throws.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no sparse_vectors.h"
#endif

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/models.h"

namespace attend::inline v0 {

// The weights that are not 0, which are above it, by the ids of their words, rising.
struct ATTEND_API SparseVector {
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
};
// The sum of the products of the words that both have.
ATTEND_API double dot(const SparseVector& x, const SparseVector& y);

struct ATTEND_API SparseEmbeddings {
  std::vector<SparseVector> vectors;  // one for each text, in the order given
  std::int64_t cut = 0;               // how many texts were longer than ModelInfo::max_seq_length
};
// Of each word the largest of log(1 + max(0, logit)) over the text's tokens, or as the folder's SpladePooling says.
// options: as embed() takes them, but for `normalize`, which is bad_value. A text has the same bits alone as among
// others.
ATTEND_API SparseEmbeddings embed_sparse(const Model& model, std::span<const std::string_view> texts,
                                         const EmbedOptions& options = {});
ATTEND_API SparseEmbeddings embed_sparse(const Model& model, std::span<const std::string> texts,
                                         const EmbedOptions& options = {});
ATTEND_API SparseEmbeddings embed_sparse(const Model& model, std::initializer_list<std::string_view> texts,
                                         const EmbedOptions& options = {});

}  // namespace attend::inline v0
