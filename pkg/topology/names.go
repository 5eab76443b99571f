package topology

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// random is how names end that Cluster API makes: five characters, none of which makes words.
var random = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// renamed gives objects whose names end at random names that stay, wherever they are named. The
// first object is the Cluster, whose name the user has chosen.
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
		objects[i].Object, _ = replaced(objects[i].Object, replacer).(map[string]any)
	}
	return objects
}

// replaced replaces texts in a value and all below it.
func replaced(value any, replacer *strings.Replacer) any {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			v[name] = replaced(field, replacer)
		}
	case []any:
		for i, item := range v {
			v[i] = replaced(item, replacer)
		}
	case string:
		return replacer.Replace(v)
	}
	return value
}
