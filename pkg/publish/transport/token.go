package transport

import (
	"fmt"
	"os"
	"strings"
)

// ReadToken returns the secret of a file, or of the first variable that is set, or "" where there
// is neither. What is no token, such as one with a line break in it, is an error that does not show it.
func ReadToken(file string, variables ...string) (string, error) {
	token, from := "", ""
	if file != "" {
		data, err := os.ReadFile(file) //nolint:gosec // the user names the file
		if err != nil {
			return "", fmt.Errorf("reading the token: %w", err)
		}
		if len(data) > 1<<16 {
			return "", fmt.Errorf("the token file %s has %d bytes: it has to hold a token and nothing else", file, len(data))
		}
		token, from = strings.TrimSpace(string(data)), "the file "+file
		if token == "" {
			return "", fmt.Errorf("the token file %s is empty", file)
		}
	}
	for _, name := range variables {
		if token == "" {
			token, from = strings.TrimSpace(os.Getenv(name)), name
		}
	}
	if token == "" {
		return "", nil
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("the token in %s has characters that no token has, such as spaces or line breaks in it: put the token there and nothing else", from)
	}
	return token, nil
}
