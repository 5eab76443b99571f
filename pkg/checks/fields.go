package checks

// mapAt returns the map at a path of field names, itself and no copy, or nil.
func mapAt(m map[string]any, path ...string) map[string]any {
	for _, step := range path {
		m, _ = m[step].(map[string]any)
	}
	return m
}

// textAt returns the text at a path of field names, or "" where there is none or it isn't text.
func textAt(m map[string]any, path ...string) string {
	text, _ := mapAt(m, path[:len(path)-1]...)[path[len(path)-1]].(string)
	return text
}

// listAt returns the list at a path of field names.
func listAt(m map[string]any, path ...string) []any {
	list, _ := mapAt(m, path[:len(path)-1]...)[path[len(path)-1]].([]any)
	return list
}

// textsAt returns the texts in the list at a path of field names.
func textsAt(m map[string]any, path ...string) []string {
	var texts []string
	for _, item := range listAt(m, path...) {
		if text, ok := item.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// steps joins the parts of a field's path into a new one.
func steps(path []any, more ...any) []any {
	joined := make([]any, 0, len(path)+len(more))
	return append(append(joined, path...), more...)
}
