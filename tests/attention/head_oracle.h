// What head_scores() says of one head, from its weights one by one: docs/inside.md's definitions read aloud. It shares
// no sum and no threshold with the library.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attend/summary.h"

namespace attend::test {

struct HeadWeights {
  std::int64_t queries = 0, keys = 0;
  std::vector<double> weights, visible;        // [queries,keys]
  std::vector<std::int64_t> level = {};        // [queries]; none: not known
  std::vector<std::int64_t> tokens = {};       // [keys]; none: not known
  std::vector<double> sizes = {};              // [keys]; given: scores are by norm
  std::vector<std::int64_t> seen_by_row = {};  // [queries]: HeadOracle counts them once, each sum asks for every pair

  double weight(std::int64_t i, std::int64_t j) const { return weights[static_cast<std::size_t>(i * keys + j)]; }
  bool sees(std::int64_t i, std::int64_t j) const { return visible[static_cast<std::size_t>(i * keys + j)] != 0; }
  double size(std::int64_t j) const { return sizes.empty() ? 1 : sizes[static_cast<std::size_t>(j)]; }
  std::int64_t seen(std::int64_t i) const { return seen_by_row[static_cast<std::size_t>(i)]; }
  void count_seen() {
    seen_by_row.assign(static_cast<std::size_t>(queries), 0);
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j) seen_by_row[static_cast<std::size_t>(i)] += sees(i, j);
  }
};

class HeadOracle {
 public:
  explicit HeadOracle(HeadWeights head) : x_(std::move(head)) { x_.count_seen(); }

  HeadScores scores() const {
    HeadScores s;
    s.rows = 0;
    for (std::int64_t i = 0; i < x_.queries; ++i) s.rows += x_.seen(i) > 0;
    s.entropy = mean([&](std::int64_t i) { return entropy(i); }, s.rows);
    s.keys_seen = std::exp(mean([&](std::int64_t i) { return std::log(static_cast<double>(x_.seen(i))); }, s.rows));
    s.effective_keys = std::exp(s.entropy);
    find_sink(s);
    if (!x_.level.empty() && s.rows > 0) add_places(s);
    s.labels = labels(s.excess, s.excess.sink.has_value(), s.effective_keys, s.keys_seen);
    return s;
  }

  // The head without that key: rows scaled by 1 / (1 - w(i, key)).
  WithoutSink without(std::int64_t key) const {
    WithoutSink rest;
    HeadWeights left = x_;
    for (std::int64_t i = 0; i < x_.queries; ++i) {
      const double kept = x_.sees(i, key) ? 1 - x_.weight(i, key) : 1;
      const bool others = x_.seen(i) > (x_.sees(i, key) ? 1 : 0);
      const bool leaves_out = others && kept < 0.01;
      rest.rows_left_out += leaves_out;
      for (std::int64_t j = 0; j < x_.keys; ++j) {
        const auto at = static_cast<std::size_t>(i * x_.keys + j);
        if (j == key || leaves_out) left.visible[at] = 0;
        left.weights[at] = left.visible[at] == 0 ? 0 : x_.weights[at] / kept;
      }
    }
    HeadScores s = HeadOracle(std::move(left)).scores();
    rest.excess = s.excess, rest.excess.sink.reset();
    rest.effective_keys = s.rows > 0 ? s.effective_keys : 0, rest.keys_seen = s.rows > 0 ? s.keys_seen : 0;
    rest.labels = labels(rest.excess, s.rows >= 8, rest.effective_keys, rest.keys_seen);
    return rest;
  }

 private:
  using Counts = std::function<bool(std::int64_t i, std::int64_t j)>;

  // Over rows that see a key.
  double mean(const std::function<double(std::int64_t)>& of, std::int64_t rows) const {
    double sum = 0;
    for (std::int64_t i = 0; i < x_.queries; ++i) sum += x_.seen(i) > 0 ? of(i) : 0;
    return sum / static_cast<double>(std::max<std::int64_t>(1, rows));
  }

  double entropy(std::int64_t i) const {
    double sum = 0;
    for (std::int64_t j = 0; j < x_.keys; ++j)
      sum -= x_.weight(i, j) > 0 ? x_.weight(i, j) * std::log(x_.weight(i, j)) : 0;
    return sum;
  }

  void find_sink(HeadScores& s) const {
    std::vector<double> received(static_cast<std::size_t>(x_.keys)), uniform = received, seen_by = received;
    double most = 0;
    const Norm norm(x_, 2);
    for (std::int64_t j = 0; j < x_.keys; ++j) {
      const auto at = static_cast<std::size_t>(j);
      for (std::int64_t i = 0; i < x_.queries; ++i) {
        if (x_.seen(i) == 1 || !x_.sees(i, j)) continue;
        received[at] += norm.weight(i, j), uniform[at] += norm.uniform(i, j), seen_by[at] += 1;
      }
      most = std::max(most, seen_by[at]);
    }
    double best = 0, u = 0;
    for (std::int64_t j = 0; j < x_.keys; ++j) {
      const auto at = static_cast<std::size_t>(j);
      if (seen_by[at] == 0 || seen_by[at] < most / 2) continue;
      u = std::max(u, uniform[at] / seen_by[at]);
      if (received[at] / seen_by[at] > best) best = received[at] / seen_by[at], s.sink_key = j;
    }
    if (s.sink_key < 0) return;
    s.sink = best;
    if (seen_by[static_cast<std::size_t>(s.sink_key)] >= 8 && 1 - u >= 0.1) s.excess.sink = (best - u) / (1 - u);
  }

