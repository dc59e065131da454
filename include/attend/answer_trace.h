// From the answer back to the words, two steps deep: which heads wrote the answer by reading which token, why each of
// them looked there, and who wrote what it read; and of each part what changes when it is taken out.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no answer_trace.h"
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attend/analysis.h"
#include "attend/api.h"

namespace attend::inline v0 {

struct ATTEND_API TraceOptions {
  std::optional<std::int64_t> token = {}, against = {};  // as AttributeOptions have them
  std::int64_t position = -1;
  std::int64_t heads = 3;  // how many of the strongest heads, each by the token that it read
  std::int64_t parts = 3;  // how many parts of each side
  std::span<const std::int64_t> decoder_ids = {};
  bool measured = true;                       // whether each part is taken out, too: a pass over the text for each
  std::function<void(double)> progress = {};  // told the share that is done, from 0 to 1; may throw
};

// A part of a row, with its number among all of its side.
struct ATTEND_API TracedPart {
  AttributionPart part = {};
  double share = 0;  // of the magnitudes of its side together
  // The answer's number in a pass where what the part wrote in that row is 0; none: embeddings and biases, which can't
  // be taken out so, and all where nothing was measured.
  std::optional<double> without = {};
};

struct ATTEND_API TracedHead {
  TracedPart wrote;  // the head, the token that it read, and what it wrote into the answer; without it in that row
  double score = 0;  // q . k of the two rows, less the mean of those of all keys that the query sees
  double value = 0;  // what the head reads there, per unit of weight, along the answer: weight x value = wrote
  std::vector<TracedPart> query = {};  // what of the query's row made the score, the largest magnitudes first
  std::vector<TracedPart> key = {};    // what of the key's row did
  std::vector<TracedPart> read = {};   // what of the key's row made the value
};

// heads are the strongest of attribute(); query and key are sums of explain_score(), and read is explain_value(). The
// numbers are direct effects, each exact; `without` is what really changes, through all later layers too.
struct ATTEND_API AnswerTrace {
  std::int64_t token = 0;
  std::optional<std::int64_t> against = {};
  std::int64_t position = 0;
  double logit = 0;  // with `against` the difference of the two
  std::vector<TracedHead> heads = {};
};
// Throws as attribute() and explain_score(). The sums are two passes over the text.
ATTEND_API AnswerTrace trace_answer(const Model& model, std::span<const std::int64_t> ids,
                                    const TraceOptions& options = {});
// The answer's number in a pass where what a head or an MLP writes in a row is 0, or without a row in all of them. Of
// the options those that say which answer count; of a token that none names, what is likeliest then. Throws bad_value
// for other parts, and as Model::forward().
ATTEND_API double answer_without(const Model& model, std::span<const std::int64_t> ids, const AttributionPart& part,
                                 std::optional<std::int64_t> row, const TraceOptions& options = {});
ATTEND_API std::string to_json(const AnswerTrace& trace);

}  // namespace attend::inline v0
