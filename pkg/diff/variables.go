package diff

// VariableChange is the change of a variable of a file.
type VariableChange struct {
	// File is the components, a cluster template or a class definition.
	File string
	Name string
	Kind Kind
	// Before and After are the defaults; nil means none, so that a user has to set the variable.
	Before, After *string
}

// Demanded reports whether users newly have to set the variable.
func (c VariableChange) Demanded() bool {
	return c.After == nil && (c.Kind == Added || c.Kind == Changed && c.Before != nil)
}

// Variables compares the variables of a file by their defaults, nil being none; in order of names.
func Variables(file string, before, after map[string]*string) []VariableChange {
	var changes []VariableChange
	for _, name := range unionKeys(before, after) {
		old, was := before[name]
		now, is := after[name]
		change := VariableChange{File: file, Name: name, Before: old, After: now}
		switch {
		case !was:
			change.Kind = Added
		case !is:
			change.Kind = Removed
		case (old == nil) != (now == nil) || old != nil && *old != *now:
			change.Kind = Changed
		default:
			continue
		}
		changes = append(changes, change)
	}
	return changes
}
