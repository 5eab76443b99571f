package outcome

import (
	"fmt"
	"slices"
	"strings"
)

// Wrap says what was being done when an error came about. nil stays nil.
func Wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// OneLine puts errors that were joined on one line.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// shown is how many of several things a message names at most.
const shown = 10

// List joins the first of several things, and says how many more there are, so that a message with them stays short.
func List(things []string, separator string) string {
	if rest := len(things) - shown; rest > 0 {
		things = append(things[:shown:shown], fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(things, separator)
}

// Names lists names in their order, as List does.
func Names(names []string) string { return List(slices.Sorted(slices.Values(names)), ", ") }
