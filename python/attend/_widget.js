// A page in a frame of its own, of a widget's state. srcdoc, as a notebook's frame has it: VS Code can forbid a frame of a blob: URL.
function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  frame.style.width = "100%";
  frame.style.border = "1px solid #d0d7de";
  const show = () => {
    frame.title = model.get("_title");
    frame.srcdoc = new TextDecoder().decode(model.get("_html"));
  };
  const size = () => {
    frame.style.height = model.get("height");
  };
  show();
  size();
  model.on("change:_html", show);
  model.on("change:height", size);
  el.append(frame);
  return () => {
    model.off("change:_html", show);
    model.off("change:height", size);
  };
}

export default { render };
