// attention_into(): results in memory of the caller; and bad input, which leaves that memory as it was.
#include <cstring>

#include "tests/attention/call.h"

namespace attend {
namespace {

using namespace test;

// Memory for one result with bytes of its own before, between and behind.
struct Memory {
  std::vector<char> bytes = std::vector<char>(1 << 16, 'x');
  bool untouched() const {
    return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 'x'; });
  }
};

TEST(AttentionInto, WritesTheSameBitsIntoAnyLayoutAndNothingElse) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Call x = make_call({2, 4, 2, 13, 70, 9, 11}, with_mask | with_sinks, dtype, 1);
    const AttentionResult expected = x.run();
    const DType lse_dtype = expected.lse.dtype();
    const Dims out_strides[] = {{4 * 13 * 11, 13 * 11, 11, 1},
                                {4 * 13 * 11, 11, 4 * 11, 1},  // [B,T,H,D]
                                {4 * 13 * 25, 13 * 25, 25, 2},
                                {1, 2, 8, 8 * 13},  // [D,T,H,B]
                                {-4 * 13 * 11, -13 * 11, -11, -1}};
    const Dims lse_strides[] = {{4 * 13, 13, 1}, {4 * 13, 1, 4}, {4 * 30, 30, 2}, {1, 26, 2}, {-4 * 13, -13, -1}};
    for (int i = 0; i < 5; ++i) {
      for (const bool wants_lse : {true, false}) {
        Memory a, b, clean;
        // The middle, and no address that is aligned.
        const MutableView out(a.bytes.data() + 30'001, dtype, {2, 4, 13, 11}, out_strides[i]);
        const MutableView lse(b.bytes.data() + 30'001, lse_dtype, {2, 4, 13}, lse_strides[i]);
        attention_into(out, wants_lse ? std::optional(lse) : std::nullopt, x.Q, x.K, x.V, x.options);
        const std::string what = std::string(name_of(dtype)) + " layout " + std::to_string(i);
        expect_same(out, expected.out, what);
        if (wants_lse) expect_same(lse, expected.lse, what);
        // With the elements taken back, nothing has changed.
        out.copy_from(MutableView(clean.bytes.data(), dtype, {2, 4, 13, 11}));
        lse.copy_from(MutableView(clean.bytes.data(), lse_dtype, {2, 4, 13}));
        EXPECT_TRUE(a.untouched()) << what;
        EXPECT_TRUE(b.untouched()) << what;
      }
    }
  }
}

// Of 16 bits in f32: what is rounded otherwise. Few rows are decoded.
TEST(AttentionInto, OutInF32IsWhatIsRoundedOtherwise) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t queries : {3, 40}) {
      for (const unsigned features : {0u, with_mask | with_sinks, with_dropout | with_layout}) {
        const Call x = make_call({2, 4, 2, queries, 70, 9, 11}, features, dtype, 2);
        Tensor out(x.run().out.shape());
        attention_into(out.view(), {}, x.Q, x.K, x.V, x.options);
        expect_same(out.view().to(dtype), x.run().out, x.what);
        EXPECT_NE(0, std::memcmp(out.view().to(dtype).view().to(DType::f32).raw(), out.raw(), 100)) << x.what;
      }
    }
  }
}

TEST(AttentionInto, LeadingAxesMayBeLeftOut) {
  Generator generator(2);
  const Tensor q = generator.randn({5, 4}), k = generator.randn({7, 4}), v = generator.randn({7, 3});
  Tensor out({5, 3}), lse({5});
  attention_into(out.view(), lse.view(), q, k, v);
  const AttentionResult expected = attention(q, k, v);
  expect_same(out, expected.out);
  expect_same(lse, expected.lse);
}

