// The likeliest words for a text's masks.
#include <algorithm>
#include <numeric>

#include "core/message.h"
#include "models/tasks/task_texts.h"

namespace attend::inline v1 {

namespace {

constexpr const char* fill_function = "fill";

std::int64_t mask_of(const models::TaskRun& run) {
  const std::string& said = run.rules().mask;
  for (const std::string_view each : {std::string_view(said), std::string_view("[MASK]"), std::string_view("<mask>")})
    if (!each.empty())
      if (const auto id = run.tokenizer().id(each)) return *id;
  fail(ErrorCode::bad_file, fill_function, "the tokenizer has no token for a mask: neither [MASK] nor <mask>{}",
       said.empty() ? "" : fmt::format(" nor {}, which tokenizer_config.json says", said));
}

// Of one row of probabilities, falling; of equal ones the lower id first.
std::vector<std::int64_t> largest(const float* row, std::int64_t size, std::int64_t count) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  const auto first = ids.begin() + std::min(count, size);
  std::partial_sort(ids.begin(), first, ids.end(),
                    [&](std::int64_t a, std::int64_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
  ids.erase(first, ids.end());
  return ids;
}

}  // namespace

std::vector<std::vector<Filling>> fill(const Model& model, std::string_view text, std::int64_t count) {
  if (count < 1) fail(ErrorCode::bad_value, fill_function, "count is {}, expected 1 or more", count);
  const TaskOptions whole{.truncate = false, .progress = {}};
  const models::TaskRun run(fill_function, "text", model, ModelTask::fill, whole);
  bool cut = false;
  const Encoding tokens = run.encode(0, {text}, cut);
  const std::int64_t mask = mask_of(run);
  std::vector<std::size_t> places;
  for (std::size_t n = 0; n < tokens.ids.size(); ++n)
    if (tokens.ids[n] == mask) places.push_back(n);
  if (places.empty())
    fail(ErrorCode::bad_value, fill_function, "the text has no mask, expected {}", run.tokenizer().token(mask));
  const Tensor hidden = ModelAccess::forward(model, tokens.ids, {}, nullptr);
  std::vector<std::vector<Filling>> made;
  made.reserve(places.size());
  for (const std::size_t place : places) {
    const auto row = static_cast<std::int64_t>(place);
    Tensor shares = run.head().logits(hidden.view().slice(0, row, row + 1));
    models::apply(ScoreFunction::softmax, shares);
    std::vector<Filling>& found = made.emplace_back();
    for (const std::int64_t id : largest(shares.data<float>(), shares.size(1), count)) {
      const std::optional<std::string> token = run.tokenizer().text(id);
      std::vector<std::int64_t> ids = tokens.ids;
      if (token)
        ids[place] = id;
      else
        ids.erase(ids.begin() + row);  // models have ids that no tokenizer knows
      found.push_back({id, token.value_or(""), static_cast<double>(shares.data<float>()[id]),
                       run.tokenizer().decode(ids, places.size() == 1)});
    }
  }
  return made;
}

}  // namespace attend::inline v1
