#include "layers/masks.h"

#include <algorithm>
#include <vector>

#include "attention/positions.h"
#include "core/axes.h"
#include "core/element.h"
#include "core/message.h"
#include "core/parallel.h"

namespace attend::inline v1 {

namespace {

// The sequence's own keys, and what the options say of them.
struct Own {
  Own(const MultiHeadAttentionCall& call, const View& q, const View& k, const View& v, std::int64_t appended)
      : options(call.attention), batched(q.rank() == 4), Tk(k.size(-2) - appended) {
    const View four = with_four_axes(q);
    B = four.size(0), H = four.size(1), Tq = four.size(2);
    rules = check_positions("MultiHeadAttention", q, k.slice(-2, 0, Tk), v.slice(-2, 0, Tk), options);
  }

  // The key that query i is level with.
  std::int64_t level(std::int64_t b, std::int64_t i) const { return i + rules[static_cast<std::size_t>(b)].offset; }

  const AttentionOptions& options;
  bool batched;
  std::int64_t B = 1, H = 1, Tq = 1, Tk;
  std::vector<kernels::Rules> rules;  // [B]
};

// A bool mask over the caller's keys; its axes broadcast to [B,H,Tq,Tk].
struct Condition {
  View mask;
  bool visible_where;  // the value that means "may attend"
};

struct Masks {
  std::vector<Condition> conditions;
  std::vector<View> biases;

  void add(const char* name, const View& mask) {
    if (mask.dtype() == DType::boolean) {
      conditions.push_back({mask, false});
    } else if (is_floating(mask.dtype())) {
      biases.push_back(mask);
    } else {
      fail(ErrorCode::bad_dtype, "MultiHeadAttention",
           "{} is {}, expected bool (true = may not attend) or floating point (added to the scores)", name,
           mask.dtype());
    }
  }
};

// [B,Tk] (or [Tk] without a batch) -> [B,1,1,Tk]
View key_padding_of(const View& mask, const Own& p) {
  const Dims expected = p.batched ? Dims{p.B, p.Tk} : Dims{p.Tk};
  if (mask.shape() != expected) {
    fail(ErrorCode::bad_shape, "MultiHeadAttention", "key_padding_mask has shape {}, expected {} = {}", mask.shape(),
         p.batched ? "[B,Tk]" : "[Tk]", expected);
  }
  const View four = with_four_axes(mask);
  return p.batched ? four.permute({2, 0, 1, 3}) : four;
}

// [Tq,Tk] -> [1,1,Tq,Tk]; [B*heads,Tq,Tk] -> [B,heads,Tq,Tk]
View attn_mask_of(const View& mask, const Own& p) {
  if (mask.shape() == Dims{p.Tq, p.Tk}) return with_four_axes(mask);
  if (mask.shape() != Dims{p.B * p.H, p.Tq, p.Tk}) {
    fail(ErrorCode::bad_shape, "MultiHeadAttention",
         "attn_mask has shape {}, expected [Tq,Tk] = {} or [B*heads,Tq,Tk] = {}", mask.shape(), Dims{p.Tq, p.Tk},
         Dims{p.B * p.H, p.Tq, p.Tk});
  }
  const Dims& strides = mask.strides();
  return View(mask.raw(), mask.dtype(), {p.B, p.H, p.Tq, p.Tk}, {strides[0] * p.H, strides[0], strides[1], strides[2]});
}

// body(b, h, i) for each row of a tensor [B,H,Tq,Tk'], in any order.
template <class Body>
void for_each_row(const Dims& shape, Body body) {
  constexpr std::int64_t keys_per_range = 1 << 14;
  const std::int64_t grain = keys_per_range / (shape[3] + 1) + 1;
  parallel_for(shape[0] * shape[1] * shape[2], grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      body(row / shape[2] / shape[1], row / shape[2] % shape[1], row % shape[2]);
    }
  });
}

// One row of a broadcast mask or bias.
class RowOf {
 public:
  RowOf(const View& x, std::int64_t b, std::int64_t h, std::int64_t i)
      : dtype_(x.dtype()), step_(x.strides()[3] * size_of(dtype_)) {
    const Dims& strides = x.strides();
    start_ = element_at(x.raw(), dtype_, b * strides[0] + h * strides[1] + i * strides[2]);
  }
  double operator[](std::int64_t j) const { return load_element(dtype_, start_ + j * step_); }

 private:
  DType dtype_;
  std::int64_t step_;
  const std::byte* start_;
};

