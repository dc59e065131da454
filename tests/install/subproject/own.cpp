int own() {
  return 3;
}
