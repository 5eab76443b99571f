"use strict";
{
  const search = document.getElementById("search"), shown = document.getElementById("shown");
  const severities = [...document.querySelectorAll("input[name=severity]")];
  const findings = [...document.querySelectorAll(".finding")].map(element => ({
    element, severity: element.dataset.severity,
    text: (element.closest(".entry").firstElementChild.textContent + " " + element.parentElement.firstElementChild.textContent + " " + element.textContent).toLowerCase(),
  }));
  const files = [...document.querySelectorAll(".file")];
  // Only findings of the chosen severities that have all words of the search are shown.
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(severities.filter(box => box.checked).map(box => box.value));
    let n = 0;
    for (const finding of findings) {
      finding.element.hidden = !wanted.has(finding.severity) || !words.every(word => finding.text.includes(word));
      n += finding.element.hidden ? 0 : 1;
    }
    files.forEach(file => file.hidden = !file.querySelector(".finding:not([hidden])"));
    shown.textContent = n < findings.length ? n + " of " + findings.length + " findings" : "";
  };
  search.addEventListener("input", filter);
  severities.forEach(box => box.addEventListener("change", filter));
  document.querySelector(".filters").hidden = findings.length === 0;
  // A link to a check opens its text.
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.matches("details")) {
      target.open = true;
    }
  };
  addEventListener("hashchange", open);
  open();
}