TEST(AttentionInto, WrongShapesAndDTypesAreNamed) {
  const Tensor q({2, 4, 5, 6}), k({2, 2, 7, 6}), v({2, 2, 7, 3});
  Memory memory;
  const auto into = [&](DType dtype, Dims shape, DType lse_dtype, Dims lse_shape) {
    return [=, &memory, &q, &k, &v] {
      attention_into(MutableView(memory.bytes.data(), dtype, shape),
                     MutableView(memory.bytes.data() + 9000, lse_dtype, lse_shape), q, k, v);
    };
  };
  const auto f32 = DType::f32;
  const auto shape = ErrorCode::bad_shape, dtype = ErrorCode::bad_dtype;
  expect_error(shape, into(f32, {2, 4, 5, 6}, f32, {2, 4, 5}),
               "attention_into: out has shape [2,4,5,6], expected [2,4,5,3]");
  expect_error(shape, into(f32, {4, 5, 3}, f32, {2, 4, 5}), "out has shape [4,5,3]");
  expect_error(shape, into(f32, {2, 4, 5, 3}, f32, {2, 4, 5, 1}),
               "attention_into: lse has shape [2,4,5,1], expected [2,4,5]");
  expect_error(dtype, into(DType::f64, {2, 4, 5, 3}, f32, {2, 4, 5}), "attention_into: out is f64, expected f32");
  expect_error(dtype, into(DType::bf16, {2, 4, 5, 3}, f32, {2, 4, 5}), "out is bf16, expected f32");
  expect_error(dtype, into(f32, {2, 4, 5, 3}, DType::f64, {2, 4, 5}), "lse is f64, expected f32");
  const Tensor half({5, 4}, DType::bf16);
  expect_error(
      dtype,
      [&] {
        attention_into(MutableView(memory.bytes.data(), DType::bf16, {5, 4}),
                       MutableView(memory.bytes.data() + 9000, DType::bf16, {5}), half, half, half);
      },
      "lse is bf16, expected f32");
  expect_error(
      shape,
      [&] {
        attention_into(MutableView(memory.bytes.data(), f32, {2, 4, 5, 6}), std::nullopt, q, k, q);
      },
      "attention_into: v has heads 4, k has 2");
  EXPECT_TRUE(memory.untouched());
}

