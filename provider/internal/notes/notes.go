// Package notes keeps the notes of events, and other texts, as short as the API server takes them.
package notes

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// MaxBytes is how long the note of an event may be. The API server refuses a longer one, and with it the
// event, of which only a line in the log is left (Kubernetes' validation of events.k8s.io/v1,
// noteLengthLimit).
const MaxBytes = 1024

// more is at the end of a note that was cut.
const more = " ..."

// Short returns a recorder that cuts notes which are too long: why no host of many fits, or what an error
// of a host says, is as long as it is. All of it is in the object's conditions.
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

// Cut returns the beginning of a text, of at most so many bytes, which ends between two characters. What a host
// sent needn't be UTF-8: the API server shows such bytes as U+FFFD, and so does Cut.
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
