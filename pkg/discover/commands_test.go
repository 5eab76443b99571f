package discover

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stepTexts returns the steps of a build file as texts: line, command, source, target and use.
func stepTexts(file, text string) []string {
	known := variables{}
	known.collect([]byte(text))
	var texts []string
	for _, s := range readSteps(file, []byte(text), known) {
		how := "copy"
		if s.kustomize {
			how = "kustomize"
		}
		line := strings.TrimPrefix(s.place, file+":")
		texts = append(texts, line+" "+how+" "+s.source+" > "+s.target+" "+[]string{"test", "unclear", "release"}[s.use])
	}
	for i := range texts {
		texts[i] = strings.ReplaceAll(texts[i], unknownMark, "@")
	}
	return texts
}

func TestReadSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		file, text string
		want       []string
	}{
		"kustomize to a file": {"Makefile", "release:\n\t@$(KUSTOMIZE) build config/default --load-restrictor LoadRestrictionsNone > out/a.yaml\n",
			[]string{"2 kustomize config/default > out/a.yaml release"}},
		"kustomize through a pipe": {"Makefile", "all:\n\tkubectl kustomize ./config | envsubst \\\n\t| install -m 600 -D /dev/fd/0 out/a.yaml\n",
			[]string{"2 kustomize config > out/a.yaml unclear"}},
		"kustomize by go run": {"Makefile", "K := go run sigs.k8s.io/kustomize/kustomize/v5@v5.0.0\nall:\n\t$(K) build --output=out/a.yaml config\n",
			[]string{"3 kustomize config > out/a.yaml unclear"}},
		"kustomize to a cluster": {"Makefile", "deploy:\n\tkustomize build config/default | kubectl apply -f -\n", nil},
		"kustomize in a folder": {"hack/release.sh", "(cd config && kustomize build . > ../out/a.yaml)\n",
			[]string{"1 kustomize config > out/a.yaml release"}},
		"copies": {"Makefile", "release:\n\tcp -f metadata.yaml templates/*.yaml $(RELEASE_DIR)/\n\tinstall -d out\n\tcp -t out a.yaml b.yaml\n",
			[]string{"2 copy metadata.yaml > @RELEASE_DIR@/ release", "2 copy templates/*.yaml > @RELEASE_DIR@/ release", "4 copy a.yaml > out/ release", "4 copy b.yaml > out/ release"}},
		"sed and envsubst": {"Makefile", "all:\n\tsed -e 's/a/b/' a.yaml > out/b.yaml\n\tenvsubst < c.yaml > out/d.yaml\n",
			[]string{"2 copy a.yaml > out/b.yaml unclear", "3 copy c.yaml > out/d.yaml unclear"}},
		"variables": {"Makefile", "ROOT := $(shell pwd)\nA ?= $(ROOT)/a\nB = ${A}/b\nB += # more\nOUT ?= out # there\nA ?= no\nall:\n\tcp $(abspath $(B))/x.yaml $(OUT)/$(VERSION)/x.yaml\n",
			[]string{"8 copy @@/a/b/x.yaml > out/@VERSION@/x.yaml unclear"}},
		"variables that refer to each other": {"Makefile", "A = $(B)\nB = $(A)\nall:\n\tcp $(A)/x.yaml out/\n", []string{"4 copy @@/x.yaml > out/ unclear"}},
		"a default of the shell":             {"a.sh", "OUT=\"${OUT:-out}\"\ncp a.yaml \"${OUT}/a.yaml\"\n", []string{"2 copy a.yaml > out/a.yaml unclear"}},
		"a loop": {"hack/release.sh", "for f in a b; do cp \"$f/x.yaml\" \"out/x-$f.yaml\"; done\n",
			[]string{"1 copy a/x.yaml > out/x-a.yaml release", "1 copy b/x.yaml > out/x-b.yaml release"}},
		"a rule for many": {"Makefile", "t/%.yaml:\n\tkustomize build $* > $@\n", []string{"2 kustomize @stem@ > t/@stem@.yaml unclear"}},
		"a stage": {"Dockerfile", "FROM a AS release\nCOPY --from=b /x.yaml /y.yaml\nCOPY a.yaml /a.yaml\nRUN --mount=type=cache,target=/c kustomize build config > /b.yaml && cp m.yaml /m.yaml\n",
			[]string{"3 copy a.yaml > /a.yaml release", "4 kustomize config > /b.yaml release", "4 copy m.yaml > /m.yaml release"}},
		"a workflow": {".github/workflows/release.yml", "env:\n  OUT: out\njobs:\n  a:\n    steps:\n    - run: cp a.yaml $OUT/a.yaml\n    - with:\n        files: |\n          metadata.yaml\n          templates/cluster-template*.yaml\n",
			[]string{"6 copy a.yaml > out/a.yaml release", "9 copy metadata.yaml >  release", "10 copy templates/cluster-template*.yaml >  release"}},
		"a workflow for tests": {".github/workflows/e2e.yml", "run: cp a.yaml out/a.yaml\n", []string{"1 copy a.yaml > out/a.yaml test"}},
		"goreleaser":           {".goreleaser.yaml", "release:\n  extra_files:\n  - glob: ./metadata.yaml\n", []string{"3 copy ./metadata.yaml >  release"}},
		"gh":                   {"hack/x.sh", "gh release create v1 out/a.yaml \"${RELEASE_DIR}/b.yaml\"\n", []string{"1 copy out/a.yaml >  release"}},
		"comments":             {"Makefile", "release:\n\t# cp a.yaml out/\n\tcp b.yaml out/ # c.yaml\n", []string{"3 copy b.yaml > out/ release"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, stepTexts(tc.file, tc.text)); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzReadSteps checks that any text can be read, and that its steps never lead out of the tree.
func FuzzReadSteps(f *testing.F) {
	f.Add("Makefile", "A = $(A)$(A)\nrelease:\n\tcp $(A)/*.yaml ../out/\n\tkustomize build .. > $@\n")
	f.Add("hack/release.sh", "for f in a b; do cp \"$f/../../x.yaml\" '${f'; done\n")
	f.Add("Dockerfile", "FROM a AS b\nRUN cp $( /etc/passwd.yaml > x.yaml\n")
	f.Add(".goreleaser.yaml", "- glob: /etc/*.yaml\x00\\\n")
	s := &scanned{kustomizations: map[string][]string{".": nil, "config": nil}, all: []string{"a/x.yaml", "metadata.yaml"}}
	f.Fuzz(func(t *testing.T, file, text string) {
		known := variables{}
		known.collect([]byte(text))
		e := &evidence{scan: s, steps: readSteps(file, []byte(text), known), resolved: map[int][]asset{}}
		if len(e.steps) > 200 {
			return
		}
		for _, a := range e.released(func(string) bool { return true }) {
			if !slices.Contains(s.all, a.file) && !slices.Contains(s.folders(), a.kustomize) || strings.Contains(a.name, "/") {
				t.Errorf("%+v is not in the tree", a)
			}
		}
	})
}
