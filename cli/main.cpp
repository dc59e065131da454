#include <cstdio>

#include "attend/attend.h"

int main() {
  return 0;
}
