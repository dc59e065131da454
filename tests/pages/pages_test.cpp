// Pages of recordings and models, with a stand-in for explorer.html, which a build has or has not.
#include "pages/pages.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "attend/attention.h"
#include "attend/io.h"
#include "attend/models.h"
#include "attend/random.h"
#include "html/page.h"
#include "tests/expect.h"
#include "tests/page.h"

namespace attend {
namespace {

using nlohmann::json;
using test::between;
using test::unpacked;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view stand_in =
    "<!doctype html>\n<title><!--attend:title--></title>\n<main id=\"static\"><!--attend:static--></main>\n"
    "<script type=\"application/json\" id=\"request\"><!--attend:request--></script>\n"
    "<script type=\"text/plain\" id=\"file\"><!--attend:file--></script>\n<script>/* the rest */</script>\n";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string decoded(std::string_view text) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  int have = 0;
  for (const char c : text.substr(0, text.find('='))) {
    const std::size_t digit = digits.find(c);
    if (digit == digits.npos) throw std::runtime_error("no base64");
    bits = (bits << 6 | static_cast<unsigned>(digit)) & 0xffffff;
    have += 6;
    if (have >= 8) out += static_cast<char>(bits >> (have -= 8));
  }
  return out;
}

json request_of(const Page& page) {
  return json::parse(between(page.html, "id=\"request\">", "</script>"));
}
std::string file_of(const Page& page) {
  return unpacked(decoded(between(page.html, "id=\"file\">", "</script>")));
}
std::string static_of(const Page& page) {
  return between(page.html, "<main id=\"static\">", "</main>");
}

struct Case {
  std::int64_t tokens = 12, layers = 3, heads = 2, blocks = 256;
  bool keep_qk = true;
  std::vector<double> sharpness = {};  // of each layer: how far its weights are from uniform
  bool key_sizes = false;
};

Recording record(const Case& of) {
  Generator generator(7);
  Recorder recorder({.map = {of.blocks, of.blocks}, .keep_qk = of.keep_qk, .key_sizes = of.key_sizes});
  const AttentionOptions options{.causal = true};
  for (std::int64_t n = 0; n < of.layers; ++n) {
    Tensor q = generator.randn({1, of.heads, of.tokens, 8});
    const Tensor k = generator.randn({1, of.heads, of.tokens, 8});
    if (!of.sharpness.empty())
      for (std::int64_t i = 0; i < q.count(); ++i)
        q.data<float>()[i] *= static_cast<float>(of.sharpness[static_cast<std::size_t>(n)]);
    const AttentionResult rows = attention(q, k, k, options, {.lse_low = true});
    const std::string name = fmt::format("{}.self", n);
    RecordCall call{name};
    const Tensor sizes = Generator(1).uniform({1, of.heads, of.tokens}, 2, 2);
    if (of.key_sizes) call.key_sizes = sizes;
    recorder.add(call, q, k, rows.lse, *rows.lse_low, options);
  }
  Recording recording = recorder.finish();
  recording.model = "a/model";
  recording.tokens = {{}};
  for (std::int64_t n = 0; n < of.tokens; ++n) recording.tokens[0].push_back(fmt::format(" word{}", n % 5));
  return recording;
}

Recording loaded(const std::string& bytes) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "pages_test.attend";
  write_file(path, bytes);
  return Recording::load(path);
}