TEST(AttentionInto, MemoryThatMeetsAnArgumentIsRefused) {
  // Every argument in one piece of memory, one after another, with room for the results in front.
  std::vector<std::int64_t> memory(4096);
  auto* bytes = reinterpret_cast<char*>(memory.data());
  const auto place = [&](std::int64_t at, DType dtype, Dims shape) { return MutableView(bytes + at, dtype, shape); };
  const View q = place(4000, DType::f32, {1, 2, 4, 3}), k = place(5000, DType::f32, {1, 2, 4, 3}),
             v = place(6000, DType::f32, {1, 2, 4, 3});
  const std::vector<std::int64_t> before = [&] {
    auto* starts = reinterpret_cast<std::int64_t*>(bytes + 13'000);
    starts[0] = 0, starts[1] = 4, starts[125] = 0, starts[126] = 4, starts[250] = 3;
    return memory;
  }();
  AttentionOptions options{.offset = Offset(0), .mask = place(7000, DType::boolean, {4, 4})};
  options.bias = place(8000, DType::f32, {4, 4});
  options.alibi_slopes = place(9000, DType::f32, {2});
  options.sinks = place(10'000, DType::f32, {2});
  AttentionOptions lengths = options;
  lengths.key_lengths = place(15'000, DType::i64, {1});
  options.query_starts = place(13'000, DType::i64, {2});
  options.key_starts = place(14'000, DType::i64, {2});
  struct Meets {
    const char* name;
    std::int64_t first, last;  // bytes
  };
  const auto refused = [&](const Meets& m, const AttentionOptions& o) {
    const std::string text = std::string(" shares memory with ") + m.name;
    // One element on the argument's first byte, one on its last.
    for (const std::int64_t at : {m.first + 4 - 96, m.last - 4}) {
      expect_error(
          ErrorCode::bad_value,
          [&] {
            attention_into(place(at, DType::f32, {1, 2, 4, 3}), std::nullopt, q, k, v, o);
          },
          "out" + text);
    }
    for (const std::int64_t at : {m.first + 4 - 32, m.last - 4}) {
      expect_error(
          ErrorCode::bad_value,
          [&] {
            attention_into(place(0, DType::f32, {1, 2, 4, 3}), place(at, DType::f32, {1, 2, 4}), q, k, v, o);
          },
          "lse" + text);
    }
  };
  for (const Meets& m :
       {Meets{"q", 4000, 4096}, Meets{"k", 5000, 5096}, Meets{"v", 6000, 6096}, Meets{"mask", 7000, 7016},
        Meets{"bias", 8000, 8064}, Meets{"alibi_slopes", 9000, 9008}, Meets{"sinks", 10'000, 10'008},
        Meets{"query_starts", 13'000, 13'016}, Meets{"key_starts", 14'000, 14'016}}) {
    refused(m, options);
  }
  refused({"key_lengths", 15'000, 15'008}, lengths);
  expect_error(
      ErrorCode::bad_value,
      [&] {
        attention_into(place(0, DType::f32, {1, 2, 4, 3}), place(92, DType::f32, {1, 2, 4}), q, k, v, options);
      },
      "out and lse share memory");
  EXPECT_EQ(memory, before);
  // Side by side is no overlap.
  attention_into(place(4096, DType::f32, {1, 2, 4, 3}), place(4000 - 32, DType::f32, {1, 2, 4}), q, k, v, options);
}

TEST(AttentionInto, ElementsThatShareMemoryAreRefused) {
  const Tensor q({2, 4, 5, 6});
  Memory memory;
  for (const Dims& strides : {Dims{0, 30, 6, 1}, Dims{120, 0, 6, 1}, Dims{120, 30, 0, 1}, Dims{120, 30, 6, 0},
                              Dims{120, 30, 5, 1}, Dims{119, 30, 6, 1}, Dims{120, 30, 6, 6}, Dims{-120, 30, -5, 1}}) {
    expect_error(
        ErrorCode::bad_value,
        [&] {
          attention_into(MutableView(memory.bytes.data() + 9000, DType::f32, {2, 4, 5, 6}, strides), std::nullopt, q, q,
                         q);
        },
        "attention_into: out has strides " + strides.str(), "elements share memory");
  }
  Tensor out({2, 4, 5, 6});
  expect_error(
      ErrorCode::bad_value,
      [&] {
        attention_into(out.view(), MutableView(memory.bytes.data(), DType::f32, {2, 4, 5}, {20, 5, 0}), q, q, q);
      },
      "lse has strides [20,5,0]");
  EXPECT_TRUE(memory.untouched());
}

TEST(AttentionInto, ErrorsInTheArgumentsLeaveTheMemoryAsItWas) {
  const Tensor q({1, 2, 5, 6}), k({1, 2, 7, 6});
  Memory memory;
  const MutableView out(memory.bytes.data(), DType::f32, {1, 2, 5, 6});
  const MutableView lse(memory.bytes.data() + 9000, DType::f32, {1, 2, 5});
  for (const std::int64_t length : {std::int64_t{-1}, std::int64_t{8}, INT64_MIN, INT64_MAX}) {
    const Tensor lengths = whole_numbers({length});
    expect_error(
        ErrorCode::bad_value, [&] { attention_into(out, lse, q, k, k, {.key_lengths = lengths}); },
        "key_lengths[0] is " + std::to_string(length) + ", expected 0 to Tk = 7");
  }
  expect_error(
      ErrorCode::bad_value, [&] { attention_into(out, lse, q, k, k, {.causal = true}); }, "top_left");
  EXPECT_TRUE(memory.untouched());
}

// ---- Starts ----

TEST(AttentionStarts, EveryMistakeIsNamed) {
  const Tensor q({1, 2, 5, 6}), k({1, 2, 7, 6});
  const auto with = [&](const Tensor& queries, const Tensor& keys) {
    return [&] { attention(q, k, k, {.query_starts = queries, .key_starts = keys}); };
  };
  const Tensor good_q = whole_numbers({0, 2, 5}), good_k = whole_numbers({0, 4, 7});
  const auto value = ErrorCode::bad_value, shape = ErrorCode::bad_shape;
  expect_error(
      value, [&] { attention(q, k, k, {.query_starts = good_q}); },
      "attention: query_starts is given without key_starts");
  expect_error(
      value, [&] { attention(q, k, k, {.key_starts = good_k}); },
      "attention: key_starts is given without query_starts");
  expect_error(value, with(whole_numbers({1, 2, 5}), good_k), "query_starts[0] is 1, expected 0 to 0");
  expect_error(value, with(whole_numbers({-1, 2, 5}), good_k), "query_starts[0] is -1, expected 0 to 0");
  expect_error(value, with(whole_numbers({0, 6, 5}), good_k), "query_starts[1] is 6, expected 0 to 5", "Tq");
  expect_error(value, with(whole_numbers({0, 3, 2}), good_k), "query_starts[2] is 2, expected 3 to 5");
  expect_error(value, with(whole_numbers({0, 2, 4}), good_k), "query_starts ends at 4, expected Tq = 5");
  expect_error(value, with(good_q, whole_numbers({0, 8, 7})), "key_starts[1] is 8, expected 0 to 7", "Tk");
  expect_error(value, with(good_q, whole_numbers({0, 4, INT64_MIN})), "key_starts[2] is -9223372036854775808");
  expect_error(value, with(good_q, whole_numbers({0, 3, 3})), "key_starts ends at 3, expected Tk = 7");
  expect_error(value, with(whole_numbers({0}), good_k), "query_starts ends at 0, expected Tq = 5");
  expect_error(shape, with(whole_numbers({}), good_k), "query_starts has shape [0], expected [sequences + 1]");
  expect_error(shape, with(good_q, whole_numbers({0, 7})), "query_starts has 3 entries, key_starts 2");
  expect_error(shape, with(Tensor({1, 3}, DType::i64), good_k), "query_starts has shape [1,3]");
  expect_error(ErrorCode::bad_dtype, with(Tensor({3}), good_k), "query_starts is f32, expected i64");
  expect_error(ErrorCode::bad_dtype, with(good_q, Tensor({3}, DType::u8)), "key_starts is u8, expected i64");
  const Tensor lengths = whole_numbers({7}), two({2, 2, 5, 6}), two_k({2, 2, 7, 6});
  expect_error(
      value, [&] { attention(q, k, k, {.key_lengths = lengths, .query_starts = good_q, .key_starts = good_k}); },
      "key_lengths and key_starts contradict each other");
  expect_error(
      shape, [&] { attention(two, two_k, two_k, {.query_starts = good_q, .key_starts = good_k}); },
      "q has batch size 2, expected 1");
  expect_error(
      value, [&] { attention(q, k, k, {.causal = true, .query_starts = good_q, .key_starts = good_k}); },
      "2 queries and 4 keys", "top_left");
}

// ---- Sizes ----

TEST(AttentionSizes, EveryAxisMayBeEmptyButTheHeadSizes) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const bool with_lengths : {false, true}) {
      for (const std::int64_t B : {0, 2})
        for (const std::int64_t H : {0, 4})
          for (const std::int64_t Tq : {0, 3})
            for (const std::int64_t Tk : {0, 5}) {
              const std::int64_t Hkv = H / 2;
              const Tensor q({B, H, Tq, 4}, dtype), k({B, Hkv, Tk, 4}, dtype), v({B, Hkv, Tk, 3}, dtype);
              const Tensor lengths({B}, DType::i64), mask({Tq, Tk}, DType::boolean), bias({Tq, Tk}), sinks({H});
              AttentionOptions options{.causal = true, .offset = Offset::bottom_right(), .mask = mask, .bias = bias};
              options.alibi_slopes = sinks.view();
              if (with_lengths) options.key_lengths = lengths.view();
              const AttentionResult result = attention(q, k, v, options);
              EXPECT_EQ(result.out.shape(), Dims({B, H, Tq, 3}));
              EXPECT_EQ(result.lse.shape(), Dims({B, H, Tq}));
              for (std::int64_t b = 0; b < B; ++b)
                for (std::int64_t h = 0; h < H; ++h)
                  for (std::int64_t i = 0; i < Tq; ++i) {
                    EXPECT_EQ(result.lse.item({b, h, i}), -INFINITY);
                    EXPECT_EQ(result.out.item({b, h, i, 2}), 0);
                  }
              EXPECT_EQ(plan(q.shape(), k.shape(), v.shape(), dtype, options).flops >= 0, true);
            }
    }
  }
}

TEST(AttentionSizes, BeyondMemoryOrCountingAreErrors) {
  const float one = 1;
  const auto same = [&](Dims shape, DType dtype = DType::f32) {
    Dims strides = shape;
    for (int i = 0; i < shape.rank(); ++i) strides[i] = 0;
    return View(&one, dtype, shape, strides);
  };
  const std::int64_t huge = std::int64_t{1} << 58;
  const auto fails = [&](const View& q, const View& k, const View& v) {
    try {
      attention(q, k, v);
      ADD_FAILURE() << q.shape().str() << " worked";
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::out_of_memory || error.code() == ErrorCode::bad_shape) << error.what();
    }
  };
  fails(same({1, huge}), same({1, huge}), same({1, 4}));  // scratch
  fails(same({1, 4}), same({1, 4}), same({1, huge}));
  fails(same({huge, 1, 4}), same({1, 1, 4}), same({1, 1, 4}));   // out
  fails(same({1, huge, 4}), same({1, 1, 4}), same({1, 1, 64}));  // more bytes than 64 bits count
  fails(same({1, huge}, DType::bf16), same({1, huge}, DType::bf16), same({1, 4}, DType::bf16));
  // Sizes that multiply beyond 64 bits, beside one of 0.
  const std::int64_t large = std::int64_t{1} << 40;
  for (const DType dtype : {DType::f32, DType::f64}) {
    const View empty = same({large, large, 0, 4}, dtype);
    EXPECT_EQ(attention(empty, empty, empty).out.count(), 0);
    EXPECT_EQ(plan(empty.shape(), empty.shape(), empty.shape(), dtype).work_items, 0);
  }
  // A plan costs no more for more queries.
  const AttentionPlan many =
      plan({1, std::int64_t{1} << 50, 4}, {1, 100, 4}, {1, 100, 4}, DType::f32, {.causal = true, .offset = Offset(0)});
  EXPECT_DOUBLE_EQ(many.flops, 2 * 8 * (100.0 * 0x1p50 - 4950));
}

TEST(AttentionSizes, UsefulFlopsAreThoseOfTheVisiblePairs) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Dice dice(seed);
    const Sizes s{1 + dice.below(2), 2, 1, 1 + dice.below(20), 1 + dice.below(20), 3, 4};
    unsigned wanted = 0;
    for (const unsigned f : {with_causal, with_window, with_offset, with_lengths, with_starts})
      wanted |= dice.one_in(2) ? f : 0u;
    const Call x = make_call(s, wanted, DType::f32, seed);
    double pairs = 0;
    kernels::Row exact;
    for_each_oracle_row(x, [&](const OracleRow& at) {
      kernels::reference_row(at.head, at.row, exact);
      for (const double logit : exact.logits) pairs += logit != -INFINITY;
    });
    EXPECT_EQ(plan(x.Q.shape(), x.K.shape(), x.V.shape(), DType::f32, x.options).flops, 2 * 7 * pairs) << x.what;
  }
}

