// A strict reader of the XML that the library writes: whatever it does not know is an error, so a test that passes
// says that every XML parser accepts the text.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/utf8.h"

namespace attend::test {

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // its own, without its children's
  int parent = -1;
};

class Xml {
 public:
  explicit Xml(const std::string& text) : text_(text) {
    check_characters();
    read_element(-1);
    skip_space();
    require(at_ == text_.size(), "text after the root");
  }
  const std::vector<Element>& elements() const { return elements_; }
  std::vector<Element> named(const std::string& name) const {
    std::vector<Element> found;
    for (const Element& element : elements_) {
      if (element.name == name) found.push_back(element);
    }
    return found;
  }

 private:
  void require(bool condition, const std::string& what) const {
    if (!condition) throw std::runtime_error("XML: " + what + " at byte " + std::to_string(at_));
  }
  void check_characters() const {
    for (const char32_t point : decode_utf8(text_, {"", "the XML"})) {
      const bool allowed =
          point == '\t' || point == '\n' || point == '\r' || (point >= 0x20 && point < 0xfffe) || point >= 0x10000;
      require(allowed, "a character that XML forbids");
    }
  }
  bool next_is(const std::string& word) const { return text_.compare(at_, word.size(), word) == 0; }
  void expect(const std::string& word) {
    require(next_is(word), "no '" + word + "'");
    at_ += word.size();
  }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \n", at_), text_.size()); }
  std::string read_name() {
    const std::size_t end =
        text_.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", at_);
    require(end != std::string::npos && end > at_, "no name");
    std::string name = text_.substr(at_, end - at_);
    at_ = end;
    return name;
  }
  std::string read_text(char end) {
    static const std::map<std::string, std::string> entities = {
        {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}};
    std::string out;
    for (; at_ < text_.size() && text_[at_] != end; ++at_) {
      require(text_[at_] != '<', "'<' in text");
      if (text_[at_] != '&') {
        out += text_[at_];
        continue;
      }
      const std::size_t semicolon = text_.find(';', at_);
      const auto entity = entities.find(text_.substr(at_, semicolon - at_ + 1));
      require(entity != entities.end(), "unknown entity");
      out += entity->second;
      at_ = semicolon;
    }
    return out;
  }
  void read_element(int parent) {
    const auto index = static_cast<int>(elements_.size());
    expect("<");
    Element element{read_name(), {}, "", parent};
    for (skip_space(); !next_is("/>") && !next_is(">"); skip_space()) {
      require(text_[at_ - 1] == ' ' || text_[at_ - 1] == '\n', "no space before an attribute");
      const std::string name = read_name();
      expect("=\"");
      require(element.attributes.emplace(name, read_text('"')).second, "two attributes " + name);
      expect("\"");
    }
    elements_.push_back(element);
    if (next_is("/>")) return expect("/>");
    expect(">");
    while (true) {
      elements_[static_cast<std::size_t>(index)].text += read_text('<');
      if (next_is("</")) break;
      read_element(index);
    }
    expect("</" + element.name + ">");
  }

  std::string text_;
  std::size_t at_ = 0;
  std::vector<Element> elements_;
};

// All that a picture says, in the order in which it is drawn.
inline std::vector<std::string> texts_of(const Xml& svg) {
  std::vector<std::string> texts;
  for (const Element& text : svg.named("text")) texts.push_back(text.text);
  return texts;
}

}  // namespace attend::test
