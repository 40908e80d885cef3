// The search of the site runs in a worker, which browsers refuse to pages that are opened from a disk. There its
// script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.window = frame.contentWindow;
      this.ready = new Promise((resolve) => frame.addEventListener("load", resolve));
      frame.contentDocument.open();
      this.window.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      frame.contentDocument.write(`<script src="${url}"><\/script>`);
      frame.contentDocument.close();
    }

    postMessage(data) {
      this.ready.then(() => this.window.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
