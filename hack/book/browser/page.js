// The test's checks of a page. Each function returns the problems.
globalThis.check = {
  // overflow: nothing makes the page wider than the window.
  overflow(width) {
    const wide = document.documentElement.scrollWidth;
    if (wide <= width) return [];
    const cause = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > width + 1).slice(0, 3);
    return [`the page is ${wide} px wide: ${cause.map((e) => e.outerHTML.slice(0, 80)).join(", ")}`];
  },

  // structure: what readers with a keyboard or a screen reader need.
  structure() {
    const wrong = [];
    const headings = document.querySelectorAll("h1").length;
    if (headings !== 1) wrong.push(`${headings} headings of the first level`);
    if (!document.documentElement.lang) wrong.push("no language");
    const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
    for (const id of new Set(ids)) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push(`the id ${id} twice`);
    for (const image of document.images) if (!image.alt || !image.complete || !image.naturalWidth) wrong.push(`the picture ${image.src} has no text or no content`);
    for (const e of document.querySelectorAll("a, button, input")) if (!(e.textContent.trim() || e.getAttribute("aria-label"))) wrong.push(`${e.outerHTML.slice(0, 80)} has no name`);
    for (const e of document.querySelectorAll("main *")) {
      if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== "visible" && e.tabIndex !== 0) wrong.push(`${e.outerHTML.slice(0, 80)} scrolls, and not by keyboard`);
    }
    return wrong;
  },

  // contrast: text has the contrast that WCAG 2.2 asks for at level AA.
  contrast() {
    const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
    const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const back = (e) => {
      for (; e; e = e.parentElement) {
        const colour = channels(getComputedStyle(e).backgroundColor);
        if (colour.length === 3 || colour[3] > 0) return colour;
      }
      return [255, 255, 255];
    };
    const wrong = new Set();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode.data.trim(), e = texts.currentNode.parentElement;
      if (!text || e.tagName === "SCRIPT" || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
      const style = getComputedStyle(e), size = parseFloat(style.fontSize);
      const [dark, light] = [luminance(channels(style.color)), luminance(back(e))].sort((a, b) => a - b);
      const ratio = (light + 0.05) / (dark + 0.05), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
      if (ratio < (large ? 3 : 4.5)) wrong.add(`contrast ${ratio.toFixed(1)} of <${e.tagName.toLowerCase()} class="${e.className}">, such as ${text.slice(0, 30)}`);
    }
    return [...wrong];
  },
};
