// Search without a server: browsers do not start a Worker for a page that was opened from a file. Here its script runs in a
// hidden frame instead, with the same messages.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const name = `holdfast-worker-${++IFrameWorker.count}`;
      window[name] = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true }));
      const receive = JSON.stringify(name);
      this.frame.srcdoc =
        `<script>self.postMessage = (data) => parent[${receive}](data)</` + "script>" +
        `<script src=${JSON.stringify(new URL(url, document.baseURI).href)}></` + "script>";
      document.documentElement.append(this.frame);
    }

    async postMessage(data) {
      await this.ready;
      const event = this.frame.contentWindow.MessageEvent;
      this.frame.contentWindow.dispatchEvent(new event("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  }
  IFrameWorker.count = 0;
  window.Worker = IFrameWorker;
}
