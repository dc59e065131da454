#include "models/gguf/quantize_k.h"

#include <limits>

#include "core/element.h"
#include "models/gguf/fit.h"

namespace attend::inline v1::models {

namespace {

// Of a sub-block: a number is shared scale * scale * code - shared less * less.
struct FormOfK {
  Coding coding;
  float low, high;  // of `scale`; of `less`: 0 to high
};

// In units of the block.
struct Shared {
  float scale = 0, less = 0;
};

template <std::size_t Count>
struct SubBlocks {
  static constexpr std::size_t groups = k_block / Count / lanes;

  Numbers<Count> numbers[groups];
  Line lines[groups];  // the best of each by itself
};

// Whole numbers, and what they leave.
template <std::size_t Count>
struct Scales {
  Four scale[SubBlocks<Count>::groups], less[SubBlocks<Count>::groups];
  double error = std::numeric_limits<double>::infinity();
  Shared shared, next;  // next: what fits the codes better than `shared`, by which they were found
};

// Sums over the whole block: what is shared follows from them by least squares.
struct SharedSums {
  double scale2 = 0, both = 0, less2 = 0, scale_x = 0, less_x = 0;

  template <std::size_t Count>
  void add(const Numbers<Count>& of, const CodeSums& sums, Four scale, Four less) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const double s = scale[lane], l = less[lane];
      scale2 += s * s * sums.squares[lane];
      both += s * l * sums.code[lane];
      less2 += l * l * of.weights[lane];
      scale_x += s * sums.of_x[lane];
      less_x += l * of.of_x[lane];
    }
  }
  Shared best(const Shared& otherwise) const {
    const double by = scale2 * less2 - both * both;
    if (by > 0)
      return {static_cast<float>((less2 * scale_x - both * less_x) / by),
              static_cast<float>((both * scale_x - scale2 * less_x) / by)};
    return scale2 > 0 ? Shared{static_cast<float>(scale_x / scale2), 0} : otherwise;
  }
};

// Of four sub-blocks: of the whole numbers nearest to their own line, and those beside, what leaves the least error.
template <std::size_t Count>
Four round_group(const FormOfK& form, const Numbers<Count>& of, const Line& line, const Shared& shared, Four& scale,
                 Four& less, SharedSums& total) {
  const Four near_scale = rounded(line.scale * inverse(all(shared.scale))),
             near_less = rounded(-line.added * inverse(all(shared.less)));
  CodeSums best{all(0), all(0), all(0), all(INFINITY)};
  for (const float i : {0.0F, -1.0F, 1.0F}) {
    for (const float j : {0.0F, -1.0F, 1.0F}) {
      if (j != 0 && !form.coding.adds) continue;
      const Four s = larger(all(form.low), smaller(all(form.high), near_scale + all(i))),
                 l = larger(all(0), smaller(all(form.high), near_less + all(j)));
      const Line tried{s * all(shared.scale), -l * all(shared.less)};
      const CodeSums sums = sums_of(of, tried, form.coding);
      const auto better = sums.error < best.error;
      scale = better ? s : scale;
      less = better ? l : less;
      best = {better ? sums.code : best.code, better ? sums.squares : best.squares, better ? sums.of_x : best.of_x,
              better ? sums.error : best.error};
    }
  }
  total.add(of, best, scale, less);
  return best.error;
}

template <std::size_t Count>
Scales<Count> round_scales(const FormOfK& form, const SubBlocks<Count>& of, const Shared& shared) {
  Scales<Count> made;
  SharedSums total;
  made.error = 0, made.shared = shared;
  for (std::size_t group = 0; group < of.groups; ++group) {
    const Four left =
        round_group(form, of.numbers[group], of.lines[group], shared, made.scale[group], made.less[group], total);
    for (std::size_t lane = 0; lane < lanes; ++lane) made.error += left[lane];
  }
  made.next = total.best(shared);
  return made;
}

// What the largest of the sub-blocks' own scales needs.
template <std::size_t Count>
Shared first_shared(const FormOfK& form, const SubBlocks<Count>& of) {
  float largest = 0, less = 0;
  for (const Line& line : of.lines) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      if (std::fabs(line.scale[lane]) > std::fabs(largest)) largest = line.scale[lane];
      less = std::max(less, -line.added[lane]);
    }
  }
  return {largest / (form.low < 0 ? form.low : form.high), less / form.high};
}

// A block as its bytes say it: codes from 0 on.
struct CodedBlock {
  std::uint16_t scale = 0, less = 0;               // f16, shared
  std::int8_t scales[16] = {}, all_less[16] = {};  // of the sub-blocks
  std::uint8_t codes[k_block] = {};
};

