#include "analysis/answer_pairs.h"

#include "analysis/answers.h"
#include "analysis/texts.h"
#include "core/from_end.h"
#include "core/message.h"

namespace attend::inline v1::analysis {

void check_pairs(std::string_view function, std::span<const AnswerPair> pairs, const ModelInfo& info) {
  if (pairs.empty()) fail(ErrorCode::bad_value, function, "there are no pairs of texts, expected at least one");
  for (std::size_t n = 0; n < pairs.size(); ++n) {
    const AnswerPair& pair = pairs[n];
    of_text(n, pairs.size(), [&] {
      if (pair.clean.size() != pair.corrupt.size())
        fail(ErrorCode::bad_value, function,
             "the clean text has {} tokens and the corrupt one {}, expected equal numbers", pair.clean.size(),
             pair.corrupt.size());
      check_text({pair.clean}, info);
      check_text({pair.corrupt}, info);
      check_token(function, "token", pair.token, info);
      check_token(function, "against", pair.against, info);
      if (pair.token == pair.against) fail(ErrorCode::bad_value, function, "token and against are both {}", pair.token);
      from_end(function, "position is", pair.position, std::ssize(pair.clean));
    });
  }
}

double difference(const Model::Parts& parts, std::string_view function, const Tensor& hidden, const AnswerPair& pair) {
  const std::int64_t row = from_end(function, "position is", pair.position, hidden.size(0));
  const Tensor logits = models::output_of(parts, function).logits(hidden.view().select(0, row));
  return static_cast<double>(logits.data<float>()[pair.token]) -
         static_cast<double>(logits.data<float>()[pair.against]);
}

}  // namespace attend::inline v1::analysis
