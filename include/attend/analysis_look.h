// Pictures and CSV of the results in attend/analysis.h. docs/why.md shows some.
#pragma once

#if defined(ATTEND_WITHOUT_MODELS) || defined(ATTEND_WITHOUT_PICTURES)
#error "attend was built with ATTEND_MODELS=OFF or ATTEND_PICTURES=OFF: it has no analysis_look.h"
#endif

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/analysis.h"
#include "attend/api.h"
#include "attend/circuits.h"
#include "attend/late_interaction.h"
#include "attend/passages.h"
#include "attend/picture.h"
#include "attend/saliency.h"
#include "attend/tokenizer.h"
#include "attend/variants.h"

namespace attend::inline v1 {

// What was analysed: names and tokens that the numbers lack. Functions throw bad_shape if there are fewer ids than the
// numbers need.
struct ATTEND_API AnalysisOf {
  std::span<const std::int64_t> ids = {};      // the text, [T]; for patch() the clean one; empty: indices are shown
  std::span<const std::int64_t> corrupt = {};  // for patch()
  // For an encoder-decoder: the encoder's text; ids are then the decoder's.
  std::span<const std::int64_t> encoder_ids = {};
  const Tokenizer* tokenizer = nullptr;   // null: ids are shown, as for ids that it lacks
  std::string model = {};                 // its name
  std::optional<std::string> title = {};  // replaces the picture's own
  // For numbers by span, from patch() and average(): the spans' names.
  std::span<const std::string> names = {};
  // ModelInfo::labels if token and against are labels; empty: they are tokens.
  std::span<const std::string> labels = {};
};

// Tokens coloured by what heads wrote when reading them. Below: what each head wrote and, in an extra column, each MLP,
// [L,H+1]. An encoder-decoder also has its cross-attention heads c0, c1, ..., [L,2H+1]. MLPs beyond the largest head
// are drawn as dark as that head. Blue is against the token, orange for it. The caption has all sums.
ATTEND_API Picture attribution_picture(const Attribution& attribution, const AnalysisOf& of);

// Each layer's likeliest token at each position, [L+1,P], coloured by its probability. positions: as given to lens().
// Only the last `most` are drawn, and the title then says which. Throws bad_value for most < 1.
ATTEND_API Picture lens_picture(const Lens& lens, std::span<const std::int64_t> positions, const AnalysisOf& of,
                                std::int64_t most = 32);

// The change without each head, [L,H]. change: "logit", "log_probability", "kl" or "cosine_distance". Empty:
// log_probability for decoders and labels (logit if labels have nothing else), cosine_distance for encoders. Throws
// bad_value for other names and for a change that the result lacks; bad_shape if heads were removed together, which
// gives one number.
ATTEND_API Picture ablation_picture(const Ablation& ablation, const AnalysisOf& of, std::string_view change = "");

// How much each head brings back, [L,H], or the stream before each layer at each token, [L+1,T]. Where the texts
// differ, both tokens are named.
ATTEND_API Picture patching_picture(const Patching& patching, const AnalysisOf& of);

// Tokens coloured by their effect on the number; for an encoder-decoder both texts. The caption gives the share that
// the path misses.
ATTEND_API Picture saliency_picture(const Saliency& saliency, const AnalysisOf& of);
// The share of the whole change that the path misses: 0.05 is 5 %.
ATTEND_API double missing_share(const Saliency& saliency);

// The summed effect of the tokens of a word. A word begins with a token that begins with a blank; if no token does
// (WordPiece), with one that does not begin with "##".
struct ATTEND_API WordValue {
  std::string word = {};  // without surrounding blanks
  Range tokens = {};
  double value = 0;
};
// For the tokens; with `encoder` for the encoder's.
ATTEND_API std::vector<WordValue> saliency_words(const Saliency& saliency, const AnalysisOf& of, bool encoder = false);

// A row for each passage, [S,2]: its estimated and its measured effect, hatched if not measured.
ATTEND_API Picture passages_picture(const Passages& passages, const AnalysisOf& of);
// The texts below each other, each token coloured by the head's weight from the query. Uses tokenizer, model and title
// of AnalysisOf. Throws bad_value for a head that does not exist.
ATTEND_API Picture variants_picture(const Variants& variants, const Head& head, const AnalysisOf& of);
// What times_held() counts: "the right word gets more than the other", "... gets most", "the same word gets most".
ATTEND_API std::string claim_of(const Variants& variants);
// How many texts the claim holds in, [L,H]. The caption says how often it would hold by chance.
ATTEND_API Picture held_picture(const Variants& variants, const AnalysisOf& of);

// The strongest edges of a circuit that lead to the output, at most `most`, with layers upwards. Orange is towards the
// clean answer, blue against it. The caption says what the edges keep, and how many more there are.
ATTEND_API Picture circuit_picture(const Circuit& circuit, const Edges& edges, const AnalysisOf& of,
                                   std::int64_t most = 40);
// All its edges, for Graphviz: green towards the clean answer, red against it.
ATTEND_API std::string circuit_dot(const Circuit& circuit, const Edges& edges);

// The index of the first of the equal mask tokens that fill up the query's end; the token count if there are none.
ATTEND_API std::int64_t filled_from(std::span<const std::string> query);
// Lines from each query token to the passage token it matched (max_sim()), darker for a larger product. query, passage:
// their tokens. The caption has the masks' total. Default title: the score.
ATTEND_API Picture match_picture(const MaxSim& match, std::span<const std::string> query,
                                 std::span<const std::string> passage, const std::optional<std::string>& title = {});

// "18.6" as in recordings, "decoder.3.cross.6" for an encoder-decoder; "mlp 15"; "mlp 15, unit 812"; "feature 812";
// "embedding", "bias", "rounding".
ATTEND_API std::string name_of(const AttributionPart& part, const AnalysisOf& of = {});

// The passages' names, or else each passage's text in one line; for ids without a tokenizer its tokens.
ATTEND_API std::vector<std::string> passage_texts(const Passages& passages, const AnalysisOf& of);

// CSV with a line for each number. Tokens are text; `name` is a head's name in recordings, so tables join. Missing
// values are empty; f64 and f32 have their shortest decimals. Columns: kind ("head", "cross", "mlp", "embedding",
// "bias", "rounding"; with neurons "neuron" instead of "mlp"; "feature" if not 0), layer, head, name, key, token,
// value.
ATTEND_API std::string attribution_csv(const Attribution& attribution, const AnalysisOf& of);
// Columns: layer, position, place, id, token, log_probability.
ATTEND_API std::string lens_csv(const Lens& lens, std::span<const std::int64_t> positions, const AnalysisOf& of);
// Columns: layer, head, name; decoders and labels: those of logit, log_probability, kl that exist; encoders:
// cosine_distance. Heads removed together are one line with all their names.
ATTEND_API std::string ablation_csv(const Ablation& ablation, const AnalysisOf& of = {});
// Columns: text ("encoder", "decoder"; empty if there is one text), position, token, value.
ATTEND_API std::string saliency_csv(const Saliency& saliency, const AnalysisOf& of);
// Columns: passage, begin, end, text, estimated, measured (empty if not measured).
ATTEND_API std::string passages_csv(const Passages& passages, const AnalysisOf& of);
// Columns: source, receiver, score.
ATTEND_API std::string circuit_csv(const Circuit& circuit, const Edges& edges);
// Columns: text, layer, head, name, key, token, weight.
ATTEND_API std::string variants_csv(const Variants& variants, const AnalysisOf& of);
// Columns: layer, head, name, recovered; or layer, position, token, recovered.
ATTEND_API std::string patching_csv(const Patching& patching, const AnalysisOf& of);

}  // namespace attend::inline v1
