"""The style of a report: light or dark as the reader's system is, and for paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --back: #ffffff; --card: #f6f8fa; --text: #1b1f24; --dim: #57606a; --line: #d0d7de;
  --act: #b42318; --look: #8a5a00; --good: #1a7f37; --key: #0a58ca; --unknown: #6639a6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #0d1117; --card: #161b22; --text: #e6edf3; --dim: #9aa4af; --line: #30363d;
    --act: #ff7b72; --look: #e3b341; --good: #56d364; --key: #79c0ff; --unknown: #d2a8ff;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--back);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 0 0 .5rem; }
p { margin: .5rem 0; }
a { color: var(--key); }
.dim, time, caption, figcaption { color: var(--dim); }
.act { color: var(--act); } .look { color: var(--look); } .good { color: var(--good); }
.key { color: var(--key); } .unknown { color: var(--unknown); } .title { font-weight: 600; }
section.card {
  background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: 1rem; margin: 0 0 1rem;
}
.tag { border: 1px solid currentColor; border-radius: 1rem; padding: 0 .6rem; font-size: .85rem; }
dl { display: grid; grid-template-columns: 8rem 1fr; gap: .15rem .75rem; margin: .75rem 0; }
dt { color: var(--dim); grid-column: 1; } dd { margin: 0; grid-column: 2; white-space: pre-wrap; }
pre, code { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre {
  background: var(--back); border: 1px solid var(--line); border-radius: .35rem;
  padding: .6rem .75rem; margin: .5rem 0; font-size: .85rem; white-space: pre-wrap;
}
figure { margin: .75rem 0; }
pre.strip {
  font-size: min(1.05rem, calc((100vw - 6rem) / 31)); line-height: 1.3; white-space: pre;
  overflow: hidden; font-weight: 600;
}
ol.timeline {
  list-style: none; margin: 0; padding: 0 0 0 1rem; border-left: 2px solid var(--line);
}
ol.timeline li { position: relative; margin: 0 0 .6rem; }
ol.timeline li::before {
  content: ""; position: absolute; left: calc(-1rem - 6px); top: .5rem; width: 10px; height: 10px;
  border-radius: 50%; background: var(--back); border: 2px solid var(--dim);
}
ol.timeline li.look::before { border-color: var(--key); background: var(--key); }
ol.timeline li.change::before { border-color: var(--good); background: var(--good); }
ol.timeline li.ahead::before { border-style: dashed; border-color: var(--look); }
ol.timeline li { color: var(--text); }
ol.timeline time { display: block; font-size: .85rem; font-variant-numeric: tabular-nums; }
.scrolls { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; overflow-wrap: normal; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; }
td:first-child { white-space: nowrap; }
th { color: var(--dim); font-weight: 600; white-space: nowrap; }
tr { border-bottom: 1px solid var(--line); }
@media (max-width: 40rem) {
  dl { display: block; } dt { margin-top: .4rem; } body { padding-top: 1rem; }
}
@media print {
  :root {
    color-scheme: light;
    --back: #fff; --card: #fff; --text: #000; --dim: #444; --line: #999;
    --act: #a00; --look: #750; --good: #060; --key: #039; --unknown: #518;
  }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  section.card, li, tr, figure { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .scrolls { overflow: visible; }
  pre.strip { font-size: 10pt; }
}
"""
