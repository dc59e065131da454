#include "attention/backward_schedule.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "attention/item_progress.h"
#include "attention/operands.h"
#include "attention/row_sums.h"
#include "attention/schedule.h"
#include "core/divide_up.h"
#include "core/parallel.h"
#include "kernels/lse.h"

namespace attend::inline v1 {

namespace {

// For some sequences, of which the forward decoded some, or none.
kernels::Features features(const BackwardProblem& x, bool decoded) {
  kernels::Features features = x.forward.features();
  features.dlogits = x.options.of_logits();
  features.decoded = decoded;
  return features;
}

// Whether an item sums dbias in memory of its own: where many of its rows or keys share an element.
bool sums_bias(const BackwardProblem& x) {
  return x.options.bias && (x.options.bias->strides()[2] == 0 || x.options.bias->strides()[3] == 0);
}

void list_items(const Problem& p, BackwardSchedule& s) {
  s.cut(p.sequences(), p.Hkv, [&](std::int64_t n) { return p.sequence(n).Tk; });
}

// One run of a schedule.
class BackwardRun {
 public:
  BackwardRun(BackwardProblem& x, const BackwardSchedule& s)
      : x_(x),
        p_(x.forward),
        s_(s),
        G_(p_.G()),
        scratch_(Tensor::uninitialized({s.workers * s.worker_bytes}, DType::u8)),
        own_sums_(Tensor::uninitialized(x.carried ? Dims{0} : Dims{p_.B, p_.H, p_.Tq, s.row_floats})),
        own_statistics_(Tensor::uninitialized(x.carried ? Dims{0} : Dims{p_.B, p_.H, p_.Tq, 3})),
        sums_(x.carried ? x.carried->dq : own_sums_.view()),
        statistics_(x.carried ? x.carried->statistics : own_statistics_.view()),
        bias_sums_(Tensor::uninitialized({s.workers, s.bias_floats})),
        distance_sums_(Tensor::uninitialized({s.workers, s.distance_sums}, DType::f64)),
        slopes_(x.options.alibi_slopes.empty() ? 0 : s.items.size() * static_cast<std::size_t>(G_)),
        progress_(s.items.size()) {
    if (x.options.bias) bias_steps_ = x.options.bias->strides();
    if (x.carried) begins_ = x.carried->step == CarriedGradients::Step::begin;
    if (x.carried) ends_ = x.carried->step == CarriedGradients::Step::end;
    summed_ = !x.carried && (s.sums_bytes > 0 || is_coarse(x.lse, kernels::coarse_lse));
    if (summed_) sum_rows(p_, statistics_);
  }

  void run() {
    if (begins_) x_.options.clear();
    parallel_items(std::ssize(s_.items), s_.workers, [&](int worker, std::int64_t item) { take(worker, item); });
    sum_slopes();
    if (ends_) sum_sinks();
  }

 private:
  void take(int worker, std::int64_t item) {
    const auto& [n, kv_head, stretch] = s_.items[static_cast<std::size_t>(item)];
    const Sequence sequence = p_.sequence(n);
    const kernels::BackwardGroup group = make_group(worker, item, sequence);
    void* scratch = static_cast<std::byte*>(scratch_.raw()) + worker * s_.worker_bytes;
    const bool first = stretch == 0, last = stretch + 1 == s_.count(n);
    std::atomic<std::int64_t>& done = progress(n, kv_head, stretch);
    const kernels::BackwardKernels& kernels = s_.target->backward;
    kernels::BackwardItem& at = kernels.begin(group, scratch);
    std::int64_t step = 0;
    // From the last rows on: with a window, what an item sees alone comes before what it shares with the one before it.
    for (std::int64_t tile = divide_up(sequence.Tq, kernels::backward_tile_rows) - 1; tile >= 0; --tile) {
      const std::int64_t begin = tile * kernels::backward_tile_rows;
      const std::int64_t end = std::min(begin + kernels::backward_tile_rows, sequence.Tq);
      wait_for_others(s_.items[static_cast<std::size_t>(item)], step + G_);
      for (std::int64_t head = 0; head < G_; ++head, ++step) {
        if (!first) wait(progress(n, kv_head, stretch - 1), step + 1);
        if (first && begins_) kernels.start_rows(at, head, begin, end);
        kernels.rows(at, head, begin, end);
        if (last && ends_ && s_.row_floats > 0) kernels.finish_rows(at, head, begin, end);
        publish(done, step + 1);
      }
    }
    kernels.end(at);
    if (s_.bias_floats == 0 && s_.distance_sums == 0) return;
    wait(sums_turn_, item);
    if (s_.bias_floats > 0) add_bias_sums(group, kv_head * G_, sequence);
    for (std::int64_t i = 0; i < s_.distance_sums; ++i) {
      x_.options.distance_bias[static_cast<std::size_t>(kv_head * s_.distance_sums + i)] += group.ddistance_bias[i];
    }
    publish(sums_turn_, item + 1);
  }

