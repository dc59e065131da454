// Sparse text vectors: weights for the vocabulary's words that a text is about, from a head for masked words (SPLADE,
// Formal et al. 2021, arXiv:2107.05720 and arXiv:2109.10086).
//
//     const attend::Model model = attend::Model::load("splade-v3");
//     const attend::SparseVector vector = attend::embed_sparse(model, {"who wrote Faust?"}).vectors[0];
//     for (std::size_t n = 0; n < vector.ids.size(); ++n)
//       fmt::print("{:.2f} {}\n", vector.weights[n], model.tokenizer().token(vector.ids[n]));
//
// Results follow SparseEncoder of sentence-transformers 6.2. Functions throw bad_value for a model without such a head
// and texts without tokens, bad_file for settings that attend does not know, and what Model::forward() throws.
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

namespace attend::inline v1 {

// The positive weights, by ascending word id; all others are 0.
struct ATTEND_API SparseVector {
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
};
// The dot product.
ATTEND_API double dot(const SparseVector& x, const SparseVector& y);

struct ATTEND_API SparseEmbeddings {
  std::vector<SparseVector> vectors;  // one for each text, in the order given
  std::int64_t cut = 0;               // how many texts were longer than ModelInfo::max_seq_length
};
// A word's weight is the largest log(1 + max(0, logit)) over the text's tokens, or as the folder's SpladePooling says.
// options: as for embed(); `normalize` throws bad_value. A text has the same bits alone and with others.
ATTEND_API SparseEmbeddings embed_sparse(const Model& model, std::span<const std::string_view> texts,
                                         const EmbedOptions& options = {});
ATTEND_API SparseEmbeddings embed_sparse(const Model& model, std::span<const std::string> texts,
                                         const EmbedOptions& options = {});
ATTEND_API SparseEmbeddings embed_sparse(const Model& model, std::initializer_list<std::string_view> texts,
                                         const EmbedOptions& options = {});

}  // namespace attend::inline v1