template <std::size_t Count>
void fill_codes(const FormOfK& form, const SubBlocks<Count>& of, const Scales<Count>& scales, CodedBlock& to) {
  for (std::size_t group = 0; group < of.groups; ++group) {
    const Line line{scales.scale[group] * all(scales.shared.scale), -scales.less[group] * all(scales.shared.less)};
    const Four by = inverse(line.scale);
    for (std::size_t n = 0; n < Count; ++n) {
      const Four codes = code_of(of.numbers[group].x[n], line, by, form.coding) - all(form.coding.low);
      for (std::size_t lane = 0; lane < lanes; ++lane)
        to.codes[(group * lanes + lane) * Count + n] = static_cast<std::uint8_t>(codes[lane]);
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      to.scales[group * lanes + lane] = static_cast<std::int8_t>(scales.scale[group][lane]);
      to.all_less[group * lanes + lane] = static_cast<std::int8_t>(scales.less[group][lane]);
    }
  }
}

template <std::size_t Count>
CodedBlock code_block(const FormOfK& form, const float* block) {
  constexpr int rounds = 3;  // a fourth wins 0.1 % of the error
  CodedBlock made;
  const float unit = unit_of(block, k_block);
  if (unit == 0) return made;
  SubBlocks<Count> of;
  for (std::size_t group = 0; group < of.groups; ++group) {
    for (std::size_t lane = 0; lane < lanes; ++lane)
      of.numbers[group].set(lane, block + (group * lanes + lane) * Count, 1 / unit, form.coding);
    of.numbers[group].sum_up();
    of.lines[group] = find_line(of.numbers[group], form.coding);
  }
  Scales<Count> best;
  Shared shared = first_shared(form, of);
  for (int round = 0; round < rounds; ++round) {
    const Scales<Count> found = round_scales(form, of, {as_half(shared.scale, unit), as_half(shared.less, unit)});
    if (found.error < best.error) best = found;
    shared = found.next;
  }
  made.scale = half_in_file(best.shared.scale, unit), made.less = half_in_file(best.shared.less, unit);
  fill_codes(form, of, best, made);
  return made;
}

// Eight scales and eight numbers that are taken off, of 6 bits each, in 12 bytes: the first four of both in the lower
// bits, and above them two bits each of the last four, whose other four bits stand in the last bytes.
void store_scales(const CodedBlock& of, std::byte* to) {
  store(to, of.scale), store(to + 2, of.less);
  for (int n = 0; n < 4; ++n) {
    const int scale = static_cast<std::uint8_t>(of.scales[4 + n]), less = static_cast<std::uint8_t>(of.all_less[4 + n]);
    to[4 + n] = static_cast<std::byte>(of.scales[n] | scale >> 4 << 6);
    to[8 + n] = static_cast<std::byte>(of.all_less[n] | less >> 4 << 6);
    to[12 + n] = static_cast<std::byte>((scale & 15) | (less & 15) << 4);
  }
}

// The lower four bits of each code: two sub-blocks of 32 share 32 bytes.
void store_lower(const CodedBlock& of, std::byte* to) {
  for (int pair = 0; pair < 4; ++pair)
    for (int n = 0; n < 32; ++n) {
      const std::uint8_t* codes = of.codes + 64 * pair + n;
      to[32 * pair + n] = static_cast<std::byte>((codes[0] & 15) | (codes[32] & 15) << 4);
    }
}

}  // namespace

void quantize_q4_k(const float* block, std::byte* to) {
  const CodedBlock made = code_block<32>(
      {.coding = {.low = 0, .high = 15, .adds = true, .adds_above_0 = false}, .low = 0, .high = 63}, block);
  store_scales(made, to);
  store_lower(made, to + 16);
}

// The fifth bits of the eight sub-blocks share 32 bytes.
void quantize_q5_k(const float* block, std::byte* to) {
  const CodedBlock made = code_block<32>(
      {.coding = {.low = 0, .high = 31, .adds = true, .adds_above_0 = false}, .low = 0, .high = 63}, block);
  store_scales(made, to);
  for (int n = 0; n < 32; ++n) {
    int bits = 0;
    for (int sub = 0; sub < 8; ++sub) bits |= made.codes[32 * sub + n] >> 4 << sub;
    to[16 + n] = static_cast<std::byte>(bits);
  }
  store_lower(made, to + 48);
}

// Each half: 64 bytes with the lower four bits of numbers 0 to 63, and above them those of 64 to 127; 32 bytes with two
// more bits of each, those of numbers 32 apart beside each other.
void quantize_q6_k(const float* block, std::byte* to) {
  const CodedBlock made =
      code_block<16>({.coding = {.low = -32, .high = 31, .by_square = true}, .low = -128, .high = 127}, block);
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t* codes = made.codes + 128 * half;
    for (int n = 0; n < 64; ++n)
      to[64 * half + n] = static_cast<std::byte>((codes[n] & 15) | (codes[64 + n] & 15) << 4);
    for (int n = 0; n < 32; ++n)
      to[128 + 32 * half + n] = static_cast<std::byte>(codes[n] >> 4 | codes[32 + n] >> 4 << 2 |
                                                       codes[64 + n] >> 4 << 4 | codes[96 + n] >> 4 << 6);
  }
  for (int n = 0; n < 16; ++n) to[192 + n] = static_cast<std::byte>(made.scales[n]);
  store(to + 208, made.scale);
}

}  // namespace attend::inline v1::models
