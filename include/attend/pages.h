// HTML pages in a single file, which need no network, with a recording or a model: they show every head, and compute
// what is zoomed into or typed (docs/page.md).
#pragma once

#ifdef ATTEND_WITHOUT_PICTURES
#error "attend was built with ATTEND_PICTURES=OFF: it has no pages.h"
#endif

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "attend/api.h"
#include "attend/recording.h"

namespace attend::inline v1 {

struct ATTEND_API Page {
  std::string html;
  std::string left_out = {};  // what was left out of the recording, in words; empty: nothing
  // Why the page computes nothing and only shows a picture and words: the library lacks the page that computes. Empty:
  // it computes.
  std::string note = {};
};

// Page::note for all pages made here.
ATTEND_API std::string pages_note();

struct ATTEND_API RecordingPageOptions {
  std::int64_t item = 0;                  // batch item whose text is shown first
  std::string head = {};                  // "18.6": shown first; empty: all
  std::string file = "recording.attend";  // the page's name for the recording's file
  // Most bytes. A larger page first reduces maps to 64 x 64 blocks if q and k are kept, which still give any part
  // exactly. Then it drops q and k of layers, those with the broadest heads first, whose weights are then inexact
  // blocks. Last, it reduces the maps of all layers. strict: throws bad_value before losing anything.
  std::int64_t budget = 64'000'000;
  bool strict = false;
};
// Throws bad_value for an item or head that does not exist, text that is not UTF-8, and a recording beyond the budget.
ATTEND_API Page recording_page(const Recording& recording, const RecordingPageOptions& options = {});

#ifndef ATTEND_WITHOUT_MODELS
struct ATTEND_API LivePageOptions {
  std::string name = {};                    // the model's; empty: that of its folder or file
  std::optional<std::string> second = {};   // encoders: a sentence to compare the text with
  std::optional<std::string> why = {};      // decoders: explain this token, such as " Paris"
  std::optional<std::string> against = {};  // compared with this other one
  bool chat = false;                        // the text is a user's message
  std::int64_t budget = 150'000'000;        // most bytes of the page
};
// A page with the model itself: it computes `text` first, then what is typed. model: as for find_model(); a .gguf file
// is included as it is, a folder as Q8_0 by quantize(). text_recording: of the same text, shown without JavaScript.
// Throws bad_value if the library lacks the page (pages_note() says so) and for a model beyond the budget; bad_file
// like quantize().
ATTEND_API Page live_page(const std::filesystem::path& model, const Recording& text_recording, std::string_view text,
                          const LivePageOptions& options = {});
#endif

}  // namespace attend::inline v1
