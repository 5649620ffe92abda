// A terminal whose other end is a dashboard on the server: keys and sizes go there, what it shows
// and what it lets one download come back.
"use strict";

const term = new Terminal({ scrollback: 0, fontFamily: "monospace", fontSize: 15 });
const fit = new FitAddon.FitAddon();
const says = document.getElementById("says");
let socket = null;
let ended = false; // by the dashboard: it begins again with a key
let wait = 1000; // ms until the next try

term.loadAddon(fit);
term.open(document.getElementById("screen"));

const say = (text) => { says.textContent = text; says.hidden = !text; };
const send = (message) => {
  if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
};

function connect() {
  const url = new URL("ws", location.href);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  ended = false;
  socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  let opened = false;
  socket.onopen = () => {
    opened = true;
    say("");
    term.reset();
    fit.fit();
    send({ size: [term.cols, term.rows] });
    term.focus();
  };
  socket.onmessage = (event) => {
    wait = 1000; // only now: whoever is turned away at once must not come again at once
    if (typeof event.data === "string") told(JSON.parse(event.data));
    else term.write(new Uint8Array(event.data));
  };
  socket.onclose = (event) => {
    ended = event.code === 1000;
    if (ended) return say("The dashboard has ended. Press a key to open it again.");
    const why = event.reason ? `${event.reason[0].toUpperCase()}${event.reason.slice(1)}` : "Connection lost";
    const old = opened ? "" : "\nIf eoctl was started again, it printed a new address.";
    say(`${why}. Trying again.${old}`);
    setTimeout(connect, wait);
    wait = Math.min(wait * 2, 15000);
  };
}

function told(message) {
  if (message.download === undefined) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([message.text], { type: "text/plain" }));
  link.download = message.download;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

term.onData((keys) => send({ keys }));
term.onResize(({ cols, rows }) => send({ size: [cols, rows] }));
// what the dashboard copies; only a secure page may
term.parser.registerOscHandler(52, (data) => {
  const bytes = Uint8Array.from(atob(data.slice(data.indexOf(";") + 1)), (c) => c.charCodeAt(0));
  if (navigator.clipboard) navigator.clipboard.writeText(new TextDecoder().decode(bytes)).catch(() => {});
  return true;
});
addEventListener("resize", () => fit.fit());
addEventListener("keydown", () => { if (ended) connect(); }, true); // before the terminal, which keeps its keys
connect();
