// Browsers start no worker from a file, so the search of a site that is opened as files runs in a hidden frame.
// Pages that a server delivers keep the browser's own Worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = []; // messages until the script has loaded
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.addEventListener("load", () => {
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = inside.document.createElement("script");
        script.src = new URL(address, location.href).href;
        script.addEventListener("load", () => {
          this.inside = inside;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        });
        inside.document.head.append(script);
      }, { once: true });
      document.documentElement.append(frame);
    }
    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
  };
}
