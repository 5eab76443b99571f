// Package diff compares two releases of a provider: objects, the schemas of kinds field by field, permissions, images,
// variables, flavors, classes and release series.
package diff
