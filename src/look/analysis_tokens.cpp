#include "look/analysis_tokens.h"

#include <algorithm>
#include <array>

#include "attend/error.h"
#include "core/message.h"

namespace attend::inline v0 {

std::string token_text(const AnalysisOf& of, std::int64_t id) {
  const std::optional<std::string> text = of.tokenizer != nullptr ? of.tokenizer->text(id) : std::nullopt;
  return text ? *text : fmt::format("{}", id);
}

std::vector<std::string> token_texts(const char* function, const AnalysisOf& of, std::span<const std::int64_t> ids,
                                     std::int64_t count) {
  if (!ids.empty() && std::ssize(ids) < count)
    fail(ErrorCode::bad_shape, function, "{} ids, expected those of {} tokens", ids.size(), count);
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(count));
  for (std::int64_t n = 0; n < count; ++n)
    texts.push_back(ids.empty() ? fmt::format("{}", n) : token_text(of, ids[static_cast<std::size_t>(n)]));
  return texts;
}

void check_numbers(const char* function, const char* name, const View& x, int rank, DType dtype) {
  if (x.dtype() != dtype) fail(ErrorCode::bad_dtype, function, "{} is {}, expected {}", name, x.dtype(), dtype);
  if (x.rank() != rank || x.count() == 0)
    fail(ErrorCode::bad_shape, function, "{} has shape {}, expected {} axes, and none of them empty", name, x.shape(),
         rank);
}

void check_attribution(const char* function, const Attribution& x) {
  check_numbers(function, "heads", x.heads, 3);
  check_numbers(function, "mlps", x.mlps, 1);
  if (x.mlps.size(0) != x.heads.size(0))
    fail(ErrorCode::bad_shape, function, "mlps has shape {}, expected the layers of heads {}", x.mlps.shape(),
         x.heads.shape());
}

void check_lens(const char* function, const Lens& x, std::span<const std::int64_t> positions) {
  check_numbers(function, "ids", x.ids, 3, DType::i64);
  check_numbers(function, "log_probabilities", x.log_probabilities, 3);
  if (x.log_probabilities.shape() != x.ids.shape())
    fail(ErrorCode::bad_shape, function, "log_probabilities has shape {}, expected that of ids, {}",
         x.log_probabilities.shape(), x.ids.shape());
  if (!positions.empty() && std::ssize(positions) != x.ids.size(1))
    fail(ErrorCode::bad_shape, function, "{} positions, expected {}", positions.size(), x.ids.size(1));
  if (!std::ranges::is_sorted(positions) || (!positions.empty() && positions[0] < 0))
    fail(ErrorCode::bad_value, function, "positions must rise from 0 or more");
}

std::string seen(std::string_view token) {
  std::string shown;
  const bool blank = token.find_first_not_of(' ') == std::string_view::npos;
  for (const char c : token) {
    if (c == '\n' || c == '\r')
      shown += "↵";
    else if (c == '\t')
      shown += "⇥";
    else if (c == ' ' && blank)
      shown += "␣";
    else
      shown += c;
  }
  return shown;
}

namespace {

// What its kind of model has.
std::vector<AblationChange> all_of(const Ablation& x) {
  if (x.cosine_distance.count() > 0) return {{"cosine_distance", x.cosine_distance}};
  return {{"logit", x.logit}, {"log_probability", x.log_probability}, {"kl", x.kl}};
}

}  // namespace

std::vector<AblationChange> changes_of(const char* function, const Ablation& x) {
  std::vector<AblationChange> changes = all_of(x);
  const View& first = changes.front().values;
  for (const AblationChange& change : changes) {
    if (change.values.rank() != 1) check_numbers(function, "change", change.values, 2);
    if (change.values.shape() != first.shape())
      fail(ErrorCode::bad_shape, function, "{} has shape {}, expected {}", change.name, change.values.shape(),
           first.shape());
  }
  return changes;
}

AblationChange change_of(const char* function, const Ablation& x, std::string_view name) {
  const std::vector<AblationChange> all = all_of(x);
  const bool encoder = all.front().name == "cosine_distance";
  if (name.empty()) name = encoder ? "cosine_distance" : "log_probability";
  const auto found = std::ranges::find(all, name, &AblationChange::name);
  constexpr std::string_view known[] = {"log_probability", "logit", "kl", "cosine_distance"};
  if (std::ranges::find(known, name) == std::end(known))
    fail(ErrorCode::bad_value, function,
         "change: expected 'log_probability', 'logit', 'kl' or 'cosine_distance', got '{}'", name);
  if (found == all.end())
    fail(ErrorCode::bad_value, function, "change is {}, which {} do not have", name, encoder ? "encoders" : "decoders");
  if (found->values.count() == 1 && found->values.rank() == 1)
    fail(ErrorCode::bad_shape, function, "the heads were taken out together: there is one number, and no map");
  check_numbers(function, "change", found->values, 2);
  return *found;
}

}  // namespace attend::inline v0
