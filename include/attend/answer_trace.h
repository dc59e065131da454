// From the answer back to the words in two steps: which heads wrote the answer by reading which token, why they looked
// there, and who wrote what they read; and what changes without each part.
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

namespace attend::inline v1 {

struct ATTEND_API TraceOptions {
  std::optional<std::int64_t> token = {}, against = {};  // as in AttributeOptions
  std::int64_t position = -1;
  std::int64_t heads = 3;  // strongest heads to trace, each with the token it read
  std::int64_t parts = 3;  // parts to give for each side
  std::span<const std::int64_t> decoder_ids = {};
  bool measured = true;                       // also remove each part, with a pass over the text for each
  std::function<void(double)> progress = {};  // called with the share done, 0 to 1; may throw
};

// A part of a row.
struct ATTEND_API TracedPart {
  AttributionPart part = {};
  double share = 0;  // of the summed magnitudes of all parts of its side
  // The answer's number when what the part wrote in that row is 0. None: embeddings and biases, which can't be removed
  // so, and everything if not measured.
  std::optional<double> without = {};
};

struct ATTEND_API TracedHead {
  // the head, the token it read, and what it wrote into the answer; `without` removes the head in that row
  TracedPart wrote;
  double score = 0;  // q . k of the two rows, minus the mean over all keys that the query sees
  double value = 0;  // what the head reads there along the answer, per unit of weight: weight x value = wrote
  std::vector<TracedPart> query = {};  // parts of the query's row in the score, largest magnitudes first
  std::vector<TracedPart> key = {};    // parts of the key's row in the score
  std::vector<TracedPart> read = {};   // parts of the key's row in the value
};

// heads come from attribute(), query and key from explain_score(), read from explain_value(). These are exact direct
// effects; `without` is the real change, through all later layers too.
struct ATTEND_API AnswerTrace {
  std::int64_t token = 0;
  std::optional<std::int64_t> against = {};
  std::int64_t position = 0;
  double logit = 0;  // with `against` a difference
  std::vector<TracedHead> heads = {};
};
// Same errors as attribute() and explain_score(). The sums take two passes over the text.
ATTEND_API AnswerTrace trace_answer(const Model& model, std::span<const std::int64_t> ids,
                                    const TraceOptions& options = {});
// The answer's number when what a head or MLP writes is 0 in `row`, or without row in all rows. Uses the options'
// token, against, position and decoder_ids; without a token, what is then likeliest. Throws bad_value for other parts,
// and what Model::forward() throws.
ATTEND_API double answer_without(const Model& model, std::span<const std::int64_t> ids, const AttributionPart& part,
                                 std::optional<std::int64_t> row, const TraceOptions& options = {});
ATTEND_API std::string to_json(const AnswerTrace& trace);

}  // namespace attend::inline v1
