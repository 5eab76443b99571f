package transport

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// ServiceError says that a server did not do what it was asked for.
type ServiceError struct {
	// Doing is what was being done, e.g. "looking for the release".
	Doing string
	// Status is the HTTP status; 0 where there was no answer.
	Status int
	// Advice is what the user can do about it; it may be empty.
	Advice string
	Err    error
}

func (e *ServiceError) Error() string {
	text := fmt.Sprintf("%s: %v", e.Doing, e.Err)
	if e.Advice != "" {
		text += ": " + e.Advice
	}
	return text
}

func (e *ServiceError) Unwrap() error { return e.Err }

// Answered says what an error of a server's API means to the user, by the answer's status; nil stays
// nil. The answer is nil where there was none.
func Answered(doing string, resp *http.Response, err error, advice map[int]string) error {
	if err == nil {
		return nil
	}
	e := &ServiceError{Doing: doing, Err: err}
	if resp == nil {
		return e
	}
	e.Status = resp.StatusCode
	if wait, ok := askedWait(resp, 0); ok {
		e.Advice = fmt.Sprintf("the server limits requests, and asks to wait %s: run this again then", wait)
		return e
	}
	e.Advice = advice[e.Status]
	return e
}

// HasStatus says whether an error is an answer with one of these statuses.
func HasStatus(err error, statuses ...int) bool {
	var service *ServiceError
	return errors.As(err, &service) && slices.Contains(statuses, service.Status)
}

// IsRefusal says whether a server understood a request and will not do it: the request had no effect,
// and another try has none either.
func IsRefusal(err error) bool {
	var service *ServiceError
	return errors.As(err, &service) && service.Status >= 400 && service.Status < 500 && service.Status != http.StatusRequestTimeout
}
