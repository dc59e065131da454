// attention() and what belongs to it, of any shapes, layouts, dtypes and options: what is refused is refused by the
// plan too, and what is computed into the caller's memory is the same.
#include "tests/fuzz/tensors.h"

using namespace attend;

namespace {

struct Call {
  fuzz::Operand q, k, v;
  fuzz::Options options;
};

Call make_call(fuzz::Input& input) {
  const fuzz::Sizes s = fuzz::make_sizes(input);
  const DType dtype = fuzz::make_dtype(input);
  // 4 axes mostly; what is left out is 1 then.
  constexpr int ranks[] = {4, 4, 4, 4, 4, 3, 2, 1};
  const auto first = static_cast<std::size_t>(4 - input.one_of(ranks));
  const auto operand = [&](std::initializer_list<std::int64_t> shape) {
    return fuzz::make_operand(input, Dims(std::span(shape).subspan(first)),
                              input.one_in(64) ? fuzz::make_dtype(input) : dtype);
  };
  Call x;
  x.q = operand({s.B, s.H, s.Tq, s.D});
  x.k = operand({s.B, s.Hkv, s.Tk, s.D});
  x.v = operand({s.B, s.Hkv, s.Tk, s.Dv});
  x.options = fuzz::make_options(input, s);
  return x;
}

void compute_into(fuzz::Input& input, const Call& x, const AttentionResult& result) {
  const fuzz::Operand out = fuzz::make_operand(input, result.out.shape(), result.out.dtype());
  const fuzz::Operand lse = fuzz::make_operand(input, result.lse.shape(), result.lse.dtype());
  const auto call = [&] { attention_into(out.view, lse.view, x.q.view, x.k.view, x.v.view, x.options.values); };
  if (fuzz::error_of(call)) return;
  fuzz::require(fuzz::same(out.view, result.out) && fuzz::same(lse.view, result.lse), "it depends on where it goes");
}

void differentiate(fuzz::Input& input, const Call& x, const AttentionResult& result) {
  const AttentionOptions& options = x.options.values;
  const fuzz::Operand dout = fuzz::make_operand(input, result.out.shape(), result.out.dtype());
  const fuzz::Operand dlse = fuzz::make_operand(input, result.lse.shape(), result.lse.dtype());
  BackwardOptions wanted;
  if (input.flag()) wanted.dlse = dlse.view;
  for (const TensorOption& option : tensor_options())
    if (option.wanted) wanted.*option.wanted = (options.*option.value).has_value() != input.one_in(64);
  const auto backward = fuzz::error_of(
      [&] { attention_backward(dout.view, x.q.view, x.k.view, x.v.view, result.out, result.lse, options, wanted); });
  if (backward || dout.view.shape() != result.out.shape() || dlse.view.shape() != result.lse.shape()) return;
  const auto said = fuzz::error_of(
      [&] { plan_backward(x.q.view.shape(), x.k.view.shape(), x.v.view.shape(), x.q.view.dtype(), options, wanted); });
  fuzz::require(!said, "the plan refuses what is computed");
}

// What attention() takes, it can be asked about: the whole, and any part.
void summarize(fuzz::Input& input, const Call& x, const AttentionResult& result) {
  const View q = x.q.view, k = x.k.view;
  const AttentionOptions& options = x.options.values;
  SummaryOptions wanted{.top = input.byte() % 20};
  if (input.flag()) wanted.map = MapSize{1 + input.byte() % 20, 1 + input.byte() % 20};
  const bool has_lse = input.flag();
  const std::optional<View> lse = has_lse ? std::optional(result.lse.view()) : std::nullopt;
  AttentionSummary summary;
  fuzz::require(!fuzz::error_of([&] { summary = attention_summary(q, k, lse, options, wanted); }),
                "a summary refuses what is computed");
  fuzz::require(!fuzz::error_of([&] { plan_summary(q.shape(), k.shape(), q.dtype(), options, wanted, has_lse); }),
                "the plan refuses what is summarized");
  const auto part = [&](std::int64_t size) {
    const std::int64_t begin = input.byte() % (size + 1);
    return Range{begin, begin + input.byte() % (size - begin + 1)};
  };
  const WeightsOptions some{{}, part(q.size(-2)), part(k.size(-2))};
  const Tensor weights = attention_weights(q, k, lse, options, some);
  const Tensor whole = attention_weights(q, k, lse, options);
  fuzz::require(fuzz::same(weights, whole.view()
                                        .slice(-2, some.queries->begin, some.queries->end)
                                        .slice(-1, some.keys->begin, some.keys->end)
                                        .clone()),
                "a part differs from the whole");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t kind = input.byte() % 4;
  const Call x = make_call(input);
  const View q = x.q.view, k = x.k.view, v = x.v.view;
  const AttentionOptions& options = x.options.values;
  AttentionResult result;
  const auto refused = fuzz::error_of([&] { result = attention(q, k, v, options); });
  const auto said = fuzz::error_of([&] { plan(q.shape(), k.shape(), v.shape(), q.dtype(), options); });
  // The plan knows one dtype, that of q.
  const bool alike = q.dtype() == k.dtype() && q.dtype() == v.dtype();
  fuzz::require(!alike || refused == said, "the plan does not say what is done");
  if (kind == 3) fuzz::require(fuzz::error_of([&] { attention_steps(q, k, v, options); }) == refused, "steps differ");
  if (refused) return 0;
  if (kind == 0) compute_into(input, x, result);
  if (kind == 1) differentiate(input, x, result);
  if (kind == 2) merge(result.out, result.lse, result.out, result.lse), summarize(input, x, result);
  return 0;
}
