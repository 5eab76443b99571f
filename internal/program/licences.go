package program

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// goAuthors is a module of the authors of Go under the licence of Go, which every program here contains. Its copy of
// the licence is that of the standard library: the Go of some distributions comes without the file.
const goAuthors = "golang.org/x/sys"

// Licence is a text that must accompany a program.
type Licence struct {
	// Path is the module's path, the folder in the module and the file's name, e.g. "golang.org/x/sys/LICENSE".
	Path string
	Text []byte
}

var (
	// licenceFile matches names of files with a licence, noticeFile those of notices that licences require.
	licenceFile = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying)([._-].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(copyright|notice|patents)([._-].*)?$`)
	sourceFile  = regexp.MustCompile(`\.(go|s|c|h)$`)
)

// Licences returns the licences of Go and of each module with packages in the program on a platform, and the notices
// next to them, by path. A module without a licence is an error.
func (p Program) Licences(ctx context.Context, root string, platform Platform) ([]Licence, error) {
	out, err := run(ctx, root, platform, "list", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Dir}}\t{{$.Dir}}{{end}}", p.Package)
	if err != nil {
		return nil, err
	}
	texts := map[string][]byte{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 {
			continue // a package of the standard library
		}
		if err := addLicences(texts, fields[0], fields[1], fields[2]); err != nil {
			return nil, fmt.Errorf("collecting the licences of %s: %w", p.Package, err)
		}
	}
	texts["go/LICENSE"] = texts[goAuthors+"/LICENSE"]
	if texts["go/LICENSE"] == nil {
		return nil, fmt.Errorf("collecting the licences of %s: no licence of Go: %s is missing", p.Package, goAuthors)
	}
	var licences []Licence
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		licences = append(licences, Licence{Path: name, Text: texts[name]})
	}
	return licences, nil
}

// addLicences adds the licences and notices in the folder of a package and in its parents, up to the module's folder.
func addLicences(texts map[string][]byte, module, moduleDir, dir string) error {
	licensed := false
	for ; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		place, err := filepath.Rel(moduleDir, dir)
		if err != nil || !filepath.IsLocal(place) {
			return fmt.Errorf("the module %s: %s is not below %s", module, dir, moduleDir)
		}
		for _, entry := range entries {
			isLicence := licenceFile.MatchString(entry.Name())
			if !isLicence && !noticeFile.MatchString(entry.Name()) || !entry.Type().IsRegular() || sourceFile.MatchString(entry.Name()) {
				continue
			}
			licensed = licensed || isLicence
			text, err := os.ReadFile(filepath.Join(dir, entry.Name())) //nolint:gosec // a file of a module that the program is built from
			if err != nil {
				return err
			}
			texts[path.Join(module, filepath.ToSlash(place), entry.Name())] = text
		}
		if place == "." {
			break
		}
	}
	if !licensed {
		return fmt.Errorf("the module %s has no licence: programs built from it can't be distributed; use another module", module)
	}
	return nil
}
