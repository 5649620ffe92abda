/* What the theme leaves out for whoever has no mouse or listens: blocks that scroll can be reached
   by the keyboard, and buttons to copy are no landmarks. The theme makes both while a page loads. */

const SCROLLS = "article pre > code, .md-typeset__scrollwrap";

function complete() {
  for (const block of document.querySelectorAll(SCROLLS)) {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
  }
  for (const copy of document.querySelectorAll("nav.md-code__nav:not([role])")) {
    copy.setAttribute("role", "presentation");
  }
}

new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
new ResizeObserver(complete).observe(document.body);
