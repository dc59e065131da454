// Several texts after one prompt that grow at once, those with the best scores, as Transformers 5.23's beam search has
// them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/message.h"
#include "models/growing.h"
#include "models/logits.h"

namespace attend::inline v1::models {

namespace {

struct Candidate {
  float score;  // the sum of its tokens' log probabilities
  std::size_t beam;
  std::int64_t token;
};

// Falling; of equal scores the earlier beam and the lower id first.
bool is_before(const Candidate& a, const Candidate& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
}

class BeamSearch {
 public:
  BeamSearch(const Writer& writer, std::span<const std::int64_t> prompt)
      : writer_(writer),
        settings_(writer.settings()),
        beams_(static_cast<std::size_t>(settings_.num_beams)),
        kept_(std::max<std::size_t>(2, 1 + writer.ends().size()) * beams_) {
    running_.push_back({writer.begin(0, prompt), 0});
  }

  std::vector<Written> run() {
    while (step()) {
    }
    ended_.resize(std::min(ended_.size(), static_cast<std::size_t>(settings_.num_return_sequences)));
    return std::move(ended_);
  }

 private:
  struct Beam {
    Growing text;
    float score;
  };

  std::vector<Growing*> texts() {
    std::vector<Growing*> all;
    all.reserve(running_.size());
    for (Beam& beam : running_) all.push_back(&beam.text);
    return all;
  }

  // A token more for each beam; false: no text can come that is better.
  bool step() {
    const std::vector<Growing*> reading = texts();
    Tensor scores = writer_.read(reading);
    for_each_row(scores, [](std::size_t, std::span<float> row) { to_log_probabilities(row); });
    writer_.process(reading, scores);
    const std::vector<Candidate> best = best_candidates(scores);
    if (best.empty() && ended_.empty())
      fail(ErrorCode::bad_value, "Model.generate", "no token may come: every logit is -inf");
    const std::int64_t length = std::ssize(running_.front().text.made) + 1;  // with the token that comes now
    std::vector<Candidate> going_on;
    for (std::size_t n = 0; n < best.size(); ++n) {
      const Candidate& each = best[n];
      Growing& parent = running_[each.beam].text;
      std::optional<Written> ended = ends(parent, each.token);
      if (!ended)
        going_on.push_back(each);
      else if (n < beams_)  // what comes after these is kept for going on alone
        end(*std::move(ended), each.score, length);
    }
    if (going_on.empty()) return false;
    going_on.resize(std::min(going_on.size(), beams_));
    if (full() && settings_.early_stopping == EarlyStopping::yes) return false;
    if (!better_may_come(going_on.front().score, length)) return false;
    go_on(going_on);
    return true;
  }

  // The best of all beams' tokens: among the best of each.
  std::vector<Candidate> best_candidates(const Tensor& scores) const {
    std::vector<std::vector<Candidate>> each(running_.size());
    for_each_row(scores, [&](std::size_t beam, std::span<const float> row) { each[beam] = best_of(beam, row); });
    std::vector<Candidate> best;
    for (const std::vector<Candidate>& some : each) best.insert(best.end(), some.begin(), some.end());
    std::ranges::sort(best, is_before);
    best.resize(std::min(best.size(), kept_));
    return best;
  }

  std::vector<Candidate> best_of(std::size_t beam, std::span<const float> row) const {
    std::vector<Candidate> best;  // a heap whose front is the last of them
    float least = -std::numeric_limits<float>::infinity();
    const float own = running_[beam].score;
    for (std::size_t token = 0; token < row.size(); ++token) {
      const float score = row[token] + own;
      if (score <= least) continue;
      if (best.size() == kept_) std::pop_heap(best.begin(), best.end(), is_before), best.pop_back();
      best.push_back({score, beam, static_cast<std::int64_t>(token)});
      std::push_heap(best.begin(), best.end(), is_before);
      if (best.size() == kept_) least = best.front().score;
    }
    return best;
  }

  // The text with this token, if that ends it.
  std::optional<Written> ends(const Growing& parent, std::int64_t token) const {
    Written written{.ids = parent.made};
    if (writer_.is_end(token)) return written;
    written.ids.push_back(token);
    const bool stopped = parent.words && stops(*parent.words, token, written.cut);
    const bool full =
        std::ssize(written.ids) >= writer_.options().max_new_tokens || parent.cache.length() == writer_.info().longest;
    return stopped || full ? std::optional(std::move(written)) : std::nullopt;
  }
  static bool stops(WrittenText words, std::int64_t token, std::size_t& cut) {
    (void)words.add(token);
    cut = words.cut();
    return words.stopped();
  }

  bool full() const { return ended_.size() == beams_; }
  float penalty(std::int64_t length) const {
    return static_cast<float>(std::pow(static_cast<double>(length), settings_.length_penalty));
  }

  // Among those that ended before, by its score; of equal ones the earlier first.
  void end(Written written, float score, std::int64_t length) {
    written.score = static_cast<double>(score / penalty(length));
    const auto place = std::ranges::upper_bound(ended_, written.score, std::greater(), &Written::score);
    ended_.insert(place, std::move(written));
    if (ended_.size() > beams_) ended_.pop_back();
  }

  bool better_may_come(float best, std::int64_t length) const {
    if (!full()) return true;
    const bool grows = settings_.early_stopping == EarlyStopping::never && settings_.length_penalty > 0;
    return static_cast<double>(best / penalty(grows ? writer_.options().max_new_tokens : length)) > ended_.back().score;
  }

  // A beam's cache is moved to the last text that goes on from it, and forked for the others.
  void go_on(const std::vector<Candidate>& chosen) {
    std::vector<std::size_t> children(running_.size());
    for (const Candidate& each : chosen) ++children[each.beam];
    std::vector<Beam> next;
    next.reserve(chosen.size());
    for (const Candidate& each : chosen) {
      Beam& parent = running_[each.beam];
      const bool last = --children[each.beam] == 0;
      Beam& beam = next.emplace_back(last ? std::move(parent) : parent);
      beam.score = each.score;
      beam.text.made.push_back(each.token);
      if (beam.text.words) (void)beam.text.words->add(each.token);
      writer_.keep_up(beam.text);
    }
    running_ = std::move(next);
  }

  const Writer& writer_;
  const Settings& settings_;
  std::size_t beams_, kept_;
  std::vector<Beam> running_;   // falling by score
  std::vector<Written> ended_;  // likewise; at most beams_
};

}  // namespace

std::vector<Written> search_beams(const Writer& writer, std::span<const std::int64_t> prompt) {
  return BeamSearch(writer, prompt).run();
}

}  // namespace attend::inline v1::models
