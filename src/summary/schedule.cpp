#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <numbers>
#include <thread>

#include "attention/item_progress.h"
#include "attention/operands.h"
#include "attention/row_sums.h"
#include "attention/schedule.h"
#include "core/divide_up.h"
#include "core/parallel.h"
#include "kernels/lse.h"
#include "summary/summary.h"

namespace attend::inline v1 {

namespace {

// Without lse_low: from here on f32 holds lse to 2e-6 at best, and sums of a row's weights are as far from 1.
constexpr float trusted_lse = 64;

kernels::Features features(const SummaryProblem& x, bool decoded) {
  kernels::Features features = x.forward.features();
  features.dropout = false, features.decoded = decoded;
  return features;
}

void list_items(const SummaryProblem& x, SummarySchedule& s) {
  s.cut(x.forward.sequences(), x.forward.H, [&](std::int64_t n) {
    const Range keys = x.keys_of(x.forward.sequence(n));
    return keys.end - keys.begin;
  });
}

// The memory of element [b,h,row,...], null where there is none.
template <class T>
T* place_of(const MutableView& x, std::int64_t b, std::int64_t h, std::int64_t row = 0) {
  if (!x.raw()) return nullptr;
  return static_cast<T*>(operand_at(x, b, h, row).data);
}

// One run of a schedule.
class SummaryRun {
 public:
  SummaryRun(SummaryProblem& x, const SummarySchedule& s)
      : x_(x),
        p_(x.forward),
        s_(s),
        scratch_(Tensor::uninitialized({s.workers * s.worker_bytes}, DType::u8)),
        key_sums_(Tensor::uninitialized({s.workers, 3 * s.keys}, DType::f64)),
        made_(x.to.statistics.raw() ? Tensor() : Tensor::uninitialized({p_.B, p_.H, p_.Tq, 2})),
        statistics_(x.to.statistics.raw() ? x.to.statistics : made_.view()),
        progress_(s.items.size()) {
    const bool summed = needs_sums(x);
    if (summed) sum_rows(p_, statistics_);
    parallel_items(p_.B * p_.H, s.workers, [&](int, std::int64_t at) {
      const std::int64_t b = at / p_.H, h = at % p_.H;
      take_lse(x, b, h, summed, place_of<float>(statistics_, b, h));
      if (x.to.sink_weights.raw()) weigh_sink(b, h);
    });
  }

  void run() {
    const bool means = (x_.to.map.raw() || x_.to.carried_map.raw()) && !x_.grid;
    if (means) for_each_map([&](std::int64_t n, std::int64_t h) { clear_maps(x_.to, n, h); });
    if (x_.to.seen.raw()) count_keys();
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<std::int64_t> done{0};
    std::atomic<bool> ended{false};
    std::exception_ptr thrown;  // by progress: what waits for items must not be left waiting
    parallel_items(std::ssize(s_.items), s_.workers, [&](int worker, std::int64_t item) {
      if (ended) return leave_out(item);
      take(worker, item);
      const std::int64_t count = ++done;
      if (!x_.progress || std::this_thread::get_id() != caller) return;
      try {
        x_.progress(static_cast<double>(count) / static_cast<double>(s_.items.size()));
      } catch (...) {
        thrown = std::current_exception();
        ended = true;
      }
    });
    if (thrown) std::rethrow_exception(thrown);
    if (!means) return;
    for_each_map([&](std::int64_t n, std::int64_t h) { divide_map(x_.to.map, n, h); });
    for_each_map([&](std::int64_t n, std::int64_t h) { divide_map(x_.to.carried_map, n, h); });
  }

 private:
  // ---- Rows ----

  // What a sink takes of each row.
  void weigh_sink(std::int64_t b, std::int64_t h) {
    const double sink = p_.sinks[static_cast<std::size_t>(h)] * std::numbers::log2e;
    const float* lse = place_of<float>(statistics_, b, h);
    float* to = place_of<float>(x_.to.sink_weights, b, h);
    for (std::int64_t i = 0; i < p_.Tq; ++i) {
      to[i] = static_cast<float>(kernels::sink_share(sink, {lse[2 * i], lse[2 * i + 1]}));
    }
  }

