"""attend.widget: a page in the state of a widget, and the module that shows it."""

import base64
import json
import pathlib
import shutil
import subprocess
import sys

import pytest
import tiny

import attend
import attend.widget

STEPS, HEADS = "Attention, step by step", "Attention, head by head"


@pytest.fixture
def trace():
    return attend.explain("the cat sat")


@pytest.fixture
def recording(tmp_path):
    return attend.Model.load(tiny.write(tmp_path / "tiny", tiny.bytes_tokenizer())).record("the cat sat", keep="qk")


def test_its_state_holds_the_page(trace, recording):
    for shown, html, title in (trace, trace.to_html(), STEPS), (recording, recording.show().html, HEADS), \
            (recording.show("1.3"), recording.show("1.3").html, HEADS):
        widget = attend.widget.Widget(shown)
        state = widget.get_state()
        assert (state["_html"], state["_title"], state["height"]) == (html.encode(), title, "50em") and widget.page is shown
        bundle = widget._repr_mimebundle_()[0]
        assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == widget.model_id
        assert sum(map(len, map(str, bundle.values()))) < 1000  # a notebook's file has no page in it


def test_another_page_in_its_place(trace):
    widget = attend.widget.Widget(trace, 300)
    page = attend.explain(preset="life")
    sent = []
    widget.send_state = lambda key: sent.append(widget.get_state(key))
    widget.page = page
    widget.height = "7.5rem"
    assert sent == [{"_html": page.to_html().encode()}, {"height": "7.5rem"}] and widget.page is page


@pytest.mark.parametrize("height, made", [("30em", "30em"), ("0.5vh", "0.5vh"), (400, "400px"), (12.5, "12.5px")])
def test_heights(trace, height, made):
    assert attend.widget.Widget(trace, height=height).height == made


@pytest.mark.parametrize("height, kind", [
    (None, TypeError), (True, TypeError), ([1], TypeError), (0, ValueError), (-3, ValueError), (float("nan"), ValueError),
    (10**400, ValueError), (1e9, ValueError), ("", ValueError), ("30", ValueError), ("0em", ValueError), ("5 em", ValueError),
    ("1em; position: fixed", ValueError), ("٣em", ValueError), ("50%", ValueError),
])
def test_what_is_no_height(trace, height, kind):
    with pytest.raises(kind, match="Widget: height: expected a CSS length such as '50em' or a number of pixels.*, got "):
        attend.widget.Widget(trace, height)
    widget = attend.widget.Widget(trace)
    with pytest.raises(kind, match="Widget: height: expected a CSS length"):
        widget.height = height
    assert widget.height == "50em"


def test_what_is_no_page(trace):
    with pytest.raises(TypeError, match="Widget: page: expected an attend.Page, Recording or Trace, got str"):
        attend.widget.Widget("<p>")
    widget = attend.widget.Widget(trace)
    with pytest.raises(TypeError, match="Widget: page: expected .*, got NoneType"):
        widget.page = None
    with pytest.raises(RuntimeError, match="nothing was recorded"):
        widget.page = attend.Recording()
    assert widget.page is trace and widget.get_state()["_html"] == trace.to_html().encode()


def test_attend_needs_no_widgets():
    program = """
import sys
sys.modules["anywidget"] = None
import attend
assert "iframe" in attend.explain("the cat")._repr_html_()
import attend.widget
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "ImportError: attend.widget needs anywidget: pip install 'attend-cpu[widget]'"


# What a browser has that the module uses. model.get() gives bytes as a DataView, as JupyterLab and marimo do.
BROWSER = """
const [module, first, second] = JSON.parse(require("fs").readFileSync(0, "utf8"));
const bytes = text => { const all = Buffer.from(text, "base64"); return new DataView(all.buffer, all.byteOffset, all.length); };
globalThis.document = { createElement: tag => ({ tag, style: {}, setAttribute(name, value) { this[name] = value; } }) };
const listeners = {}, state = { _html: bytes(first), _title: "one", height: "50em" };
const model = {
  get: name => state[name],
  on: (event, call) => (listeners[event] ??= new Set()).add(call),
  off: (event, call) => listeners[event].delete(call),
};
const set = values => {
  Object.assign(state, values);
  for (const name in values) for (const call of listeners[`change:${name}`] ?? []) call();
};
const el = { children: [], append(child) { this.children.push(child); } }, seen = [];
const look = () => seen.push(el.children.map(({ tag, sandbox, title, srcdoc, style }) => [tag, sandbox, title, srcdoc, style.height]));
import(`data:text/javascript;base64,${module}`).then(({ default: { render } }) => {
  const end = render({ model, el });
  look();
  set({ _html: bytes(second), _title: "two" });
  set({ height: "300px" });
  look();
  end();
  console.log(JSON.stringify([seen, Object.values(listeners).map(calls => calls.size)]));
});
"""


@pytest.mark.skipif(not shutil.which("node"), reason="no Node")
def test_its_module_shows_the_page_in_a_frame(trace):
    module = (pathlib.Path(attend.__file__).parent / "_widget.js").read_text()
    assert attend.widget.Widget(trace).get_state()["_esm"] == module
    pages = [trace.to_html(), "<p>naïve 東京</p>"]
    words = json.dumps([base64.b64encode(text.encode()).decode() for text in (module, *pages)])
    done = subprocess.run(["node", "-e", BROWSER], input=words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    frame = ["iframe", "allow-scripts allow-downloads"]
    assert json.loads(done.stdout) == [[[[*frame, "one", pages[0], "50em"]], [[*frame, "two", pages[1], "300px"]]], [0, 0]]