TEST(Pages, HaveTheRecordingAndWhatIsShownFirst) {
  const Recording recording = record({});
  const Page page = recording_page(recording, {.head = "1.0", .file = "a cat.attend"}, stand_in);
  EXPECT_THAT(page.html, testing::StartsWith("<!doctype html>\n<title>a/model - attention, head by head</title>\n"));
  EXPECT_THAT(page.html, testing::EndsWith("</script>\n<script>/* the rest */</script>\n"));
  EXPECT_THAT(page.html, Not(HasSubstr("attend:")));
  EXPECT_EQ(page.note, "");
  EXPECT_EQ(page.left_out, "");
  const std::string bytes = recording.to_bytes();
  EXPECT_EQ(request_of(page),
            (json{{"recording", {{"file", "a cat.attend"}, {"bytes", bytes.size()}, {"left_out", nullptr}}},
                  {"item", 0},
                  {"head", "1.0"}}));
  EXPECT_EQ(file_of(page), bytes);
  EXPECT_TRUE(request_of(recording_page(recording, {}, stand_in))["head"].is_null());
  EXPECT_THAT(static_of(page), HasSubstr("<h1>a/model</h1>"));
  EXPECT_THAT(static_of(page), HasSubstr("3 layers, 6 heads"));
  EXPECT_THAT(static_of(page), HasSubstr("<h2>The most telling heads</h2>"));
}

TEST(Pages, TokensAreNoMarkup) {
  Recording recording = record({});
  const std::vector<std::string> hostile = {"</script><script>alert(1)</script>",
                                            "<!--attend:file-->",
                                            "<!--",
                                            "\"'&",
                                            "\xe2\x80\xae",
                                            "\xc2\x9b",
                                            "\xed\x9f\xbf",
                                            "\xf0\x9f\x90\x88",
                                            "]]>",
                                            "</main>",
                                            "</title>",
                                            std::string(1, '\0')};
  recording.tokens[0] = hostile;
  recording.model = "</title><b>&\xe2\x80\xae<!--attend:static-->";
  const Page page = recording_page(recording, {.file = "</script>\xff.attend"}, stand_in);
  EXPECT_THAT(page.html, Not(AnyOf(HasSubstr("<script>alert"), HasSubstr("<!--"), HasSubstr("<b>"),
                                   HasSubstr("\xe2\x80\xae"), HasSubstr("\xc2\x9b"))));
  std::size_t scripts = 0;
  for (std::size_t at = page.html.find("</script>"); at != page.html.npos; at = page.html.find("</script>", at + 1))
    ++scripts;
  EXPECT_EQ(scripts, 3u);
  EXPECT_EQ(request_of(page)["recording"]["file"], "</script>\xef\xbf\xbd.attend");
  EXPECT_EQ(loaded(file_of(page)).tokens[0], hostile);
  const std::string request = between(page.html, "id=\"request\">", "</script>");
  EXPECT_TRUE(std::ranges::all_of(request, [](char c) { return c >= ' ' && c <= '~' && c != '<'; }));
  for (const std::string& bad : {std::string("\xed\xa0\x80"), std::string("\xff")}) {  // a lone surrogate's bytes
    recording.tokens[0][3] = bad;
    test::expect_error(
        ErrorCode::bad_value, [&] { recording_page(recording, {}, stand_in); }, "UTF-8");
  }
}

// explorer.html's policy refuses inline styles and scripts.
TEST(Pages, TheStaticPartHasNoStylesAndNoScripts) {
  for (const Case& of : {Case{}, Case{.tokens = 1, .layers = 1, .heads = 1}, Case{.tokens = 300, .blocks = 32}}) {
    const std::string part = static_of(recording_page(record(of), {}, stand_in));
    for (const char* refused : {" style=", "<style", "<script", "<link", "<a ", "url("})
      EXPECT_THAT(part, Not(HasSubstr(refused)));
    EXPECT_THAT(part, Not(testing::ContainsRegex("<[^>]* on[a-z]+=")));
  }
}

