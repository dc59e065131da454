#include "models/knockouts.h"

#include <algorithm>

#include "attend/attention.h"
#include "core/from_end.h"

namespace attend::inline v1::models {

namespace {

constexpr const char* knockouts_function = "Model";

// So many rows' masks stand at once, of all heads alike or of each.
constexpr std::int64_t rows_alike = 512, rows_by_head = 64;

// Positions, rising, each once.
std::vector<std::int64_t> places(std::string_view name, const std::vector<std::int64_t>& given, std::int64_t count) {
  std::vector<std::int64_t> found;
  found.reserve(given.size());
  for (const std::int64_t each : given)
    found.push_back(from_end(knockouts_function, fmt::format("a knockout of {}", name), each, count));
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

bool is_of(const Knockout& x, const AttentionStep& step) {
  return (!x.layer || *x.layer == step.layer) && (x.attention == AttentionKind::cross) == step.cross;
}

}  // namespace

Knockouts::Knockouts(std::span<const Knockout> knockouts, const Batch& batch, const ModelInfo& info)
    : all_(knockouts.begin(), knockouts.end()) {
  for (Knockout& each : all_) {
    const bool encoder = each.attention == AttentionKind::encoder;
    if (each.attention != AttentionKind::self && !info.encoder_decoder())
      fail(ErrorCode::bad_value, knockouts_function,
           "a knockout of {} needs an encoder-decoder; the model is of type {}",
           encoder ? "an encoder's attention" : "cross-attention", info.type);
    if (each.layer)
      each.layer =
          from_end(knockouts_function, "a knockout in layer", *each.layer, encoder ? info.encoder_layers : info.layers);
    if (each.head)
      each.head =
          from_end(knockouts_function, "a knockout of head", *each.head, encoder ? info.encoder_heads : info.heads);
  }
  std::erase_if(all_, [&](const Knockout& each) {
    return (each.attention == AttentionKind::encoder) != (batch.stack == Stack::encoder);
  });
  if (!all_.empty() && batch.recorder)
    fail(ErrorCode::bad_value, knockouts_function,
         "knockouts can't be recorded: a recording makes weights again from q and k, which do not have them");
}

std::int64_t Knockouts::rows_before(const AttentionStep& step, std::int64_t rows) const {
  std::vector<bool> changes(static_cast<std::size_t>(rows));
  for (const Knockout& each : all_) {
    if (!is_of(each, step)) continue;
    if (!each.rows) return std::min(rows, fewest_rows);
    for (const std::int64_t row : places("row", *each.rows, rows)) changes[static_cast<std::size_t>(row)] = true;
  }
  const auto last = std::find(changes.rbegin(), changes.rend(), false);
  return std::min(rows, std::max<std::int64_t>(fewest_rows, changes.rend() - last));
}

void Knockouts::apply(const AttentionStep& step, const View& q, std::int64_t position, std::int64_t keys,
                      const MutableView& out, const Attend& attend) const {
  const std::int64_t H = q.size(1), N = q.size(2), length = position + N;
  struct Hidden {
    std::vector<std::int64_t> rows, keys;  // rows: of q
    std::optional<std::int64_t> head;
  };
  std::vector<Hidden> hidden;
  std::vector<bool> changes(static_cast<std::size_t>(N));
  for (const Knockout& each : all_) {
    if (!is_of(each, step)) continue;
    Hidden& x = hidden.emplace_back(Hidden{{}, places("key", each.keys, keys), each.head});
    if (!each.rows)
      for (std::int64_t n = 0; n < N; ++n) x.rows.push_back(n);
    else
      for (const std::int64_t row : places("row", *each.rows, length))
        if (row >= position) x.rows.push_back(row - position);
    for (const std::int64_t row : x.rows) changes[static_cast<std::size_t>(row)] = true;
  }
  const std::int64_t heads = std::ranges::any_of(hidden, [](const Hidden& x) { return x.head.has_value(); }) ? H : 1;
  const std::int64_t rows_at_once = heads == 1 ? rows_alike : rows_by_head;
  for (std::int64_t first = 0; first < N; first += rows_at_once) {
    const std::int64_t last = std::min(N, first + rows_at_once);
    const auto at = [&](std::int64_t n) { return changes.begin() + n; };
    if (std::find(at(first), at(last), true) == at(last)) continue;
    const std::int64_t begin = std::max<std::int64_t>(0, std::min(first, N - fewest_rows));
    Tensor mask = Tensor::uninitialized({1, heads, last - begin, keys}, DType::boolean);
    std::fill_n(static_cast<bool*>(mask.raw()), mask.count(), true);
    for (const Hidden& x : hidden)
      for (const std::int64_t row : x.rows)
        for (std::int64_t h = x.head.value_or(0); row >= begin && row < last && h < (x.head ? *x.head + 1 : heads); ++h)
          for (const std::int64_t key : x.keys)
            static_cast<bool*>(mask.raw())[(h * (last - begin) + row - begin) * keys + key] = false;
    AttentionOptions options = step.options();
    if (options.offset) options.offset = Offset(position + begin);
    options.mask = mask.view();
    const AttentionResult result = attend(q.slice(2, begin, last), options);
    for (std::int64_t row = first; row < last; ++row)
      if (changes[static_cast<std::size_t>(row)])
        out.slice(2, row, row + 1).copy_from(result.out.view().slice(2, row - begin, row - begin + 1));
  }
}

}  // namespace attend::inline v1::models
