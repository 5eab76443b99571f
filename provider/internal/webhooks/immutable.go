package webhooks

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What to do instead of changing what can't be changed.
const (
	replaceMachine  = "is immutable: the machine has to be replaced, by a new template in its owner"
	replaceTemplate = "is immutable: create a new template with the change, and refer to that one"
	setOnce         = "is immutable once set"
)

// unchanged refuses a change of a field.
func unchanged[T any](path *field.Path, before, after T, message string) field.ErrorList {
	if apiequality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, message)}
}

// unchangedOnceSet refuses a change of a field that has a value already.
func unchangedOnceSet[T comparable](path *field.Path, before, after T) field.ErrorList {
	var unset T
	if before == unset || before == after {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, setOnce)}
}