  // 1 / the number of keys that each query sees.
  void count_keys() {
    const kernels::Features features = p_.features();
    const bool reads = features.mask || kernels::has_biases(features);
    const std::int64_t tiles = divide_up(p_.Tq, kernels::backward_tile_rows);
    parallel_items(p_.sequences() * p_.H * tiles, s_.workers, [&](int worker, std::int64_t at) {
      const Sequence sequence = p_.sequence(at / tiles / p_.H);
      const std::int64_t h = at / tiles % p_.H, first = at % tiles * kernels::backward_tile_rows;
      const std::int64_t last = std::min(first + kernels::backward_tile_rows, sequence.Tq);
      if (first >= last) return;
      std::int64_t counts[kernels::backward_tile_rows];
      if (reads) {
        kernels::SummaryGroup group = head_of(sequence, h);
        group.keys_end = sequence.Tk;
        s_.target->summary.count(group, first, last, counts, scratch_of(worker));
      }
      const kernels::Rules rules = p_.rules(sequence, h);
      float* seen = place_of<float>(x_.to.seen, sequence.b, h, sequence.query_start);
      for (std::int64_t i = first; i < last; ++i) {
        const kernels::KeyRange range = kernels::visible_keys(rules, i);
        const std::int64_t count = reads ? counts[i - first] : range.hi - range.lo;
        seen[i] = count > 0 ? 1 / static_cast<float>(count) : 0;
      }
    });
  }

  // ---- Items ----

  void* scratch_of(int worker) { return static_cast<std::byte*>(scratch_.raw()) + worker * s_.worker_bytes; }

  kernels::SummaryGroup head_of(const Sequence& sequence, std::int64_t h) const {
    const std::int64_t G = p_.G();
    kernels::SummaryGroup group{.forward = p_.group(sequence, h / G), .head = h % G};
    group.forward.features = features(x_, takes_decode(p_, sequence));
    return group;
  }

  void take(int worker, std::int64_t at) {
    const auto& [n, h, stretch] = s_.items[static_cast<std::size_t>(at)];
    const Sequence sequence = p_.sequence(n);
    const kernels::SummaryGroup group = make_group(worker, at, sequence);
    kernels::SummaryItem& item = s_.target->summary.begin(group, scratch_of(worker));
    std::atomic<std::int64_t>& done = progress(n, h, stretch);
    const Range rows = x_.queries_of(sequence);
    std::int64_t step = 0;
    // From the last rows on: with a window, what an item sees alone comes before what it shares with the one before it.
    for (std::int64_t tile = divide_up(rows.end - rows.begin, kernels::backward_tile_rows) - 1; tile >= 0; --tile) {
      const std::int64_t first = rows.begin + tile * kernels::backward_tile_rows;
      if (stretch > 0) wait(progress(n, h, stretch - 1), step + 1);
      s_.target->summary.rows(item, first, std::min(first + kernels::backward_tile_rows, rows.end));
      publish(done, ++step);
    }
    if (group.received) store_keys(group, sequence, h);
  }

  // An item of a call that has ended: others may wait for it.
  void leave_out(std::int64_t at) {
    const auto& [n, h, stretch] = s_.items[static_cast<std::size_t>(at)];
    publish(progress(n, h, stretch), std::numeric_limits<std::int64_t>::max());
  }

  std::atomic<std::int64_t>& progress(std::int64_t n, std::int64_t h, std::int64_t stretch) {
    return progress_[s_.place({n, h, stretch})];
  }

