//go:build !unix

package publish

const noFollow = 0
