// Package browser opens the book in Chromium, as readers do: from files, at the widths of a phone and of a desktop.
package browser

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var book = flag.String("book", "../../../out/book", "the folder of the book, which `make book` makes")

// ask has what is asked of pages.
//
//go:embed page.js
var ask string

// A window is a window of Chromium, and what was wrong in it.
type window struct {
	t     *testing.T
	ctx   context.Context // chromedp keeps the browser in it
	mutex sync.Mutex
	wrong []string
}

// open opens a window. The test fails for errors in its console, and for what is loaded and isn't a file.
func open(t *testing.T) *window {
	t.Helper()
	if _, err := os.Stat(filepath.Join(*book, "index.html")); err != nil {
		t.Fatalf("there is no book: run make book-test: %v", err)
	}
	limited, stop := context.WithTimeout(t.Context(), 30*time.Minute)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(limited)
	t.Cleanup(cancel)
	w := &window{t: t, ctx: ctx}
	w.do(chromedp.EmulateViewport(1400, 900))
	if err := chromedp.Listen(ctx, w.event); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.expect("in the console", w.taken()) })
	return w
}

// event keeps what readers would see in the console.
func (w *window) event(event any) {
	wrong := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		wrong = e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		wrong = fmt.Sprintf("console.%s", e.Type)
	case *log.EventEntryAdded:
		wrong = e.Entry.Text + " " + e.Entry.URL
	case *network.EventRequestWillBeSent:
		if address := e.Request.URL; !strings.HasPrefix(address, "file:") && !strings.HasPrefix(address, "data:") {
			wrong = "loads " + address
		}
	}
	if wrong != "" {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.wrong = append(w.wrong, wrong)
	}
}

// taken returns what was wrong since the last call.
func (w *window) taken() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	wrong := w.wrong
	w.wrong = nil
	return wrong
}

func (w *window) do(actions ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	if err := chromedp.Do(w.ctx, actions...); err != nil {
		w.t.Fatal(err)
	}
}

// expect fails for each of what is wrong.
func (w *window) expect(where string, wrong []string) {
	w.t.Helper()
	for _, what := range wrong {
		w.t.Errorf("%s: %s", where, what)
	}
}

// address returns the URL of a file.
func address(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(file)}).String()
}

// visit opens a page of the book.
func (w *window) visit(page string) {
	w.t.Helper()
	w.do(chromedp.Navigate(address(w.t, filepath.Join(*book, page))))
	w.eval(ask + "; 0")
}

