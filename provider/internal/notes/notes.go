// Package notes limits the length of events' notes, and of other texts, to what the API server accepts.
package notes

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// MaxBytes is the maximum length of an event's note. The API server refuses longer ones (noteLengthLimit in Kubernetes'
// validation of events.k8s.io/v1).
const MaxBytes = 1024

// more marks a shortened note.
const more = " ..."

// Short returns a recorder that shortens long notes. Conditions have the full text.
func Short(recorder events.EventRecorder) events.EventRecorder { return short{recorder} }

type short struct{ events.EventRecorder }

func (s short) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, values ...any) {
	s.EventRecorder.Eventf(regarding, related, eventType, reason, action, "%s", cut(fmt.Sprintf(note, values...)))
}

// cut shortens a note between two characters.
func cut(note string) string {
	if len(note) <= MaxBytes {
		return note
	}
	return Cut(note, MaxBytes-len(more)) + more
}

// Cut shortens a text to at most the given bytes, between two characters. Like the API server it replaces bytes that
// aren't UTF-8 by U+FFFD.
func Cut(text string, most int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
