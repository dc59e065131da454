// What attend/analysis.h finds, as it is looked at: as pictures and as CSV. docs/why.md has some.
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

namespace attend::inline v0 {

// What was analysed, which the numbers don't say.
struct ATTEND_API AnalysisOf {
  std::span<const std::int64_t> ids = {};      // the text, [T]; of patch() the clean one. Empty: indices stand for it
  std::span<const std::int64_t> corrupt = {};  // of patch()
  // Of an encoder-decoder: the encoder's text, where ids are the decoder's.
  std::span<const std::int64_t> encoder_ids = {};
  const Tokenizer* tokenizer = nullptr;   // null: ids stand for tokens, as for those that it does not know
  std::string model = {};                 // its name
  std::optional<std::string> title = {};  // in place of the picture's own
  // Of numbers by span, of patch() and of average(): what each span is called, in place of tokens.
  std::span<const std::string> names = {};
  // Of label: ModelInfo::labels, which token and against are numbers of; empty: of tokens.
  std::span<const std::string> labels = {};
};

// Functions throw bad_shape for fewer ids than the numbers are of.

// ---- Pictures ----

// The tokens on the colour of what heads wrote by reading them, and below them what each head and, in a column of its
// own, each MLP wrote, [L,H+1], of an encoder-decoder with its cross-attention's heads c0, c1, ... [L,2H+1], as dark as
// the heads' largest where it wrote more; the caption has all sums. Blue is against the token, orange for it.
ATTEND_API Picture attribution_picture(const Attribution& attribution, const AnalysisOf& of);

// The likeliest token of each layer at each position, [L+1,P], on the colour of its probability. positions: as lens()
// was given them. Of more than `most` the last ones are drawn; the title says which, where these are not all. Throws
// bad_value for most < 1.
ATTEND_API Picture lens_picture(const Lens& lens, std::span<const std::int64_t> positions, const AnalysisOf& of,
                                std::int64_t most = 32);

// What changes without each head, [L,H]. change: "logit", "log_probability", "kl" or "cosine_distance"; empty: of
// decoders log_probability, of encoders cosine_distance, of labels as decoders or where there is no other logit. Throws
// bad_value for another, and for one that it lacks; bad_shape where heads were taken out together, so that there is one
// number.
ATTEND_API Picture ablation_picture(const Ablation& ablation, const AnalysisOf& of, std::string_view change = "");

// How much comes back with each head, [L,H], or with the stream before each layer at each token, [L+1,T]. Where the
// texts differ, both tokens are named.
ATTEND_API Picture patching_picture(const Patching& patching, const AnalysisOf& of);

// The tokens on the colour of what each did to the number; of an encoder-decoder those of both texts. The caption says
// what the points of the path miss.
ATTEND_API Picture saliency_picture(const Saliency& saliency, const AnalysisOf& of);
// What the points of the path miss, of the whole change: 0.05 are 5 %.
ATTEND_API double missing_share(const Saliency& saliency);

// What tokens did together that are a word: a token that begins with a blank begins one, or where none does (WordPiece)
// one that does not begin with "##".
struct ATTEND_API WordValue {
  std::string word = {};  // without blanks around it
  Range tokens = {};
  double value = 0;
};
// Of the tokens; with `encoder` of the encoder's.
ATTEND_API std::vector<WordValue> saliency_words(const Saliency& saliency, const AnalysisOf& of, bool encoder = false);

// A row for each passage, [S,2]: what it gave by the estimate, and what was measured, hatched where it was not.
ATTEND_API Picture passages_picture(const Passages& passages, const AnalysisOf& of);
// The texts one below the other, each token on the colour of what the query gives to it in that head: of AnalysisOf the
// tokenizer, the model and the title. Throws bad_value for a head that is not there.
ATTEND_API Picture variants_picture(const Variants& variants, const Head& head, const AnalysisOf& of);
// What times_held() counts: "the right word gets more than the other", "... gets most", "the same word gets most".
ATTEND_API std::string claim_of(const Variants& variants);
// In how many texts that holds, [L,H]. The caption has what would hold as often without looking.
ATTEND_API Picture held_picture(const Variants& variants, const AnalysisOf& of);

// The strongest edges of a circuit that lead to the output, at most `most`: layers upwards, orange towards the clean
// answer and blue against it; the caption says what they keep, and how many more there are.
ATTEND_API Picture circuit_picture(const Circuit& circuit, const Edges& edges, const AnalysisOf& of,
                                   std::int64_t most = 40);
// All of its edges, for Graphviz: green towards the clean answer, and red against it.
ATTEND_API std::string circuit_dot(const Circuit& circuit, const Edges& edges);

// Of a query's tokens the first of those equal ones, masks, that fill it up to its end; their number where none do.
ATTEND_API std::int64_t filled_from(std::span<const std::string> query);
// Which of a passage's tokens each of a query's matched (max_sim()): a line to it, the darker the nearer. query,
// passage: their tokens. What masks match together stands in the caption. title: none: it has the score.
ATTEND_API Picture match_picture(const MaxSim& match, std::span<const std::string> query,
                                 std::span<const std::string> passage, const std::optional<std::string>& title = {});

// ---- Names ----

// "18.6" as recordings have it, of an encoder-decoder "decoder.3.cross.6"; "mlp 15"; "mlp 15, unit 812"; "feature 812";
// "embedding", "bias", "rounding".
ATTEND_API std::string name_of(const AttributionPart& part, const AnalysisOf& of = {});

// The passages' names; without these each passage's text in one line, or of ids that no tokenizer knows its tokens.
ATTEND_API std::vector<std::string> passage_texts(const Passages& passages, const AnalysisOf& of);

// ---- CSV ----

// A line for each number, tokens as text, each with its `name`, that of a head as recordings have it, so that tables
// join; what a line has not is empty. Doubles and f32 by their shortest decimals. kind ("head", "cross", "mlp",
// "embedding", "bias", "rounding"; with neurons "neuron" in place of "mlp"; "feature" of those that are not 0), layer,
// head, name, key, token, value
ATTEND_API std::string attribution_csv(const Attribution& attribution, const AnalysisOf& of);
// layer, position, place, id, token, log_probability
ATTEND_API std::string lens_csv(const Lens& lens, std::span<const std::int64_t> positions, const AnalysisOf& of);
// layer, head, name, and of decoders and labels logit, log_probability, kl, where they are there; of encoders
// cosine_distance. Of heads that were taken
// out together one line, whose name has all of theirs.
ATTEND_API std::string ablation_csv(const Ablation& ablation, const AnalysisOf& of = {});
// text ("encoder" or "decoder"; of one text empty), position, token, value
ATTEND_API std::string saliency_csv(const Saliency& saliency, const AnalysisOf& of);
// passage, begin, end, text, estimated, measured (empty where it was not)
ATTEND_API std::string passages_csv(const Passages& passages, const AnalysisOf& of);
// source, receiver, score
ATTEND_API std::string circuit_csv(const Circuit& circuit, const Edges& edges);
// text, layer, head, name, key, token, weight
ATTEND_API std::string variants_csv(const Variants& variants, const AnalysisOf& of);
// layer, head, name, recovered; or layer, position, token, recovered
ATTEND_API std::string patching_csv(const Patching& patching, const AnalysisOf& of);

}  // namespace attend::inline v0
