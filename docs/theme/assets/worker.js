// A page that is opened from a folder may not start a worker, and the search needs one: a hidden frame stands in for it.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.body.appendChild(Object.assign(document.createElement("iframe"), { hidden: true }));
    this.inside = frame.contentWindow;
    addEventListener("message", (event) => {
      if (event.source === this.inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
    });
    this.inside.document.open();
    this.ready = new Promise((resolve) => this.inside.addEventListener("load", resolve));
    this.inside.document.write(
      `<script>postMessage = (data) => parent.postMessage(data, "*")<\/script><script src="${url}"><\/script>`,
    );
    this.inside.document.close();
  }

  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}
if (location.protocol === "file:") window.Worker = FrameWorker;
