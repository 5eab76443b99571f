// Package browser tests the book in Chromium as readers open it: from files, at the widths of a phone and of a desktop.
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

var book = flag.String("book", "../../../out/book", "the folder of the book, from `make book`")

// pageScript has the functions that check pages.
//
//go:embed page.js
var pageScript string

// A window is a window of Chromium with its problems.
type window struct {
	t        *testing.T
	ctx      context.Context // chromedp stores the browser in it
	mutex    sync.Mutex
	problems []string
}

// open opens a window. The test fails for errors in its console, and if it loads anything except files.
func open(t *testing.T) *window {
	t.Helper()
	if _, err := os.Stat(filepath.Join(*book, "index.html")); err != nil {
		t.Fatalf("the book is missing: run make book-test: %v", err)
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
	t.Cleanup(func() { w.report("in the console", w.takeProblems()) })
	return w
}

// event records the lines of the console, and requests for anything except files.
func (w *window) event(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		problem = fmt.Sprintf("console.%s", e.Type)
	case *log.EventEntryAdded:
		problem = e.Entry.Text + " " + e.Entry.URL
	case *network.EventRequestWillBeSent:
		if address := e.Request.URL; !strings.HasPrefix(address, "file:") && !strings.HasPrefix(address, "data:") {
			problem = "loads " + address
		}
	}
	if problem != "" {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.problems = append(w.problems, problem)
	}
}

// takeProblems returns the problems since the last call.
func (w *window) takeProblems() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	problems := w.problems
	w.problems = nil
	return problems
}

func (w *window) do(actions ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	if err := chromedp.Do(w.ctx, actions...); err != nil {
		w.t.Fatal(err)
	}
}

// report fails the test for each problem.
func (w *window) report(where string, problems []string) {
	w.t.Helper()
	for _, problem := range problems {
		w.t.Errorf("%s: %s", where, problem)
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
	w.eval(pageScript + "; 0")
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

// check calls a function of page.js and returns its problems.
func (w *window) check(call string) []string {
	w.t.Helper()
	problems, err := chromedp.Run(w.ctx, chromedp.Evaluate[[]string]("check."+call))
	if err != nil {
		w.t.Fatalf("%s: %v", call, err)
	}
	return problems
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
	w.t.Fatalf("this isn't true within 30 seconds: %s", expression)
}

// key types keys and waits for a JavaScript expression to be true.
func (w *window) key(keys, expression string) {
	w.t.Helper()
	w.do(chromedp.KeyEvent(keys))
	w.until(expression)
}

// media sets the page's medium and the colours that the system prefers.
func (w *window) media(media, scheme string) {
	w.t.Helper()
	_, err := chromedp.Call(w.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: media, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// phone sets the window's size to 360 by 740 pixels, and desktop to 1400 by 900.
func (w *window) phone() {
	w.t.Helper()
	w.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
}
func (w *window) desktop() { w.t.Helper(); w.do(chromedp.EmulateViewport(1400, 900)) }

// TestPages checks that each page fits the windows of phones and desktops, has enough contrast in both colour schemes,
// and can be used by keyboard.
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
		w.report(page+" on a desktop", w.check("overflow(1400)"))
		for _, scheme := range []string{"dark", "light"} {
			w.media("screen", scheme)
			w.report(page+" in "+scheme+" colours", w.check("contrast()"))
		}
		w.phone()
		w.report(page+" on a phone", w.check("overflow(360)"))
		w.report(page, w.check("structure()"))
		w.report(page, w.takeProblems())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pages", pages)
}

// TestWide checks that tables and code wider than a phone have their own scroll bars.
func TestWide(t *testing.T) {
	w := open(t)
	w.phone()
	w.visit("reference/api.html")
	w.until(`[...document.querySelectorAll(".scroll")].some((e) => e.scrollWidth > e.clientWidth)`)
	w.visit("how-to/hosts.html")
	w.until(`[...document.querySelectorAll("pre")].some((e) => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX === "auto")`)
}

// results is an expression for the results of the search.
const results = `[...document.querySelectorAll("#results [role=option]")]`

// search presses the key for the search as a keyboard does: the page handles the key, and its character isn't typed.
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

// TestSearch checks that the search can be used by keyboard, also on pages in folders.
func TestSearch(t *testing.T) {
	w := open(t)
	w.visit("reference/checks/probes.html")
	w.search()
	w.key("webhook-service", results+`[0]?.querySelector("b").textContent === "webhook-service"`)
	for _, scheme := range []string{"dark", "light"} {
		w.media("screen", scheme)
		w.report("the results in "+scheme+" colours", w.check("contrast()"))
	}
	w.key(kb.Enter, `location.pathname.endsWith("/reference/checks/webhook-service.html")`)

	// Words of a text, in any order, find its section.
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
	w.report("results on a phone", w.check("overflow(360)"))
	w.until(`(({left, right}) => left >= 0 && right <= 360)(document.getElementById("results").getBoundingClientRect())`)
}

// TestColours checks that pages have the system's preferred colours until the reader chooses others, which stay.
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
	w.report("index.html in chosen colours", w.check("contrast()"))
	w.eval(`localStorage.clear()`)
	w.visit("index.html")
	w.until("!(" + dark + ")")
}

// TestKeyboard checks that the first key skips to the text, that the focus is visible, and that the menu of phones
// opens and closes.
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
	w.report("the menu on a phone", w.check("overflow(360)"))
	w.key(kb.Tab, `document.activeElement !== document.getElementById("menu")`)
	w.eval(`document.querySelector("#pages a").focus()`)
	w.key(kb.Escape, "!"+shown+` && document.activeElement.id === "menu"`)
}

// TestOrder checks that pages have links to the previous and the next one, and that the list marks the current page.
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

// TestPrint checks that a printed page has only the text, and that nothing is cut off.
func TestPrint(t *testing.T) {
	w := open(t)
	w.visit("how-to/hosts.html")
	w.eval(`document.documentElement.dataset.theme = "dark"`)
	w.media("print", "dark")
	w.until(`["header", "nav", "aside", "footer"].every((name) => !document.querySelector(name).checkVisibility())`)
	w.until(`[...document.querySelectorAll("pre code")].every((e) => getComputedStyle(e).whiteSpace === "pre-wrap")`)
	w.until(`getComputedStyle(document.documentElement).colorScheme === "light"`)
}
