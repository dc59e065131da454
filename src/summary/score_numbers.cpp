// The scores of a head as numbers, which a recording keeps, and back.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "summary/head_labels.h"
#include "summary/head_scores.h"

namespace attend::inline v1 {

namespace {

template <class Kinds, class Visit>
void visit_kinds(Kinds& kinds, Visit visit) {
  for (const LabelRule& rule : label_rules()) visit(kinds.*rule.excess);
}

// What is computed from others is not among them: labels, effective_keys.
template <class Scores, class Rest, class Visit>
void visit_numbers(Scores& s, Rest& rest, Visit visit) {
  visit(s.sink), visit(s.sink_key), visit(s.previous), visit(s.duplicate), visit(s.induction), visit(s.local);
  visit(s.entropy), visit(s.distance);  // version 1 of a recording ends here
  visit(s.self), visit(s.rows), visit(s.keys_seen);
  visit_kinds(s.excess, visit);
  visit_kinds(rest.excess, visit);
  visit(rest.effective_keys), visit(rest.keys_seen), visit(rest.rows_left_out);
}

}  // namespace

void write_scores(const HeadScores& scores, double* to) {
  const WithoutSink none{.effective_keys = NAN, .keys_seen = NAN, .rows_left_out = -1};
  const WithoutSink& rest = scores.without_sink ? *scores.without_sink : none;
  visit_numbers(scores, rest, [&](const auto& number) {
    if constexpr (requires { number.has_value(); }) {
      *to++ = number.value_or(NAN);
    } else {
      *to++ = static_cast<double>(number);
    }
  });
}

HeadScores read_scores(const double* from, std::int64_t keys) {
  HeadScores scores;
  WithoutSink rest;
  visit_numbers(scores, rest, [&](auto& number) {
    const double read = *from++;
    using Number = std::remove_reference_t<decltype(number)>;
    if constexpr (std::is_same_v<Number, std::optional<double>>) {
      number = std::isnan(read) ? std::nullopt : std::optional(read);
    } else if constexpr (std::is_same_v<Number, double>) {
      number = read;
    } else {  // a whole number that a file may hold anything in place of
      number = read >= 0 && read < 0x1p53 ? static_cast<std::int64_t>(read) : -1;
    }
  });
  scores.rows = std::max<std::int64_t>(0, scores.rows);
  if (!scores.distance) scores.previous.reset(), scores.local.reset();  // version 1 has zeros there
  if (scores.sink_key >= keys) scores.sink_key = -1;
  if (scores.sink_key < 0) scores.sink.reset();
  scores.effective_keys = std::exp(scores.entropy);
  scores.labels = labels_of(scores.excess, scores.excess.sink.has_value(), scores.effective_keys, scores.keys_seen);
  if (rest.rows_left_out < 0) return scores;
  rest.labels = labels_of(rest.excess, scores.rows - rest.rows_left_out >= HeadScores::least_rows, rest.effective_keys,
                          rest.keys_seen);
  scores.without_sink = std::move(rest);
  return scores;
}

}  // namespace attend::inline v1
