#include "models/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/bit_cast.h"
#include "core/message.h"

namespace attend::inline v1::models {

namespace {

constexpr const char* logits_function = "Model.generate";

using Ids = std::span<const std::int64_t>;

constexpr float never = -std::numeric_limits<float>::infinity();

class Logits {
 public:
  Logits(const LogitsOf& of, std::span<float> logits) : of_(of), logits_(logits) {}

  void process() {
    const Settings& x = of_.settings;
    for (const auto& [ids, bias] : x.sequence_bias) add_after(ids, static_cast<float>(bias));
    if (x.repetition_penalty != 1) penalize(static_cast<float>(x.repetition_penalty));
    if (x.no_repeat_ngram_size > 0) forbid_repeated(x.no_repeat_ngram_size);
    for (const std::vector<std::int64_t>& ids : x.bad_words_ids)
      if (ids.size() > 1 || std::ranges::find(of_.ends, ids[0]) == of_.ends.end()) add_after(ids, never);
    if (length() < x.min_length || of_.written < x.min_new_tokens) forbid(of_.ends);
    forbid(x.suppress_tokens);
    if (of_.written == (length() - of_.written > 1 || x.forced_bos_token_id < 0 ? 0 : 1))
      forbid(x.begin_suppress_tokens);
    if (x.forced_bos_token_id >= 0 && length() == 1) force(x.forced_bos_token_id);
    if (x.forced_eos_token_id >= 0 && of_.written + 1 == of_.max_new_tokens) force(x.forced_eos_token_id);
  }

 private:
  std::int64_t length() const { return std::ssize(of_.text); }
  bool is_token(std::int64_t id) const { return id >= 0 && id < std::ssize(logits_); }
  float& of(std::int64_t id) { return logits_[static_cast<std::size_t>(id)]; }

  // To the last id, where the others end the text.
  void add_after(Ids ids, float bias) {
    const std::size_t before = ids.size() - 1;
    if (before > of_.text.size() || !is_token(ids.back())) return;
    if (std::ranges::equal(ids.first(before), of_.text.last(before))) of(ids.back()) += bias;
  }

  // Each token of the text once, however often it has it.
  void penalize(float penalty) {
    std::vector<bool> seen(logits_.size());
    for (const std::int64_t id : of_.text) {
      if (!is_token(id) || seen[static_cast<std::size_t>(id)]) continue;
      seen[static_cast<std::size_t>(id)] = true;
      of(id) = of(id) < 0 ? of(id) * penalty : of(id) / penalty;
    }
  }

  // What came after the text's last size - 1 tokens before.
  void forbid_repeated(std::int64_t size) {
    if (length() < size) return;
    const Ids text = of_.text, end = text.last(static_cast<std::size_t>(size - 1));
    for (std::size_t n = 0; n + end.size() < text.size(); ++n) {
      const std::int64_t next = text[n + end.size()];
      if (is_token(next) && std::ranges::equal(text.subspan(n, end.size()), end)) of(next) = never;
    }
  }

  void forbid(Ids ids) {
    for (const std::int64_t id : ids)
      if (is_token(id)) of(id) = never;
  }
  void force(std::int64_t id) {
    std::fill(logits_.begin(), logits_.end(), never);
    of(id) = 0;
  }

  const LogitsOf& of_;
  std::span<float> logits_;
};

constexpr std::size_t lanes = 4;
using Floats [[gnu::vector_size(16)]] = float;
using Wholes [[gnu::vector_size(16)]] = std::int32_t;

Floats all_of(float x) {
  return Floats{} + x;
}

// e^x for x <= 0: 2^(x log2 e), of which the fraction's power is a polynomial fitted on [-1/2, 1/2] to 1e-8. Below -87,
// where f32 has no normal number, 0. (Of one number at a time it takes four times as long: compilers leave the loop as
// it is.)
Floats exp_below_zero(Floats x) {
  const Floats least = all_of(-87.0f), rounds = all_of(12582912.0f);  // 3 2^22: a sum with it has no fraction
  const Floats power = (x > least ? x : least) * 1.44269504f;
  const Floats shifted = power + rounds, f = power - (shifted - rounds);
  Floats p = f * 1.5337577e-4f + 1.339986e-3f;
  p = p * f + 9.61852e-3f;
  p = p * f + 5.5503290e-2f;
  p = p * f + 2.4022646e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  const Wholes scaled = bit_cast<Wholes>(p) + (bit_cast<Wholes>(shifted) << 23);
  return x > least ? bit_cast<Floats>(scaled) : Floats{};
}

// The first `count` numbers, -infinity beyond.
Floats load(const float* x, std::size_t count) {
  Floats all = all_of(never);
  if (count >= lanes)
    __builtin_memcpy(&all, x, sizeof(all));
  else
    for (std::size_t i = 0; i < count; ++i) all[i] = x[i];
  return all;
}

}  // namespace

float largest_logit(std::span<const float> logits) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Floats largest = all_of(never);
  Wholes numbers = Wholes{} - 1;
  for (std::size_t n = 0; n < logits.size(); n += lanes) {
    const Floats x = load(logits.data() + n, logits.size() - n);
    numbers &= x < all_of(infinity);
    largest = x > largest ? x : largest;
  }
  float found = never;
  bool right = true;
  for (std::size_t i = 0; i < lanes; ++i) found = std::max(found, largest[i]), right = right && numbers[i] != 0;
  if (!right) {
    const auto wrong = std::find_if(logits.begin(), logits.end(), [](float x) { return !(x < infinity); });
    fail(ErrorCode::bad_value, logits_function, "the logit of token {} is {}: check the weights for NaN and infinity",
         wrong - logits.begin(), *wrong);
  }
  if (found == never) fail(ErrorCode::bad_value, logits_function, "no token may come: every logit is -inf");
  return found;
}

double sum_of_shares(std::span<const float> logits, float largest, double scale) {
  constexpr std::size_t piece = 64 * lanes;  // f32 sums of so many are exact enough
  const auto factor = static_cast<float>(scale);
  double sum = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += piece) {
    Floats sums{};
    for (std::size_t n = begin; n < std::min(begin + piece, logits.size()); n += lanes)
      sums += exp_below_zero((load(logits.data() + n, logits.size() - n) - largest) * factor);
    for (std::size_t i = 0; i < lanes; ++i) sum += static_cast<double>(sums[i]);
  }
  return sum;
}

void to_log_probabilities(std::span<float> logits) {
  const float largest = largest_logit(logits);
  const auto log_sum = static_cast<float>(std::log(sum_of_shares(logits, largest, 1)));
  for (float& x : logits) x = (x - largest) - log_sum;
}

void process_logits(const LogitsOf& of, std::span<float> logits) {
  Logits(of, logits).process();
}

}  // namespace attend::inline v1::models