  // ---- Order ----

  // The sums of an element of dq, and of a dbias that heads or batch items share, are made in the order of the items:
  // so the bits do not depend on the threads. An item waits only for items that were taken before it.

  std::atomic<std::int64_t>& progress(std::int64_t n, std::int64_t kv_head, std::int64_t stretch) {
    return progress_[s_.place({n, kv_head, stretch})];
  }

  // For the heads and batch items before, where they add to the same elements of dbias.
  void wait_for_others(const BackwardSchedule::Item& item, std::int64_t steps) {
    if (!shares_bias() || (x_.carried && x_.carried->step != CarriedGradients::Step::piece)) return;
    if (item.head > 0) {
      wait(progress(item.sequence, item.head - 1, item.stretch), steps);
    } else if (item.sequence > 0 && p_.sequence(item.sequence - 1).b != p_.sequence(item.sequence).b) {
      wait(progress(item.sequence - 1, p_.Hkv - 1, item.stretch), steps);
    }
  }

  // Sequences that query_starts cut out share no element.
  bool shares_bias() const {
    return x_.options.bias && s_.bias_floats == 0 && (bias_steps_[0] == 0 || bias_steps_[1] == 0);
  }

  // ---- Memory ----

  kernels::BackwardGroup make_group(int worker, std::int64_t at, const Sequence& s) {
    const auto& [n, kv_head, stretch] = s_.items[static_cast<std::size_t>(at)];
    const std::int64_t h = kv_head * G_;
    kernels::BackwardGroup group;
    group.forward = p_.group(s, kv_head);
    group.forward.features = features(x_, takes_decode(p_, s));
    group.queries = p_.Tq;
    group.keys_begin = stretch * s_.keys;
    group.keys_end = std::min(group.keys_begin + s_.keys, s.Tk);
    group.out = operand_at(x_.out, s.b, h, s.query_start);
    group.lse = operand_at(x_.lse, s.b, h, s.query_start);
    group.dout = operand_at(x_.dout, s.b, h, s.query_start);
    if (x_.lse_low) group.lse_low = operand_at(*x_.lse_low, s.b, h, s.query_start);
    if (x_.dlse) group.dlse = operand_at(*x_.dlse, s.b, h, s.query_start);
    group.dk = rows(x_.dk, s.b, kv_head, s.key_start);
    group.dv = rows(x_.dv, s.b, kv_head, s.key_start);
    if (x_.carried) group.dk_sums = rows(x_.carried->dk, s.b, kv_head, s.key_start);
    if (x_.carried) group.dv_sums = rows(x_.carried->dv, s.b, kv_head, s.key_start);
    group.dq_out = operand_at(x_.dq, s.b, h, s.query_start);
    const MutableView sums = s_.row_floats > 0 ? sums_ : x_.dq;
    group.dq = static_cast<float*>(operand_at(sums, s.b, h, s.query_start).data);
    group.dq_head = sums.strides()[1], group.dq_row = sums.strides()[2];
    group.statistics = statistics_.data<float>() + ((s.b * p_.H + h) * p_.Tq + s.query_start) * 3;
    group.summed = summed_;
    if (s_.distance_sums > 0) {
      group.ddistance_bias = distance_sums_.data<double>() + worker * s_.distance_sums;
      std::fill_n(group.ddistance_bias, s_.distance_sums, 0.0);
    }
    if (!slopes_.empty()) group.dalibi_slopes = slopes_.data() + at * G_;
    if (x_.options.bias) place_bias(group, worker, s, h);
    return group;
  }

