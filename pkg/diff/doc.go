// Package diff says what changed between two releases of a provider: objects, the schemas of its
// kinds field by field, permissions, images, variables, flavors, classes and release series.
package diff
