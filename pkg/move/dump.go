package move

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// maxDumpFile is the size limit of a file of a dump, in bytes.
const maxDumpFile = 512 << 20

// ErrNoDump means that a path contains no dump.
var ErrNoDump = errors.New("no dump found")

// Dump reads the objects of files and folders: YAML and JSON, single objects and lists in the output of kubectl, and
// the output of `clusterctl move --to-directory`. In folders, it reads all files below that end in .yaml, .yml or .json.
// With whole, objects keep all their fields, otherwise only the fields that the rules of a move read.
//
// Unreadable parts become problems of the world. The error is ErrNoDump if there are no such files, or that of reading
// one.
func Dump(ctx context.Context, whole bool, paths ...string) (*World, error) {
	var files []string
	for _, path := range paths {
		pathFiles, err := dumpFiles(path)
		if err != nil {
			return nil, err
		}
		files = append(files, pathFiles...)
	}
	world := &World{Source: "the dump " + strings.Join(paths, ", ")}
	parts := make([]reader, len(files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, file := range files {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			data, err := readDumpFile(file)
			if err != nil {
				return err
			}
			parts[i] = reader{file: file, whole: whole}
			parts[i].read(data)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var crds []slimCRD
	for _, p := range parts {
		world.Objects = append(world.Objects, p.objects...)
		crds = append(crds, p.crds...)
		world.Problems = append(world.Problems, p.problems...)
	}
	if len(world.Objects)+len(crds) == 0 && len(world.Problems) == 0 {
		return nil, fmt.Errorf("%s: no file has an object: %w", strings.Join(paths, ", "), ErrNoDump)
	}
	world.setKinds(crds)
	world.dropDuplicates()
	world.checkUIDs()
	return world, nil
}

// dumpFiles returns the files of a dump.
func dumpFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("looking for a dump: %w: %w", err, ErrNoDump)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Type().IsRegular() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
			files = append(files, file)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the folder %s: %w", path, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no file that ends in .yaml, .yml or .json: %w", path, ErrNoDump)
	}
	return files, nil
}

// readDumpFile reads a file up to the limit.
func readDumpFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("reading a dump: %w", err)
	}
	if info.Size() > maxDumpFile {
		return nil, fmt.Errorf("%s has %d bytes, and more than %d are not read: dump the namespace alone, or one file for each kind", file, info.Size(), maxDumpFile)
	}
	data, err := os.ReadFile(file) //nolint:gosec // the user named it, or its folder
	if err != nil {
		return nil, fmt.Errorf("reading a dump: %w", err)
	}
	return data, nil
}

// setKinds sets the kinds: those of the CRDs, or assumed ones for objects without a CRD.
func (w *World) setKinds(crds []slimCRD) {
	w.Kinds = KindsOf(crds...)
	if len(crds) > 0 {
		if len(w.Kinds) == 2 {
			w.problem("", "none of the %d CRDs of the dump has the label clusterctl.cluster.x-k8s.io: the cluster was not set up by clusterctl, and its move takes nothing", len(crds))
		}
		return
	}
	for _, o := range w.Objects {
		w.Kinds.assume(o.Object)
	}
	for _, o := range w.Objects { // after all objects, which show whether their kinds have namespaces
		for _, r := range o.Owners {
			w.Kinds.assume(manifest.Object{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: o.Namespace})
		}
	}
	w.assume("the dump has no CRDs: all kinds that are not Kubernetes' own are treated as kinds that clusterctl installed, as cluster-scoped if their objects have no namespace, and as kinds without a label to move them (add the output of `kubectl get crds -o yaml` to the dump to know)")
	if !w.isBackup() {
		return
	}
	w.assume("the files are named as `clusterctl move --to-directory` names them: cluster-scoped kinds are treated as kinds with the label clusterctl.cluster.x-k8s.io/move-hierarchy, because clusterctl writes no others")
	for gk, kind := range w.Kinds {
		if kind.ClusterScoped {
			kind.Move, kind.MoveHierarchy = true, true
			w.Kinds[gk] = kind
		}
	}
}

// isBackup reports whether all files are named as clusterctl names them.
func (w *World) isBackup() bool {
	for _, o := range w.Objects {
		if filepath.Base(o.Place.File) != FileName(o.Object) {
			return false
		}
	}
	return len(w.Objects) > 0
}

// dropDuplicates keeps one of several objects with the same kind and name. It is unknown which is the newest.
func (w *World) dropDuplicates() {
	firsts := make(map[key]*Object, len(w.Objects))
	w.Objects = slices.DeleteFunc(w.Objects, func(o *Object) bool {
		first, seen := firsts[o.key()]
		switch {
		case !seen:
			firsts[o.key()] = o
		case first.UID != o.UID:
			w.problem(o.where(), "%s exists twice with different UIDs, also at %s: dumps of two clusters, or of two times, are mixed; the first one is used", o.Object, first.where())
		}
		return seen
	})
}

// where returns the place of an object in a dump.
func (o *Object) where() string {
	if o.Place.Line > 0 {
		return fmt.Sprintf("%s:%d", o.Place.File, o.Place.Line)
	}
	return o.Place.File
}

// checkUIDs reports objects without UIDs, and UIDs of several objects.
func (w *World) checkUIDs() {
	owners := map[types.UID]*Object{}
	missing, first := 0, ""
	for _, o := range w.Objects {
		if o.UID == "" {
			if missing++; missing == 1 {
				first = o.where()
			}
			continue
		}
		if other, ok := owners[o.UID]; ok {
			w.problem(o.where(), "%s has the UID %s, which %s has as well (%s): the dump was edited; the UID is treated as that of the first", o.Object, o.UID, other.Object, other.where())
			o.UID = ""
			continue
		}
		owners[o.UID] = o
	}
	if missing > 0 {
		w.problem(first, "%d of %d objects have no metadata.uid, this one first: owners are looked for by kind and name instead; dump with `kubectl get -o yaml`, which has UIDs", missing, len(w.Objects))
	}
}
