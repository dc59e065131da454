#include "models/text_passes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

#include "core/parallel.h"
#include "models/model.h"

namespace attend::inline v1::models {

namespace {

// Of texts that are in memory as ids at once.
constexpr std::size_t most_bytes = 1 << 18, most_texts = 4096;
// Of one pass: its numbers fit a core's cache, and its products are as fast as those of more.
constexpr std::int64_t most_pass_tokens = 256;

// How many of its own tokens each text of a pair keeps, of which there are `own`.
std::array<std::int64_t, 2> kept_of(std::array<std::int64_t, 2> own, std::int64_t most) {
  if (own[0] + own[1] <= most) return own;
  const bool swapped = own[0] > own[1];
  auto [shorter, longer] = swapped ? std::pair(own[1], own[0]) : std::pair(own[0], own[1]);
  longer = shorter > most ? shorter : std::max(shorter, most - shorter);
  if (shorter + longer > most) shorter = most / 2, longer = most / 2 + most % 2;
  return swapped ? std::array{longer, shorter} : std::array{shorter, longer};
}

// A window's texts are sorted by length and packed into passes, each of which is one core's: short ones keep all of
// them busy.
class Window {
 public:
  Window(const Model& model, const TextPasses& passes) : model_(model), passes_(passes) {}

  std::int64_t run() {
    std::int64_t cut = 0;
    for (std::size_t begin = 0; begin < passes_.count;) {
      std::size_t end = begin, bytes = 0;
      while (end < passes_.count && end - begin < most_texts && bytes < most_bytes) bytes += passes_.bytes(end++);
      read(begin, end);
      cut += std::ranges::count(texts_, true, &TextTokens::cut);
      compute(begin);
      begin = end;
    }
    return cut;
  }

 private:
  void read(std::size_t begin, std::size_t end) {
    texts_.assign(end - begin, {});
    // Of several that can't be encoded the first is told, whichever thread meets one first.
    std::vector<std::exception_ptr> thrown(texts_.size());
    parallel_for(std::ssize(texts_), 8, [&](std::int64_t first, std::int64_t last) {
      for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
        try {
          texts_[n] = passes_.tokens(begin + n);
        } catch (...) {
          thrown[n] = std::current_exception();
        }
      }
    });
    for (const std::exception_ptr& each : thrown)
      if (each) std::rethrow_exception(each);
  }

