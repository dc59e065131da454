// The page that to_html() makes, with a stand-in for lesson.html, which a build has or has not.
#include "explain/page.h"

#include <nlohmann/json.hpp>

#include "html/page.h"
#include "tests/expect.h"
#include "tests/page.h"

namespace attend {
namespace {

using test::between;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr std::string_view stand_in =
    "<!doctype html>\n<title><!--attend:title--></title>\n<main id=\"static\"><!--attend:static--></main>\n"
    "<script type=\"application/json\" id=\"request\"><!--attend:request--></script>\n<script>/* the rest "
    "*/</script>\n";

nlohmann::json request_of(const Trace& trace, const TextStyle& style = {}) {
  return nlohmann::json::parse(between(to_html(trace, style, stand_in), "id=\"request\">", "</script>"));
}

TEST(Page, HasTheTracesTitleStepsAndRequest) {
  const Trace trace = explain({.text = "the cat & the <b>hat</b>", .heads = 2, .causal = true, .window = 3});
  const std::string page = to_html(trace, {}, stand_in);
  EXPECT_THAT(page, StartsWith("<!doctype html>\n<title>the cat &amp; the &lt;b&gt;hat&lt;/b&gt; - attention, step by "
                               "step</title>\n<main id=\"static\"><h1>the cat &amp;"));
  EXPECT_THAT(page, HasSubstr("Later and distant keys are hidden"));
  EXPECT_THAT(page, testing::EndsWith("</script>\n<script>/* the rest */</script>\n"));
  EXPECT_THAT(page, Not(HasSubstr("attend:")));
  EXPECT_THAT(page, Not(HasSubstr("does not compute")));
  EXPECT_EQ(request_of(trace), nlohmann::json::parse(R"({"text": "the cat & the <b>hat</b>", "seed": 123, "d_k": 24,
    "embedding_size": 16, "d_v": 28, "heads": 2, "weights": "linear", "causal": true, "positions": false, "scale": true,
    "window": 3, "focus": 1})"));
}

TEST(Page, AsksForThePresetOrTheSentencesAndForTheRowAndHeadThatWereChosen) {
  EXPECT_EQ(request_of(explain_preset("my-name")), nlohmann::json::parse(R"({"preset": "my-name", "focus": 0})"));
  EXPECT_EQ(request_of(explain_preset("life-multihead"), {.focus = 4, .head = 0}),
            nlohmann::json::parse(R"({"preset": "life-multihead", "focus": 4, "head": 0})"));
  Trace trace = explain({.text = "a b c", .second_text = "d", .seed = 18446744073709551615u, .scale = false});
  trace.focus = 2;
  const nlohmann::json request = request_of(trace);
  EXPECT_EQ(request["second_text"], "d");
  EXPECT_EQ(request["seed"], 18446744073709551615u);
  EXPECT_EQ(request["scale"], false);
  EXPECT_EQ(request["focus"], 2);
  EXPECT_FALSE(request.contains("window") || request.contains("head"));
}

TEST(Page, WordsAreNoMarkup) {
  const std::string text =
      "</script><script>alert(1)</script> <!--attend:static--> <!--attend:title--> \"'& 東 \xc2\x9b \xe2\x80\xae";
  const Trace trace = explain({.text = text});
  const std::string page = to_html(trace, {}, stand_in);
  EXPECT_EQ(request_of(trace)["text"], text);
  for (const char* controls : {"\xc2\x9b", "\xe2\x80\xae"}) EXPECT_THAT(page, Not(HasSubstr(controls)));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("<!--attend")));
  std::size_t scripts = 0;
  for (std::size_t at = page.find("</script>"); at != page.npos; at = page.find("</script>", at + 1)) ++scripts;
  EXPECT_EQ(scripts, 2u);
}

// lesson.html's policy refuses inline styles and scripts.
TEST(Page, TheStaticPartHasNoStylesAndNoScripts) {
  std::string many;
  for (int i = 0; i < 150; ++i) many.append("w").append(std::to_string(i)).append(" ");
  std::vector<Trace> traces;
  traces.push_back(explain({.text = many, .causal = true}));
  traces.push_back(explain({.heads = 2, .positions = true}));
  for (const Preset& preset : presets()) traces.push_back(explain_preset(preset.name));
  for (const Trace& trace : traces) {
    const std::string part = between(to_html(trace, {.all = true}, stand_in), "<main id=\"static\">", "</main>");
    for (const char* refused : {" style=", "<style", "<script", "<link", "<a ", "url("})
      EXPECT_THAT(part, Not(HasSubstr(refused)));
    EXPECT_THAT(part, Not(testing::ContainsRegex("<[^>]* on[a-z]+=")));
  }
  EXPECT_THAT(to_html(traces[0], {}, stand_in), HasSubstr("<image "));
}

TEST(Page, WithoutThePageThatComputesItSaysSo) {
  const Trace trace = explain_preset("life");
  const std::string page = to_html(trace, {}, "");
  EXPECT_THAT(page, HasSubstr("<p class=\"note\">This page does not compute: attend was built without the page that "
                              "computes, which `make page` makes.</p>"));
  EXPECT_THAT(page, HasSubstr("#static h1 {"));
  EXPECT_THAT(page, HasSubstr("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "));
  EXPECT_THAT(page, HasSubstr("<main id=\"static\">\n<h1>Life is short, eat dessert first (documents 002, 004)</h1>"));
  EXPECT_THAT(page, Not(testing::AnyOf(HasSubstr("<!--"), HasSubstr("<script"))));
  EXPECT_EQ(page_note(trace, stand_in), "");
  EXPECT_EQ(to_html(trace), to_html(trace, {}, built_lesson()));
  EXPECT_EQ(page_note(trace), page_note(trace, built_lesson()));
}

TEST(Page, ManyWordsAreNotComputed) {
  const auto words = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "w ";
    return text;
  };
  EXPECT_EQ(page_note(explain({.text = words(200), .second_text = words(200)}), stand_in), "");
  for (const ExplainOptions& options :
       {ExplainOptions{.text = words(201)}, ExplainOptions{.text = "a", .second_text = words(201)}}) {
    const std::string page = to_html(explain(options), {}, stand_in);
    EXPECT_THAT(page, HasSubstr("This page does not compute: more than 200 words"));
    EXPECT_THAT(page, HasSubstr("`attend show FILE.attend`"));
    EXPECT_THAT(page, HasSubstr("\"Content-Security-Policy\" content=\"default-src 'none'; "));
    EXPECT_THAT(page, Not(HasSubstr("<script")));
  }
}

TEST(Page, ABuiltPageIsFilled) {
  if (built_lesson().empty()) GTEST_SKIP() << "built without lesson.html";
  const std::string page = to_html(explain({.text = "a b"}));
  EXPECT_THAT(page, Not(HasSubstr("<!--attend:")));
  const nlohmann::json request = nlohmann::json::parse(between(page, "id=\"request\">", "</script>"));
  EXPECT_EQ(request["text"], "a b");
}

}  // namespace
}  // namespace attend