// The axes B, H and Tq; how many keys there are is known.
void widen(Dims& shape, const Dims& other) {
  for (int axis = 0; axis < 3; ++axis) {
    if (other[axis] != 1) shape[axis] = other[axis];
  }
}

// The conditions, and the reach of each query where `positional` is given, as one mask [.,.,.,Tk + appended].
Tensor make_mask(const std::vector<Condition>& conditions, const Own* positional, Dims shape, std::int64_t keys) {
  for (const Condition& condition : conditions) widen(shape, condition.mask.shape());
  const Dims theirs{shape[0], shape[1], shape[2], keys};
  std::vector<Condition> broadcast;
  broadcast.reserve(conditions.size());
  for (const Condition& c : conditions) broadcast.push_back({c.mask.broadcast_to(theirs), c.visible_where});
  Tensor out = Tensor::uninitialized(shape, DType::boolean);
  for_each_row(shape, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    bool* row = out.data<bool>() + ((b * shape[1] + h) * shape[2] + i) * shape[3];
    std::fill(row, row + shape[3], true);
    for (const Condition& condition : broadcast) {
      const RowOf mask(condition.mask, b, h, i);
      for (std::int64_t j = 0; j < keys; ++j) row[j] &= (mask[j] != 0) == condition.visible_where;
    }
    if (!positional) return;
    const auto [first, last] = kernels::visible_keys(positional->rules[static_cast<std::size_t>(b)], i);
    for (std::int64_t j = 0; j < keys; ++j) row[j] &= j >= first && j < last;
  });
  return out;
}

// The sum of the biases, and of distance_bias and ALiBi where `positional` is given, as one bias [.,.,.,Tk + appended],
// f32.
Tensor make_bias(const std::vector<View>& biases, const Own* positional, Dims shape, std::int64_t keys) {
  for (const View& bias : biases) widen(shape, bias.shape());
  const Dims theirs{shape[0], shape[1], shape[2], keys};
  std::vector<View> broadcast;
  broadcast.reserve(biases.size());
  for (const View& bias : biases) broadcast.push_back(bias.broadcast_to(theirs));
  Tensor out(shape);
  for_each_row(shape, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    float* row = out.data<float>() + ((b * shape[1] + h) * shape[2] + i) * shape[3];
    for (const View& bias : broadcast) {
      const RowOf added(bias, b, h, i);
      for (std::int64_t j = 0; j < keys; ++j) row[j] = static_cast<float>(row[j] + added[j]);
    }
    if (!positional) return;
    const std::optional<View>&table = positional->options.distance_bias, &slopes = positional->options.alibi_slopes;
    const double slope = slopes ? slopes->item({h}) : 0;
    const std::int64_t level = positional->level(b, i);
    for (std::int64_t j = 0; j < keys; ++j) {
      const double added = table ? table->item({h, kernels::distance_entry(level, j, table->size(1) / 2)}) : 0;
      row[j] = static_cast<float>(row[j] + added - slope * static_cast<double>(std::abs(level - j)));
    }
  });
  return out;
}

// The gradient of a mask or bias whose four axes are `four`: the sum of dbias over the axes where that has 1, and over
// its own keys alone.
Tensor reduce(const View& dbias, std::int64_t keys, const View& four, const View& mask) {
  const Dims &shape = dbias.shape(), &to = four.shape();
  Tensor sums(to, DType::f64);
  const auto place = [&](int axis, std::int64_t i) { return to[axis] == 1 ? 0 : i; };
  for (std::int64_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
    const std::int64_t b = row / shape[2] / shape[1], h = row / shape[2] % shape[1], i = row % shape[2];
    double* sum = sums.data<double>() + ((place(0, b) * to[1] + place(1, h)) * to[2] + place(2, i)) * to[3];
    const RowOf from(dbias, b, h, i);
    for (std::int64_t j = 0; j < std::min(keys, shape[3]); ++j) sum[place(3, j)] += from[j];
  }
  return sums.view().reshape(mask.shape()).to(mask.dtype());
}

// The gradient of an option `of` [H,...] that was written into a bias by the places of a query and a key: add(the sums
// of its head, level, j, the bias's gradient there).
template <class Add>
Tensor reduce_positions(const View& dbias, const Own& p, const View& of, Add add) {
  const Dims& shape = dbias.shape();
  Tensor sums(of.shape(), DType::f64);
  for (std::int64_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
    const std::int64_t b = row / shape[2] / shape[1], h = row / shape[2] % shape[1], i = row % shape[2];
    const RowOf from(dbias, b, h, i);
    double* sum = sums.data<double>() + h * (of.count() / p.H);
    for (std::int64_t j = 0; j < p.Tk; ++j) add(sum, p.level(b, i), j, from[j]);
  }
  return sums.view().to(of.dtype());
}