  kernels::SummaryGroup make_group(int worker, std::int64_t at, const Sequence& s) {
    const SummarySchedule::Item& item = s_.items[static_cast<std::size_t>(at)];
    const std::int64_t n = item.sequence, h = item.head, stretch = item.stretch;
    const SummaryViews& to = x_.to;
    const Range queries = x_.queries_of(s), keys = x_.keys_of(s);
    kernels::SummaryGroup group = head_of(s, h);
    group.keys_begin = keys.begin + stretch * s_.keys;
    group.keys_end = std::min(group.keys_begin + s_.keys, keys.end);
    group.lse = place_of<const float>(statistics_, s.b, h, s.query_start);
    group.entropy = place_of<float>(to.entropy, s.b, h, s.query_start);
    group.distance = place_of<float>(to.distance, s.b, h, s.query_start);
    const auto lists = [&](const MutableView& of_keys, const MutableView& of_weights) {
      if (!of_keys.raw()) return kernels::TopLists{.top = x_.top};
      return kernels::TopLists{of_keys.size(3), s.key_start, place_of<std::int64_t>(of_keys, s.b, h, s.query_start),
                               place_of<float>(of_weights, s.b, h, s.query_start)};
    };
    group.largest = lists(to.top_keys, to.top_weights);
    group.carried = lists(to.carried_top_keys, to.carried_top_weights);
    if (x_.key_sizes)
      group.key_sizes = place_of<const float>(x_.key_sizes->view(), s.b, h) + s.key_start + group.keys_begin;
    group.shares = place_of<const float>(to.seen, s.b, h, s.query_start);
    if (to.received.raw()) place_keys(group, worker);
    const auto map_at = [&](const MutableView& map, const MutableView& most) {
      if (!map.raw() || keys.end == keys.begin) return kernels::MapBlocks{};
      kernels::MapBlocks blocks = x_.blocks_of(s, map);
      blocks.sums = place_of<float>(map, n, h), blocks.most = place_of<float>(most, n, h);
      return blocks;
    };
    group.map = map_at(to.map, to.map_max), group.carried_map = map_at(to.carried_map, to.carried_map_max);
    if (to.weights.raw() && queries.end > queries.begin && keys.end > keys.begin) {
      const std::int64_t row = s.query_start + queries.begin - x_.queries.begin;
      const std::int64_t column = s.key_start + group.keys_begin - x_.keys.begin;
      group.weights = place_of<float>(to.weights, s.b, h, row) + column;
      group.weights_first = queries.begin, group.weights_row = to.weights.size(3);
    }
    if (to.probe_weights.raw()) {
      group.probes.near = x_.near;
      if (!x_.same_tokens.empty()) {
        const SummaryProblem::SameTokens& same = x_.same_tokens[static_cast<std::size_t>(s.b)];
        group.probes.same = same.keys.data(), group.probes.begin = same.begin.data(),
        group.probes.end = same.end.data();
      }
      group.probes.weights = place_of<float>(to.probe_weights, s.b, h, s.query_start);
      group.probes.keys = place_of<float>(to.probe_keys, s.b, h, s.query_start);
      group.probes.carried = place_of<float>(to.probe_carried, s.b, h, s.query_start);
      group.probes.sizes = place_of<float>(to.probe_sizes, s.b, h, s.query_start);
    }
    return group;
  }

  // ---- Keys ----

  void place_keys(kernels::SummaryGroup& group, int worker) {
    double* sums = key_sums_.data<double>() + worker * 3 * s_.keys;
    std::fill_n(sums, 3 * s_.keys, 0.0);
    group.received = sums, group.uniform = sums + s_.keys;
    if (x_.to.seen_by.raw()) group.seen_by = sums + 2 * s_.keys;
  }

  void store_keys(const kernels::SummaryGroup& group, const Sequence& s, std::int64_t h) {
    const std::int64_t first = s.key_start + group.keys_begin;
    float* received = place_of<float>(x_.to.received, s.b, h) + first;
    float* lift = place_of<float>(x_.to.lift, s.b, h) + first;
    float* carried = place_of<float>(x_.to.carried_received, s.b, h);
    float* seen_by = place_of<float>(x_.to.seen_by, s.b, h);
    float* uniform = place_of<float>(x_.to.uniform, s.b, h);
    for (std::int64_t j = 0; j < group.keys_end - group.keys_begin; ++j) {
      received[j] = static_cast<float>(group.received[j]);
      lift[j] = group.uniform[j] > 0 ? static_cast<float>(group.received[j] / group.uniform[j]) : 0;
      if (seen_by) seen_by[first + j] = static_cast<float>(group.seen_by[j]);
      if (carried) carried[first + j] = received[j] == 0 ? 0 : received[j] * group.key_sizes[j];
      if (uniform) uniform[first + j] = static_cast<float>(group.uniform[j]);
    }
  }

  // ---- The map ----

  // By several threads: maps of 256 x 256 for each head are memory that the system gives page by page as it is touched.
  template <class Body>
  void for_each_map(Body body) {
    parallel_items(p_.sequences() * p_.H, s_.workers, [&](int, std::int64_t at) { body(at / p_.H, at % p_.H); });
  }

  // Sums over a block's queries become means over those that see a key.
  void divide_map(const MutableView& map, std::int64_t n, std::int64_t h) {
    if (!map.raw()) return;
    const Sequence s = p_.sequence(n);
    const Range queries = x_.queries_of(s);
    const std::int64_t rows = queries.end - queries.begin, R = std::min(map.size(2), rows), C = map.size(3);
    const float* shares = place_of<float>(x_.to.seen, s.b, h, s.query_start) + queries.begin;
    std::vector<std::int64_t> seeing(static_cast<std::size_t>(R));
    for (std::int64_t i = 0; i < rows; ++i) seeing[static_cast<std::size_t>(i * R / rows)] += shares[i] > 0;
    for (std::int64_t r = 0; r < R; ++r) {
      float* cells = place_of<float>(map, n, h, r);
      const auto count = static_cast<float>(std::max<std::int64_t>(1, seeing[static_cast<std::size_t>(r)]));
      for (std::int64_t c = 0; c < C; ++c) cells[c] /= count;
    }
  }