  // dbias itself, or the item's own sums.
  void place_bias(kernels::BackwardGroup& group, int worker, const Sequence& s, std::int64_t h) {
    group.dbias_row = bias_steps_[2] == 0 ? 0 : 1;
    group.dbias_column = bias_steps_[3] == 0 ? 0 : 1;
    if (s_.bias_floats == 0) {
      group.dbias = x_.options.bias->data<float>() + bias_place(s, h, 0, 0);
      group.dbias_head = bias_steps_[1], group.dbias_row = bias_steps_[2], group.dbias_column = bias_steps_[3];
      return;
    }
    group.dbias = bias_sums_.data<float>() + worker * s_.bias_floats;
    std::fill_n(group.dbias, s_.bias_floats, 0.0f);
    group.dbias_head = bias_steps_[1] == 0 ? 0 : s_.bias_floats / G_;
    group.dbias_key = group.keys_begin;
  }

  std::int64_t bias_place(const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return s.b * bias_steps_[0] + h * bias_steps_[1] + (s.query_start + i) * bias_steps_[2] +
           (s.key_start + j) * bias_steps_[3];
  }

  static kernels::MutableRows rows(const MutableView& x, std::int64_t b, std::int64_t h, std::int64_t row) {
    const auto [data, dtype, head, step, column] = operand_at(x, b, h, row);
    return {data, dtype, step, column};
  }

  // ---- Gradients of options ----

  void add_bias_sums(const kernels::BackwardGroup& group, std::int64_t h, const Sequence& s) {
    const std::int64_t heads = group.dbias_head == 0 ? 1 : G_;
    const std::int64_t rows = group.dbias_row == 0 ? 1 : s.Tq,
                       keys = group.dbias_column == 0 ? 1 : group.keys_end - group.keys_begin;
    for (std::int64_t g = 0; g < heads; ++g) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < keys; ++j) {
          x_.options.bias->data<float>()[bias_place(s, h + g, i, group.keys_begin + j)] +=
              group.dbias[g * group.dbias_head + i * group.dbias_row + j * group.dbias_column];
        }
      }
    }
  }

  void sum_slopes() {
    for (std::size_t at = 0; at < slopes_.size(); ++at) {
      const auto G = static_cast<std::size_t>(G_);
      x_.options.alibi_slopes[static_cast<std::size_t>(s_.items[at / G].head) * G + at % G] += slopes_[at];
    }
  }

  // A sink's weight in a row is e^(sink - lse), and no value stands behind it: its gradient is -weight * delta.
  void sum_sinks() {
    if (x_.options.sinks.empty()) return;
    // A function object of one pointer: a larger one would be allocated, and gradients are written by now.
    parallel_items(p_.H, std::min<int>(s_.workers, static_cast<int>(p_.H)),
                   [this](int, std::int64_t h) { sum_sink(h); });
  }

  void sum_sink(std::int64_t h) {
    const double sink = p_.sinks[static_cast<std::size_t>(h)] / std::log(2.0);  // in log2 units, as lse is here
    double sum = 0;
    for (std::int64_t b = 0; b < p_.B; ++b) {
      const float* row = statistics_.data<float>() + (b * p_.H + h) * p_.Tq * 3;
      for (std::int64_t i = 0; i < p_.Tq; ++i, row += 3) {
        sum -= kernels::sink_share(sink, {row[0], row[1]}) * static_cast<double>(row[2]);
      }
    }
    x_.options.sinks[static_cast<std::size_t>(h)] = sum;
  }

  BackwardProblem& x_;
  const Problem& p_;
  const BackwardSchedule& s_;
  std::int64_t G_;
  Tensor scratch_;
  Tensor own_sums_, own_statistics_;  // where nothing is carried on
  MutableView sums_;                  // of dq, where it is not f32 in whole vectors
  MutableView statistics_;            // [B,H,Tq,3]
  Tensor bias_sums_, distance_sums_;  // of each worker's item
  Dims bias_steps_;
  bool begins_ = true, ends_ = true;                 // whether no keys came before, and none come after
  bool summed_ = false;                              // statistics_ begin with the rows' sums
  std::vector<double> slopes_;                       // [items,G]
  std::vector<std::atomic<std::int64_t>> progress_;  // steps done, for each key head and stretch
  std::atomic<std::int64_t> sums_turn_{0};           // the item whose own sums are added next
};

