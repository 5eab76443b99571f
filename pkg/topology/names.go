package topology

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// random matches the random suffix of names that Cluster API generates: five characters without vowels.
var random = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// renamed replaces random suffixes of objects' names by stable ones, also in references. The first object is the
// Cluster, whose name the user has chosen.
func renamed(objects []unstructured.Unstructured) []unstructured.Unstructured {
	var pairs []string
	for _, o := range objects[1:] {
		name := o.GetName()
		if random.MatchString(name) && name != objects[0].GetName() {
			pairs = append(pairs, name, random.ReplaceAllString(name, "-00000"))
		}
	}
	replacer := strings.NewReplacer(pairs...)
	for i := range objects {
		manifest.Edit(objects[i].Object, func(value any) any {
			if text, ok := value.(string); ok {
				return replacer.Replace(text)
			}
			return value
		})
	}
	return objects
}
