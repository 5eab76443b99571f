"use strict";
// The first child of each viewport fits it, until its buttons or Ctrl and the wheel zoom. Dragging moves it.
for (const viewport of document.querySelectorAll(".viewport")) {
  const drawing = viewport.firstElementChild, buttons = document.createElement("div");
  let width = 0; // in pixels; 0 fits
  const zoom = (factor, x, y) => {
    const box = viewport.getBoundingClientRect(), before = drawing.getBoundingClientRect();
    const atX = (x - before.left) / before.width, atY = (y - before.top) / before.height;
    width = factor ? Math.min(Math.max((width || before.width) * factor, 50), 30000) : 0;
    viewport.classList.toggle("zoomed", width > 0);
    drawing.style.width = width ? width + "px" : "";
    const after = drawing.getBoundingClientRect();
    viewport.scrollLeft = width ? atX * after.width - (x - box.left) : 0;
    viewport.scrollTop = width ? atY * after.height - (y - box.top) : 0;
  };
  const middle = factor => {
    const box = viewport.getBoundingClientRect();
    zoom(factor, box.left + box.width / 2, box.top + box.height / 2);
  };
  buttons.className = "zoom";
  for (const [text, label, factor] of [["+", "Zoom in", 1.4], ["−", "Zoom out", 1 / 1.4], ["Fit", "Fit to the page", 0]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-label", label);
    button.addEventListener("click", () => middle(factor));
    buttons.append(button);
  }
  viewport.before(buttons);
  viewport.addEventListener("wheel", event => {
    if (event.ctrlKey) {
      event.preventDefault();
      zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, event.clientX, event.clientY);
    }
  }, {passive: false});
  let from = null, moved = false;
  viewport.addEventListener("pointerdown", event => {
    moved = false;
    if (event.pointerType === "mouse" && event.button === 0) {
      from = {x: event.clientX + viewport.scrollLeft, y: event.clientY + viewport.scrollTop, startX: event.clientX, startY: event.clientY};
    }
  });
  addEventListener("pointermove", event => {
    if (!from) {
      return;
    }
    moved = moved || Math.hypot(event.clientX - from.startX, event.clientY - from.startY) > 4;
    if (moved) {
      viewport.classList.add("dragged");
      viewport.scrollLeft = from.x - event.clientX;
      viewport.scrollTop = from.y - event.clientY;
    }
  });
  addEventListener("pointerup", () => {
    from = null;
    viewport.classList.remove("dragged");
  });
  // The end of a drag is not a click on a box.
  viewport.addEventListener("click", event => moved && event.stopPropagation(), true);
  drawing.addEventListener("dragstart", event => event.preventDefault());
}