  SummaryProblem& x_;
  const Problem& p_;
  const SummarySchedule& s_;
  Tensor scratch_;
  Tensor key_sums_;  // of each worker's item: received, uniform, seen_by
  Tensor made_;
  MutableView statistics_;                           // [B,H,Tq,2]
  std::vector<std::atomic<std::int64_t>> progress_;  // row tiles done, for each head and stretch
};

}  // namespace

bool needs_sums(const SummaryProblem& x) {
  return !x.lse || is_coarse(*x.lse, x.lse_low ? kernels::coarse_lse : trusted_lse);
}

void take_lse(const SummaryProblem& x, std::int64_t b, std::int64_t h, bool summed, float* to) {
  const std::int64_t rows = x.forward.Tq;
  if (!x.lse) {
    for (std::int64_t i = 0; i < rows; ++i)
      if (to[2 * i] == -std::numeric_limits<float>::infinity()) to[2 * i] = std::numeric_limits<float>::max();
    return;
  }
  const kernels::Operand high = operand_at(*x.lse, b, h, 0);
  const kernels::Operand low = x.lse_low ? operand_at(*x.lse_low, b, h, 0) : kernels::Operand{};
  const auto read = [](const kernels::Operand& of, std::int64_t i) {
    return load<float>(element_at(of.data, of.dtype, i * of.row));
  };
  for (std::int64_t i = 0; i < rows; ++i, to += 2) {
    const kernels::BinaryLse own{to[0], to[1]};
    const float rest = x.lse_low ? read(low, i) : 0;
    const kernels::BinaryLse taken =
        kernels::binary_lse(read(high, i), x.lse_low ? &rest : nullptr, summed ? &own : nullptr,
                            x.lse_low ? kernels::coarse_lse : trusted_lse);
    to[0] = taken.high, to[1] = taken.low;
  }
}

void clear_maps(const SummaryViews& to, std::int64_t n, std::int64_t h) {
  for (const MutableView& map : {to.map, to.map_max, to.carried_map, to.carried_map_max}) {
    if (!map.raw()) continue;
    const auto bytes = static_cast<std::size_t>(map.size(2) * map.size(3) * size_of(map.dtype()));
    std::memset(operand_at(map, n, h, 0).data, 0, bytes);
  }
}

SummarySchedule make_summary_schedule(const SummaryProblem& x) {
  const Problem& p = x.forward;
  SummarySchedule s;
  const bool reference = p.q.dtype() == DType::f64;
  if (!reference) s.target = &kernels::target();
  s.path = reference ? Path::reference : Path::fused;
  s.keys = reference ? std::max<std::int64_t>(1, p.Tk) : s.target->summary.keys(p.sizes());
  if (p.Tq > 0 && p.H > 0) list_items(x, s);
  const double flops = 2.0 * static_cast<double>(p.B * p.H) * static_cast<double>(p.Tq) * static_cast<double>(p.Tk) *
                       static_cast<double>(p.D);
  s.workers =
      static_cast<int>(std::clamp<std::int64_t>(std::ssize(s.items), 1, flops < parallel_flops ? 1 : num_threads()));
  if (reference) {
    s.worker_bytes = 8 * (4 * p.Tk + p.D + kernels::keys_together * p.D + 3 * p.Tk);
    s.scratch_bytes = s.workers * s.worker_bytes + s.list_bytes();
    return s;
  }
  const std::size_t bytes = s.target->summary.bytes(p.sizes(), features(x, decodes_some(p)), x.top);
  s.worker_bytes = divide_up(static_cast<std::int64_t>(bytes), 64) * 64;
  if (!x.lse) s.sums_bytes = sum_rows_bytes(p);
  s.scratch_bytes = s.workers * (s.worker_bytes + 24 * s.keys) + s.sums_bytes + p.B * p.H * p.Tq * 8 +
                    std::ssize(s.items) * 8 + s.list_bytes();
  return s;
}

void run_summary(SummaryProblem& x, const SummarySchedule& s) {
  if (s.items.empty()) return;
  if (s.path == Path::reference) return run_reference(x, s);
  SummaryRun(x, s).run();
}

}  // namespace attend::inline v1