// eval returns the value of a JavaScript expression.
func (w *window) eval(expression string) any {
	w.t.Helper()
	value, err := chromedp.Run(w.ctx, chromedp.Evaluate[any](expression))
	if err != nil {
		w.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// ask returns what is wrong by a function of page.js.
func (w *window) ask(call string) []string {
	w.t.Helper()
	wrong, err := chromedp.Run(w.ctx, chromedp.Evaluate[[]string]("ask."+call))
	if err != nil {
		w.t.Fatalf("%s: %v", call, err)
	}
	return wrong
}

// until waits for a JavaScript expression to be true.
func (w *window) until(expression string) {
	w.t.Helper()
	for range 300 {
		if w.eval(expression) == true {
			return
		}
		w.do(chromedp.Sleep(100 * time.Millisecond))
	}
	w.t.Fatalf("this isn't so within 30 seconds: %s", expression)
}

// key types keys, and is checks that an expression is true then.
func (w *window) key(keys, is string) {
	w.t.Helper()
	w.do(chromedp.KeyEvent(keys))
	w.until(is)
}

// media sets what the page is shown on, and which colours the system prefers.
func (w *window) media(media, scheme string) {
	w.t.Helper()
	_, err := chromedp.Call(w.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: media, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// phone makes the window one of 360 by 740 pixels, and desktop one of 1400 by 900.
func (w *window) phone() {
	w.t.Helper()
	w.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
}
func (w *window) desktop() { w.t.Helper(); w.do(chromedp.EmulateViewport(1400, 900)) }

// TestPages: each page fits the windows of phones and desktops, has enough contrast in both schemes of colours, and can
// be used by keyboard.
func TestPages(t *testing.T) {
	w := open(t)
	pages := 0
	err := fs.WalkDir(os.DirFS(*book), ".", func(page string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(page) != ".html" {
			return err
		}
		pages++
		w.desktop()
		w.visit(page)
		w.expect(page+" on a desktop", w.ask("overflow(1400)"))
		for _, scheme := range []string{"dark", "light"} {
			w.media("screen", scheme)
			w.expect(page+" in "+scheme+" colours", w.ask("contrast()"))
		}
		w.phone()
		w.expect(page+" on a phone", w.ask("overflow(360)"))
		w.expect(page, w.ask("structure()"))
		w.expect(page, w.taken())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pages", pages)
}

// TestWide: tables and code that are wider than a phone scroll by themselves.
func TestWide(t *testing.T) {
	w := open(t)
	w.phone()
	w.visit("reference/api.html")
	w.until(`[...document.querySelectorAll(".scroll")].some((e) => e.scrollWidth > e.clientWidth)`)
	w.visit("how-to/hosts.html")
	w.until(`[...document.querySelectorAll("pre")].some((e) => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX === "auto")`)
}

// results is what the search has found.
const results = `[...document.querySelectorAll("#results [role=option]")]`

// search presses the key that leads to the search, as a keyboard does: its character isn't typed when the page takes the
// key for itself.
func (w *window) search() {
	w.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		event := input.DispatchKeyEventParams{Type: kind, Key: "/", Code: "Slash", Text: "/"}
		if _, err := chromedp.Call(w.ctx, input.DispatchKeyEvent, event); err != nil {
			w.t.Fatal(err)
		}
	}
	w.until(`document.activeElement === document.querySelector("#search input") && document.activeElement.value === ""`)
}

// TestSearch: the search finds pages by keyboard, from pages in folders as well.
func TestSearch(t *testing.T) {
	w := open(t)
	w.visit("reference/checks/probes.html")
	w.search()
	w.key("webhook-service", results+`[0]?.querySelector("b").textContent === "webhook-service"`)
	for _, scheme := range []string{"dark", "light"} {
		w.media("screen", scheme)
		w.expect("the results in "+scheme+" colours", w.ask("contrast()"))
	}
	w.key(kb.Enter, `location.pathname.endsWith("/reference/checks/webhook-service.html")`)

	// Words of the text, in any order, lead to the section that has them.
	w.visit("index.html")
	w.search()
	w.key("surge rollout", results+`.some((e) => e.querySelector("a").href.endsWith("/explanation/machine-pools.html"))`)
	w.until(`document.querySelector("#results mark") !== null && document.activeElement.getAttribute("aria-activedescendant") === "result-0"`)
	w.key(kb.ArrowDown, `document.activeElement.getAttribute("aria-activedescendant") === "result-1" && `+results+`[1].getAttribute("aria-selected") === "true"`)
	w.key(kb.Escape, `document.getElementById("results").hidden && document.activeElement.value === ""`)
	w.key("nosuchword", `!document.getElementById("results").hidden && document.querySelector("#results .nothing").textContent.includes("nosuchword")`)

	// The results fit a phone.
	w.phone()
	w.visit("how-to/hosts.html")
	w.eval(`document.querySelector("#search input").focus()`)
	w.key("certificate", results+`.length > 3`)
	w.expect("results on a phone", w.ask("overflow(360)"))
	w.until(`(({left, right}) => left >= 0 && right <= 360)(document.getElementById("results").getBoundingClientRect())`)
}

// TestColours: the page has the colours that the system prefers, until the reader chooses others, which stay.
func TestColours(t *testing.T) {
	const dark = `getComputedStyle(document.documentElement).backgroundColor === "rgb(20, 23, 28)"`
	w := open(t)
	w.media("screen", "dark")
	w.visit("index.html")
	w.until(dark)
	w.eval(`document.getElementById("theme").click()`)
	w.until("!(" + dark + ")")
	w.visit("how-to/hosts.html")
	w.until("!(" + dark + ")")
	w.media("screen", "light")
	w.eval(`document.getElementById("theme").click()`)
	w.until(dark)
	w.expect("index.html in chosen colours", w.ask("contrast()"))
	w.eval(`localStorage.clear()`)
	w.visit("index.html")
	w.until("!(" + dark + ")")
}

// TestKeyboard: the first key leads to the text, the focus is seen, and the menu of phones opens and closes.
func TestKeyboard(t *testing.T) {
	w := open(t)
	w.visit("how-to/hosts.html")
	w.key(kb.Tab, `document.activeElement.className === "skip" && document.activeElement.getBoundingClientRect().left >= 0`)
	w.until(`getComputedStyle(document.activeElement).outlineStyle === "solid"`)
	w.key(kb.Enter, `document.activeElement.id === "content"`)

	const shown = `document.getElementById("pages").checkVisibility()`
	w.phone()
	w.visit("how-to/hosts.html")
	w.until("!" + shown)
	w.eval(`document.getElementById("menu").focus()`)
	w.key(kb.Enter, shown+` && document.getElementById("menu").getAttribute("aria-expanded") === "true"`)
	w.expect("the menu on a phone", w.ask("overflow(360)"))
	w.key(kb.Tab, `document.activeElement !== document.getElementById("menu")`)
	w.eval(`document.querySelector("#pages a").focus()`)
	w.key(kb.Escape, "!"+shown+` && document.activeElement.id === "menu"`)
}

// TestOrder: the pages have links to the previous and the next one, and the list of pages shows where the reader is.
func TestOrder(t *testing.T) {
	w := open(t)
	w.visit("index.html")
	first := w.eval(`document.querySelector("nav li a").href`)
	w.do(chromedp.Navigate(first.(string)))
	w.until(`document.querySelector("footer [rel=prev]") === null`)
	next := w.eval(`document.querySelector("footer [rel=next]").href`)
	w.do(chromedp.Navigate(next.(string)))
	w.until(fmt.Sprintf(`document.querySelector("footer [rel=prev]").href === %q`, first))
	w.until(`document.querySelector("nav [aria-current]").href === location.href`)
}

// TestPrint: on paper there is the text alone, and nothing is cut off.
func TestPrint(t *testing.T) {
	w := open(t)
	w.visit("how-to/hosts.html")
	w.eval(`document.documentElement.dataset.theme = "dark"`)
	w.media("print", "dark")
	w.until(`["header", "nav", "aside", "footer"].every((name) => !document.querySelector(name).checkVisibility())`)
	w.until(`[...document.querySelectorAll("pre code")].every((e) => getComputedStyle(e).whiteSpace === "pre-wrap")`)
	w.until(`getComputedStyle(document.documentElement).colorScheme === "light"`)
}
