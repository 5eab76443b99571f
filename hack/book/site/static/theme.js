// Runs before the page is drawn, so that it appears in its colours at once.
document.documentElement.classList.add("scripts");
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* the browser keeps nothing for files */ }