  // The longest first, so many that a pass is full, or that each thread has one. Of one pass all have as many ids that
  // are not seen: these are told by their positions.
  std::vector<std::vector<std::size_t>> packed(int threads) const {
    std::vector<std::size_t> order(texts_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto length = [&](std::size_t n) { return std::ssize(texts_[n].ids); };
    std::ranges::stable_sort(order, std::greater(),
                             [&](std::size_t n) { return std::pair(length(n), texts_[n].unseen); });
    std::int64_t all = 0;
    for (const std::size_t n : order) all += length(n);
    const std::int64_t most = std::clamp(all / threads, most_pass_tokens / 4, most_pass_tokens);
    std::vector<std::vector<std::size_t>> packed;
    std::int64_t tokens = most;
    for (const std::size_t n : order) {
      const bool joins =
          !packed.empty() && tokens + length(n) <= most && texts_[packed.back().front()].unseen == texts_[n].unseen;
      if (!joins) packed.emplace_back(), tokens = 0;
      packed.back().push_back(n);
      tokens += length(n);
    }
    return packed;
  }

  void compute(std::size_t begin) {
    const int threads = num_threads();
    const auto all = packed(threads);
    const auto workers = static_cast<int>(std::min<std::int64_t>(threads, std::ssize(all)));
    std::atomic<std::int64_t> done = static_cast<std::int64_t>(begin);
    const auto caller = std::this_thread::get_id();
    parallel_items(std::ssize(all), workers, [&](int, std::int64_t item) {
      const auto& pass = all[static_cast<std::size_t>(item)];
      compute_pass(pass, begin);
      done += std::ssize(pass);
      if (passes_.progress && std::this_thread::get_id() == caller) tell(done);
    });
    if (passes_.progress) tell(done);
  }

  void tell(std::int64_t done) const { passes_.progress(double(done) / double(passes_.count)); }

  void compute_pass(const std::vector<std::size_t>& pass, std::size_t begin) const {
    std::vector<std::int64_t> ids, types, starts{0};
    std::vector<std::size_t> texts;
    for (const std::size_t n : pass) {
      ids.insert(ids.end(), texts_[n].ids.begin(), texts_[n].ids.end());
      types.insert(types.end(), texts_[n].types.begin(), texts_[n].types.end());
      starts.push_back(std::ssize(ids));
      texts.push_back(begin + n);
    }
    if (model_.info().decoder() || std::ranges::count(types, 0) == std::ssize(types)) types.clear();
    std::vector<Knockout> knockouts;
    const TextTokens& any = texts_[pass.front()];
    if (any.unseen > 0) knockouts.emplace_back();
    for (std::int64_t n = 0; n < any.unseen; ++n) knockouts[0].keys.push_back(-1 - n);
    if (passes_.first) return use_first(ids, starts, types, texts);
    const Tensor hidden = hidden_of(ids, starts, types, knockouts);
    passes_.use({hidden, texts, ids, starts});
  }

  void use_first(const std::vector<std::int64_t>& ids, std::vector<std::int64_t> starts,
                 const std::vector<std::int64_t>& types, const std::vector<std::size_t>& texts) const {
    const Tensor hidden = ModelAccess::first_rows(model_, ids, {.starts = starts, .types = types});
    std::vector<std::int64_t> first_ids;
    for (std::size_t n = 0; n < texts.size(); ++n) first_ids.push_back(ids[static_cast<std::size_t>(starts[n])]);
    std::iota(starts.begin(), starts.end(), 0);
    passes_.use({hidden, texts, first_ids, starts});
  }

  // A text without tokens, as a static table may be given one, has no row.
  Tensor hidden_of(const std::vector<std::int64_t>& ids, std::vector<std::int64_t> starts,
                   const std::vector<std::int64_t>& types, const std::vector<Knockout>& knockouts) const {
    if (ids.empty()) return Tensor({0, model_.info().embedding_size});
    starts.erase(std::ranges::unique(starts).begin(), starts.end());
    return ModelAccess::text_states(model_, ids, {.starts = starts, .types = types, .knockouts = knockouts});
  }

  const Model& model_;
  const TextPasses& passes_;
  std::vector<TextTokens> texts_;
};

}  // namespace

Encoding cut_encoding(Encoding from, std::int64_t most, bool begin) {
  std::array<std::int64_t, 2> own{}, at{};  // tokens of each text
  const auto is_second = [&](std::size_t n) { return from.texts[n] == 1; };
  const auto added = std::ranges::count(from.special, true);
  for (std::size_t n = 0; n < from.ids.size(); ++n)
    if (!from.special[n]) ++own[is_second(n)];
  const std::array<std::int64_t, 2> kept = kept_of(own, std::max<std::int64_t>(0, most - added));
  if (kept == own) return from;
  Encoding cut;
  for (std::size_t n = 0; n < from.ids.size(); ++n) {
    if (!from.special[n]) {
      const bool second = is_second(n);
      const std::int64_t place = at[second]++;
      if (begin ? place < own[second] - kept[second] : place >= kept[second]) continue;
    }
    cut.ids.push_back(from.ids[n]);
    cut.offsets.push_back(from.offsets[n]);
    cut.special.push_back(from.special[n]);
    cut.types.push_back(from.types[n]);
    cut.texts.push_back(from.texts[n]);
  }
  return cut;
}

std::int64_t run_passes(const Model& model, const TextPasses& passes) {
  return Window(model, passes).run();
}

}  // namespace attend::inline v1::models
