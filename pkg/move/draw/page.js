"use strict";
const search = document.getElementById("search"), found = document.getElementById("found");
const rows = [...document.querySelectorAll("li[data-boxes]")].map(li => ({li, text: li.closest("details").firstElementChild.textContent.toLowerCase() + " " + li.textContent.toLowerCase(), boxes: li.dataset.boxes.split(" ")}));
const kinds = [...document.querySelectorAll("details")], wasOpen = kinds.map(kind => kind.open);
const boxes = [...document.querySelectorAll("g[data-box]")];
// show lets only those rows and their boxes be seen that a test holds for; all without a test.
function show(test) {
  const hit = new Set();
  let n = 0;
  for (const row of rows) {
    row.li.hidden = Boolean(test) && !test(row);
    if (!row.li.hidden) {
      n++;
      row.boxes.forEach(box => hit.add(box));
    }
  }
  kinds.forEach((kind, i) => {
    kind.hidden = !kind.querySelector("li:not([hidden])");
    kind.open = test ? !kind.hidden : wasOpen[i];
  });
  boxes.forEach(box => box.classList.toggle("dim", !hit.has(box.dataset.box)));
  found.textContent = test ? n + " of " + rows.length + " objects" : "";
}
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  show(words.length > 0 && (row => words.every(word => row.text.includes(word))));
});
// A click on a box lists what is in it; a click beside all boxes lists everything again.
document.querySelector(".picture").addEventListener("click", event => {
  const box = event.target.closest("g[data-box]");
  if (box || event.target.closest("svg")) {
    search.value = "";
    show(box && (row => row.boxes.includes(box.dataset.box)));
  }
});
