// attend: the command.
#include "cli/command.h"

int main(int argc, char** argv) {
  return attend::cli::start(argc, argv);
}