  // A weight as what it carries, over what a row carries in the mean, of the rows that see at least so many keys; and
  // the same of uniform attention.
  struct Norm {
    Norm(const HeadWeights& head, std::int64_t least) : x(head) {
      if (x.sizes.empty()) return;
      double rows = 0, carried = 0, of_uniform = 0;
      for (std::int64_t i = 0; i < x.queries; ++i) {
        if (x.seen(i) < least) continue;
        rows += 1;
        for (std::int64_t j = 0; j < x.keys; ++j) {
          if (!x.sees(i, j)) continue;
          carried += x.weight(i, j) * x.size(j), of_uniform += x.size(j) / static_cast<double>(x.seen(i));
        }
      }
      share = carried > 0 ? rows / carried : 0, uniform_share = of_uniform > 0 ? rows / of_uniform : 0;
    }
    double weight(std::int64_t i, std::int64_t j) const { return x.weight(i, j) * x.size(j) * share; }
    double uniform(std::int64_t i, std::int64_t j) const {
      return x.size(j) / static_cast<double>(x.seen(i)) * uniform_share;
    }
    const HeadWeights& x;
    double share = 1, uniform_share = 1;
  };

  struct Sums {
    double weights = 0, uniform = 0, rows = 0;  // rows: that see such a key
  };
  Sums sum(const Counts& counts) const {
    Sums sums;
    const Norm norm(x_, 1);
    for (std::int64_t i = 0; i < x_.queries; ++i) {
      std::int64_t of_kind = 0;
      for (std::int64_t j = 0; j < x_.keys; ++j) {
        if (!x_.sees(i, j) || !counts(i, j)) continue;
        sums.weights += norm.weight(i, j), sums.uniform += norm.uniform(i, j), ++of_kind;
      }
      sums.rows += of_kind > 0;
    }
    return sums;
  }
  // rows: of which s, u and m are means.
  static std::optional<double> excess(const Sums& sums, double rows) {
    if (sums.rows < 8 || (sums.rows - sums.uniform) / rows < 0.1) return std::nullopt;
    return (sums.weights - sums.uniform) / (sums.rows - sums.uniform);
  }

  void add_places(HeadScores& s) const {
    const auto level = [this](std::int64_t i) { return x_.level[static_cast<std::size_t>(i)]; };
    const auto token = [this](std::int64_t j) { return x_.tokens[static_cast<std::size_t>(j)]; };
    const auto all = static_cast<double>(s.rows);
    const auto near = [&](std::int64_t i, std::int64_t j) { return std::abs(level(i) - j) <= 8; };
    const Sums own = sum([&](auto i, auto j) { return j == level(i); });
    const Sums before = sum([&](auto i, auto j) { return j == level(i) - 1; });
    const Sums around = sum([&](auto i, auto j) { return near(i, j) && j != level(i) && j != level(i) - 1; });
    if (own.rows > 0) s.self = own.weights / own.rows;
    if (before.rows > 0) s.previous = before.weights / before.rows;
    s.local = sum(near).weights / all;
    s.distance = mean(
        [&](std::int64_t i) {
          double far = 0;
          for (std::int64_t j = 0; j < x_.keys; ++j)
            far += x_.weight(i, j) * static_cast<double>(std::abs(level(i) - j));
          return far;
        },
        s.rows);
    s.excess.self = excess(own, own.rows), s.excess.previous = excess(before, before.rows);
    s.excess.local = excess(around, all);
    if (x_.tokens.empty()) return;
    const Sums same = sum([&](auto i, auto j) { return j < level(i) && token(j) == token(level(i)); });
    const Sums after = sum([&](auto i, auto j) { return j > 0 && j <= level(i) && token(j - 1) == token(level(i)); });
    s.duplicate = same.weights / all, s.induction = after.weights / all;
    s.excess.duplicate = excess(same, all), s.excess.induction = excess(after, all);
  }

  static std::vector<HeadLabel> labels(const HeadKinds& e, bool known, double effective, double seen) {
    std::vector<HeadLabel> found;
    const auto add = [&](std::string_view name, const std::optional<double>& value, double threshold) {
      if (value && *value > threshold) found.push_back({name, *value});
    };
    add("sink", e.sink, 0.3), add("self", e.self, 0.3), add("previous", e.previous, 0.3);
    const bool nearest = (e.self && *e.self > 0.3) || (e.previous && *e.previous > 0.3);
    add("duplicate", e.duplicate, 0.3), add("induction", e.induction, 0.3);
    if (!nearest) add("local", e.local, 0.5);
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.value > b.value; });
    if (!found.empty() || !known) return found;
    return {{2 * effective > seen ? "broad" : effective < 3 ? "focused" : "other", effective}};
  }

  HeadWeights x_;
};

}  // namespace attend::test