// ---- merge() ----

TEST(AttentionMerge, MistakesAreNamed) {
  const Tensor out({2, 5, 4}), lse({2, 5}), other({2, 6, 4}), other_lse({2, 6}), half({2, 5, 4}, DType::bf16);
  const auto merged = [](const View& a, const View& la, const View& b, const View& lb) {
    return [=] { merge(a, la, b, lb); };
  };
  const auto shape = ErrorCode::bad_shape, dtype = ErrorCode::bad_dtype;
  expect_error(shape, merged(out, other_lse, out, lse), "merge: lse_a has shape [2,6]", "out_a [2,5,4]");
  expect_error(shape, merged(out, lse, out, other_lse), "merge: lse_b has shape [2,6]", "out_b [2,5,4]");
  expect_error(shape, merged(out, lse, other, other_lse), "merge: out_b has shape [2,6,4], out_a [2,5,4]");
  expect_error(dtype, merged(out, lse, half, lse), "merge: out_b is bf16, out_a f32");
  expect_error(dtype, merged(Tensor({5, 4}, DType::i64), lse, out, lse), "merge: out_a is i64");
  expect_error(dtype, merged(out, Tensor({2, 5}, DType::f64), out, lse), "merge: lse_a is f64, expected f32");
  expect_error(dtype, merged(out, lse, out, Tensor({2, 5}, DType::f16)), "merge: lse_b is f16, expected f32");
  expect_error(shape, merged(Tensor(Dims{}), lse, out, lse), "merge: lse_a");
}

