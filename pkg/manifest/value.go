package manifest

import (
	"fmt"
	"time"
)

// JSONValue returns a YAML value as what JSON would have made of it: that is what Kubernetes knows.
// Numbers are int64 or float64 (an integer that int64 does not hold is a float64), times are texts, and keys are texts; a key that is none, which
// Kubernetes would refuse, is written as one. Maps and lists are changed in place where they can be.
func JSONValue(value any) any { return Edit(value, ofJSON) }

// ofJSON returns a single value, or the fields of a map, as JSON has them.
func ofJSON(value any) any {
	switch v := value.(type) {
	case map[any]any:
		converted := make(map[string]any, len(v))
		for key, field := range v {
			converted[fmt.Sprint(key)] = field
		}
		return converted
	case int:
		return int64(v)
	case uint64:
		return float64(v)
	case time.Time:
		return v.Format(time.RFC3339Nano)
	}
	return value
}
