// What the subcommands share: how they are declared, how they fail, and how they write.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cli/line.h"

namespace attend::cli {

// A subcommand: its place in the tree of options, and what it does once the command line has been read.
struct Command {
  App* app;
  std::function<void()> run;
};

Command add_explain(App& root);
Command add_run(App& root);
Command add_plan(App& root);
Command add_inspect(App& root);
Command add_picture(App& root);
Command add_show(App& root);
Command add_model(App& root);
Command add_embed(App& root);
Command add_near(App& root);
Command add_rank(App& root);
Command add_match(App& root);
Command add_classify(App& root);
Command add_tag(App& root);
Command add_chat(App& root);
Command add_quantize(App& root);
Command add_steer(App& root);
Command add_lens(App& root);
Command add_class(App& root);
Command add_completion(App& root);
Command add_help(App& root);

// The command line is wrong: exit status 2, and a line that names the help to read.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Something could not be done, and it was not an input file's fault: exit status 1.
class Failure : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The exit status. bad_file: a file that can't be read or is not what it should be.
enum class Status { fine = 0, failed = 1, usage = 2, bad_file = 3 };

// Tells what went wrong, and for an app where its help is. Returns the status.
Status complain(Status status, const std::string& message, const App* app = nullptr);

// The program: its line, and every error told. Returns the exit status.
int start(int argc, char** argv);

// Reads the line and does what it says; what is wrong with the line is told. Throws Failure, and what the library
// throws.
Status run_line(int argc, char** argv);

// What a value on the command line is, for the help and for completion, stands in an option's type name:
//   FILE      a file
//   PRESET    one of attend::presets()
//   COMMAND   a subcommand
//   a|b|N     one of the words in lower case; a name in upper case stands for any value
// Other names stand for any value.
std::vector<std::string> words_of_type(std::string_view type_name);

// The value is one of the words of the option's type name.
Option* choose_one(Option* option, const std::string& type_name);
// The value is a whole number in that range.
Option* whole_number(Option* option, std::uint64_t low, std::uint64_t high = INT64_MAX);
// A place, from 0; below 0 it counts from the end.
Option* place_number(Option* option);
// The value is a file name that ends in one of these, such as ".npy".
Option* file_ending(Option* option, const std::vector<std::string>& endings);

// A help page of 80 columns, which begins with examples.
std::string help_page(const App& app);

// What stands for a whole description where there is one line: its first sentence, without the full stop.
std::string first_sentence(const std::string& text);

// A variable of the environment; empty where it is not set.
std::string_view environment(const char* name);

// One line without control characters, whatever a name or a word holds: a terminal obeys them.
std::string printable(std::string_view text);
// The same of text that may have several lines.
std::string printable_lines(std::string_view text);
// JSON whose strings hold no mark that a terminal obeys: they are escaped.
std::string printable_json(std::string json);
std::string json_text(const nlohmann::ordered_json& report, int indent = -1);
// A line to standard error, made printable. Where that can't be written there is nobody to tell: never fails.
void tell(std::string_view message);
// Tells which characters of a text a .png file has as boxes; nothing of another file.
void warn_of_missing_characters(const std::string& file, std::string_view text);
// Text to standard output; throws Failure where it can't be written.
void print(std::string_view text);
// Throws Failure unless everything printed has reached the system.
void close_output();

// What `attend --diagnose` prints. It names no user, no host and no path.
std::string diagnosis();

// All of standard input; throws Failure where it can't be read, or holds more than 64 MiB.
std::string read_stdin();
// All of a file; throws bad_file, and Failure for more than 64 MiB.
std::string read_text(const std::string& file);

// Three digits and a unit: "1.61 GFLOP", "296 KiB".
std::string with_unit(double amount, double step, std::span<const char* const> units);
// In thousands of that unit: "137 GFLOP".
std::string of_thousands(double amount, std::string_view unit);
std::string bytes(std::int64_t count);

// Runs a function that writes a file: a file that can't be written is a Failure, as bad_file is kept for input.
void writing(const std::function<void()>& write);

}  // namespace attend::cli