TEST(Pages, LayersWithOtherHeadsHaveAPictureOfTheirOwn) {
  Recorder recorder{RecordOptions{}};
  Generator generator(7);
  for (const auto& [name, kind, heads] : {std::tuple("encoder.0.self", "self", 2),
                                          {"encoder.1.self", "self", 2},
                                          {"decoder.0.self", "self", 3},
                                          {"decoder.0.cross", "cross", 3}}) {
    const Tensor q = generator.randn({1, heads, 4, 8}), k = generator.randn({1, heads, 4, 8});
    const AttentionResult rows = attention(q, k, k, {}, {.lse_low = true});
    recorder.add({name, kind}, q, k, rows.lse, *rows.lse_low, {});
  }
  const std::string part = static_of(recording_page(recorder.finish(), {}, stand_in));
  EXPECT_THAT(part, HasSubstr("<h1>A recording</h1>"));
  EXPECT_THAT(part, HasSubstr("<h2>encoder.0.self to encoder.1.self</h2>"));
  EXPECT_THAT(part, HasSubstr("<h2>decoder.0.cross</h2>"));
}

TEST(Pages, WithoutThePageThatComputesTheyArePictures) {
  const Page page = recording_page(record({}), {.budget = 1, .strict = true}, "");  // it has no file
  EXPECT_EQ(page.note, "attend was built without the page that computes, which `make page` makes");
  EXPECT_THAT(page.html, HasSubstr("<p class=\"note\">This page does not compute: attend was built without the page"));
  EXPECT_THAT(page.html, HasSubstr("#static h1 {"));
  EXPECT_THAT(page.html, HasSubstr("<svg "));
  EXPECT_THAT(page.html, Not(AnyOf(HasSubstr("<!--"), HasSubstr("<script"), HasSubstr("id=\"file\""))));
  EXPECT_EQ(pages_note(), pages_note(built_explorer()));
}

// Layer 1 spreads most, layer 0 least.
constexpr double sharp = 40, middle = 3, broad = 0.1;