// Of lists, and of the sums that options' gradients are made in.
std::int64_t list_bytes(const BackwardProblem& x, const BackwardSchedule& s) {
  return s.list_bytes() + std::ssize(x.options.distance_bias) * 8;
}

BackwardSchedule plain_schedule(const BackwardProblem& x) {
  BackwardSchedule s;
  s.path = Path::reference;
  s.keys = std::max<std::int64_t>(1, x.forward.Tk);
  list_items(x.forward, s);
  // The gradients of options are sums over heads and sequences, in one order.
  s.workers = x.options.any() ? 1 : static_cast<int>(std::clamp<std::int64_t>(std::ssize(s.items), 1, num_threads()));
  s.worker_bytes = reference_bytes(x.forward);
  s.scratch_bytes = s.workers * s.worker_bytes + list_bytes(x, s);
  return s;
}

}  // namespace

BackwardSchedule make_backward_schedule(const BackwardProblem& x) {
  const Problem& p = x.forward;
  BackwardSchedule s;
  if (p.q.dtype() == DType::f64) return plain_schedule(x);
  s.target = &kernels::target();
  s.keys = s.target->backward.keys(p.sizes());
  list_items(p, s);
  const double flops = 10.0 * static_cast<double>(p.B * p.H) * static_cast<double>(p.Tq) * static_cast<double>(p.Tk) *
                       static_cast<double>(p.D + p.Dv) / 2;
  s.workers =
      static_cast<int>(std::clamp<std::int64_t>(std::ssize(s.items), 1, flops < parallel_flops ? 1 : num_threads()));
  s.worker_bytes =
      divide_up(static_cast<std::int64_t>(s.target->backward.bytes(p.sizes(), features(x, decodes_some(p)))), 64) * 64;
  if (sums_bias(x)) {
    const Dims& steps = x.options.bias->strides();
    s.bias_floats = p.G() * (steps[2] == 0 ? 1 : p.Tq) * (steps[3] == 0 ? 1 : s.keys);
  }
  if (!x.options.distance_bias.empty()) s.distance_sums = std::ssize(x.options.distance_bias) / p.Hkv;
  const bool in_place =
      x.dq.dtype() == DType::f32 && is_aligned(x.dq) && x.dq.strides()[3] == 1 && p.D % s.target->lanes == 0;
  s.row_floats = in_place ? 0 : divide_up(p.D, s.target->lanes) * s.target->lanes;
  if (!x.lse_low) s.sums_bytes = sum_rows_bytes(p);
  const std::int64_t rows = p.B * p.H * p.Tq, slopes = x.options.alibi_slopes.empty() ? 0 : p.G();
  s.scratch_bytes = s.workers * (s.worker_bytes + 4 * s.bias_floats + 8 * s.distance_sums) + s.sums_bytes +
                    rows * (4 * s.row_floats + 12) + std::ssize(s.items) * (8 + 8 * slopes) + list_bytes(x, s);
  return s;
}

void run_backward(BackwardProblem& x, const BackwardSchedule& s) {
  if (s.path == Path::reference) return run_reference(x, s);
  BackwardRun(x, s).run();
}

}  // namespace attend::inline v1