// For the keys of the caller, these are written into the mask and the bias; appended keys have no position.
void drop_positions(AttentionOptions& options) {
  options.causal = false;
  options.window = {};
  options.offset.reset();
  options.key_lengths.reset();
  for (const TensorOption& option : tensor_options())
    if (option.positional) (options.*option.value).reset();
}

}  // namespace

JoinedOptions join_masks(const MultiHeadAttentionCall& call, const View& q, const View& k, const View& v,
                         std::int64_t appended) {
  const Own own(call, q, k, v, appended);
  const std::int64_t keys = own.Tk;
  Masks masks;
  if (call.key_padding_mask) masks.add("key_padding_mask", key_padding_of(*call.key_padding_mask, own));
  if (call.attn_mask) masks.add("attn_mask", attn_mask_of(*call.attn_mask, own));
  JoinedOptions joined{call.attention, {}, {}};
  if (masks.conditions.empty() && masks.biases.empty() && appended == 0) return joined;

  AttentionOptions& options = joined.options;
  const Window window = visible_window(options);
  const bool ranged = window.left >= 0 || window.right >= 0;
  const bool limited = appended > 0 && (ranged || options.key_lengths);
  bool by_distance = false;
  for (const TensorOption& option : tensor_options())
    by_distance |= appended > 0 && option.positional && options.*option.value;
  const bool new_mask = limited || !masks.conditions.empty() || (appended > 0 && options.mask);
  if (options.mask) masks.conditions.push_back({with_four_axes(*options.mask), true});
  if (options.bias) masks.biases.push_back(with_four_axes(*options.bias));
  if (appended > 0) drop_positions(options);

  const std::int64_t B = call.attention.key_lengths ? own.B : std::min<std::int64_t>(own.B, 1);
  const std::int64_t width = keys + appended;
  if (new_mask) {
    const Dims shape = limited ? Dims{B, 1, ranged ? own.Tq : 1, width} : Dims{1, 1, 1, width};
    options.mask = joined.mask.emplace(make_mask(masks.conditions, limited ? &own : nullptr, shape, keys));
  }
  if (appended == 0 && masks.biases.size() == 1) {
    options.bias = masks.biases[0];
  } else if (by_distance || !masks.biases.empty()) {
    const Dims shape = by_distance ? Dims{B, own.H, own.Tq, width} : Dims{1, 1, 1, width};
    options.bias = joined.bias.emplace(make_bias(masks.biases, by_distance ? &own : nullptr, shape, keys));
  }
  return joined;
}

void split_bias(const View& gradient, const MultiHeadAttentionCall& call, const View& q, const View& k, const View& v,
                std::int64_t appended, const MultiHeadAttentionBackward& wanted, MultiHeadAttentionGradients& to) {
  const View dbias = with_four_axes(gradient);
  const Own own(call, q, k, v, appended);
  if (wanted.key_padding_mask) {
    to.dkey_padding_mask = reduce(dbias, own.Tk, key_padding_of(*call.key_padding_mask, own), *call.key_padding_mask);
  }
  if (wanted.attn_mask) to.dattn_mask = reduce(dbias, own.Tk, attn_mask_of(*call.attn_mask, own), *call.attn_mask);
  if (wanted.attention.dbias)
    to.dbias = reduce(dbias, own.Tk, with_four_axes(*call.attention.bias), *call.attention.bias);
  if (wanted.attention.ddistance_bias && appended > 0) {
    const View& table = *call.attention.distance_bias;
    to.ddistance_bias = reduce_positions(dbias, own, table, [&](double* sum, auto level, auto j, double each) {
      sum[kernels::distance_entry(level, j, table.size(1) / 2)] += each;
    });
  }
  if (wanted.attention.dalibi_slopes && appended > 0) {
    const View& slopes = *call.attention.alibi_slopes;
    to.dalibi_slopes = reduce_positions(dbias, own, slopes, [](double* sum, auto level, auto j, double each) {
      *sum -= each * static_cast<double>(std::abs(level - j));
    });
  }
}

}  // namespace attend::inline v1