TEST(Pages, PastTheBudgetMapsGetCoarserAndThenTheBroadestHeadsLoseTheirQueriesAndKeys) {
  const Recording recording = record({.tokens = 300, .sharpness = {sharp, broad, middle}});
  const Page all = recording_page(recording, {}, stand_in);
  const auto size = static_cast<std::int64_t>(all.html.size());
  EXPECT_EQ(recording_page(recording, {.budget = size, .strict = true}, stand_in).html, all.html);

  // Nothing is lost: the maps are of fewer blocks, and each weight is exact still.
  const Page coarse = recording_page(recording, {.budget = size - 1, .strict = true}, stand_in);
  EXPECT_EQ(coarse.left_out, "");
  const Recording smaller = loaded(file_of(coarse));
  for (std::int64_t n = 0; n < 3; ++n) {
    EXPECT_TRUE(smaller.at(n).has_qk);
    EXPECT_EQ(smaller.at(n).row_blocks, 64);
    EXPECT_EQ(smaller.at(n).row_range, 300);
    test::expect_close(smaller.weights(n, 0, 1), recording.weights(n, 0, 1), 0);
  }

  std::vector<std::string> left_out;
  std::int64_t budget = static_cast<std::int64_t>(coarse.html.size()) - 1;
  for (const auto& [names, layers] :
       {std::pair("1.self", std::vector<bool>{true, false, true}), {"1.self, 2.self", {true, false, false}}}) {
    test::expect_error(
        ErrorCode::bad_value, [&] { recording_page(recording, {.budget = budget, .strict = true}, stand_in); },
        "the page would take");
    const Page page = recording_page(recording, {.budget = budget}, stand_in);
    EXPECT_LE(std::ssize(page.html), budget);
    EXPECT_THAT(page.left_out, HasSubstr(fmt::format("layers, those of the broadest heads ({})", names)));
    EXPECT_EQ(request_of(page)["recording"]["left_out"], page.left_out);
    const Recording kept = loaded(file_of(page));
    for (std::int64_t n = 0; n < 3; ++n) EXPECT_EQ(kept.at(n).has_qk, layers[static_cast<std::size_t>(n)]) << n;
    budget = static_cast<std::int64_t>(page.html.size()) - 1;
  }
  test::expect_error(
      ErrorCode::bad_value, [&] { recording_page(recording, {.budget = 50'000}, stand_in); },
      "or more with all left out that can be, and may take 0.1 MB");
}

TEST(Pages, WithoutQueriesAndKeysCoarserMapsAreALoss) {
  const Recording recording = record({.tokens = 300, .keep_qk = false});
  const auto size = std::ssize(recording_page(recording, {}, stand_in).html);
  const Page page = recording_page(recording, {.budget = size - 1}, stand_in);
  EXPECT_EQ(page.left_out, "maps of more than 64 x 64 blocks of 3 layers");
  test::expect_error(
      ErrorCode::bad_value, [&] { recording_page(recording, {.budget = size - 1, .strict = true}, stand_in); },
      "and may take");
}

TEST(Pages, WhatIsNotThereIsAnError) {
  const Recording recording = record({});
  test::expect_error(
      ErrorCode::bad_value, [&] { recording_page(recording, {.item = 1}, stand_in); }, "item 1, expected 0 to 0");
  test::expect_error(
      ErrorCode::bad_value, [&] { recording_page(recording, {.head = "9.0"}, stand_in); }, "no head '9.0'");
  test::expect_error(
      ErrorCode::bad_value, [&] { recording_page(Recording(), {}, stand_in); }, "no layers");
}

TEST(LivePages, HaveTheModelAndWhatIsAsked) {
  const std::filesystem::path path = test::data("golden/gguf/sentencepiece.gguf");
  const std::string text = "a </script> \"cat\" \xe2\x80\xae<!--attend:file-->";
  const Page page = live_page(path, record({}), text, {.why = " b", .against = "<c>", .chat = true}, stand_in);
  EXPECT_THAT(page.html, Not(AnyOf(HasSubstr("<!--"), HasSubstr("\xe2\x80\xae"))));
  const std::string bytes = read_file(path);
  EXPECT_EQ(request_of(page),
            (json{{"model", {{"file", "sentencepiece.gguf"}, {"bytes", bytes.size()}, {"name", "sentencepiece"}}},
                  {"text", text},
                  {"second", nullptr},
                  {"why", " b"},
                  {"against", "<c>"},
                  {"chat", true}}));
  EXPECT_EQ(file_of(page), bytes);
  EXPECT_THAT(static_of(page), HasSubstr("This page has the model sentencepiece in it"));
  const json named = request_of(live_page(path, record({}), "a", {.name = "<b>", .second = "d"}, stand_in));
  EXPECT_EQ(named["model"]["name"], "<b>");
  EXPECT_EQ(named["second"], "d");
  EXPECT_TRUE(named["why"].is_null());
}

TEST(LivePages, SayWhyThereIsNone) {
  const std::filesystem::path path = test::data("golden/gguf/sentencepiece.gguf");
  test::expect_error(
      ErrorCode::bad_value, [&] { live_page(path, record({}), "a", {}, ""); }, "`make page` makes");
  const auto size = static_cast<std::int64_t>(read_file(path).size());
  test::expect_error(
      ErrorCode::bad_value, [&] { live_page(path, record({}), "a", {.budget = size - 1}, stand_in); },
      "the file takes 0.");
  const auto whole = std::ssize(live_page(path, record({}), "a", {}, stand_in).html);
  EXPECT_EQ(std::ssize(live_page(path, record({}), "a", {.budget = whole}, stand_in).html), whole);
  test::expect_error(
      ErrorCode::bad_value, [&] { live_page(path, record({}), "a", {.budget = whole - 1}, stand_in); },
      "the page takes");
  test::expect_error(
      ErrorCode::bad_value, [&] { live_page(path, record({}), "\xff", {}, stand_in); }, "UTF-8");
  test::expect_error(
      ErrorCode::bad_file, [&] { live_page("no/such/model", record({}), "a", {}, stand_in); }, "no/such/model");
}

}  // namespace
}  // namespace attend