TEST(AttentionMerge, PartsThatSawNothingAddNothing) {
  const Tensor out = Tensor::from({3, 2}, {1, 2, NAN, INFINITY, NAN, NAN}),
               lse = Tensor::from({3}, {0.5f, -INFINITY, -INFINITY});
  const Tensor other = Tensor::from({3, 2}, {NAN, NAN, 3, 4, NAN, NAN}),
               other_lse = Tensor::from({3}, {-INFINITY, -2, -INFINITY});
  const AttentionResult both = merge(out, lse, other, other_lse);
  expect_same(both.out, Tensor::from({3, 2}, {1, 2, 3, 4, 0, 0}));
  expect_same(both.lse, Tensor::from({3}, {0.5f, -2, -INFINITY}));
}

TEST(AttentionMerge, EmptyAndStridedPartsWork) {
  EXPECT_EQ(merge(Tensor({2, 0, 4}), Tensor({2, 0}), Tensor({2, 0, 4}), Tensor({2, 0})).out.shape(), Dims({2, 0, 4}));
  Generator generator(3);
  const Tensor a = generator.randn({3, 2, 4}), la = generator.randn({3, 2}), b = generator.randn({3, 2, 4}),
               lb = generator.randn({3, 2});
  const auto swapped = [](const View& x) { return x.transpose(0, 1); };
  const AttentionResult expected = merge(a, la, b, lb);
  const AttentionResult result = merge(swapped(a), swapped(la), swapped(b), swapped(lb));
  expect_same(swapped(result.out), expected.out);
  expect_same(swapped(result.lse), expected.lse);
  // In double: (e^la a + e^lb b) / (e^la + e^lb).
  for (std::int64_t i = 0; i < 24; ++i) {
    const double x = std::exp(la.view().reshape({6}).item({i / 4})), y = std::exp(lb.view().reshape({6}).item({i / 4}));
    const double mean = (x * a.view().reshape({24}).item({i}) + y * b.view().reshape({24}).item({i})) / (x + y);
    EXPECT_NEAR(expected.out.view().reshape({24}).item({i}), mean, 1e-6);
  }
}

}  // namespace
}  // namespace attend
