"use strict";
const root = document.documentElement;
const base = new URL(".", document.currentScript.src);

// The switch between light and dark, which begins with what the system prefers.
{
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const show = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Use ${dark() ? "light" : "dark"} colours`); };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* for this page only */ }
    show();
  });
  system.addEventListener("change", show);
  show();
}

// The menu of narrow windows.
const pages = document.getElementById("pages");
{
  const button = document.getElementById("menu");
  const open = (yes) => { pages.classList.toggle("open", yes); button.setAttribute("aria-expanded", yes); };
  button.addEventListener("click", () => open(!pages.classList.contains("open")));
  pages.addEventListener("keydown", (event) => { if (event.key === "Escape") { open(false); button.focus(); } });
  const current = pages.querySelector("[aria-current]");
  if (current) pages.scrollTop = current.offsetTop - pages.clientHeight / 2;
}

// The search. Its index is a script, because pages that are opened from files can't fetch; it is read at the first use.
{
  const input = document.querySelector("#search input");
  const list = document.getElementById("results");
  let loading, selected = -1;
  const load = () => loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("search-index.js", base);
    script.onload = () => resolve(globalThis.bookIndex.map((entry) => ({ ...entry, all: `${entry.title}\n${entry.heading}\n${entry.text}`.toLowerCase() })));
    script.onerror = reject;
    document.head.append(script);
  });

  // score is 0 for a section that lacks a word; words in titles count more than those in the text.
  const score = (entry, words) => {
    let sum = 0;
    for (const word of words) {
      if (!entry.all.includes(word)) return 0;
      const title = entry.title.toLowerCase(), heading = entry.heading.toLowerCase();
      sum += 1 + (title.includes(word) ? 4 : 0) + (heading.includes(word) ? 3 : 0) + (title === word || heading === word ? 8 : 0);
    }
    return sum + (entry.heading ? 0 : 0.5);
  };

  // excerpt is the text around the first word that is in it, with all words marked.
  const excerpt = (text, words) => {
    const lower = text.toLowerCase();
    const first = Math.min(...words.map((word) => lower.indexOf(word)).filter((at) => at >= 0));
    const from = Number.isFinite(first) && first > 40 ? text.indexOf(" ", first - 40) + 1 : 0;
    const part = text.slice(from, from + 140);
    const shown = document.createElement("span");
    for (let at = 0; at < part.length;) {
      const word = words.find((candidate) => part.toLowerCase().startsWith(candidate, at));
      const end = word ? at + word.length : at + 1;
      if (word) { const mark = document.createElement("mark"); mark.textContent = part.slice(at, end); shown.append(mark); } else shown.append(part.slice(at, end));
      at = end;
    }
    return shown;
  };

  const close = () => { list.hidden = true; selected = -1; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
  const choose = (index) => {
    const options = [...list.querySelectorAll("[role=option]")];
    if (!options.length) return;
    selected = (index + options.length) % options.length;
    options.forEach((option, at) => option.setAttribute("aria-selected", at === selected));
    options[selected].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", options[selected].id);
  };
  const search = async () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return close();
    const index = await load();
    if (words.join() !== input.value.toLowerCase().split(/\s+/).filter(Boolean).join()) return; // typed on meanwhile
    const found = index.map((entry) => [score(entry, words), entry]).filter(([points]) => points > 0).sort((a, b) => b[0] - a[0]).slice(0, 20);
    list.replaceChildren(...found.map(([, entry], at) => {
      const item = document.createElement("li"), link = document.createElement("a"), name = document.createElement("b");
      item.id = `result-${at}`;
      item.setAttribute("role", "option");
      link.href = new URL(entry.url, base);
      link.tabIndex = -1;
      name.textContent = entry.heading ? `${entry.title}: ${entry.heading}` : entry.title;
      link.append(name, excerpt(entry.text, words));
      item.append(link);
      return item;
    }));
    if (!found.length) { const item = document.createElement("li"); item.className = "nothing"; item.textContent = `Nothing has all of: ${words.join(" ")}`; list.append(item); }
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    choose(0);
  };
  input.addEventListener("focus", load);
  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); choose(selected + (event.key === "ArrowDown" ? 1 : -1)); }
    if (event.key === "Enter") list.querySelector("[aria-selected=true] a")?.click();
    if (event.key === "Escape") { close(); input.value = ""; }
  });
  list.addEventListener("click", close);
  document.addEventListener("click", (event) => { if (!event.target.closest("#search")) close(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, textarea")) { event.preventDefault(); input.focus(); }
  });
}
